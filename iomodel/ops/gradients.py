"""Rules of backward ops, one for each forward op that has its own; `backward` composes the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from iomodel.node import Node
from iomodel.op import Op
from iomodel.ops.call import Call, Rule, merged, shown
from iomodel.tensor import Tensor
from iomodel.view import View, new

#: PyTorch name -> cost, for gradients from (grad, what the forward op kept).
POINTWISE: Mapping[str, str] = {
    "gelu_backward": "gelu",
    "silu_backward": "silu",
    "tanh_backward": "mul",
    "sigmoid_backward": "mul",
    "threshold_backward": "op",
    "dropout_backward": "mul",
}


def _pointwise(cost: str) -> Rule:
    def rule(call: Call) -> Sequence[View]:
        grad, kept = call.tensors(2)
        call.same_shape(grad, kept)
        if call.op == "gelu_backward":
            call.choice("approximate", ("none", "tanh"), "none")
        if call.op == "dropout_backward":
            call.number("p", 0.5)
        return [call.pointwise(cost, [grad, kept], call.outs[0], grad.dtype)]

    return rule


def softmax_backward(call: Call) -> Sequence[View]:
    """ds = y (dy - sum(y dy)) along the axis: reads dy and y, writes ds.

    A framework multiplies dy and y in a kernel before, and keeps dy until this one has ended: a third
    input is held, not read.
    """
    grad, y, *held = call.tensors(2, 3)
    call.same_shape(grad, y, *held)
    (axis,) = call.axes(grad, default=-1)
    cost = "log_softmax" if call.op.startswith("log") else "softmax"
    result = call.row(cost, [grad, y], call.outs[0], (axis,), name=call.op)
    if held:
        node = call.nodes[-1]
        op = replace(node.op, reads=(*node.op.reads, Tensor(held[0].root, (0.0,), held[0].dtype)))
        call.nodes[-1] = replace(node, op=op, reads=(*node.reads, held[0]))
    return [result]


def norm_backward(call: Call) -> Sequence[View]:
    """dx from (dy, x, statistics..., [weight]); further outputs are the gradients of weight and bias.

    dx reduces along the row; the gradients of weight and bias reduce over all rows: another kernel.
    """
    layer = call.op == "layer_norm_backward"
    count = 2 if layer else 1
    grad, x, *rest = call.tensors(2 + count, 3 + count)
    statistics, weight = rest[:count], rest[count:]
    call.same_shape(grad, x)
    width = len(weight[0].shape) if weight else 1
    axes = tuple(range(len(x.shape) - width, len(x.shape)))
    rows = prod(n for a, n in enumerate(x.shape) if a not in axes)
    spread = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    for one in statistics:
        if one.elements != rows:
            raise call.fail(f"{shown(one)} is not one value for each of {rows} rows")
    per_row = [new(one.root, spread, one.dtype) for one in statistics]
    cost = "layer_norm" if layer else "rms_norm"
    dx = call.row(cost, [grad, x, *per_row, *weight], call.outs[0], axes, name=call.op)
    found = [dx]
    if len(call.outs) > 1:
        if len(call.outs) > 3 or (not layer and len(call.outs) > 2):
            raise call.fail("has the gradients of x, weight (and bias) as outputs")
        outer = tuple(a for a in range(len(x.shape)) if a not in axes)
        shape = tuple(x.shape[a] for a in axes)
        grads = [new(name, shape, grad.dtype) for name in call.outs[1:]]
        elements = float(x.elements)
        op = Op(
            f"{call.op}_weights",
            merged([grad, x, *per_row]),
            tuple(g.tensor() for g in grads),
            {"vector:fp32": 4.0 * elements, "issue": 2.0 * elements},
            "reduce",
            library={"issue": 20.0 * elements},
        )
        call.add(Node(op, (grad, x, *per_row), tuple(grads), x.shape, outer))
        found += grads
    return found


RULES: dict[str, Rule] = {
    **{name: _pointwise(cost) for name, cost in POINTWISE.items()},
    "softmax_backward": softmax_backward,
    "log_softmax_backward": softmax_backward,
    "layer_norm_backward": norm_backward,
    "rms_norm_backward": norm_backward,
}
