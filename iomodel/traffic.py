"""Bytes by level of a plan: compulsory, asked of L2, across DRAM. One rule for every kernel.

A kernel reads each tensor it needs and did not make, and writes each tensor it made that a later
kernel or the caller needs. L2 then decides which of those bytes reach DRAM: what was touched since
the last use of a tensor, against the size of L2, with a soft edge (`residency.miss`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from iomodel.arrays import Number, is_array, maximum, minimum, sqrt
from iomodel.kernel import Kernel, Plan
from iomodel.profile import Profile
from iomodel.residency import edge, miss


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes of a kernel or a plan at each level. `retained` is what was written but never reached
    DRAM: dead before it was evicted, or still in L2 when the last kernel ends. `hits` are reads and
    writes that L2 served without DRAM."""

    compulsory_read: Number = 0.0
    compulsory_write: Number = 0.0
    l2: Number = 0.0
    dram_read: Number = 0.0
    dram_write: Number = 0.0
    retained: Number = 0.0

    @property
    def compulsory(self) -> Number:
        """Each kernel reads and writes each of its tensors once."""
        return self.compulsory_read + self.compulsory_write

    @property
    def dram(self) -> Number:
        """What crosses DRAM, both ways."""
        return self.dram_read + self.dram_write

    def __add__(self, other: Bytes) -> Bytes:
        return Bytes(
            self.compulsory_read + other.compulsory_read,
            self.compulsory_write + other.compulsory_write,
            self.l2 + other.l2,
            self.dram_read + other.dram_read,
            self.dram_write + other.dram_write,
            self.retained + other.retained,
        )


def tensors(kernel: Kernel, written_only: bool = False) -> dict[str, Number]:
    """Bytes of the tensors that a kernel touches (or writes), by name, each once."""
    touched = kernel.writes if written_only else (*kernel.reads, *kernel.writes)
    return {tensor.name: tensor.bytes for tensor in touched}


def distance(kernels: Sequence[Kernel], i: int, j: int, enough: Number, written_only: bool = False) -> Number:
    """Distinct bytes touched between a line's use in kernel i and its use in kernel j > i.

    Both kernels sweep their tensors in order, so on average half of a tensor that only one of them
    touches lies between; one that both touch, or a kernel between them, lies between whole.
    Counting stops once past `enough` (for numbers), beyond which nothing changes.
    """
    first, last = tensors(kernels[i], written_only), tensors(kernels[j], written_only)
    between: dict[str, Number] = {}
    total: Number = 0.0
    for kernel in kernels[i + 1 : j]:
        for name, size in tensors(kernel, written_only).items():
            if name not in between:
                between[name] = size
                total = total + size
        if not is_array(total) and not is_array(enough) and total > enough:
            return total
    for name, size in first.items():
        if name not in between:
            total = total + (size if name in last else 0.5 * size)
    for name, size in last.items():
        if name not in between and name not in first:
            total = total + 0.5 * size
    return total


def plan_bytes(plan: Plan, profile: Profile, warm: bool = False) -> list[Bytes]:
    """Bytes of each kernel of a plan, in order.

    Cold: what the plan did not make itself comes from DRAM at its first use. `warm`: the plan runs
    again and again over the same buffers, so its first readers find what still fits from the run
    before, and its outputs are overwritten by the next.
    """
    kernels = plan.kernels
    read = _dram_reads(kernels, profile, warm)
    written = _dram_writes(plan, profile, warm)
    result: list[Bytes] = []
    for kernel, (from_dram, spilled), to_dram in zip(kernels, read, written, strict=True):
        needs: Number = 0.0
        makes: Number = 0.0
        asked: Number = 0.0
        for tensor in kernel.reads:
            needs = needs + tensor.bytes
            asked = asked + kernel.reread(tensor).asked
        for tensor in kernel.writes:
            makes = makes + tensor.bytes
            asked = asked + kernel.reread(tensor).asked
        result.append(Bytes(needs, makes, asked, from_dram, to_dram + spilled, makes - to_dram))
    return result


def _dram_reads(kernels: Sequence[Kernel], profile: Profile, warm: bool) -> list[tuple[Number, Number]]:
    """(bytes read from DRAM, running sums spilled and read again) of each kernel."""
    has_l2 = "memory.l2" in profile
    enough = profile["memory.l2"] * profile["sustained.l2_edge_high"] if has_l2 else 0.0
    replay = [*kernels, *kernels] if warm and has_l2 else list(kernels)
    last_use: dict[str, int] = {}
    result: list[tuple[Number, Number]] = []
    for j, kernel in enumerate(replay):
        counted = j >= len(replay) - len(kernels)
        from_dram = profile["sustained.code_read"]
        for tensor in kernel.reads if counted else ():
            since = last_use.get(tensor.name)
            size = tensor.bytes
            if since is not None and has_l2:
                size = size * miss(distance(replay, since, j, enough), profile)
            from_dram = from_dram + size + kernel.reread(tensor).again
        spilled: Number = 0.0
        for tensor in kernel.writes if counted else ():
            spilled = spilled + kernel.reread(tensor).again
        if counted:
            result.append((from_dram + spilled, spilled))
        for tensor in (*kernel.reads, *kernel.writes):
            last_use[tensor.name] = j
    return result


def _dram_writes(plan: Plan, profile: Profile, warm: bool) -> list[Number]:
    """Bytes that each kernel's writes put on DRAM by the end of the plan.

    A tensor that nobody keeps dies after its last reader; the allocator gives its memory to the next
    kernel that writes, and dirty lines overwritten in L2 never reach DRAM. Live tensors are written,
    less what L2 still holds dirty at the end (spread over the writers in proportion).
    """
    kernels = plan.kernels
    if "memory.l2" not in profile:
        return [_sum(tensors(kernel, written_only=True).values()) for kernel in kernels]
    l2 = profile["memory.l2"]
    low, high = profile["sustained.l2_dirty_low"], profile["sustained.l2_dirty_high"]
    replay = [*kernels, *kernels] if warm else list(kernels)
    enough = l2 * maximum(high, profile["sustained.l2_edge_high"])
    last_touch = {name: i for i, kernel in enumerate(kernels) for name in tensors(kernel)}
    after = _touched_after(kernels)
    written: list[Number] = []
    left: Number = 0.0
    for i, kernel in enumerate(kernels):
        reaching: Number = 0.0
        own = _sum(tensors(kernel).values())
        for name, size in tensors(kernel, written_only=True).items():
            dead = name not in plan.outputs
            over = next((k for k in range(last_touch[name] + 1, len(kernels)) if kernels[k].writes), None)
            if not dead or over is None:
                over = i + len(kernels) if warm else None
            if over is None:
                # soft min(x, 1) of x = room left in L2 over what this kernel put there
                x = maximum(profile["sustained.l2_keep"] * l2 - after[i], 0.0) / maximum(own, 1.0)
                squared = x * x
                left = left + size * (x / sqrt(sqrt(1.0 + squared * squared)))
                reaching = reaching + size
            else:
                gone = miss(distance(replay, i, over, enough), profile)
                dirty = distance(replay, i, over, enough, written_only=True) / l2
                reaching = reaching + size * maximum(gone, edge(dirty, low, high))
        written.append(reaching)
    total = _sum(written)
    left = minimum(minimum(left, profile["sustained.l2_dirty"] * l2), total)
    share = 1.0 - left / maximum(total, 1.0)
    return [one * share for one in written]


def _touched_after(kernels: Sequence[Kernel]) -> list[Number]:
    """Distinct bytes touched after each kernel until the end."""
    seen: dict[str, Number] = {}
    total: Number = 0.0
    result: list[Number] = []
    for kernel in reversed(kernels):
        result.append(total)
        for name, size in tensors(kernel).items():
            if name not in seen:
                seen[name] = size
                total = total + size
    return result[::-1]


def _sum(sizes: Iterable[Number]) -> Number:
    total: Number = 0.0
    for size in sizes:
        total = total + size
    return total


def memory_peak(plan: Plan) -> Number:
    """Most bytes alive at once: inputs and outputs throughout, each intermediate from the kernel
    that makes it to the last that reads it; what a kernel reads and writes is alive together. What
    ops save for a backward pass that is not in the plan stays until the end."""
    saved = {name for kernel in plan.kernels for op in kernel.ops for name in op.saved}
    last_read: dict[str, int] = {}
    made: set[str] = set()
    alive: dict[str, Number] = {}
    for index, kernel in enumerate(plan.kernels):
        for tensor in kernel.reads:
            last_read[tensor.name] = index
            if tensor.name not in made:
                alive[tensor.name] = maximum(alive.get(tensor.name, 0.0), tensor.bytes)
        made |= {tensor.name for tensor in kernel.writes}
    peak: Number = 0.0
    for index, kernel in enumerate(plan.kernels):
        for tensor in (*kernel.reads, *kernel.writes):  # a launch may touch a part of it
            alive[tensor.name] = maximum(alive.get(tensor.name, 0.0), tensor.bytes)
        peak = maximum(peak, _sum(alive.values()))
        for name in [n for n in alive if n in made and n not in plan.outputs]:
            waits = name in saved and name not in last_read
            if last_read.get(name, -1) <= index and not waits:
                del alive[name]
    return peak
