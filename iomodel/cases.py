"""Many cases at once: read from CSV, and evaluated in groups so that numbers are arrays."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from iomodel.arrays import is_array
from iomodel.errors import InputError, unknown
from iomodel.parameters import Size, parameters
from iomodel.results import Analysis
from iomodel.table import flatten
from iomodel.yamlfile import read_text

Row = dict[str, Any]


def read_cases(path: str) -> tuple[list[dict[str, str]], Callable[[int], str]]:
    """The cases of a CSV file (or `-`, stdin), and where each stands."""
    if path == "-":
        if sys.stdin is None:
            raise InputError("--cases -: standard input is closed")
        text = sys.stdin.read()
    else:
        text = read_text(path, largest=256_000_000)
    name = "stdin" if path == "-" else path
    reader = csv.reader(io.StringIO(text))
    try:
        rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise InputError(f"{name}: not a CSV file: {error}") from None
    if not rows:
        raise InputError(f"{name}: no cases; the first row names the columns")
    header = [cell.strip().lstrip("-").replace("-", "_") for cell in rows[0][1]]
    twice = [column for column in header if header.count(column) > 1]
    if twice:
        raise InputError(f"{name}:1: column {twice[0]!r} stands twice")
    if not rows[1:]:
        raise InputError(f"{name}: no cases below the header")
    cases = []
    for line, row in rows[1:]:
        if len(row) != len(header):
            raise InputError(f"{name}:{line}: {len(row)} cells, the header has {len(header)}")
        cases.append({column: cell.strip() for column, cell in zip(header, row, strict=True)})
    lines = [1, *(line for line, _ in rows[1:])]
    return cases, lambda index: f"{name}:{lines[index + 1]}"


def evaluate_cases(
    call: Callable[..., Analysis],
    analyse: Callable[..., Analysis],
    cases: Sequence[Mapping[str, str]],
    fixed: Mapping[str, Any],
    where: Callable[[int], str],
) -> Iterator[Row]:
    """One row a case and variant, in the order of the cases: the case's columns, then the record.

    Cases that differ only in sizes are evaluated together as arrays; names (gpu, dtype, flags) and
    sizes that shape a kernel (head_dim, tiles) make groups. `call` runs `analyse` with its GPUs
    resolved; `where(i)` says where case i stands.
    """
    known = parameters(analyse)
    for name in cases[0] if cases else ():
        if name not in known:
            raise unknown("column", name, known, where(-1))
    rows: dict[int, list[Row]] = {}
    for indices in _groups(cases, known):
        for index, row in _evaluate(call, cases, indices, fixed, known, where):
            rows.setdefault(index, []).append(row)
    for index in range(len(cases)):
        yield from rows[index]


def _groups(cases: Sequence[Mapping[str, str]], known: Mapping[str, Any]) -> Iterable[list[int]]:
    groups: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for index, case in enumerate(cases):
        key = tuple(
            (name, "" if not value.strip() else "given" if _sweeps(known[name].kind) else value)
            for name, value in case.items()
        )
        groups.setdefault(key, []).append(index)
    return groups.values()


def _sweeps(kind: Any) -> bool:
    return isinstance(kind, Size) and not kind.loop


def _evaluate(
    call: Callable[..., Analysis],
    cases: Sequence[Mapping[str, str]],
    indices: list[int],
    fixed: Mapping[str, Any],
    known: Mapping[str, Any],
    where: Callable[[int], str],
) -> Iterator[tuple[int, Row]]:
    arguments: dict[str, Any] = dict(fixed)
    sizes: dict[str, list[float]] = {}
    for name, value in cases[indices[0]].items():
        if not value.strip():
            continue
        if _sweeps(known[name].kind) and len(indices) > 1:
            sizes[name] = [_parse(known[name], cases[i][name], where(i)) for i in indices]
        else:
            arguments[name] = value
    if sizes:
        import numpy

        arguments |= {name: numpy.array(values) for name, values in sizes.items()}
    for parameter in known.values():
        if parameter.required and parameter.name not in arguments:
            raise InputError(f"{where(indices[0])}: no {parameter.name}; add a column, or give {parameter.option}")
    try:
        analysis = call(**arguments)
    except InputError as error:
        if len(indices) == 1:
            raise InputError(f"{where(indices[0])}: {error}") from None
        for index in indices:  # find the case that is wrong
            list(_evaluate(call, cases, [index], fixed, known, where))
        raise
    records = flatten(analysis)
    for place, index in enumerate(indices):
        for one in records:
            yield index, {**cases[index], **{key: _at(value, place) for key, value in one.items()}}


def _parse(parameter: Any, value: str, where: str) -> float:
    try:
        return float(parameter.kind.parse(value, parameter.option))
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _at(value: Any, place: int) -> Any:
    """The value of one case: its place in an array, or the number that all share."""
    if is_array(value):
        return value.item() if value.ndim == 0 else value[place].item()
    return value
