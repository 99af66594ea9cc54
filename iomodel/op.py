"""Ops: what is computed. An op names the tensors it touches and the work it is, never bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from iomodel.arrays import Number
from iomodel.tensor import Tensor

#: How an op walks its output. `pointwise`: each element alone. `row`: a reduction along the last
#: axis whose result is used along the same row. `matmul`: a contraction. `gather`: rows picked by
#: index. `reduce`: a reduction that leaves fewer elements. `view`: no kernel at all.
KINDS = ("pointwise", "row", "reduce", "matmul", "gather", "view")


@dataclass(frozen=True, slots=True)
class Op:
    """One operation over tensors.

    `work` maps a resource to an amount: `{"matmul:bf16": flops, "vector:fp32": flops, "exp": calls,
    "issue": thread instructions}`. `saved` are tensors that only a backward pass needs; they are
    among `writes` when training. `library` overrides `work` where a framework's own kernel for this
    op alone does more or less than a compiler's generated code.
    """

    name: str
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    work: Mapping[str, Number]
    kind: str = "pointwise"
    saved: tuple[str, ...] = ()
    library: Mapping[str, Number] = field(default_factory=dict)
    #: How often a library kernel for this op alone reads its first input when a row does not stay on chip.
    row_passes: float = 1.0


def merge(*works: Mapping[str, Number]) -> dict[str, Number]:
    """Work of several ops together: amounts of the same resource add.

    >>> merge({"exp": 1.0}, {"exp": 2.0, "issue": 5.0})
    {'exp': 3.0, 'issue': 5.0}
    """
    total: dict[str, Number] = {}
    for work in works:
        for resource, amount in work.items():
            total[resource] = total[resource] + amount if resource in total else amount
    return total


def matrix_flops(work: Mapping[str, Number]) -> Number:
    """FLOPs of the matrix units in a piece of work."""
    return _sum(work, "matmul:")


def vector_flops(work: Mapping[str, Number]) -> Number:
    """FLOPs of the vector units in a piece of work."""
    return _sum(work, "vector:")


def _sum(work: Mapping[str, Number], prefix: str) -> Number:
    total: Number = 0.0
    for resource, amount in work.items():
        if resource.startswith(prefix):
            total = total + amount
    return total
