"""`iomodel optimizer`: one step over all parameters, op by op, multi-tensor, and fused."""

from __future__ import annotations

from typing import Annotated

from iomodel.analysis.common import DTYPE, GPU, L2, LAUNCH, Gpus, assumed_note, profiles_of
from iomodel.kernel import Plan
from iomodel.opgraph import Graph, Line, build
from iomodel.ops.optimizers import STATES, STEPS
from iomodel.parameters import Name, Size, parse_arguments
from iomodel.planner import plan
from iomodel.profile import Profile
from iomodel.results import Analysis, compare
from iomodel.tensor import itemsize
from iomodel.units import show
from iomodel.view import new


def optimizer(
    name: Annotated[str, Name("the optimizer: " + ", ".join(STATES), lambda: STATES)],
    params: Annotated[int, Size("parameters", loop=True)],
    dtype: Annotated[str, DTYPE] = "fp32",
    gpu: Annotated[Gpus, GPU] = "h100-sxm",
    launch: Annotated[str, LAUNCH] = "eager",
    l2: Annotated[str, L2] = "cold",
) -> Analysis:
    """Bytes and time of an optimizer step. `single` and `multi-tensor` launch every op of the formula
    (multi-tensor in chunks of 320 x 65536 elements), `fused` reads and writes each tensor once.

    fp32: parameter, gradient and states. A narrower dtype is mixed precision: parameter and gradient
    in it, states and a master copy in fp32. Adam, fused: 16 + 12 = 28 bytes a parameter, and 14 + 14
    in mixed precision.

    >>> o = optimizer("adamw", params=10**9)
    >>> round(o["fused"].estimate.bytes.compulsory / 10**9, 3)
    28.0
    """
    inputs = parse_arguments(
        optimizer, {"name": name, "params": params, "dtype": dtype, "launch": launch, "l2": l2}
    )
    profiles = profiles_of(gpu)
    graphs = {step: _graph(inputs["name"], inputs["params"], inputs["dtype"], step) for step in STEPS}

    def plans(profile: Profile) -> list[tuple[str, Plan]]:
        return [(step, plan(graph, "library", profile)) for step, graph in graphs.items()]

    results = compare(profiles, plans, inputs["launch"], inputs["l2"] == "warm")
    echoed = {**inputs, "gpu": [p.name for p in profiles]}
    each = ", ".join(
        f"{r.variant} {r.estimate.bytes.compulsory / inputs['params']:.3g}" for r in results[: len(STEPS)]
    )
    state = sum(view.whole * itemsize(view.dtype) for view in graphs["fused"].inputs.values())
    notes = [
        f"bytes moved a parameter: {each}",
        f"memory: {show(float(state), 'bytes')} of parameters, gradients, states",
    ]
    title = f"{inputs['name']}, {inputs['params']:.4g} parameters, {inputs['dtype']}"
    if itemsize(inputs["dtype"]) < 4:
        title += " with fp32 master copy"
    return Analysis(
        "optimizer",
        title,
        echoed,
        results,
        (*notes, *assumed_note(profiles, results)),
        {p.name: p for p in profiles},
    )


def _graph(name: str, params: float, dtype: str, step: str) -> Graph:
    size = (int(params),)
    mixed = itemsize(dtype) < 4
    names = ["param", "grad", *STATES[name], *(["master"] if mixed else [])]
    views = {n: new(n, size, dtype if n in ("param", "grad") else "fp32" if mixed else dtype) for n in names}
    outs = [f"{n}.new" for n in names if n != "grad"]
    line = Line(name, tuple(names), tuple(outs), {"step": step}, "optimizer")
    return build(name, views, [line], outs, "optimizer")
