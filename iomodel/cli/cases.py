"""`--cases FILE.csv`: one case a row, one output row per case and variant."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable
from typing import Any

from iomodel.cli.output import write_out
from iomodel.errors import InputError
from iomodel.results import Analysis
from iomodel.study import Row, evaluate_cases
from iomodel.yamlfile import read_text


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
    cases = []
    for line, row in rows[1:]:
        if len(row) != len(header):
            raise InputError(f"{name}:{line}: {len(row)} cells, the header has {len(header)}")
        cases.append({column: cell.strip() for column, cell in zip(header, row, strict=True)})
    lines = [1, *(line for line, _ in rows[1:])]
    return cases, lambda index: f"{name}:{lines[index + 1]}"


def run_cases(
    call: Callable[..., Analysis],
    analyse: Callable[..., Analysis],
    path: str,
    given: dict[str, Any],
    shown_as: str,
    output: str | None,
    asserts: list[str],
) -> int:
    """Evaluate the cases and write their rows."""
    if asserts:
        raise InputError("--assert does not go with --cases; filter the rows instead")
    cases, where = read_cases(path)
    rows = list(evaluate_cases(call, analyse, cases, given, where))
    write_out(_render(rows, shown_as), output)
    return 0


def _render(rows: list[Row], shown_as: str) -> str:
    from iomodel.render.machine import rows_to_csv, rows_to_json

    if shown_as == "json":
        return rows_to_json(rows)
    if shown_as == "csv":
        return rows_to_csv(rows)
    from iomodel.render.markdown import table_to_markdown
    from iomodel.render.text import table_to_text, terminal
    from iomodel.table import rows_table

    table = rows_table(rows)
    return (table_to_markdown(table) if shown_as == "markdown" else table_to_text(table, *terminal())) + "\n"
