"""The model against recorded measurements: errors by family, the worst rows, bounds that do not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from iomodel.arrays import Number, maximum
from iomodel.catalogue import load_profile
from iomodel.errors import unknown
from iomodel.profile import Profile
from iomodel.recorded import Batch, Measured, batches
from iomodel.residency import miss
from iomodel.results import Result
from iomodel.table import Column, Table
from iomodel.tensor import itemsize
from iomodel.units import show

#: What to predict with: the model, a plain roofline, or the usual rule of thumb.
AGAINST = ("model", "roofline", "constant")

#: What each predicts with, in words.
DESCRIPTIONS: dict[str, str] = {
    "model": "the model",
    "roofline": "a plain roofline (compulsory bytes, datasheet peaks)",
    "constant": "a rule of thumb (compulsory bytes at 0.8 of the DRAM peak, 3 us a launch)",
}

#: The rule of thumb: this share of the DRAM peak, and so many seconds for each launch.
CONSTANT_SHARE, CONSTANT_LAUNCH = 0.8, 3e-6

#: Weights that the published GEMM tables' benchmark rotates through, one activation for all.
#: Source: github.com/ai-dynamo/aiconfigurator, collector/vllm/collect_gemm.py.
ROTATED_WEIGHTS = 6.0

#: Slack of a counter: what a kernel reads or writes beside its tensors is below this share.
READ_SLACK, WRITE_SLACK = 0.005, 0.05

#: Bytes that may be written during a count although an earlier kernel made them (2.7 MB seen on an H200).
WRITE_NOISE = 4e6


@dataclass(frozen=True)
class Comparison:
    """One figure of one row: predicted against measured."""

    row: Measured
    figure: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """predicted / measured - 1."""
        return self.predicted / self.measured - 1.0

    @property
    def family(self) -> str:
        """Rows that are reported together."""
        group = self.row.gpu if self.row.family.startswith("table") else self.row.variant
        return f"{self.row.family} {group}".strip()


@dataclass(frozen=True)
class Writes:
    """DRAM writes of one row: predicted, measured, and between what they can be: each kernel writes
    its tensors less what L2 can hold, and no more than 5 % beyond them."""

    row: Measured
    predicted: float
    measured: float
    least: float
    most: float

    @property
    def inside(self) -> bool:
        """Whether the measured figure lies in the range."""
        return self.least - WRITE_NOISE <= self.measured <= self.most + WRITE_NOISE

    @property
    def family(self) -> str:
        """Rows that are reported together."""
        return Comparison(self.row, "", 0.0, 1.0).family


@dataclass(frozen=True)
class Summary:
    """Errors of a family in one figure: rows, median, 90th percentile and largest of |error|."""

    family: str
    figure: str
    rows: int
    median: float
    p90: float
    worst: float
    worst_row: str


@dataclass(frozen=True)
class Report:
    """Everything that rows tell about the model."""

    comparisons: tuple[Comparison, ...]
    violations: tuple[str, ...]
    writes: tuple[Writes, ...]


def compare_all(
    rows: Iterable[Measured], against: str = "model", profile: Profile | None = None
) -> tuple[list[Comparison], list[str]]:
    """Every comparable figure of the rows, and the bounds that a measurement beats."""
    report = validate(rows, against, profile)
    return list(report.comparisons), list(report.violations)


def validate(rows: Iterable[Measured], against: str = "model", profile: Profile | None = None) -> Report:
    """Ask the model about every row, with each row's own GPU or the given profile."""
    if against not in AGAINST:
        raise unknown("baseline", against, AGAINST, "--against")
    order: dict[int, int] = {}
    kept = list(rows)
    for place, row in enumerate(kept):
        order.setdefault(id(row), place)
    comparisons: list[tuple[int, Comparison]] = []
    violations: list[tuple[int, str]] = []
    writes: list[tuple[int, Writes]] = []
    for batch in batches(kept):
        for i, found in _judge(batch, profile or load_profile(batch.rows[0].gpu), against):
            kinds: dict[type, list[Any]] = {Comparison: comparisons, str: violations, Writes: writes}
            kinds[type(found)].append((order[id(batch.rows[i])], found))
    return Report(_ordered(comparisons), _ordered(violations), _ordered(writes))


def _ordered(found: list[tuple[int, Any]]) -> tuple[Any, ...]:
    return tuple(item for _, item in sorted(found, key=lambda pair: pair[0]))


def _judge(batch: Batch, profile: Profile, against: str) -> list[tuple[int, Comparison | Writes | str]]:
    """What the rows of one batch show, each with its place in the batch."""
    if set(batch.rows[0].seconds) == {"table"} and against == "model":
        cold = None
    else:
        cold = batch.ask(profile)
        if cold is None:
            return []
    found: list[tuple[int, Comparison | Writes | str]] = []
    for way in batch.rows[0].seconds:
        predicted = predicted_seconds(batch, way, profile, against, cold)
        if predicted is not None:
            values = _values(predicted, batch)
            found += [(i, Comparison(row, way, values[i], row.seconds[way])) for i, row in enumerate(batch.rows)]
    if cold is not None:
        found = _bytes(batch, cold, profile, against) + found + _roofline(batch, cold)
    return found


def _values(number: Number, batch: Batch) -> list[float]:
    """A figure of every row, whether they share it or not."""
    import numpy

    return [float(x) for x in numpy.broadcast_to(number, (len(batch.rows),))]


def _bytes(
    batch: Batch, cold: Result, profile: Profile, against: str
) -> list[tuple[int, Comparison | Writes | str]]:
    moved = cold.estimate.bytes
    compulsory = _values(moved.compulsory_read, batch)
    read = _values(moved.dram_read, batch) if against == "model" else compulsory
    written = _values(moved.dram_write if against == "model" else moved.compulsory_write, batch)
    l2 = profile["memory.l2"] if "memory.l2" in profile else 0.0
    held: Number = 0.0
    for kernel in cold.estimate.kernels:
        held = held + maximum(kernel.bytes.compulsory_write - l2, 0.0)
    least, makes = _values(held, batch), _values(moved.compulsory_write, batch)
    found: list[tuple[int, Comparison | Writes | str]] = []
    for i, row in enumerate(batch.rows):
        if row.dram_read is None:
            continue
        found.append((i, Comparison(row, "DRAM read", read[i], row.dram_read)))
        if len(cold.estimate.kernels) == 1 and compulsory[i] > row.dram_read * (1.0 + READ_SLACK):
            text = f"reads {show(row.dram_read, 'bytes')}, compulsory {show(compulsory[i], 'bytes')}"
            found.append((i, f"{row.name}: {text}"))
        if row.dram_write is not None:
            most = (1.0 + WRITE_SLACK) * makes[i]
            found.append((i, Writes(row, written[i], row.dram_write, least[i], most)))
    return found


def _roofline(batch: Batch, cold: Result) -> list[tuple[int, Comparison | Writes | str]]:
    """Rows that were faster on a cold cache than the roofline allows."""
    bound = _values(cold.estimate.seconds.roofline, batch)
    return [
        (i, f"{row.name}: took {show(row.seconds[way], 's')} ({way}), roofline {show(bound[i], 's')}")
        for i, row in enumerate(batch.rows)
        for way in ("counters", "queued", "cold")
        if way in row.seconds and bound[i] > row.seconds[way]
    ]


def predicted_seconds(
    batch: Batch, way: str, profile: Profile, against: str = "model", cold: Result | None = None
) -> Number | None:
    """What the model says that a way of timing should have shown, for every row; None where it does not say.

    `cold` is the batch's result on a cold cache, where it is known already. Elapsed times of calls
    from a program (`cold`) hold what the program did between launches, and are not predicted.
    """
    if way in ("cold", "launch"):
        return None
    if against != "model":
        result = cold or batch.ask(profile)
        return None if result is None else BASELINES[against](result, profile)
    if way in ("counters", "queued"):
        result = cold or batch.ask(profile)
        if result is None:
            return None
        on_gpu = result.estimate.seconds.expected - result.estimate.seconds.launch
        return on_gpu + profile["launch.latency"] if way == "queued" else on_gpu
    warm = _expected(batch, profile, "warm")
    if batch.rows[0].family.startswith("table gemm") and warm is not None:
        # The benchmark's weights come round again after all the others: found in L2 or not.
        weight = batch.sizes("k") * batch.sizes("n") * itemsize(batch.rows[0].params["dtype"])
        lost = miss(ROTATED_WEIGHTS * weight, profile)
        return warm + (_expected(batch, profile, "cold") - warm) * lost
    return warm


def _expected(batch: Batch, profile: Profile, l2: str) -> Number | None:
    result = batch.ask(profile, "graph", l2)
    return None if result is None else result.estimate.seconds.expected


def _plain_roofline(result: Result, profile: Profile) -> Number:
    del profile
    return result.estimate.seconds.roofline


def _constant(result: Result, profile: Profile) -> Number:
    """Compulsory bytes at 0.8 of the DRAM peak, work at its peak, the longer of the two for each
    kernel, and 3 us for each launch."""
    total: Number = CONSTANT_LAUNCH * result.estimate.launches
    for kernel in result.estimate.kernels:
        longest = kernel.bytes.compulsory / (CONSTANT_SHARE * profile["memory.hbm"])
        for resource, time in kernel.seconds.by_resource.items():
            if resource != "dram":
                longest = maximum(longest, time)
        total = total + longest
    return total


#: Simple models by name -> seconds of a result on a cold cache.
BASELINES: dict[str, Callable[[Result, Profile], Number]] = {
    "roofline": _plain_roofline,
    "constant": _constant,
}


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of the values lies, straight between neighbours.

    >>> quantile([3.0, 1.0, 2.0, 4.0], 0.5)
    2.5
    """
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summarise(
    comparisons: Iterable[Comparison], family: Callable[[Comparison], str] = lambda one: one.family
) -> list[Summary]:
    """One summary a family and figure, families in the order of first appearance."""
    groups: dict[str, dict[str, list[Comparison]]] = {}
    for one in comparisons:
        groups.setdefault(family(one), {}).setdefault(one.figure, []).append(one)
    found = []
    for name, figure, members in ((n, f, m) for n, figures in groups.items() for f, m in figures.items()):
        errors = [abs(one.error) for one in members]
        worst = max(members, key=lambda one: abs(one.error))
        found.append(
            Summary(
                name,
                figure,
                len(members),
                quantile(errors, 0.5),
                quantile(errors, 0.9),
                abs(worst.error),
                worst.row.name,
            )
        )
    return found


def percent(error: float) -> float:
    """An error in percent to two decimals: finer is noise."""
    return round(100 * error, 2)


def summary_table(summaries: Sequence[Summary]) -> Table:
    """The summaries as a table, errors in percent."""
    columns = (
        Column("family"),
        Column("figure"),
        Column("rows", "1"),
        Column("median", "%"),
        Column("p90", "%"),
        Column("max", "%"),
    )
    rows = tuple(
        (
            s.family.removeprefix("table "),
            s.figure,
            s.rows,
            percent(s.median),
            percent(s.p90),
            percent(s.worst),
        )
        for s in summaries
    )
    return Table(columns, rows)


def worst_table(comparisons: Sequence[Comparison], most: int = 12) -> Table:
    """The rows that the model misses most."""
    ordered = sorted(comparisons, key=lambda one: -abs(one.error))[:most]
    columns = (
        Column("worst rows"),
        Column("figure"),
        Column("predicted"),
        Column("measured"),
        Column("error", "%"),
    )

    def text(one: Comparison, value: float) -> str:
        return show(value, "bytes" if one.figure == "DRAM read" else "s")

    rows = tuple(
        (one.row.name, one.figure, text(one, one.predicted), text(one, one.measured), percent(one.error))
        for one in ordered
    )
    return Table(columns, rows)


def writes_table(writes: Sequence[Writes]) -> Table:
    """Families with DRAM writes by counter: rows, how many measured figures lie in the range, and by how
    many bytes the model is off."""
    groups: dict[str, list[Writes]] = {}
    for one in writes:
        groups.setdefault(one.family, []).append(one)
    columns = (
        Column("DRAM writes"),
        Column("rows", "1"),
        Column("in range", "1"),
        Column("median off", "bytes"),
        Column("p90 off", "bytes"),
    )
    rows = []
    for family, members in groups.items():
        off = [abs(one.predicted - one.measured) for one in members]
        inside = sum(one.inside for one in members)
        rows.append((family, len(members), inside, quantile(off, 0.5), quantile(off, 0.9)))
    return Table(columns, tuple(rows))
