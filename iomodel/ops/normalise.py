"""Row ops: a reduction along the last axis whose result is used along the same row."""

from __future__ import annotations

from iomodel.op import Op
from iomodel.ops.pointwise import PerElement, _work
from iomodel.tensor import Tensor

#: Softmax: max, subtract, exp, sum, divide. Norms: statistics, then subtract, scale. Instruction
#: counts as in `pointwise`, from the same measurements.
COSTS: dict[str, PerElement] = {
    "softmax": PerElement(4, 1, 77.4, 62.8),
    "log_softmax": PerElement(4, 1, 77.4, 62.8),
    "layer_norm": PerElement(7, 0, 33.6, 22.9),
    "rms_norm": PerElement(4, 0, 13.6, 11.7),
}

#: Statistics that training keeps, one fp32 a row each.
STATISTICS: dict[str, tuple[str, ...]] = {
    "softmax": (),
    "log_softmax": (),
    "layer_norm": ("mean", "rstd"),
    "rms_norm": ("rstd",),
}


def row_op(name: str, inputs: tuple[Tensor, ...], output: Tensor, train: bool = False) -> Op:
    """A row op over the last axis of its first input; `train` keeps the row statistics.

    >>> x, y = Tensor("x", (4.0, 8.0), "bf16"), Tensor("y", (4.0, 8.0), "bf16")
    >>> [t.name for t in row_op("layer_norm", (x,), y, train=True).writes]
    ['y', 'y.mean', 'y.rstd']
    """
    cost = COSTS[name]
    rows = output.shape[:-1]
    saved = tuple(Tensor(f"{output.name}.{s}", rows, "fp32") for s in STATISTICS[name]) if train else ()
    return Op(
        name=name,
        reads=inputs,
        writes=(output, *saved),
        work=_work(output.elements, cost, cost.fused),
        kind="row",
        saved=tuple(t.name for t in saved),
        library={"issue": output.elements * cost.library},
    )
