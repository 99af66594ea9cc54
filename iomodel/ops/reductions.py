"""Rules of reductions, softmax and norms: what is computed along some axes, and used along them or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iomodel.ops.call import Call, Rule, shown
from iomodel.view import FLOATS, View, new

#: PyTorch name -> (FLOPs an element, instructions an element of a framework's kernel).
REDUCTIONS: Mapping[str, tuple[float, float]] = {
    "sum": (1, 15),
    "mean": (1, 15),
    "prod": (1, 15),
    "amax": (1, 15),
    "amin": (1, 15),
    "max": (1, 15),
    "min": (1, 15),
    "any": (1, 15),
    "all": (1, 15),
    "var": (4, 28),
    "std": (4, 28),
    "norm": (2, 15),
    "logsumexp": (4, 33),
    "argmax": (1, 20),
}

#: Instructions an element of a generated online softmax that keeps maximum and sum only.
#: Source: compiled cross-entropy of 8192 x 32000 and 4096 x 128256 logits on an H200, 2026.
ONLINE_ISSUE = 33.0


def reduction(call: Call) -> Sequence[View]:
    """Sum, mean, max, var, ... over `dim` (all axes if absent), optionally `keepdim`."""
    (x,) = call.tensors(1)
    axes = call.axes(x, default=None)
    keepdim = call.flag("keepdim")
    if call.op in ("var", "std"):
        call.flag("unbiased", True)
    if call.op == "norm":
        call.number("p", 2)
    flops, issue = REDUCTIONS[call.op]
    to = x.dtype if "dtype" not in call.attributes else call.dtype()
    call.attribute("dtype", None)
    if call.op in ("any", "all"):
        to = "bool"
    elif call.op == "argmax" or (call.op in ("sum", "prod") and to not in FLOATS):
        to = "int64"
    elif call.op in ("mean", "var", "std", "norm", "logsumexp") and to not in FLOATS:
        raise call.fail(f"{shown(x)} is {x.dtype}; cast it to floating point first")
    fused = ONLINE_ISSUE if call.op == "logsumexp" else None
    return [call.reduce(flops, [x], call.outs[0], axes, to, keepdim, issue=issue, fused=fused)]


def softmax(call: Call) -> Sequence[View]:
    """softmax or log_softmax along one axis (the last if absent)."""
    (x,) = call.tensors(1)
    (axis,) = call.axes(x, default=-1)
    if x.dtype not in FLOATS:
        raise call.fail(f"{shown(x)} is {x.dtype}; cast it to floating point first")
    return [call.row(call.op, [x], call.outs[0], (axis,))]


def norm(call: Call) -> Sequence[View]:
    """layer_norm and rms_norm over the last axes, those of the weight (or `normalized_shape`, or one).

    `train: true` keeps mean and rstd (rms_norm: rstd), an fp32 a row each.
    """
    x, *affine = call.tensors(1, 3 if call.op == "layer_norm" else 2)
    call.number("eps", 1e-5)
    default = list(affine[0].shape) if affine else [x.shape[-1]] if x.shape else []
    shape = call.integers("normalized_shape", default)
    if not shape or x.shape[-len(shape) :] != shape:
        raise call.fail(f"normalises over {list(shape)}, and {shown(x)} does not end so")
    for weight in affine:
        if weight.shape != shape:
            raise call.fail(f"weight {shown(weight)} does not match the normalised shape {list(shape)}")
    axes = range(len(x.shape) - len(shape), len(x.shape))
    train = call.flag("train", False) or len(call.outs) > 1
    y = call.row(call.op, [x, *affine], call.outs[0], tuple(axes), train=train)
    statistics = call.nodes[-1].writes[1:]
    if len(call.outs) > 1 + len(statistics):
        raise call.fail(f"has {1 + len(statistics)} outputs at most (and its statistics)")
    return [y, *statistics[: len(call.outs) - 1]]


def batch_norm(call: Call) -> Sequence[View]:
    """y = (x - mean) rstd weight + bias a channel (axis 1); statistics over the batch where training.

    Training reads x twice: once for the statistics, once to normalise; running averages are updated.
    Inputs: x, running mean, running var, [weight, bias].
    """
    x, mean, var, *affine = call.tensors(3, 5)
    train = call.flag("training", False)
    call.number("eps", 1e-5)
    call.number("momentum", 0.1)
    if len(x.shape) < 2:
        raise call.fail(f"{shown(x)} needs a batch and a channel axis")
    channels = x.shape[1]
    for one in (mean, var, *affine):
        if one.shape != (channels,):
            raise call.fail(f"{shown(one)} is not one value for each of {channels} channels")
    spread = (1, channels, *(1 for _ in x.shape[2:]))
    if train:
        axes = tuple(a for a in range(len(x.shape)) if a != 1)
        batch_mean = call.reduce(5, [x], call.fresh("mean"), axes, "fp32", name="batch_norm_statistics", issue=28)
        batch_rstd = new(call.fresh("rstd"), (channels,), "fp32")
        call.pointwise(
            "rsqrt", [batch_mean, mean, var], batch_rstd.root, "fp32", name="batch_norm_update", shape=(channels,)
        )
        mean, var = batch_mean, batch_rstd
    operands = [x, *(_as(one, spread) for one in (mean, var, *affine))]
    return [call.pointwise("mul", operands, call.outs[0], x.dtype, name="batch_norm")]


def group_norm(call: Call) -> Sequence[View]:
    """y = (x - mean) rstd weight + bias, with statistics over each of `num_groups` groups of channels."""
    x, *affine = call.tensors(1, 3)
    groups = call.whole("num_groups")
    call.number("eps", 1e-5)
    if len(x.shape) < 2 or x.shape[1] % groups:
        raise call.fail(f"{groups} groups do not divide the channels of {shown(x)}")
    batch, channels, *rest = x.shape
    for one in affine:
        if one.shape != (channels,):
            raise call.fail(f"{shown(one)} is not one value for each of {channels} channels")
    cut = new(x.root, (batch, groups, channels // groups, *rest), x.dtype)
    axes = tuple(range(2, len(cut.shape)))
    mean = call.reduce(
        5, [x], call.fresh("mean"), axes, "fp32", name="group_norm_statistics", issue=28, space=cut.shape
    )
    ones = tuple(1 for _ in axes)
    spread = [_as(one, (1, groups, channels // groups, *(1 for _ in rest))) for one in affine]
    y = call.pointwise(
        "mul", [cut, _as(mean, (batch, groups, *ones)), *spread], call.outs[0], x.dtype, name="group_norm"
    )
    return [new(y.root, x.shape, y.dtype)]


def _as(view: View, shape: Sequence[int]) -> View:
    return new(view.root, shape, view.dtype)


RULES: dict[str, Rule] = {
    **dict.fromkeys(REDUCTIONS, reduction),
    "softmax": softmax,
    "log_softmax": softmax,
    "layer_norm": norm,
    "rms_norm": norm,
    "batch_norm": batch_norm,
    "group_norm": group_norm,
}
