"""`--assert 'fused.speedup >= 2.5'`: a comparison of figures, checked without running any code."""

from __future__ import annotations

import sys
from typing import Any

from iomodel.expression import evaluate
from iomodel.results import Analysis
from iomodel.table import flatten, plain


def check(assertions: list[str], analysis: Analysis) -> int:
    """Exit code: 0 if every assertion holds on every GPU, 3 if one is false."""
    code = 0
    for gpu in analysis.profiles:
        names: dict[str, Any] = {}
        for row in flatten(analysis):
            if row["gpu"] == gpu:
                names |= {f"{row['variant']}.{key}": plain(value) for key, value in row.items()}
        for text in assertions:
            if not evaluate(text, names):
                place = f" on {gpu}" if len(analysis.profiles) > 1 else ""
                print(f"iomodel: assertion is false{place}: {text}", file=sys.stderr)  # noqa: T201
                code = 3
    return code
