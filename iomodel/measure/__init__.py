"""`iomodel calibrate`: measure this machine's GPU, or take recorded rows, and fit a profile's constants.

Needs the extra `measure` (PyTorch and SciPy); nothing else in iomodel imports this package.
"""

from __future__ import annotations

import importlib
from typing import Any

from iomodel.errors import InputError


def extra(module: str, what: str) -> Any:
    """A module of the extra, or a line that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = {"torch": "PyTorch", "scipy.optimize": "SciPy"}.get(module, module)
        raise InputError(f"{what} needs {name} ({error}): pip install iomodel[measure]") from None
