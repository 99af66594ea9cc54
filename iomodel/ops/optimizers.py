"""Rules of optimizer steps: the kernels that a framework launches one by one, and how it groups them.

Inputs are [param, grad, state...] and, in mixed precision, the fp32 master copy last: it is updated
and cast to the parameter. All states are updated in place. `step: single` launches every op alone,
`multi-tensor` too but for many tensors at once (in chunks of 320 thread blocks x 65536 elements),
`fused` all in one.

Source: PyTorch 2.11, torch/optim (single-tensor and foreach), aten/native/cuda/ForeachFunctors.cuh,
MultiTensorApply.cuh (320 blocks, 65536 elements each).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iomodel.ops.call import Call, Rule, shown
from iomodel.view import View, new

STEPS = {"single": "", "multi-tensor": "multi-tensor", "fused": "step"}

#: Optimizer -> names of its states.
STATES: Mapping[str, tuple[str, ...]] = {
    "sgd": ("momentum",),
    "adam": ("m", "v"),
    "adamw": ("m", "v"),
    "lion": ("m",),
}


def _step(call: Call) -> Sequence[View]:
    names = STATES[call.op]
    plain_sgd = call.op == "sgd" and len(call.inputs) == 2
    states = () if plain_sgd else names
    param, grad, *rest = call.tensors(2 + len(states), 3 + len(states))
    call.same_shape(param, grad, *rest)
    kernel = STEPS[call.choice("step", tuple(STEPS), "single")]
    decay = call.number("weight_decay", 0.01 if call.op == "adamw" else 0.0)
    for name in ("lr", "beta1", "beta2", "eps", "momentum"):
        call.number(name, 0.0)
    state, master = rest[: len(states)], rest[len(states) :]
    target = master[0] if master else param
    if not target.is_whole:
        raise call.fail(f"{shown(target)} is a view; optimizers update whole tensors")

    def op(name: str, cost: str, *inputs: View, onto: View | None = None, out: str = "") -> View:
        result = onto.root if onto is not None else call.fresh(out or name)
        return call.pointwise(cost, inputs, result, name=name, onto=onto, kernel=kernel)

    if master and grad.dtype != target.dtype:
        grad = call.pointwise("cast", [grad], call.fresh("grad"), target.dtype, name="cast", kernel=kernel)
    if call.op == "adamw" and decay:
        target = op("mul", "scale", target, onto=target)
    elif decay:
        grad = op("add", "add", grad, target, out="decayed")
    if call.op in ("adam", "adamw"):
        m, v = state
        m = op("lerp", "op", m, grad, onto=m)
        v = op("mul", "scale", v, onto=v)
        v = op("addcmul", "op", v, grad, onto=v)
        root = op("sqrt", "sqrt", v)
        denominator = op("div", "scale", root)
        denominator = op("add", "scale", denominator, onto=denominator)
        target = op("addcdiv", "op", target, m, denominator, onto=target)
        state = [m, v]
    elif call.op == "lion":
        (m,) = state
        update = op("lerp", "op", m, grad, out="update")
        update = op("sign", "op", update, onto=update)
        target = op("add", "add", target, update, onto=target)
        state = [op("lerp", "op", m, grad, onto=m)]
    elif states:
        (m,) = state
        m = op("mul", "scale", m, onto=m)
        m = op("add", "add", m, grad, onto=m)
        target = op("add", "add", target, m, onto=target)
        state = [m]
    else:
        target = op("add", "add", target, grad, onto=target)
    if master:
        param = call.pointwise("cast", [target], param.root, param.dtype, name="cast", onto=param, kernel=kernel)
        return [param, *state, target][: len(call.outs)]
    return [target, *state][: len(call.outs)]


def with_counter(call: Call) -> Sequence[View]:
    """An optimizer step; fused ones count their steps on the GPU, in a tiny kernel of its own."""
    if call.attributes.get("step") == "fused" and call.op in ("adam", "adamw"):
        counter = new(call.fresh("count"), (1,), "fp32")
        call.pointwise("scale", [counter], counter.root, name="count", onto=counter, alone=COUNTER)
    return _step(call)


COUNTER = "the step count must be written before any thread block reads it"

RULES: dict[str, Rule] = dict.fromkeys(STATES, with_counter)
