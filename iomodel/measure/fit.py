"""Sustained constants from measured rows, through the engine itself: style by style, few constants each.

A style's rows are asked of the model as arrays with trial constants in the profile; robust least
squares on log(predicted / measured) moves the constants within what is physically possible. Rows that
`Measured.held_out` keeps back are never seen by a fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iomodel.measure import extra
from iomodel.measurements import Measured
from iomodel.profile import Profile
from iomodel.recorded import Batch, batches
from iomodel.validate import predicted_seconds

#: Above this |log error| a row counts linearly instead of squared.
ROBUST = 0.1

#: Doubling a constant costs a fit as much as one figure that is off by this share: what the rows do not
#: show stays where it was.
STIFFNESS = 0.05

#: A style is fitted where its fitting half has this many figures more than it has constants.
SPARE_FIGURES = 2


@dataclass(frozen=True)
class Constant:
    """A constant to fit: its key, the range it must stay in, and the way of timing that shows it
    (any, where empty)."""

    key: str
    low: float
    high: float
    way: str = ""


@dataclass(frozen=True)
class Style:
    """Kernels that share constants: which rows they are, by which ways of timing they are fitted, and
    what is set beforehand."""

    name: str
    takes: Callable[[Measured, Profile], bool]
    constants: tuple[Constant, ...]
    ways: tuple[str, ...]
    preset: Mapping[str, float]


STREAM_FAMILIES = (
    "stream",
    "chain",
    "bias_gelu_dropout",
    "bias_silu",
    "relu_add",
    "resid_ln_dropout",
    "softmax",
    "layernorm",
    "swiglu",
    "geglu",
)


def _is_stream(row: Measured, gpu: Profile) -> bool:
    del gpu
    return row.family in STREAM_FAMILIES and row.variant != "compile"


def _is_matmul(row: Measured, gpu: Profile) -> bool:
    del gpu
    return row.family in ("gemm", "table gemm bf16") and row.params["dtype"] in ("bf16", "fp16")


def _is_matmul_fp8(row: Measured, gpu: Profile) -> bool:
    del gpu
    return row.family == "table gemm fp8"


def _is_attention(style: str, table: bool) -> Callable[[Measured, Profile], bool]:
    """Prefill attention by that kernel: alone, or in a serving engine's table, where K and V are copied
    to the cache as well. The copy is a constant more, so the two are styles of their own."""
    variant = {"fa2": "flash", "fa3": "cudnn"}[style]

    def takes(row: Measured, gpu: Profile) -> bool:
        if table:
            return row.family == "table prefill" and gpu.runs("fa3") == (style == "fa3")
        return row.family == "attention" and row.variant == variant and gpu.runs(style)

    return takes


def _is_decode(table: bool) -> Callable[[Measured, Profile], bool]:
    def takes(row: Measured, gpu: Profile) -> bool:
        if table:
            return row.family == "table decode"
        return row.family == "decode" and row.variant == ("cudnn" if gpu.runs("fa3") else "flash")

    return takes


def _share(key: str, low: float = 0.2, way: str = "") -> Constant:
    """A share of a peak: nothing runs above it."""
    return Constant(key, low, 1.0, way)


def _attention_styles() -> Iterable[Style]:
    for style in ("fa2", "fa3"):
        constants = (
            _share(f"sustained.{style}.matmul"),
            _share(f"sustained.{style}.memory"),
            Constant(f"sustained.{style}.floor", 0.5e-6, 30e-6),
            Constant(f"sustained.{style}.start", 0.0, 4.0),
            Constant(f"sustained.{style}.tail", 0.0, 1.0),
        )
        append = f"sustained.{style}.append"
        yield Style(style, _is_attention(style, False), constants, ("counters", "queued"), {append: 0.0})
        # a copy that partly stays in L2 can beat the DRAM peak
        copied = (*constants, Constant(append, 0.2, 2.0))
        yield Style(f"{style}, engine", _is_attention(style, True), copied, ("table",), {})


def _decode_styles() -> Iterable[Style]:
    constants = (
        _share("sustained.decode.matmul", 0.05),
        _share("sustained.decode.memory"),
        Constant("sustained.decode.floor", 0.5e-6, 30e-6),
        Constant("sustained.decode.split", 0.0, 30e-6),
        Constant("sustained.decode.per_split", 0.0, 0.2e-6),
        Constant("sustained.decode.start", 0.0, 10.0),
    )
    yield Style("decode", _is_decode(False), constants, ("counters", "queued", "graph"), {})
    yield Style("decode, engine", _is_decode(True), constants, ("table",), {})


#: In the order of fitting: later styles use what earlier ones found (`launch.latency`). Replayed graphs
#: of GEMMs and prefill are left out, since they slow down at the power limit.
STYLES: tuple[Style, ...] = (
    Style(
        "stream",
        _is_stream,
        (
            _share("sustained.dram", 0.3),
            _share("sustained.dram_write", 0.3),
            Constant("sustained.l2_per_clock", 4.0, 128.0),
            _share("sustained.issue", 0.3),
            Constant("sustained.floor", 0.3e-6, 10e-6, "counters"),
            Constant("sustained.graph_overlap", 0.0, 5e-6, "graph"),
            Constant("launch.latency", 0.0, 30e-6, "queued"),
        ),
        ("counters", "queued", "graph"),
        {},
    ),
    Style(
        "matmul",
        _is_matmul,
        (
            _share("sustained.matmul.matmul", 0.3),
            _share("sustained.matmul.memory", 0.3),
            Constant("sustained.matmul.floor", 0.5e-6, 20e-6),
            Constant("sustained.matmul.l2_per_flop", 0.002, 0.2),
        ),
        ("counters", "queued", "table"),
        {},
    ),
    Style(
        "matmul fp8",
        _is_matmul_fp8,
        (
            _share("sustained.matmul.matmul_fp8"),
            Constant("sustained.matmul.quantize", 0.0, 20e-6),
            Constant("sustained.matmul.quantize_row", 0.0, 10e-6),
            Constant("sustained.matmul.quantize_element", 0.0, 5e-9),
        ),
        ("table",),
        {},
    ),
    *_attention_styles(),
    *_decode_styles(),
)

#: Launch costs are read off, not fitted.
LAUNCH_KEYS = {"eager": "launch.eager", "stream": "launch.stream", "graph": "launch.graph"}


@dataclass(frozen=True)
class Found:
    """A fitted constant: the style and figures it is from, its value before and now."""

    key: str
    style: str
    before: float
    value: float
    figures: int
    at_bound: bool = False


@dataclass(frozen=True)
class Fit:
    """What a fit gives: the profile with the constants in it, the constants, the styles left alone."""

    profile: Profile
    found: tuple[Found, ...]
    left: tuple[str, ...]


def fit(profile: Profile, rows: Sequence[Measured], source: Callable[[str, int], str]) -> Fit:
    """The profile with every constant that the rows can tell.

    `source(style, figures)` is the text that goes with a constant. Launch costs are taken from the
    rows that measured them.
    """
    found: list[Found] = []
    left: list[str] = []
    for row in rows:
        key = LAUNCH_KEYS.get(row.variant) if row.family == "launch" else None
        if key and "launch" in row.seconds:
            before, amount = profile[key], _rounded(row.seconds["launch"])
            found.append(Found(key, "launch", before, amount, 1))
            profile = profile.override(key, amount, source("launch", 1))
    for style in STYLES:
        own = [row for row in rows if not row.held_out and row.family != "launch" and style.takes(row, profile)]
        if not own:
            continue
        trial = profile
        for key, amount in style.preset.items():
            trial = trial.override(key, amount, source(style.name, len(own)))
        asked = [(b, way) for b in batches(own) for way in style.ways if way in b.rows[0].seconds]
        ways = {way for _, way in asked}
        constants = [c for c in style.constants if not c.way or c.way in ways]
        figures = sum(len(batch.rows) for batch, _ in asked)
        if figures < len(constants) + SPARE_FIGURES:
            left.append(f"{style.name}: {figures} figures are too few for {len(constants)} constants")
            continue
        values = _least_squares(trial, constants, asked)
        for key in style.preset:
            found.append(Found(key, style.name, profile[key], trial[key], figures))
        profile = trial
        for constant, value in zip(constants, values, strict=True):
            bounded = value in (constant.low, constant.high)
            found.append(Found(constant.key, style.name, profile[constant.key], value, figures, bounded))
            profile = profile.override(constant.key, value, source(style.name, figures))
    return Fit(profile, tuple(found), tuple(left))


def _least_squares(
    profile: Profile, constants: Sequence[Constant], asked: Sequence[tuple[Batch, str]]
) -> list[float]:
    """The constants that predict the batches best, rounded to four digits."""
    optimize = extra("scipy.optimize", "fitting")
    import numpy

    low, high = (numpy.array([getattr(c, end) for c in constants]) for end in ("low", "high"))
    before = numpy.array([profile[c.key] for c in constants])
    scale = numpy.maximum(before, 0.2 * (high - low))
    measured = numpy.concatenate([[row.seconds[way] for row in batch.rows] for batch, way in asked])

    def residuals(x: Sequence[float]) -> object:
        values = [float(v) for v in low + x * (high - low)]
        trial = with_constants(profile, constants, values)
        predicted: list[Any] = []
        for batch, way in asked:
            seconds: Any = predicted_seconds(batch, way, trial)
            predicted.append(numpy.broadcast_to(seconds, (len(batch.rows),)))
        errors = numpy.log(numpy.concatenate(predicted) / measured)
        return numpy.concatenate([errors, STIFFNESS * (values - before) / scale])

    start = numpy.clip((before - low) / (high - low), 1e-3, 1 - 1e-3)
    solved = optimize.least_squares(
        residuals,
        start,
        bounds=(0.0, 1.0),
        loss="soft_l1",
        f_scale=ROBUST,
        x_scale=numpy.maximum(start, 0.01),
        diff_step=1e-4,
        max_nfev=60,
    )
    found = [float(v) for v in low + solved.x * (high - low)]
    return [_settled(constant, value) for constant, value in zip(constants, found, strict=True)]


def with_constants(profile: Profile, constants: Sequence[Constant], values: Sequence[float]) -> Profile:
    """The profile with trial values in place of its constants."""
    for constant, value in zip(constants, values, strict=True):
        profile = profile.override(constant.key, value, "trial")
    return profile


def _settled(constant: Constant, value: float) -> float:
    """The value, or the end of its range where that is within a thousandth of it."""
    near = 1e-3 * (constant.high - constant.low)
    for end in (constant.low, constant.high):
        if abs(value - end) < near:
            return end
    return _rounded(value)


def _rounded(value: float) -> float:
    """Four significant digits: a fit knows no more."""
    return float(f"{value:.4g}")
