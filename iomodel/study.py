"""What-if studies: a question over a grid of sizes, names and profile values, evaluated block by block.

Names (GPUs, dtypes, flags, loop sizes) vary one at a time and slowest; numbers go through the engine as
arrays. For each place of the names the analysis is recorded once (`tape`) and replayed over units
of the grid, so memory does not grow with the grid, and any process computes any unit alike.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iomodel.arrays import is_array, is_traced
from iomodel.axes import Axis, Dimension, points
from iomodel.cases import Row, evaluate_cases
from iomodel.errors import InputError, unknown
from iomodel.expression import evaluate
from iomodel.profile import Profile
from iomodel.results import Analysis, Result
from iomodel.table import RECORD, record
from iomodel.tape import BLOCK, Program, Range, UntraceableError, leaf

#: Figures of a result beyond the flat record.
FIGURES: Mapping[str, Callable[[Result], Any]] = {
    "memory_peak": lambda r: r.memory_peak,
    "bytes_dram": lambda r: r.estimate.bytes.dram,
    "seconds_host": lambda r: r.estimate.seconds.host,
}
#: Fewer points than this are not worth a recording.
LEAST_TRACED = 256
#: Points of a unit: a block of the engine, and no less than this where the inner axes give them.
LEAST_UNIT = BLOCK // 2


@dataclass(frozen=True)
class Question:
    """What is asked of the grid besides its rows: `find`, `crossover`, `pareto` or `sensitivity`."""

    kind: str
    settings: Mapping[str, Any]
    where: str = ""


@dataclass(frozen=True)
class Study:
    """An analysis, what is held, what varies, and which columns are wanted. All that a worker needs."""

    command: str
    analyse: Callable[..., Analysis]
    base: Mapping[str, Any]
    dimensions: tuple[Dimension, ...]
    profiles: Mapping[str, Profile]
    fixed: Mapping[str, float] = field(default_factory=dict)
    columns: tuple[str, ...] = RECORD
    derive: Mapping[str, str] = field(default_factory=dict)
    only: str = ""
    variants: tuple[str, ...] = ()
    question: Question | None = None
    name: str = "study"
    title: str = ""

    @property
    def looped(self) -> tuple[Dimension, ...]:
        """Dimensions that vary one place at a time."""
        return tuple(d for d in self.dimensions if d.loops)

    @property
    def numeric(self) -> tuple[Dimension, ...]:
        """Dimensions of numbers, which go through the engine as arrays."""
        return tuple(d for d in self.dimensions if not d.loops)

    @property
    def points(self) -> int:
        """Places of the whole grid; each gives a row a variant."""
        return points(self.dimensions)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes, names first, in the order of rows: the last varies fastest."""
        return tuple(axis for d in (*self.looped, *self.numeric) for axis in d.axes)

    @property
    def fingerprint(self) -> str:
        """Changes with anything that the rows depend on."""
        from iomodel import __version__

        shown = (__version__, self.command, self.base, self.dimensions, self.profiles, self.fixed, self.columns)
        text = repr((*shown, dict(self.derive), self.only, self.variants))
        return hashlib.sha256(text.encode()).hexdigest()

    def places(self) -> Iterator[tuple[int, ...]]:
        """Each combination of names, as places along the looped dimensions."""
        return itertools.product(*(range(len(d)) for d in self.looped))

    def at(self, place: Sequence[int]) -> Place:
        """The study where its names are settled."""
        return Place(self, {a.name: a for d in self.looped for a in d.axes}, _settings(self.looped, place))


def _settings(dimensions: Sequence[Dimension], place: Sequence[int]) -> dict[str, Any]:
    """Axis name -> value at a place of looped dimensions."""
    import numpy

    found: dict[str, Any] = {}
    for dimension, index in zip(dimensions, place, strict=True):
        for axis in dimension.axes:
            if axis.numbers is None:
                found[axis.name] = axis.names[index]
            else:
                found[axis.name] = float(axis.numbers.at(numpy.array([index]))[0])
    return found


@dataclass(frozen=True)
class Place:
    """A study at one combination of its names: numbers still vary."""

    study: Study
    looped: Mapping[str, Axis]
    settings: Mapping[str, Any]

    @property
    def profile(self) -> Profile:
        """The GPU here, with the values that the study or its names set."""
        profile = self.study.profiles[self.settings.get("gpu", self.study.base["gpu"])]
        for key, amount in self.study.fixed.items():
            profile = profile.override(key, amount, "the study")
        return profile

    def analyse(self, numbers: Mapping[str, Any]) -> Analysis:
        """The analysis with numbers (or arrays) for the numeric axes."""
        axes = {axis.name: axis for axis in self.study.axes}
        arguments = {k: v for k, v in self.study.base.items() if k != "gpu"}
        profile = self.profile
        for name, value in {**self.settings, **numbers}.items():
            axis = axes[name]
            if axis.key:
                amount = profile[axis.key] * value if axis.multiple else value
                profile = profile.override(axis.key, amount, "the study")
            elif name != "gpu":
                arguments[name] = value
        return self.study.analyse(**arguments, gpu=[profile])

    def results(self, analysis: Analysis) -> tuple[Result, ...]:
        """The results that the study wants, in order."""
        if not self.study.variants:
            return analysis.results
        found = tuple(r for r in analysis.results if r.variant in self.study.variants)
        known = [r.variant for r in analysis.results]
        if not found:
            raise unknown("variant", ", ".join(self.study.variants), known, self.study.name)
        return found


class Figures(Mapping[str, Any]):
    """The figures that an expression or a column may name: axes, inputs, the flat record of `one` result (of
    the recommended one, where none is given), `VARIANT.figure`, `best.figure` (of the recommended variant),
    `gpu.KEY` (of the profile), derived columns."""

    def __init__(self, place: Place, analysis: Analysis, one: Result | None, numbers: Mapping[str, Any]) -> None:
        self.place, self.analysis, self.one = place, analysis, one
        self.given = {**analysis.inputs, **place.settings, **numbers}
        self.given.pop("gpu", None)
        (self.profile,) = analysis.profiles.values()
        self.records: dict[str, dict[str, Any]] = {}
        self.active: list[str] = []
        self.known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self.known:
            self.known[name] = self._find(name)
        return self.known[name]

    def __contains__(self, name: object) -> bool:
        try:
            self[str(name)]
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        yield from [*RECORD, *FIGURES, *self.given, *self.place.study.derive]
        for variant in (*(r.variant for r in self.analysis.results), "best"):
            yield from (f"{variant}.{figure}" for figure in (*RECORD, *FIGURES))
        yield from (f"gpu.{key}" for key in self.profile.values)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _find(self, name: str) -> Any:
        study = self.place.study
        if name in study.derive:
            if name in self.active:
                chain = " -> ".join([*self.active[self.active.index(name) :], name])
                raise InputError(f"{study.name}: derive: {chain} depends on itself")
            self.active.append(name)
            value = evaluate(study.derive[name], self)
            self.active.pop()
            return value
        if name in RECORD or name in FIGURES:
            return self._best(name) if self.one is None else self._figure(self.one, name)
        if name in self.given:
            return self.given[name]
        head, _, figure = name.rpartition(".")
        if figure in RECORD or figure in FIGURES:
            if head == "best":
                return self._best(figure)
            for result in self.analysis.results:
                if result.variant == head:
                    return self._figure(result, figure)
        if name.startswith("gpu."):
            key = name.removeprefix("gpu.")
            if key in self.profile:
                return self.profile[key]
        raise KeyError(name)

    def _figure(self, result: Result, figure: str) -> Any:
        if figure in FIGURES:
            return FIGURES[figure](result)
        if result.variant not in self.records:
            self.records[result.variant] = record(result)
        return self.records[result.variant][figure]

    def _best(self, figure: str) -> Any:
        from iomodel.arrays import where

        value: Any = None
        for result in self.analysis.results:
            mine = self._figure(result, figure)
            if is_traced(result.recommended) and (
                isinstance(mine, str) or (is_traced(mine) and mine.op == "pick")
            ):
                raise InputError(f"{self.place.study.name}: best.{figure} is a name; rows have it as {figure}")
            value = mine if value is None else where(result.recommended, mine, value)
        return value


@dataclass(frozen=True)
class Words:
    """A column of names: `names[codes]`."""

    names: tuple[str, ...]
    codes: Any


Batch = dict[str, Any]


class Recording:
    """A place of a study recorded: gives the rows of any block of its numeric grid."""

    def __init__(self, place: Place) -> None:
        self.place = place
        study = place.study
        self.axes = [axis for d in study.numeric for axis in d.axes]
        self.program: Program | None = None
        self.constant: dict[tuple[str, int], Words] = {}
        if points(study.numeric) < LEAST_TRACED:
            return
        try:
            numbers = {axis.name: leaf(axis.name) for axis in self.axes}
            analysis = place.analyse(numbers)
            self.layout = self._columns(analysis, numbers)
            self.program = Program([cell for _, cells in self.layout for cell in cells], self._ranges())
        except UntraceableError:
            pass  # an analysis that looks at its numbers: it is called for each block instead
        except InputError as error:
            raise InputError(f"{study.name}: {_shown(place.settings)}{error}") from None

    def _ranges(self) -> dict[str, Range]:
        return {a.name: Range(*a.numbers.ends(), whole=not a.key) for a in self.axes if a.numbers is not None}

    def _columns(self, analysis: Analysis, numbers: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
        """Column -> a cell (number, array or name) for each variant; `only` first, where rows are chosen."""
        study = self.place.study
        results = self.place.results(analysis)
        figures = [Figures(self.place, analysis, one, numbers) for one in results]
        own = [axis.name for axis in study.axes]
        one = ["variant"] if len(analysis.results) > 1 else []
        wanted = list(dict.fromkeys((*own, *one, *study.columns)))
        layout = [(name, [_column(study, f, name) for f in figures]) for name in wanted]
        if study.only:
            layout.insert(0, ("", [evaluate(study.only, f) for f in figures]))
        return layout

    def batch(self, start: int, stop: int) -> Batch:
        """The rows of some places of the numeric grid: point by point, its variants in order."""
        import numpy

        count = stop - start
        given = self._numbers(start, stop)
        if self.program is None:
            try:
                analysis = self.place.analyse(given)
            except InputError as error:
                raise self._blame(given, error) from None
            layout = self._columns(analysis, given)
            cells = [cell for _, row in layout for cell in row]
        else:
            layout = self.layout
            cells = self.program.run(given, count)
        result: Batch = {}
        at = 0
        # One piece of memory for all numbers: the allocator keeps it for the next block.
        memory = iter(numpy.empty((len(layout), count, len(layout[0][1]))))
        for name, recorded in layout:
            width = len(recorded)
            own = cells[at : at + width]
            at += width
            if all(isinstance(c, str) for c in recorded):
                if (name, count) not in self.constant:
                    self.constant[name, count] = _words(recorded, own, count)
                result[name] = self.constant[name, count]
            elif _is_words(recorded):
                result[name] = _words(recorded, own, count)
            else:
                yes_no = all(_is_yes_no(c) for c in own)
                column = numpy.empty((count, width), bool) if yes_no else next(memory)
                for k, cell in enumerate(own):
                    column[:, k] = cell
                result[name] = column.reshape(-1)
        if "" in result:
            chosen = numpy.asarray(result.pop(""), dtype=bool)
            result = {name: _chosen(column, chosen) for name, column in result.items()}
        return result

    def _numbers(self, start: int, stop: int) -> dict[str, Any]:
        """Values of the numeric axes at places start .. stop, one value where an axis does not vary."""
        import numpy

        places = numpy.arange(start, stop)
        given: dict[str, Any] = {}
        for dimension in reversed(self.place.study.numeric):
            places, index = numpy.divmod(places, len(dimension))
            if index[0] == index[-1] and (index == index[0]).all():
                index = index[:1]
            for axis in dimension.axes:
                assert axis.numbers is not None
                values = numpy.asarray(axis.numbers.at(index), dtype=numpy.float64)
                given[axis.name] = values if self.program or values.size > 1 else float(values[0])
        return given

    def _blame(self, given: Mapping[str, Any], error: InputError) -> InputError:
        """The error with the point that causes it."""
        import numpy

        count = max((numpy.size(array) for array in given.values()), default=1)
        for i in range(count):
            point = {name: float(numpy.broadcast_to(array, count)[i]) for name, array in given.items()}
            try:
                self.place.analyse(point)
            except InputError as own:
                return InputError(f"{self.place.study.name}: {_shown({**self.place.settings, **point})}{own}")
        return error


def _column(study: Study, figures: Figures, name: str) -> Any:
    if name == "gpu":
        return figures.profile.name
    try:
        value = figures[name]
    except KeyError:
        raise unknown("column", name, [n for n in figures if "." not in n], study.name) from None
    if isinstance(value, (list, tuple)):
        return "x".join(str(v) for v in value)
    return value


def _words(recorded: Sequence[Any], cells: Sequence[Any], count: int) -> Words:
    """A column of names of a block, point by point with its variants in order."""
    import numpy

    found: list[str] = []
    for cell in recorded:
        found += (
            [cell] if isinstance(cell, str) else cell.args[0] if is_traced(cell) else numpy.unique(cell).tolist()
        )
    names = tuple(dict.fromkeys(found))
    codes = numpy.empty((count, len(recorded)), numpy.int32)
    for k, cell in enumerate(cells):
        text = numpy.asarray(cell)
        for code, name in enumerate(names):
            codes[:, k][numpy.broadcast_to(text == name, count)] = code
    return Words(names, codes.reshape(-1))


def _is_words(recorded: Sequence[Any]) -> bool:
    return any(isinstance(c, str) or (is_traced(c) and c.op == "pick") or _is_text(c) for c in recorded)


def _is_text(cell: Any) -> bool:
    return is_array(cell) and not is_traced(cell) and cell.dtype.kind == "U"


def _is_yes_no(cell: Any) -> bool:
    return isinstance(cell, bool) or (is_array(cell) and cell.dtype == bool)


def _chosen(column: Any, chosen: Any) -> Any:
    return Words(column.names, column.codes[chosen]) if isinstance(column, Words) else column[chosen]


def _shown(settings: Mapping[str, Any]) -> str:
    shown = ", ".join(f"{k} {v:.6g}" if isinstance(v, float) else f"{k} {v}" for k, v in settings.items())
    return f"{shown}: " if shown else ""


@dataclass(frozen=True)
class Units:
    """How a study is cut into units of work: for each combination of names, blocks of the numeric grid.

    A unit never straddles a step of the outer numeric axes once the inner ones fill `LEAST_UNIT`
    points, so that what depends on outer axes only is computed once for it.
    """

    places: tuple[tuple[int, ...], ...]
    inner: int
    pieces: int
    outer: int

    @staticmethod
    def of(study: Study) -> Units:
        """The units of a study."""
        total = points(study.numeric)
        inner = 1
        for dimension in reversed(study.numeric):
            if inner >= LEAST_UNIT:
                break
            inner *= len(dimension)
        return Units(tuple(study.places()), inner, math.ceil(inner / BLOCK), total // inner)

    def __len__(self) -> int:
        return len(self.places) * self.outer * self.pieces

    def __getitem__(self, number: int) -> tuple[tuple[int, ...], int, int]:
        """(place of the names, first point, end) of a unit."""
        place, rest = divmod(number, self.outer * self.pieces)
        outer, piece = divmod(rest, self.pieces)
        size = math.ceil(self.inner / self.pieces)
        start = outer * self.inner + piece * size
        return self.places[place], start, min(start + size, (outer + 1) * self.inner)

    def points(self, number: int) -> int:
        """Points of a unit."""
        _, start, stop = self[number]
        return stop - start


class Worker:
    """Computes units of a study, keeping what it has recorded for the last few places."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.units = Units.of(study)
        self.recordings: dict[tuple[int, ...], Recording] = {}

    def batch(self, number: int) -> Batch:
        """The rows of one unit."""
        place, start, stop = self.units[number]
        if place not in self.recordings:
            while len(self.recordings) >= 4:
                del self.recordings[next(iter(self.recordings))]
            self.recordings[place] = Recording(self.study.at(place))
        return self.recordings[place].batch(start, stop)


def rows(batch: Batch) -> Iterator[Row]:
    """The rows of a batch as dictionaries of plain values."""
    columns = [
        [column.names[c] for c in column.codes.tolist()] if isinstance(column, Words) else column.tolist()
        for column in batch.values()
    ]
    for values in zip(*columns, strict=True):
        yield dict(zip(batch, values, strict=True))


__all__ = [
    "Figures",
    "Place",
    "Question",
    "Recording",
    "Row",
    "Study",
    "Units",
    "Words",
    "Worker",
    "evaluate_cases",
    "rows",
]
