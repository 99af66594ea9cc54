"""`--assert 'fused.speedup >= 2.5'`: a comparison of figures, checked without running any code."""

from __future__ import annotations

from typing import Any

from iomodel.errors import InputError
from iomodel.expression import evaluate
from iomodel.results import Analysis
from iomodel.table import flatten, plain


def false_assertions(assertions: list[str], analysis: Analysis) -> list[str]:
    """The assertions that do not hold, each with the GPU where several are compared."""
    failed = []
    for gpu in analysis.profiles:
        names: dict[str, Any] = {}
        for row in flatten(analysis):
            if row["gpu"] == gpu:
                names |= {f"{row['variant']}.{key}": plain(value) for key, value in row.items()}
        place = f" (on {gpu})" if len(analysis.profiles) > 1 else ""
        failed += [f"{text}{place}" for text in assertions if not _holds(text, names)]
    return failed


def _holds(text: str, names: dict[str, Any]) -> bool:
    value = evaluate(text, names)
    if not isinstance(value, bool):
        raise InputError(f"--assert {text!r} is a value, not a comparison; write e.g. 'fused.speedup >= 2.5'")
    return value
