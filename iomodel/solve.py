"""Answers on a study's grid: the first place where something holds, crossovers, Pareto fronts, sensitivities.

Places are found on the grid of the axis and narrowed by bisection on the model itself; every answer is
then evaluated again, and once more one step before.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from iomodel.arrays import is_array
from iomodel.axes import Axis, Dimension, points
from iomodel.cases import Row
from iomodel.errors import InputError, unknown
from iomodel.expression import evaluate
from iomodel.profile import dimension
from iomodel.study import Figures, Place, Study, Worker, rows
from iomodel.units import parse_quantity

#: Places of an axis that are looked at before bisection, and most points that one question looks at.
LOOKED_AT, MOST_POINTS = 257, 2_000_000


@dataclass(frozen=True)
class Answers:
    """Rows of answers, and notes on them in words."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


def answer(study: Study) -> Answers:
    """The answers to a study's question."""
    assert study.question is not None
    kinds: dict[str, Callable[[Study], Answers]] = {
        "find": find,
        "crossover": crossover,
        "pareto": pareto,
        "sensitivity": sensitivity,
    }
    return kinds[study.question.kind](study)


# --- find -------------------------------------------------------------------------------------


def find(study: Study) -> Answers:
    """The first (or last) value of an axis where a condition holds, for each place of the other axes.

    A row each: `answer` is `found`, `always` (it holds at the end where the search begins) or
    `never`; `next_to` is the value one step away, where it does not hold. Plain figures are the
    recommended variant's.
    """
    settings = _settings(study)
    ends = [end for end in ("first", "last") if end in settings]
    if len(ends) != 1 or "where" not in settings:
        raise InputError(f"{_where(study)}: find needs first: AXIS (or last: AXIS) and where: CONDITION")
    axis = _axis(study, str(settings[ends[0]]))
    search = _Search(study, axis, settings)
    text = str(settings["where"])

    def holds(place: Place, numbers: Mapping[str, Any]) -> Any:
        value = evaluate(text, _figures(place, numbers))
        if not (isinstance(value, bool) or (is_array(value) and value.dtype == bool)):
            raise InputError(f"{_where(study)}: {text!r} is a number; compare it with one")
        return value

    found: list[Row] = []
    turning = 0
    for place, other in search.places():
        edges = search.edges(place, other, holds)
        turning += edges.turns > 1
        row: Row = {**place.settings, **other}
        states = edges.states if ends[0] == "first" else edges.states[::-1]
        values = edges.values if ends[0] == "first" else edges.values[::-1]
        if not any(states):
            found.append(row | {axis.name: None, "next_to": None, "answer": "never"} | _nothing(study))
            continue
        at = states.index(True)
        if at == 0:
            value, beside = values[0], None
        else:
            value, beside = search.narrow(place, other, holds, true=values[at], false=values[at - 1])
        verdict = "always" if at == 0 else "found"
        row |= {axis.name: value, "next_to": beside, "answer": verdict}
        found.append(row | _shown(study, place, {**other, axis.name: value}))
    notes = (
        [f"{turning} of these hold, fail and hold again along {axis.name}; the outermost is shown"]
        if turning
        else []
    )
    return Answers(tuple(found), tuple(notes))


@dataclass(frozen=True)
class _Edges:
    values: list[float]
    states: list[bool]

    @property
    def turns(self) -> int:
        return sum(a != b for a, b in zip(self.states, self.states[1:], strict=False))


class _Search:
    """Looks along one axis of a study, at each place of the others."""

    def __init__(self, study: Study, axis: Axis, settings: Mapping[str, Any]) -> None:
        self.study, self.axis = study, axis
        self.others = tuple(d for d in study.numeric if d.axes[0].name != axis.name)
        assert axis.numbers is not None
        import numpy

        count = len(axis.numbers)
        places = numpy.unique(numpy.linspace(0, count - 1, min(count, LOOKED_AT)).astype(numpy.int64))
        self.values = sorted(set(axis.numbers.at(places).tolist()))
        total = points(self.others) * math.prod(len(d) for d in study.looped) * len(self.values)
        if total > MOST_POINTS:
            raise InputError(f"{_where(study)}: {total:,} points to look at; {MOST_POINTS:,} are the most")
        self.step = self._step(settings.get("step"))

    def _step(self, written: Any) -> float:
        if written is None:
            return 1.0 if not self.axis.key else self.values[0] / 1000.0
        try:
            if self.axis.key and not self.axis.multiple:
                step = parse_quantity(written, dimension(self.axis.key))
            else:
                step = float(str(written).removesuffix("x"))
        except (InputError, ValueError):
            step = 0.0
        if not step > 0 or (not self.axis.key and step != math.floor(step)):
            raise InputError(f"{_where(self.study)}: step: {written!r} is not a step of {self.axis.name}")
        return step

    def places(self) -> Iterator[tuple[Place, dict[str, float]]]:
        """Each place of the names and of the other numbers."""
        return _places(self.study, self.others)

    def edges(self, place: Place, other: Mapping[str, float], holds: Callable[..., Any]) -> _Edges:
        """Where a condition holds on the axis' own values."""
        import numpy

        values = numpy.array(self.values)
        states = numpy.broadcast_to(holds(place, {**other, self.axis.name: values}), values.shape)
        return _Edges(self.values, [bool(s) for s in states])

    def narrow(
        self, place: Place, other: Mapping[str, float], holds: Callable[..., Any], true: float, false: float
    ) -> tuple[float, float]:
        """(value where the condition holds, one step from it where it does not), by bisection.

        Values are `false` + k x step; the last is `true` itself.
        """
        sign = 1.0 if true > false else -1.0
        count = math.ceil(abs(true - false) / self.step - 1e-9)

        def value(k: int) -> float:
            return true if k == count else false + sign * self.step * k

        def at(k: int) -> bool:
            return bool(holds(place, {**other, self.axis.name: value(k)}))

        low, high = 0, count
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if at(middle) else (middle, high)
        if not at(high) or at(low):
            raise InputError(
                f"{_where(self.study)}: near {self.axis.name} = {value(high):.6g} an array and a number disagree; "
                "please report this"
            )
        return value(high), value(low)


# --- crossover --------------------------------------------------------------------------------


def crossover(study: Study) -> Answers:
    """Every place along an axis where one of two variants (or GPUs) overtakes the other, for each place of
    the other axes. A row each: `ahead` is less (faster, smaller) from there on, `next_to` the last value
    where it is not; a row without a value says who is ahead everywhere."""
    settings = _settings(study)
    pair = settings.get("between")
    if "on" not in settings or not isinstance(pair, list) or len(pair) != 2:
        raise InputError(f"{_where(study)}: crossover needs on: AXIS and between: [A, B]")
    axis, (a, b) = _axis(study, str(settings["on"])), (str(x) for x in pair)
    by = str(settings.get("by", "seconds_expected"))
    between_gpus = a in study.profiles and b in study.profiles
    if between_gpus:
        kept = tuple(d for d in study.dimensions if d.axes[0].name != "gpu")
        study_of = replace(study, dimensions=kept, base={**study.base, "gpu": a})
    else:
        study_of = study
    search = _Search(study_of, axis, settings)

    def leads(place: Place, numbers: Mapping[str, Any]) -> Any:
        """Whether b is ahead of a."""
        if not between_gpus:
            figures = _figures(place, numbers)
            return _figure(study, figures, f"{b}.{by}") < _figure(study, figures, f"{a}.{by}")
        sides = []
        for gpu in (a, b):
            there = Place(replace(study_of, base={**study.base, "gpu": gpu}), {}, place.settings)
            sides.append(_figure(study, _figures(there, numbers), by))
        return sides[1] < sides[0]

    found: list[Row] = []
    for place, other in search.places():
        edges = search.edges(place, other, leads)
        row: Row = {**place.settings, **other}
        for i in range(1, len(edges.values)):
            before, after = edges.states[i - 1], edges.states[i]
            if before != after:

                def overtaken(p: Place, n: Mapping[str, Any], to: bool = after) -> Any:
                    return leads(p, n) == to

                value, beside = search.narrow(place, other, overtaken, edges.values[i], edges.values[i - 1])
                found.append(row | {axis.name: value, "next_to": beside, "ahead": b if after else a})
        if edges.turns == 0:
            found.append(row | {axis.name: None, "next_to": None, "ahead": b if edges.states[0] else a})
    return Answers(tuple(found))


# --- pareto -----------------------------------------------------------------------------------


def pareto(study: Study) -> Answers:
    """The rows that no other row beats in every figure of `least` and `most` (within equal `within`)."""
    settings = _settings(study)
    least, most, within = ([str(x) for x in _listed(settings.get(key))] for key in ("least", "most", "within"))
    if len(least) + len(most) < 2:
        raise InputError(f"{_where(study)}: pareto needs two figures or more in least: and most:")
    columns = tuple(dict.fromkeys((*study.columns, *least, *most, *within)))
    wide = replace(study, columns=columns)
    worker = Worker(wide)
    fronts: dict[tuple[Any, ...], list[Row]] = {}
    for number in range(len(worker.units)):
        for row in rows(worker.batch(number)):
            key = tuple(row[name] for name in within)
            fronts[key] = _front(fronts.get(key, []), row, least, most)
    order = least or most
    return Answers(tuple(row for front in fronts.values() for row in sorted(front, key=lambda r: r[order[0]])))


def _front(front: list[Row], row: Row, least: Sequence[str], most: Sequence[str]) -> list[Row]:
    def score(r: Row) -> tuple[float, ...]:
        return (*(r[name] for name in least), *(-r[name] for name in most))

    mine = score(row)
    scores = [score(other) for other in front]
    if any(all(o <= m for o, m in zip(other, mine, strict=True)) for other in scores):
        return front
    kept = [r for r, s in zip(front, scores, strict=True) if not all(m <= o for m, o in zip(mine, s, strict=True))]
    return [*kept, row]


# --- sensitivity ------------------------------------------------------------------------------


def sensitivity(study: Study) -> Answers:
    """Which profile values move a figure most: elasticities d ln(figure) / d ln(value), the largest first.

    Central differences of `by` (1 %). -1 means that 1 % more of the value makes the figure 1 % less.
    """
    settings = _settings(study)
    of = str(settings.get("of", "seconds_expected"))
    step = _percent(study, settings.get("by", "1%"))
    most = int(float(str(settings.get("most", 10))))
    only = [str(key) for key in _listed(settings.get("to"))]
    if study.points > 1000:
        raise InputError(f"{_where(study)}: sensitivity at {study.points:,} points; 1,000 are the most")
    found: list[Row] = []
    for place, numbers in _places(study, study.numeric):
        keys = [_path(study, key, place) for key in only] or list(place.profile.values)
        own: list[Row] = []
        for key in keys:
            value = place.profile[key]
            if not value:
                continue
            low, high = (_moved(study, place, numbers, key, value * f, of) for f in (1.0 - step, 1.0 + step))
            if low <= 0 or high <= 0 or not math.isfinite(high / low):
                continue
            elasticity = math.log(high / low) / math.log((1.0 + step) / (1.0 - step))
            if abs(elasticity) >= 0.0005:
                own.append({**place.settings, **numbers, "value": key, "elasticity": elasticity})
        found += sorted(own, key=lambda row: -abs(row["elasticity"]))[:most]
    return Answers(tuple(found), (f"elasticity of {of}: +1 % of the value changes it by so many %",))


def _moved(study: Study, place: Place, numbers: Mapping[str, float], key: str, amount: float, of: str) -> float:
    fixed = {**study.fixed, key: amount}
    there = Place(replace(study, fixed=fixed), place.looped, place.settings)
    return float(_figure(study, _figures(there, numbers), of))


def _path(study: Study, key: str, place: Place) -> str:
    from iomodel.profile import resolve_key

    path = resolve_key(key.removeprefix("set."))
    if path not in place.profile:
        raise InputError(f"{_where(study)}: {place.profile.name} has no {path}")
    return path


def _percent(study: Study, written: Any) -> float:
    text = str(written).strip()
    try:
        value = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        value = 0.0
    if not 0 < value < 0.5:
        raise InputError(f"{_where(study)}: by: {written!r} is not a small share, as 1%")
    return value


# --- shared -----------------------------------------------------------------------------------


def _places(study: Study, numeric: Sequence[Dimension]) -> Iterator[tuple[Place, dict[str, float]]]:
    """Each place of a study's names, with each point of some numeric dimensions."""
    import numpy

    for names in study.places():
        place = study.at(names)
        for indices in itertools.product(*(range(len(d)) for d in numeric)):
            numbers: dict[str, float] = {}
            for along, index in zip(numeric, indices, strict=True):
                for axis in along.axes:
                    assert axis.numbers is not None
                    numbers[axis.name] = float(axis.numbers.at(numpy.array([index]))[0])
            yield place, numbers


def _settings(study: Study) -> Mapping[str, Any]:
    assert study.question is not None
    return study.question.settings


def _where(study: Study) -> str:
    return study.question.where if study.question else study.name


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list) else [value]


def _axis(study: Study, name: str) -> Axis:
    numeric = {axis.name: axis for d in study.numeric for axis in d.axes}
    if name not in numeric:
        if name in [axis.name for axis in study.axes]:
            raise InputError(
                f"{_where(study)}: {name} varies one value at a time; name an axis of sizes or quantities"
            )
        raise unknown("axis", name, numeric, _where(study))
    (own,) = (d for d in study.numeric if name in [axis.name for axis in d.axes])
    if len(own.axes) > 1:
        raise InputError(f"{_where(study)}: {name} is zipped with other axes; search along one of its own")
    return numeric[name]


def _figures(place: Place, numbers: Mapping[str, Any]) -> Figures:
    try:
        analysis = place.analyse(numbers)
    except InputError as error:
        raise InputError(f"{place.study.name}: {error}") from None
    results = place.results(analysis)
    return Figures(place, analysis, results[0] if len(results) == 1 else None, numbers)


def _figure(study: Study, figures: Figures, name: str) -> Any:
    try:
        return figures[name]
    except KeyError:
        raise unknown("figure", name, [n for n in figures if not n.startswith("gpu.")], _where(study)) from None


def _shown(study: Study, place: Place, numbers: Mapping[str, Any]) -> Row:
    """The study's own columns at an answer."""
    from iomodel.studyfile import COLUMNS

    if study.columns == COLUMNS:
        return {}
    figures = _figures(place, numbers)
    return {
        name: figures.profile.name if name == "gpu" else _figure(study, figures, name) for name in study.columns
    }


def _nothing(study: Study) -> Row:
    from iomodel.studyfile import COLUMNS

    return {} if study.columns == COLUMNS else dict.fromkeys(study.columns)
