"""Rules of losses and of position embeddings and quantisation: composites of a few kernels each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from iomodel.node import Node
from iomodel.op import Op
from iomodel.ops.call import Call, Rule, shown
from iomodel.ops.reductions import ONLINE_ISSUE
from iomodel.ops.shapes import halves
from iomodel.tensor import Tensor
from iomodel.view import INTEGERS, View, broadcast, new


def cross_entropy(call: Call) -> Sequence[View]:
    """-log softmax(x)[target], averaged: log_softmax, then the picked values and their mean.

    x [..., classes], target one class a row. A framework launches two kernels and writes the log
    probabilities; fused, a row is read once and one number of it is kept.
    A second output names the log probabilities, for a backward pass; with `keep: lse` it is the fp32
    log-sum-exp of each row, from which a fused backward pass computes the softmax again.
    """
    x, target = call.tensors(2)
    if call.choice("keep", ("log_probs", "lse"), "log_probs") == "lse":
        lse = call.reduce(
            4,
            [x],
            call.outs[1] if len(call.outs) == 2 else call.fresh("lse"),
            (len(x.shape) - 1,),
            "fp32",
            name="logsumexp",
            issue=ONLINE_ISSUE,
            fused=ONLINE_ISSUE,
        )
        loss = _picked(call, x, target, new(lse.root, (*lse.shape, 1), lse.dtype))
        return [loss, lse][: len(call.outs)]
    out = call.outs[1] if len(call.outs) == 2 else call.fresh("log_probs")
    log_probs = call.row("log_softmax", [x], out, (len(x.shape) - 1,), name="log_softmax")
    loss = _picked(call, log_probs, target)
    return [loss, log_probs][: len(call.outs)]


def nll_loss(call: Call) -> Sequence[View]:
    """-log_probs[target], averaged."""
    log_probs, target = call.tensors(2)
    return [_picked(call, log_probs, target)]


def _picked(call: Call, log_probs: View, target: View, *extra: View) -> View:
    reduction = call.choice("reduction", ("mean", "sum", "none"), "mean")
    call.number("label_smoothing", 0.0)
    rows = log_probs.shape[:-1]
    if target.shape != rows or target.dtype not in INTEGERS:
        raise call.fail(f"target {shown(target)} ({target.dtype}) is not one class for each of {list(rows)}")
    each = new(call.outs[0] if reduction == "none" else call.fresh("each"), rows, "fp32")
    picked = Tensor(log_probs.root, (float(each.elements),), log_probs.dtype)
    reads = (picked, target.tensor(), *(one.tensor() for one in extra))
    work = {"vector:fp32": float(each.elements), "issue": 50.0 * each.elements}
    op = Op("nll", reads, (each.tensor(),), work, "reduce")
    axes = (len(log_probs.shape) - 1,)
    call.add(Node(op, (log_probs, target, *extra), (each,), log_probs.shape, axes), "together")
    if reduction == "none":
        return each
    every = range(len(rows))
    return call.reduce(1, [each], call.outs[0], tuple(every), log_probs.dtype, name=reduction, kernel="together")


def nll_loss_backward(call: Call) -> Sequence[View]:
    """Gradient of the log probabilities: zero but for one value a row."""
    log_probs, target = call.tensors(2)
    result = new(call.outs[0], log_probs.shape, log_probs.dtype)
    work = {"issue": 1.0 * result.elements}
    op = Op(call.op, (target.tensor(),), (result.tensor(),), work, "gather")
    call.add(Node(op, (target,), (result,), result.shape))
    return [result]


def cross_entropy_backward(call: Call) -> Sequence[View]:
    """Gradient of x: softmax less one at the target, times 1 / rows.

    From (log_probs, target) as a framework does it: the gradient of the log probabilities, then
    log_softmax's backward. From (x, target, log-sum-exp) the softmax is computed again, in one pass.
    """
    source, target, *lse = call.tensors(2, 3)
    if lse:
        each = new(lse[0].root, (*lse[0].shape, 1), lse[0].dtype)
        picked = new(target.root, (*target.shape, 1), target.dtype)
        return [call.pointwise("exp", [source, each, picked], call.outs[0], source.dtype)]
    log_probs = source
    grad = new(call.fresh("grad"), source.shape, source.dtype)
    work = {"issue": 1.0 * grad.elements}
    op = Op("nll_backward", (target.tensor(),), (grad.tensor(),), work, "gather")
    call.add(Node(op, (target,), (grad,), grad.shape))
    axes = (len(source.shape) - 1,)
    return [call.row("log_softmax", [grad, log_probs], call.outs[0], axes, name="log_softmax_backward")]


def mse_loss(call: Call) -> Sequence[View]:
    """(x - y)^2, averaged: a pointwise kernel and a reduction."""
    x, y = call.tensors(2)
    call.same_shape(x, y)
    square = call.pointwise("sub", [x, y], call.fresh("square"), name="square_difference")
    return [call.reduce(1, [square], call.outs[0], tuple(range(len(x.shape))), x.dtype, name="mean")]


def rope(call: Call) -> Sequence[View]:
    """x cos + rotate_half(x) sin over the last axis; tables cos and sin broadcast over heads.

    As a framework runs it: negate the second half, concatenate, two products with a table, a sum.
    Source: Su et al., RoFormer (2021); the five kernels as Hugging Face's `apply_rotary_pos_emb`.
    """
    x, cos, sin = call.tensors(3)
    first, second = halves(call, x)
    negated = call.pointwise("op", [second], call.fresh("negated"), name="neg")
    turned = call.pointwise(
        "copy", [negated, first], call.fresh("rotated"), x.dtype, name="cat", shape=x.shape, placed=True
    )
    a = call.pointwise("mul", [x, cos], call.fresh("cos"), name="mul")
    b = call.pointwise("mul", [turned, sin], call.fresh("sin"), name="mul")
    return [call.pointwise("add", [a, b], call.outs[0], name="add")]


def quantize(call: Call) -> Sequence[View]:
    """x / scale in a narrow dtype. Without a scale given: one a `row` (or `tensor`) from the largest value.

    A scale a row is found and used in one pass over the row; one for the whole tensor needs all of it first.
    """
    x, *given = call.tensors(1, 2)
    to = call.dtype()
    per = call.choice("per", ("row", "tensor"), "row")
    if given:
        return [call.pointwise("mul", [x, *given], call.outs[0], to)]
    axes = (len(x.shape) - 1,) if per == "row" else tuple(range(len(x.shape)))
    name = call.outs[1] if len(call.outs) == 2 else call.fresh("scale")
    scale = call.reduce(1, [x], name, axes, "fp32", keepdim=True, name="amax")
    q = call.pointwise("div", [x, scale], call.outs[0], to)
    return [q, scale][: len(call.outs)]


def dequantize(call: Call) -> Sequence[View]:
    """q times its scale: one for the tensor, a row, or each `group` of elements along an axis."""
    q, scale = call.tensors(2)
    to = call.dtype(default="bf16")
    if broadcast([q.shape, scale.shape]) != q.shape:
        if q.elements % max(scale.elements, 1):
            raise call.fail(f"scale {shown(scale)} does not divide {shown(q)} into groups")
        scale = new(scale.root, (scale.elements,), scale.dtype)
        operands = [q, new(scale.root, (1,), scale.dtype)]
        y = call.pointwise("scale", operands, call.outs[0], to)
        node = call.nodes[-1]
        reads = tuple(scale.tensor() if t.name == scale.root else t for t in node.op.reads)
        call.nodes[-1] = replace(node, op=replace(node.op, reads=reads))
        return [y]
    return [call.pointwise("scale", [q, scale], call.outs[0], to)]


RULES: dict[str, Rule] = {
    "cross_entropy": cross_entropy,
    "nll_loss": nll_loss,
    "nll_loss_backward": nll_loss_backward,
    "cross_entropy_backward": cross_entropy_backward,
    "mse_loss": mse_loss,
    "rope": rope,
    "quantize": quantize,
    "dequantize": dequantize,
}
