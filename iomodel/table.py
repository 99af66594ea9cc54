"""From results to rows: raw records for machines, and tables with units for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from iomodel.arrays import Number, is_array
from iomodel.registers import is_generated, registers
from iomodel.results import Analysis, Result
from iomodel.roofline import Estimate
from iomodel.units import common_step, show, three_digits


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: header, and the unit its values are in (`text` for words)."""

    header: str
    unit: str = "text"


@dataclass(frozen=True)
class Table:
    """Rows under columns; `marked` are the rows to point at. Rendering is elsewhere."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    marked: frozenset[int] = frozenset()
    title: str = ""
    one_unit: bool = False  # columns of the same unit share one prefix, to be compared along a row

    def cell(self, row: int, column: int) -> str:
        """A value as a person reads it; without its unit where the header can hold it."""
        value, unit = self.rows[row][column], self.columns[column].unit
        if value is None:
            return "-"
        if unit == "text":
            return str(value)
        step = self._steps[column]
        return show(float(value), unit) if step is None else three_digits(float(value) / step[0])

    def unit(self, column: int) -> str:
        """The unit that a column's header shows; empty where each cell has its own or none is due."""
        step = self._steps[column]
        return "" if step is None else step[1]

    @cached_property
    def _steps(self) -> tuple[tuple[float, str] | None, ...]:
        found = []
        for index, column in enumerate(self.columns):
            shared = [i for i, other in enumerate(self.columns) if other.unit == column.unit]
            values = [row[i] for row in self.rows for i in (shared if self.one_unit else [index])]
            is_text = column.unit == "text"
            found.append(
                None if is_text else common_step([float(v) for v in values if v is not None], column.unit)
            )
        return tuple(found)


#: Columns of a flat record in the order of CLI output, as a path into the estimate.
RECORD = (
    "gpu",
    "variant",
    "recommended",
    "launches",
    "flops",
    "bytes_compulsory",
    "bytes_l2",
    "bytes_dram_read",
    "bytes_dram_write",
    "intensity",
    "bound",
    "seconds_roofline",
    "seconds_expected",
    "seconds_launch",
    "speedup",
)


def record(result: Result) -> dict[str, Any]:
    """One result flat, as CSV has it: raw SI numbers."""
    one = result.estimate
    values = (
        result.gpu,
        result.variant,
        result.recommended,
        one.launches,
        one.flops,
        one.bytes.compulsory,
        one.bytes.l2,
        one.bytes.dram_read,
        one.bytes.dram_write,
        one.intensity,
        one.bound,
        one.seconds.roofline,
        one.seconds.expected,
        one.seconds.launch,
        result.speedup,
    )
    return dict(zip(RECORD, values, strict=True))


def document(analysis: Analysis) -> dict[str, Any]:
    """The whole answer as plain data, as JSON has it."""
    from iomodel import __version__

    return {
        "iomodel": __version__,
        "command": analysis.command,
        "inputs": dict(analysis.inputs),
        "results": [_result(result) for result in analysis.results],
        "notes": list(analysis.notes),
    }


def _result(result: Result) -> dict[str, Any]:
    head = {"gpu": result.gpu, "variant": result.variant, "recommended": result.recommended}
    tail = {
        "speedup": result.speedup,
        "memory_peak": result.memory_peak,
        "boundaries": [{"before": b.before, "after": b.after, "reason": b.reason} for b in result.plan.boundaries],
        "kernels": [_kernel(kernel) for kernel in result.estimate.kernels],
    }
    return head | _estimate(result.estimate) | tail


def _kernel(one: Estimate) -> dict[str, Any]:
    assert one.kernel is not None
    return {
        "name": one.name,
        "ops": [op.name for op in one.kernel.ops],
        "registers": registers(one.kernel) if is_generated(one.kernel) else None,
        "memory_peak": one.bytes.compulsory,
        "reads": {t.name: t.bytes for t in one.kernel.reads},
        "writes": {t.name: t.bytes for t in one.kernel.writes},
    } | _estimate(one)


def _estimate(one: Estimate) -> dict[str, Any]:
    seconds, moved = one.seconds, one.bytes
    return {
        "launches": one.launches,
        "flops": one.flops,
        "work": dict(one.work),
        "bytes": {
            "compulsory": moved.compulsory,
            "compulsory_read": moved.compulsory_read,
            "compulsory_write": moved.compulsory_write,
            "l2": moved.l2,
            "dram_read": moved.dram_read,
            "dram_write": moved.dram_write,
            "retained": moved.retained,
        },
        "intensity": one.intensity,
        "bound": one.bound,
        "seconds": {
            "roofline": seconds.roofline,
            "expected": seconds.expected,
            "launch": seconds.launch,
            "host": seconds.host,
            "by_resource": dict(seconds.by_resource),
            "expected_by_resource": dict(seconds.expected_by_resource),
        },
    }


def variants_table(results: Sequence[Result], with_launches: bool = True) -> Table:
    """The variants of one GPU side by side: bytes by level, times, bound, speedup."""
    columns = (
        Column("variant"),
        Column("kernels", "1"),
        Column("compulsory", "bytes"),
        Column("DRAM", "bytes"),
        Column("L2", "bytes"),
        Column("roofline", "s"),
        Column("expected", "s"),
        Column("bound"),
        Column("gain", "x"),
    )
    rows = []
    for result in results:
        one = result.estimate
        moved, seconds = one.bytes, one.seconds
        rows.append(
            (
                result.variant,
                one.launches,
                moved.compulsory,
                moved.dram,
                moved.l2,
                seconds.roofline,
                seconds.expected,
                short(one.bound),
                result.speedup,
            )
        )
    marked = frozenset(i for i, result in enumerate(results) if bool(result.recommended))
    return Table(columns, tuple(rows), marked)


def short(bound: Any) -> str:
    """A bound as tables name it: the resource without its dtype."""
    return str(bound).partition(":")[0]


def kernels_table(one: Estimate) -> Table:
    """The kernels of a plan in order: what each moves, takes and is bound by."""
    columns = (
        Column("kernel"),
        Column("reads", "bytes"),
        Column("writes", "bytes"),
        Column("DRAM", "bytes"),
        Column("roofline", "s"),
        Column("on GPU", "s"),
        Column("bound"),
    )
    rows = tuple(
        (
            k.name,
            k.bytes.compulsory_read,
            k.bytes.compulsory_write,
            k.bytes.dram,
            k.seconds.roofline,
            k.seconds.expected - k.seconds.launch,
            short(k.bound),
        )
        for k in one.kernels
    )
    return Table(columns, rows)


def gpus_tables(analysis: Analysis) -> list[Table]:
    """Several GPUs: a row each with its best variant against the first GPU, then all variants' times."""
    gpus = list(analysis.profiles)
    best = {gpu: _best(analysis, gpu) for gpu in gpus}
    base = best[gpus[0]].estimate.seconds.expected
    columns = (
        Column("GPU"),
        Column("HBM", "bytes/s"),
        Column("variant"),
        Column("DRAM", "bytes"),
        Column("roofline", "s"),
        Column("expected", "s"),
        Column("bound"),
        Column("vs first", "x"),
    )
    rows = []
    for gpu in gpus:
        one = best[gpu].estimate
        rows.append(
            (
                gpu,
                analysis.profiles[gpu]["memory.hbm"],
                best[gpu].variant,
                one.bytes.dram,
                one.seconds.roofline,
                one.seconds.expected,
                short(one.bound),
                base / one.seconds.expected,
            )
        )
    fastest = min(range(len(gpus)), key=lambda i: best[gpus[i]].estimate.seconds.expected)
    names = list(dict.fromkeys(result.variant for result in analysis.results))
    times = tuple((gpu, *(_expected(analysis.on(gpu).get(name)) for name in names)) for gpu in gpus)
    every = Table((Column("expected"), *(Column(name, "s") for name in names)), times, one_unit=True)
    return [Table(columns, tuple(rows), frozenset({fastest})), every]


def _best(analysis: Analysis, gpu: str) -> Result:
    results = list(analysis.on(gpu).values())
    return next((r for r in results if bool(r.recommended)), results[0])


def _expected(result: Result | None) -> Number | None:
    return None if result is None else result.estimate.seconds.expected


def is_sweep(analysis: Analysis) -> bool:
    """Whether any result holds arrays instead of numbers."""
    return any(is_array(r.estimate.seconds.expected) or is_array(r.estimate.flops) for r in analysis.results)


def flatten(analysis: Analysis) -> list[dict[str, Any]]:
    """Flat records of all results."""
    return [record(result) for result in analysis.results]


def plain(value: Any) -> Any:
    """A value as JSON and CSV take it: whole floats as whole numbers, infinities as None."""
    if isinstance(value, bool) or value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if is_array(value):
        return plain(value.tolist())
    number = float(value)
    if number != number or number in (float("inf"), float("-inf")):
        return None
    return int(number) if number.is_integer() and abs(number) < 2**63 else number


#: Columns of a case's row that a person wants to see, with their units.
CASE_COLUMNS = {
    "variant": ("variant", "text"),
    "bytes_dram_read": ("DRAM read", "bytes"),
    "seconds_roofline": ("roofline", "s"),
    "seconds_expected": ("expected", "s"),
    "bound": ("bound", "text"),
    "speedup": ("gain", "x"),
}


def rows_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Flat rows (cases, sweeps) as a table: their own columns, then the most wanted of the record."""
    own = [name for name in rows[0] if name not in RECORD]
    if len({row["gpu"] for row in rows}) > 1:
        own.append("gpu")
    columns = [Column(name) for name in own] + [Column(*shown) for shown in CASE_COLUMNS.values()]
    body = tuple(tuple(short(row[n]) if n == "bound" else row[n] for n in (*own, *CASE_COLUMNS)) for row in rows)
    marked = frozenset(i for i, row in enumerate(rows) if row["recommended"])
    return Table(tuple(columns), body, marked)
