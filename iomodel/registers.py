"""Registers of a generated kernel, estimated from the values of an element that are alive at once.

An estimate, not a compiler: a thread works on 4 elements side by side, keeps each alive value of each in a
register, and needs about 16 more for addresses and constants. (Compiled kernels of one op on an H200 hold 16 to
40 registers, what an op needs for itself included; this gives them 24 to 28.) Beyond 255 a thread's values spill
to memory and come back.

Source: configs/measurements/h200_instructions.csv; 255 registers a thread: CUDA C++ Programming Guide, table of
compute capabilities.
"""

from __future__ import annotations

from iomodel.arrays import Number
from iomodel.kernel import Kernel
from iomodel.residency import Facts

ELEMENTS, FIXED, MOST = 4, 16, 255
#: Resident warps an SM that keep its schedulers busy.
ENOUGH_WARPS = 48.0


def is_generated(kernel: Kernel) -> bool:
    """Whether a kernel is several streaming ops in one: a library's own kernels fit by construction."""
    return len(kernel.ops) > 1 and kernel.tiling.style == "stream"


def live_values(kernel: Kernel) -> int:
    """Most values of one element alive at once: an input from its first use to its last, a result from
    the op that makes it to its last use.

    Rows that broadcast count as values too: they are loaded with the element that needs them.
    """
    last_use = {t.name: i for i, op in enumerate(kernel.ops) for t in op.reads}
    alive: set[str] = set()
    most = 0
    for index, op in enumerate(kernel.ops):
        alive |= {t.name for t in (*op.reads, *op.writes)}
        most = max(most, len(alive))
        alive = {name for name in alive if last_use.get(name, -1) > index}
    return most


def registers(kernel: Kernel) -> int:
    """16 + 4 x live values, whether or not a thread has that many."""
    return FIXED + ELEMENTS * live_values(kernel)


def occupancy(kernel: Kernel, gpu: Facts) -> Number:
    """Resident threads over the most that an SM holds, as registers allow: at most 1."""
    if not is_generated(kernel) or "sm.registers" not in gpu or "sm.max_threads" not in gpu:
        return 1.0
    threads = gpu["sm.registers"] / 4 / min(registers(kernel), MOST)
    return min(1.0, threads / gpu["sm.max_threads"])


def issue_slowdown(kernel: Kernel, gpu: Facts) -> Number:
    """How much slower instructions issue when too few warps are resident; 1 where enough are."""
    share = occupancy(kernel, gpu)
    return 1.0 if share == 1.0 else max(1.0, ENOUGH_WARPS / (share * gpu["sm.max_threads"] / 32))


def spilled_bytes(kernel: Kernel) -> Number:
    """Bytes that registers past 255 a thread move: each value past the limit is written and read once, 4 bytes
    an element."""
    over = (registers(kernel) - MOST) / ELEMENTS if is_generated(kernel) else 0.0
    if over <= 0:
        return 0.0
    return 8.0 * over * kernel.ops[-1].writes[0].elements
