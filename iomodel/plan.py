"""From groups of ops to kernels: the traffic rule, once.

A kernel reads each tensor it needs and did not make; it writes each tensor it made that a later
kernel or the caller needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from iomodel.arrays import Number
from iomodel.kernel import Boundary, Group, Kernel, Plan
from iomodel.op import merge
from iomodel.ops.pointwise import BASE_ISSUE, BASE_ISSUE_WIDE
from iomodel.tensor import Tensor, itemsize


def assemble(
    name: str,
    groups: Sequence[Group],
    outputs: Iterable[str],
    boundaries: Sequence[Boundary] = (),
) -> Plan:
    """Kernels from groups, in order; `outputs` are the tensors that the caller needs.

    A tensor that an op saves for the backward pass is always written.
    """
    wanted = tuple(outputs)
    needed = set(wanted)
    kernels: list[Kernel] = []
    for group in reversed(groups):
        kernel = _kernel(group, needed)
        kernels.append(kernel)
        needed |= {tensor.name for tensor in kernel.reads}
    return Plan(name, tuple(reversed(kernels)), wanted, tuple(boundaries))


def _kernel(group: Group, needed: set[str]) -> Kernel:
    made: dict[str, Tensor] = {}
    reads: dict[str, Tensor] = {}
    saved: set[str] = set()
    for op in group.ops:
        for tensor in op.reads:
            if tensor.name not in made:
                reads.setdefault(tensor.name, tensor)
        for tensor in op.writes:
            made[tensor.name] = tensor
        saved |= set(op.saved)
    writes = tuple(t for t in made.values() if t.name in needed or t.name in saved)
    work = _work(group, (*reads.values(), *writes))
    return Kernel(group.name, group.ops, tuple(reads.values()), writes, work, group.tiling)


def _work(group: Group, touched: tuple[Tensor, ...]) -> dict[str, Number]:
    """Work of ops in one kernel. A library kernel has its own instruction count; generated code is
    what each op adds, and a base for each element loaded or stored."""
    work = merge(*(op.work for op in group.ops))
    if not group.generated:
        return work | merge(*(op.library for op in group.ops))
    if "issue" in work:
        for tensor in touched:
            base = BASE_ISSUE_WIDE if itemsize(tensor.dtype) > 2 else BASE_ISSUE
            work["issue"] = work["issue"] + base * tensor.elements
    return work
