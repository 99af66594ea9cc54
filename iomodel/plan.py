"""From groups of ops to kernels: the traffic rule, once.

A kernel reads each tensor it needs and did not make; it writes each tensor it made that a later
kernel or the caller needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from iomodel.arrays import Number
from iomodel.kernel import Boundary, Group, Kernel, Plan
from iomodel.op import Op, merge
from iomodel.ops.pointwise import BASE_ISSUE
from iomodel.tensor import Tensor


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
    work = _work(group.ops, tuple(reads.values()), writes)
    return Kernel(group.name, group.ops, tuple(reads.values()), writes, work, group.tiling)


def _work(ops: tuple[Op, ...], reads: tuple[Tensor, ...], writes: tuple[Tensor, ...]) -> dict[str, Number]:
    """Work of ops in one kernel. Alone, an op is a library kernel with its own instruction count;
    together they are generated code: what each op adds, and a base for each tensor touched."""
    if len(ops) == 1:
        return merge(ops[0].work) | dict(ops[0].library)
    work = merge(*(op.work for op in ops))
    if "issue" in work:
        touched: Number = 0.0
        for tensor in (*reads, *writes):
            touched = touched + tensor.elements
        work["issue"] = work["issue"] + BASE_ISSUE * touched
    return work
