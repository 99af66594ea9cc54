"""The model against recorded measurements: errors by family, the worst rows, bounds that do not hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from iomodel.catalogue import load_profile
from iomodel.errors import unknown
from iomodel.profile import Profile
from iomodel.recorded import Measured, prediction
from iomodel.results import Result
from iomodel.table import Column, Table

#: What to predict with: the model, a plain roofline, or the usual rule of thumb.
AGAINST = ("model", "roofline", "constant")

#: How each figure was measured -> (launch, l2) of the prediction. `counters`: kernel durations under
#: a profiler, L2 cold. `graph`: replayed back to back, L2 warm. `table`: as `table_mode` says.
MODES = {"counters": ("eager", "cold"), "graph": ("graph", "warm")}


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
class Summary:
    """Errors of a family in one figure: rows, median, 90th percentile and largest of |error|."""

    family: str
    figure: str
    rows: int
    median: float
    p90: float
    worst: float
    worst_row: str


def compare_all(rows: Iterable[Measured], against: str = "model") -> tuple[list[Comparison], list[str]]:
    """Every comparable figure of the rows, and the bounds that a measurement beats."""
    if against not in AGAINST:
        raise unknown("baseline", against, AGAINST, "--against")
    found: list[Comparison] = []
    violations: list[str] = []
    profiles: dict[str, Profile] = {}
    for row in rows:
        profile = profiles.setdefault(row.gpu, load_profile(row.gpu))
        cold = prediction(row, profile)
        if cold is None:
            continue
        one = cold.estimate
        if row.dram_read:
            read = one.bytes.dram_read if against == "model" else one.bytes.compulsory_read
            found.append(Comparison(row, "DRAM read", read, row.dram_read))
            if len(one.kernels) == 1 and one.bytes.compulsory_read > row.dram_read * 1.005:
                violations.append(
                    f"{row.name}: reads {row.dram_read:.4g} B, compulsory {one.bytes.compulsory_read:.4g} B"
                )
        for way, measured in row.seconds.items():
            predicted = _seconds(row, way, profile, cold, against)
            if predicted is not None:
                found.append(Comparison(row, way, predicted, measured))
        if "cold" in row.seconds and one.seconds.roofline > row.seconds["cold"]:
            violations.append(
                f"{row.name}: took {row.seconds['cold']:.4g} s cold, roofline {one.seconds.roofline:.4g} s"
            )
    return found, violations


def table_mode(family: str) -> tuple[str, str]:
    """(launch, l2) of the published kernel tables: replayed graphs; decode rows that fit L2 were found there."""
    return "graph", "warm" if family == "table decode" else "cold"


def _seconds(row: Measured, way: str, profile: Profile, cold: Result, against: str) -> float | None:
    seconds = cold.estimate.seconds
    if way == "cold":
        return None
    if against == "roofline":
        return float(seconds.roofline)
    if against == "constant":
        return float(
            cold.estimate.bytes.compulsory / (0.8 * profile["memory.hbm"]) + 3e-6 * cold.estimate.launches
        )
    if way == "counters":
        return float(seconds.expected - seconds.launch)
    launch, l2 = MODES[way] if way in MODES else table_mode(row.family)
    other = prediction(row, profile, launch, l2)
    return None if other is None else float(other.estimate.seconds.expected)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of the values lies, straight between neighbours."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summarise(comparisons: Iterable[Comparison]) -> list[Summary]:
    """One summary a family and figure, in the order of first appearance."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for one in comparisons:
        groups.setdefault((one.family, one.figure), []).append(one)
    found = []
    for (family, figure), members in groups.items():
        errors = [abs(one.error) for one in members]
        worst = max(members, key=lambda one: abs(one.error))
        found.append(
            Summary(
                family,
                figure,
                len(members),
                quantile(errors, 0.5),
                quantile(errors, 0.9),
                abs(worst.error),
                worst.row.name,
            )
        )
    return found


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
    rows = tuple((s.family, s.figure, s.rows, 100 * s.median, 100 * s.p90, 100 * s.worst) for s in summaries)
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
    from iomodel.units import show

    def text(one: Comparison, value: float) -> str:
        return show(value, "bytes" if one.figure == "DRAM read" else "s")

    rows = tuple(
        (one.row.name, one.figure, text(one, one.predicted), text(one, one.measured), 100 * one.error)
        for one in ordered
    )
    return Table(columns, rows)
