"""Row ops: a reduction along the last axis whose result is used along the same row."""

from __future__ import annotations

from iomodel.arrays import Number, where
from iomodel.op import Op
from iomodel.ops.pointwise import PerElement, _work
from iomodel.tensor import Tensor

#: Softmax: max, subtract, exp, sum, divide. Norms: statistics, then subtract, scale. Instruction
#: counts as in `pointwise`, from the same measurements; softmax's depend on the row (`_softmax_issue`).
COSTS: dict[str, PerElement] = {
    "softmax": PerElement(4, 1, 77.0, 55.0),
    "log_softmax": PerElement(4, 1, 77.0, 55.0),
    "layer_norm": PerElement(7, 0, 30.6, 22.0),
    "rms_norm": PerElement(4, 0, 8.0, 11.0),
}

#: Library softmax kernels keep a row of up to this many bytes in registers.
SOFTMAX_REGISTER_ROW = 24 * 1024.0

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
    issue, library = cost.fused, cost.library
    if name.endswith("softmax"):
        issue, library = _softmax_issue(output)
    return Op(
        name=name,
        reads=inputs,
        writes=(output, *saved),
        work=_work(output.elements, cost, issue),
        kind="row",
        saved=tuple(t.name for t in saved),
        library={"issue": output.elements * library},
    )


def _softmax_issue(output: Tensor) -> tuple[Number, Number]:
    """(generated, library) instructions an element: a warp holds rows up to 1024 columns, two warps
    up to 2048; then registers of a block up to 24 KiB a row; then a loop over the row."""
    columns = output.shape[-1]
    row = output.bytes / (output.elements / columns)
    long = where(row <= SOFTMAX_REGISTER_ROW, 77.0, 35.0)
    library = where(columns <= 1024, 38.0, where(columns <= 2048, 57.0, long))
    return where(columns <= 1024, 20.0, 55.0), library
