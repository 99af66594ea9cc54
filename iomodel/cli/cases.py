"""`--cases FILE.csv`: one case a row, one output row per case and variant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iomodel.cases import Row, evaluate_cases, read_cases
from iomodel.cli.output import write_out
from iomodel.errors import InputError
from iomodel.results import Analysis


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
    write_out(_render(rows, shown_as, analyse.__name__.replace("_", "-"), given), output)
    return 0


def _render(rows: list[Row], shown_as: str, command: str, given: dict[str, Any]) -> str:
    from iomodel.render.machine import cases_to_json, rows_to_csv

    if shown_as == "json":
        return cases_to_json(command, given, rows)
    if shown_as == "csv":
        return rows_to_csv(rows)
    from iomodel.render.markdown import table_to_markdown
    from iomodel.render.text import table_to_text, terminal
    from iomodel.table import rows_table

    table = rows_table(rows)
    return (table_to_markdown(table) if shown_as == "markdown" else table_to_text(table, *terminal())) + "\n"
