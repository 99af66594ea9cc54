"""Kernels: ops launched together, and how often each tensor they touch is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from iomodel.arrays import Number
from iomodel.op import Op
from iomodel.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Reread:
    """How a tiling touches one tensor more than once.

    `asked` bytes are requested of L2 by the SMs in all (each re-read by another tile counts).
    `again` bytes come from DRAM again, beyond the first read, because L2 lost them in between; of
    a written tensor that is re-read (a running sum kept in memory) as many are written again.
    """

    asked: Number
    again: Number = 0.0


#: The fixed cost of an ordinary kernel: one `sustained.floor`.
FLOOR: Mapping[str, Number] = {"floor": 1.0}


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a kernel cuts its work: what is read again, what the hardware executes, in how many blocks.

    `executed` replaces amounts of the ops' work where the hardware does more than the algorithm
    needs: tiles that stick out over the edge, masked halves of diagonal blocks, idle SMs in a last
    wave. `style` names the sustained constants that apply (`<style>.matmul`, `<style>.memory`).
    `fixed` counts costs in seconds by the name of their constant. `speed` scales the sustained
    matrix rate (a head dim that suits the tile less).
    """

    rereads: Mapping[str, Reread] = field(default_factory=dict)
    executed: Mapping[str, Number] = field(default_factory=dict)
    style: str = "stream"
    fixed: Mapping[str, Number] = field(default_factory=lambda: FLOOR)
    speed: Number = 1.0
    blocks: Number | None = None


#: A kernel that streams: each tensor once, no padding.
STREAM = Tiling()


@dataclass(frozen=True, slots=True)
class Group:
    """Ops chosen to share a launch, before the plan knows what later kernels need."""

    name: str
    ops: tuple[Op, ...]
    tiling: Tiling = STREAM
    generated: bool = False  # by a compiler, from the ops; else a library's own kernel


@dataclass(frozen=True, slots=True)
class Kernel:
    """A group in its plan: the tensors it reads and writes are settled."""

    name: str
    ops: tuple[Op, ...]
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    work: Mapping[str, Number]
    tiling: Tiling = STREAM

    def reread(self, tensor: Tensor) -> Reread:
        """How often a tensor is asked for; once unless the tiling says otherwise."""
        return self.tiling.rereads.get(tensor.name) or Reread(tensor.bytes)


@dataclass(frozen=True, slots=True)
class Boundary:
    """Two kernels that stayed apart, and why."""

    before: str
    after: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Kernels in the order of launch, the tensors that the caller keeps, and the boundaries' reasons."""

    name: str
    kernels: tuple[Kernel, ...]
    outputs: tuple[str, ...]
    boundaries: tuple[Boundary, ...] = ()
