"""`iomodel cross-entropy`: the loss over a vocabulary, as a framework runs it and fused."""

from __future__ import annotations

from typing import Annotated

from iomodel.analysis.common import DTYPE, GPU, L2, LAUNCH, Gpus, assumed_note, profiles_of
from iomodel.analysis.graph import graph_notes
from iomodel.kernel import Plan
from iomodel.opgraph import Graph, Line, build
from iomodel.parameters import Flag, Size, parse_arguments
from iomodel.planner import plan
from iomodel.profile import Profile
from iomodel.results import Analysis, compare
from iomodel.view import new


def cross_entropy(
    tokens: Annotated[int, Size("rows of logits", loop=True)],
    vocab: Annotated[int, Size("classes a row", loop=True)],
    backward: Annotated[bool, Flag("forward and backward pass")] = False,
    dtype: Annotated[str, DTYPE] = "bf16",
    gpu: Annotated[Gpus, GPU] = "h100-sxm",
    launch: Annotated[str, LAUNCH] = "eager",
    l2: Annotated[str, L2] = "cold",
) -> Analysis:
    """Bytes and time of -log softmax(logits)[target], averaged; with T the bytes of the logits:

    unfused reads T (three times where a row does not stay on chip) and writes T of log probabilities;
    its backward pass writes T, reads 2 T and writes T. Fused, a row is read once, and its log-sum-exp
    kept; the backward pass reads T and writes T.

    >>> c = cross_entropy(tokens=8192, vocab=32000)
    >>> round(c["fused"].estimate.bytes.compulsory / (8192 * 32000 * 2), 3)
    1.0
    """
    inputs = parse_arguments(
        cross_entropy,
        {"tokens": tokens, "vocab": vocab, "backward": backward, "dtype": dtype, "launch": launch, "l2": l2},
    )
    profiles = profiles_of(gpu)
    framework, fused = (
        _graph(inputs["tokens"], inputs["vocab"], inputs["dtype"], inputs["backward"], k) for k in (0, 1)
    )

    def plans(profile: Profile) -> list[tuple[str, Plan]]:
        return [("unfused", plan(framework, "library", profile)), ("fused", plan(fused, "compiler", profile))]

    results = compare(profiles, plans, inputs["launch"], inputs["l2"] == "warm")
    title = f"{inputs['tokens']:.0f} tokens, {inputs['vocab']:.0f} classes, {inputs['dtype']}"
    title += ", forward and backward" if inputs["backward"] else ""
    echoed = {**inputs, "gpu": [p.name for p in profiles]}
    notes = [*graph_notes(fused, results), *assumed_note(profiles, results)]
    return Analysis("cross-entropy", title, echoed, results, tuple(notes), {p.name: p for p in profiles})


def _graph(tokens: float, vocab: float, dtype: str, backward: bool, fused: int) -> Graph:
    views = {
        "logits": new("logits", (int(tokens), int(vocab)), dtype),
        "target": new("target", (int(tokens),), "int64"),
    }
    kept = "lse" if fused else "log_probs"
    outs = ("loss", kept) if backward else ("loss",)
    lines = [Line("cross_entropy", ("logits", "target"), outs, {"keep": kept}, "cross-entropy")]
    if backward:
        taken = ("logits", "target", "lse") if fused else ("log_probs", "target")
        lines.append(Line("cross_entropy_backward", taken, ("d_logits",), {}, "cross-entropy"))
    return build("cross-entropy", views, lines, ["loss", *(["d_logits"] if backward else [])], "cross-entropy")
