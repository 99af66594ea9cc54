"""JSON and CSV: raw SI numbers, never rounded for show."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

from iomodel import __version__
from iomodel.results import Analysis
from iomodel.table import document, flatten, plain


def to_json(analysis: Analysis) -> str:
    """The whole answer as a JSON document."""
    return json.dumps(plain(document(analysis)), indent=1, allow_nan=False) + "\n"


def to_csv(analysis: Analysis) -> str:
    """One row a GPU and variant."""
    return rows_to_csv(flatten(analysis))


def rows_to_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows of equal columns as CSV with a header."""
    text = io.StringIO()
    writer = None
    for row in rows:
        if writer is None:
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(row)
        writer.writerow(["" if v is None else cell(v) for v in row.values()])
    return text.getvalue()


def cell(value: Any) -> str:
    """A CSV cell: whole numbers without a point, other numbers with all their digits."""
    value = plain(value)
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def cases_to_json(command: str, inputs: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> str:
    """The rows of many cases as a JSON document: `results` are flat, the case's columns first."""
    head = {"iomodel": __version__, "command": command, "inputs": plain(inputs)}
    return (
        json.dumps(head | {"results": [plain(row) for row in rows], "notes": []}, indent=1, allow_nan=False) + "\n"
    )


def rows_to_json(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as a JSON array of objects."""
    return json.dumps([plain(row) for row in rows], indent=1, allow_nan=False) + "\n"
