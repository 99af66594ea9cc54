"""Rules of elementwise ops by their PyTorch names. Costs an element are in `pointwise.COSTS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from iomodel.ops.call import Call, Rule
from iomodel.ops.pointwise import COSTS
from iomodel.view import FLOATS, View, new, promote

#: PyTorch name -> cost, for ops of one input.
UNARY: Mapping[str, str] = {
    "op": "op",
    "neg": "op",
    "abs": "abs",
    "square": "op",
    "reciprocal": "div",
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "sin": "sin",
    "cos": "cos",
    "erf": "erf",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "relu": "relu",
    "leaky_relu": "leaky_relu",
    "silu": "silu",
    "clone": "copy",
    "logical_not": "op",
}

#: PyTorch name -> (cost, whether the result is boolean), for ops of two inputs or one and a number.
BINARY: Mapping[str, tuple[str, bool]] = {
    "add": ("add", False),
    "sub": ("sub", False),
    "mul": ("mul", False),
    "div": ("div", False),
    "maximum": ("op", False),
    "minimum": ("op", False),
    "eq": ("op", True),
    "ne": ("op", True),
    "lt": ("op", True),
    "le": ("op", True),
    "gt": ("op", True),
    "ge": ("op", True),
    "logical_and": ("op", True),
    "logical_or": ("op", True),
}

#: Ops whose result of integers is floating point.
TO_FLOAT = ("div", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "erf", "tanh", "sigmoid", "reciprocal")


def _target(call: Call, in_place: bool) -> View | None:
    """What an op whose name ends in an underscore overwrites: its first tensor."""
    return next(v for v in call.inputs if isinstance(v, View)) if in_place else None


def _unary(cost: str, in_place: bool) -> Rule:
    def rule(call: Call) -> Sequence[View]:
        (x,) = call.tensors(1)
        to = _floating(call, x.dtype)
        if call.op.rstrip("_") == "leaky_relu":
            call.number("negative_slope", 0.01)
        if call.op.rstrip("_") == "logical_not":
            to = "bool"
        return [call.pointwise(cost, [x], call.outs[0], to, onto=_target(call, in_place))]

    return rule


def _floating(call: Call, dtype: str) -> str:
    return "fp32" if call.op.rstrip("_") in TO_FLOAT and dtype not in FLOATS else dtype


def _binary(cost: str, boolean: bool, in_place: bool) -> Rule:
    def rule(call: Call) -> Sequence[View]:
        call.number("alpha", 1)
        operands = [v for v in call.inputs if isinstance(v, View)]
        if len(call.inputs) + ("other" in call.attributes) != 2 or not operands:
            raise call.fail(f"takes two inputs (one may be a number), found {len(call.inputs)}")
        other = call.attribute("other", 1)
        numbers: list[object] = [v for v in call.inputs if not isinstance(v, View)] or [other]
        to = "bool" if boolean else ""
        own = "scale" if len(operands) == 1 and cost in ("add", "sub", "mul") else cost
        if len(operands) == 1 and not boolean:
            scalar_is_float = isinstance(numbers[0], float)
            to = operands[0].dtype
            if to not in FLOATS and (scalar_is_float or call.op.rstrip("_") in TO_FLOAT):
                to = "fp32"
        elif not boolean and call.op.rstrip("_") in TO_FLOAT and all(v.dtype not in FLOATS for v in operands):
            to = "fp32"
        return [call.pointwise(own, operands, call.outs[0], to, onto=_target(call, in_place))]

    return rule


def _pow(in_place: bool) -> Rule:
    def rule(call: Call) -> Sequence[View]:
        operands = [v for v in call.inputs if isinstance(v, View)]
        exponent = call.attribute("exponent", next((v for v in call.inputs if not isinstance(v, View)), None))
        if len(operands) == 1 and exponent is None:
            raise call.fail("needs exponent: ...")
        cost = "op" if exponent == 2 else "sqrt" if exponent == 0.5 else "pow"
        to = operands[0].dtype if len(operands) == 1 else ""
        return [call.pointwise(cost, operands, call.outs[0], to, onto=_target(call, in_place))]

    return rule


def _gelu(in_place: bool) -> Rule:
    def rule(call: Call) -> Sequence[View]:
        cost = "gelu_tanh" if call.choice("approximate", ("none", "tanh"), "none") == "tanh" else "gelu"
        return [call.pointwise(cost, call.tensors(1), call.outs[0], onto=_target(call, in_place))]

    return rule


def _clamp(in_place: bool) -> Rule:
    def rule(call: Call) -> Sequence[View]:
        low, high = call.attribute("min", None), call.attribute("max", None)
        if low is None and high is None:
            raise call.fail("needs min or max")
        return [call.pointwise("clamp", call.tensors(1), call.outs[0], onto=_target(call, in_place))]

    return rule


def _where(call: Call) -> Sequence[View]:
    operands = [v for v in call.inputs if isinstance(v, View)]
    if len(call.inputs) != 3 or not operands or operands[0].dtype != "bool":
        raise call.fail("takes a boolean condition and two values")
    values = operands[1:]
    to = values[0].dtype if len(values) == 1 else "" if values else "fp32"
    if len(values) == 2:
        to = promote([(v.dtype, len(v.shape)) for v in values])
    return [call.pointwise("where", operands, call.outs[0], to)]


def _masked_fill(in_place: bool) -> Rule:
    def rule(call: Call) -> Sequence[View]:
        x, mask = call.tensors(2)
        call.attribute("value", float("-inf"))
        if mask.dtype != "bool":
            raise call.fail(f"mask {mask.root} is {mask.dtype}, and a bool mask is needed")
        return [call.pointwise("where", [x, mask], call.outs[0], x.dtype, onto=_target(call, in_place))]

    return rule


def _ternary(cost: str, in_place: bool, scalar: str) -> Rule:
    def rule(call: Call) -> Sequence[View]:
        call.number(scalar, 1)
        return [call.pointwise(cost, call.tensors(2, 3), call.outs[0], onto=_target(call, in_place))]

    return rule


def cast(call: Call) -> Sequence[View]:
    """To another dtype; to its own it is no kernel at all, as in PyTorch."""
    (x,) = call.tensors(1)
    fixed = {"float": "fp32", "half": "fp16", "bfloat16": "bf16"}.get(call.op)
    to = fixed or call.dtype()
    if to == x.dtype:
        return [x]
    return [call.pointwise("cast", [x], call.outs[0], to)]


def dropout(call: Call) -> Sequence[View]:
    """y = x mask / (1 - p). With `train: true` the one-byte mask is kept for the backward pass.

    Source: PyTorch's `native_dropout` (bool mask); its compiled form draws the numbers again.
    """
    (x,) = call.tensors(1)
    p = call.number("p", 0.5)
    if not 0 <= p < 1:
        raise call.fail(f"p: {p} must be from 0 to below 1")
    train = call.flag("train", False) or len(call.outs) == 2
    if p == 0 and not train:
        return [x]
    mask = new(call.outs[1] if len(call.outs) == 2 else call.fresh("mask"), x.shape, "bool")
    saved = [mask] if train else []
    y = call.pointwise("dropout", [x], call.outs[0], saved=saved, random=True)
    return [y, mask] if len(call.outs) == 2 else [y]


def copy_if_strided(call: Call) -> Sequence[View]:
    """`contiguous`: a copy where the strides are not row-major, else the tensor itself."""
    (x,) = call.tensors(1)
    return [x if x.contiguous else copied(call, x, call.outs[0])]


def copied(call: Call, x: View, out: str) -> View:
    """A row-major copy of a view."""
    cost = "copy" if x.contiguous else "bias"
    return call.pointwise(cost, [x], out, x.dtype, name="copy", shape=x.shape)


def fill(call: Call) -> Sequence[View]:
    """`arange`, `full`: a tensor from nothing."""
    call.tensors(0)
    call.attribute("value", 0)
    shape = call.integers("shape")
    if any(n < 0 for n in shape):
        raise call.fail(f"shape {list(shape)} has a negative size")
    default = "int64" if call.op == "arange" else "fp32"
    return [call.pointwise("op", [], call.outs[0], call.dtype(default=default), shape=shape)]


def _both(make: Callable[[bool], Rule], *names: str) -> dict[str, Rule]:
    return {f"{name}{mark}": make(mark == "_") for name in names for mark in ("", "_")}


RULES: dict[str, Rule] = {
    **{f"{n}{m}": _unary(cost, m == "_") for n, cost in UNARY.items() for m in ("", "_")},
    **{f"{n}{m}": _binary(c, b, m == "_") for n, (c, b) in BINARY.items() for m in ("", "_") if not (b and m)},
    **_both(_pow, "pow"),
    **_both(_gelu, "gelu"),
    **_both(_clamp, "clamp"),
    **_both(_masked_fill, "masked_fill"),
    **_both(lambda m: _ternary("op", m, "weight"), "lerp"),
    **_both(lambda m: _ternary("op", m, "value"), "addcmul", "addcdiv"),
    "where": _where,
    "cast": cast,
    "to": cast,
    "float": cast,
    "half": cast,
    "bfloat16": cast,
    "dropout": dropout,
    "contiguous": copy_if_strided,
    "arange": fill,
    "full": fill,
}

assert set(UNARY.values()) <= set(COSTS)
