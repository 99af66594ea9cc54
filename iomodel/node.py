"""A node of a graph: an op, how it walks its tensors, and what a framework does with it.

`Op` says what is read, written and worked; a planner also has to know which element of an input an
element of the output needs. That is `space` (the sizes that the op loops over), the `pattern` of the
axes that it reduces, and its inputs as views.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

from iomodel.op import Op
from iomodel.view import Pattern, View, pattern

if TYPE_CHECKING:
    from iomodel.ops.attention import Attention


@dataclass(frozen=True)
class Library:
    """How a framework's own kernels serve one call: nodes with the same `call` share what it says.

    `kernel`: `together` (all in one kernel), `attention` and `attention-backward` (a flash kernel of
    `problem`), `multi-tensor` (a kernel a node, in chunks), `step` (all in one, in chunks), or `""`
    (each node alone).
    """

    call: int
    kernel: str = ""
    problem: Attention | None = None
    #: The flash kernel that the call names (`fa2`, `fa3`); empty: the best that the GPU runs.
    style: str = ""
    #: Tensor names in `problem` -> what the graph calls them.
    names: tuple[tuple[str, View], ...] = ()


@dataclass(frozen=True)
class Node:
    """An op over views. `reads[i]` is the view behind `op.reads`, before views of one root were merged."""

    op: Op
    reads: tuple[View, ...]
    writes: tuple[View, ...]
    space: tuple[int, ...]
    reduced: tuple[int, ...] = ()
    #: Why this op never shares a kernel with a neighbour, in words; empty: it may.
    alone: str = ""
    #: Reads of these roots are by index: whole rows anywhere in the tensor.
    indexed: tuple[str, ...] = ()
    #: Concatenation and the like: each input fills a part of the output.
    placed: bool = False
    #: Random numbers: run again they differ, so the op is never recomputed.
    random: bool = False
    #: Roots that the op overwrites.
    in_place: tuple[str, ...] = ()
    library: Library = field(default_factory=lambda: Library(-1))
    where: str = ""

    @cached_property
    def elements(self) -> int:
        """Steps of the loop."""
        return prod(self.space)

    @cached_property
    def rows(self) -> Pattern | None:
        """The axes that are reduced, or None."""
        return pattern(self.space, self.reduced) if self.reduced else None

    @cached_property
    def kept(self) -> int:
        """Results of the reduction: the product of the axes that are not reduced."""
        return prod(n for axis, n in enumerate(self.space) if axis not in self.reduced)

    @property
    def out(self) -> str:
        """The name that tells this node from the others."""
        return self.op.writes[0].name
