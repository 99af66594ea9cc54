"""The command line: parse, call, render. No arithmetic here."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the `iomodel` command; its value is the exit code."""
    import gc

    gc.set_threshold(100_000)  # imports allocate much and drop nothing: collecting meanwhile is lost time
    from iomodel.cli.app import run

    sys.exit(run(sys.argv[1:]))
