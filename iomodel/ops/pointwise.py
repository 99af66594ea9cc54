"""Pointwise ops: each output element depends on the same element of its inputs.

FLOPs an element count an add, a multiply, a compare or a divide as one and a transcendental function
as one call of the special-function unit (`exp`). Instructions an element (`issue`) are thread
instructions executed: `library` is a framework's own kernel for the op alone, loads and conversions
included; `fused` what the op adds to a generated kernel that already holds its input in registers.

Source of the instruction counts: `smsp__thread_inst_executed` on an H200, PyTorch 2.11 eager and
compiled kernels over 4096x8192 bf16 elements, 2026. A compiled copy kernel takes 2.25, which is
the loads, stores and conversions; the rest is the op.
"""

from __future__ import annotations

from dataclasses import dataclass

from iomodel.arrays import Number
from iomodel.op import Op
from iomodel.tensor import Tensor


@dataclass(frozen=True, slots=True)
class PerElement:
    """Cost of a pointwise op for one output element."""

    flops: float
    exp: float
    library: float
    fused: float


#: Instructions that a generated kernel spends on each element it loads or stores: of 16-bit (with
#: conversion, several a load) and of wider tensors.
BASE_ISSUE, BASE_ISSUE_WIDE = 0.9, 1.25

COSTS: dict[str, PerElement] = {
    "op": PerElement(1, 0, 5.4, 0.5),
    "copy": PerElement(0, 0, 5.4, 0.0),
    "add": PerElement(1, 0, 7.4, 0.5),
    "sub": PerElement(1, 0, 7.4, 0.5),
    "mul": PerElement(1, 0, 7.3, 0.9),
    "div": PerElement(1, 0, 5.4, 3.0),
    "scale": PerElement(1, 0, 5.4, 0.5),
    "bias": PerElement(1, 0, 57.0, 2.4),
    "relu": PerElement(1, 0, 10.0, 2.5),
    "leaky_relu": PerElement(2, 0, 6.4, 5.4),
    "abs": PerElement(1, 0, 5.4, 0.5),
    "clamp": PerElement(2, 0, 12.4, 9.0),
    "where": PerElement(1, 0, 8.4, 9.3),
    "pow": PerElement(1, 1, 8.3, 4.0),
    "sqrt": PerElement(1, 1, 14.3, 12.9),
    "rsqrt": PerElement(1, 1, 8.3, 3.9),
    "exp": PerElement(1, 1, 12.5, 11.3),
    "log": PerElement(1, 0, 29.4, 29.0),
    "sin": PerElement(1, 1, 28.9, 28.5),
    "cos": PerElement(1, 1, 28.9, 28.5),
    "erf": PerElement(1, 1, 26.1, 30.4),
    "tanh": PerElement(1, 2, 19.5, 16.0),
    "sigmoid": PerElement(3, 2, 24.3, 14.0),
    "silu": PerElement(4, 2, 24.3, 20.3),
    "gelu": PerElement(5, 1, 30.1, 34.4),
    "gelu_tanh": PerElement(9, 2, 26.5, 22.8),
    "swiglu": PerElement(5, 2, 31.6, 22.0),
    "dropout": PerElement(2, 0, 38.0, 74.0),
    "cast": PerElement(0, 0, 8.0, 1.0),
}


def pointwise(
    name: str,
    inputs: tuple[Tensor, ...],
    output: Tensor,
    saved: tuple[Tensor, ...] = (),
) -> Op:
    """A pointwise op: `elements(output)` times its cost an element.

    Inputs that broadcast (a bias row) are read at their own size; `saved` tensors (dropout's mask)
    are written too.

    >>> x, y = Tensor("x", (4.0, 8.0), "bf16"), Tensor("y", (4.0, 8.0), "bf16")
    >>> pointwise("silu", (x,), y).work["exp"]
    64.0
    """
    cost = COSTS[name]
    elements = output.elements
    return Op(
        name=name,
        reads=inputs,
        writes=(output, *saved),
        work=_work(elements, cost, cost.fused),
        saved=tuple(t.name for t in saved),
        library={"issue": elements * cost.library},
    )


def _work(elements: Number, cost: PerElement, issue: float) -> dict[str, Number]:
    work: dict[str, Number] = {"issue": elements * issue}
    if cost.flops:
        work["vector:fp32"] = elements * cost.flops
    if cost.exp:
        work["exp"] = elements * cost.exp
    return work
