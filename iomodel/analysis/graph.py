"""`iomodel graph`: any op graph, a framework's kernels against a fusing compiler's, and why."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from iomodel.analysis.common import GPU, L2, LAUNCH, Gpus, assumed_note, profiles_of, registers_note
from iomodel.backward import saved, with_backward
from iomodel.errors import InputError
from iomodel.kernel import Plan
from iomodel.kernels import inputs_of
from iomodel.opgraph import Graph
from iomodel.parameters import Flag, Name, Text, parse_arguments
from iomodel.planner import MODES, plan
from iomodel.profile import Profile
from iomodel.results import Analysis, Result, compare
from iomodel.tensor import BITS
from iomodel.tensor import dtype as canonical_dtype
from iomodel.traffic import memory_peak
from iomodel.units import show
from iomodel.workloads import find_graph

#: Boundaries that are put in words on the screen; all of them are in JSON.
MOST_NOTES = 6

FUSE = Name("which kernels: auto, compiler (all that may fuse), library, none (a kernel an op)", lambda: MODES)
FILE_DTYPE = Name("element type, in place of the file's", lambda: BITS, canonical_dtype)


def graph(
    file: Annotated[str, Text("a workload file (.yaml), or the name of a built-in one")],
    fuse: Annotated[str, FUSE] = "auto",
    sizes: Annotated[str | Mapping[str, Any], Text("named sizes to replace: tokens=8k,hidden=4096")] = "",
    groups: Annotated[str | Sequence[Sequence[str]], Text("kernels by what they make: h+n+y,z")] = "",
    backward: Annotated[bool, Flag("forward and backward pass")] = False,
    recompute: Annotated[str | Sequence[str], Text("names that the backward pass computes again")] = "",
    dtype: Annotated[str | None, FILE_DTYPE] = None,
    gpu: Annotated[Gpus, GPU] = "h100-sxm",
    launch: Annotated[str, LAUNCH] = "eager",
    l2: Annotated[str, L2] = "cold",
) -> Analysis:
    """Kernels, bytes, time and boundaries of a graph of ops, unfused and fused.

    `unfused` is what an eager framework launches (or, with fuse="none", a kernel an op); `fused` is
    the plan of a compiler. Boundaries of the fused plan come with a reason each, ranked by the time
    that removing them would save.

    >>> g = graph("residual-layernorm-dropout")
    >>> g["unfused"].estimate.launches, g["fused"].estimate.launches
    (3, 1)
    """
    inputs = parse_arguments(
        graph, {"fuse": fuse, "backward": backward, "dtype": dtype, "launch": launch, "l2": l2}
    )
    replaced = _sizes(sizes)
    wanted = find_graph(file, replaced, inputs.get("dtype", ""))
    if inputs["backward"]:
        wanted = with_backward(wanted, _names(recompute))
    elif recompute:
        raise InputError("--recompute goes with --backward")
    if not wanted.nodes:
        raise InputError(f"{file}: launches nothing: every op in it is a view")
    profiles = profiles_of(gpu)
    mode, given = inputs["fuse"], _groups(groups)

    def plans(profile: Profile) -> list[tuple[str, Plan]]:
        first = mode if mode == "none" else "library"
        found = [("unfused", plan(wanted, first, profile))]
        if given or mode not in ("none", "library"):
            found.append(("fused", plan(wanted, mode, profile, inputs["launch"], given)))
        return found

    results = compare(profiles, plans, inputs["launch"], inputs["l2"] == "warm")
    echoed = {
        **inputs,
        "file": file if "\n" not in file else wanted.name,
        "sizes": replaced,
        "groups": given,
        "gpu": [p.name for p in profiles],
    }
    title = f"{wanted.name}, {len(wanted.lines)} ops"
    if inputs["backward"]:
        title += ", forward and backward"
    notes = [*graph_notes(wanted, results), *registers_note(results), *assumed_note(profiles, results)]
    return Analysis("graph", title, echoed, results, tuple(notes), {p.name: p for p in profiles})


def lower_bound(wanted: Graph) -> float:
    """Bytes that any plan must move: every input that is used read once, every output written once."""
    read = sum(
        min(sum(v.touched for v in views), views[0].whole) * _width(views[0])
        for views in inputs_of(wanted.nodes).values()
    )
    made = {view.root: view for node in wanted.nodes for view in node.writes}
    written = sum(made[root].whole * _width(made[root]) for root in wanted.kept if root in made)
    return float(read + written)


def _width(view: Any) -> float:
    return BITS[view.dtype] / 8


def graph_notes(wanted: Graph, results: Sequence[Result]) -> list[str]:
    """The I/O lower bound, peak memory, and the boundaries of the first GPU's last variant in words."""
    first = results[0].gpu
    own = [result for result in results if result.gpu == first]
    last = own[-1]
    bound = lower_bound(wanted)
    moved = last.estimate.bytes.compulsory
    notes = [
        f"I/O lower bound of the whole graph: {show(bound, 'bytes')} (each input read and each output written "
        f"once); {last.variant} moves {show(moved, 'bytes')}, {show(moved / bound if bound else 1.0, 'x')} that"
    ]
    peaks = [f"{result.variant} {show(memory_peak(result.plan), 'bytes')}" for result in own]
    notes.append(f"peak memory: {', '.join(peaks)}")
    if wanted.forward:
        kept = saved(wanted)
        inputs = sum(size for root, size in kept.items() if root in wanted.inputs)
        notes.append(
            f"kept for the backward pass: {show(sum(kept.values()) - inputs, 'bytes')} of activations, "
            f"{show(inputs, 'bytes')} of inputs"
        )
    boundaries = last.plan.boundaries
    for boundary in boundaries[:MOST_NOTES]:
        where = boundary.before if boundary.before == boundary.after else f"{boundary.before} | {boundary.after}"
        notes.append(f"not fused: {where}: {boundary.reason}")
    if len(boundaries) > MOST_NOTES:
        notes.append(f"{len(boundaries) - MOST_NOTES} more boundaries, worth less each: see --format json")
    return notes


def _sizes(text: str | Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(text, str):
        return dict(text)
    found: dict[str, Any] = {}
    for part in re.split(r"[,\s]+", text):
        name, equals, value = part.partition("=")
        if part and (not equals or not name or not value):
            raise InputError(f"--sizes {text!r}: write NAME=SIZE, e.g. tokens=8k,hidden=4096")
        if part:
            found[name] = value
    return found


def _names(text: str | Sequence[str]) -> list[str]:
    return [name for name in re.split(r"[,\s]+", text) if name] if isinstance(text, str) else list(text)


def _groups(text: str | Sequence[Sequence[str]]) -> list[list[str]]:
    if not isinstance(text, str):
        return [list(group) for group in text]
    return [[name for name in part.split("+") if name] for part in re.split(r"[,\s]+", text) if part]
