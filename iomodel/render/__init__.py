"""Output formats. To add one, write a function from an Analysis to text and enter it in FORMATS."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from iomodel.results import Analysis

#: Format -> (module, function). Modules load when used.
FORMATS: dict[str, tuple[str, str]] = {
    "table": ("iomodel.render.text", "render"),
    "json": ("iomodel.render.machine", "to_json"),
    "csv": ("iomodel.render.machine", "to_csv"),
    "markdown": ("iomodel.render.markdown", "render"),
}


def renderer(name: str) -> Callable[[Analysis], str]:
    """The function of a format."""
    module, function = FORMATS[name]
    found: Callable[[Analysis], str] = getattr(importlib.import_module(module), function)
    return found
