"""Builds the Typer application, runs it, and turns every failure into one line and an exit code.

Only the command that was asked for is imported and given its options; the others are known by
name and help line. That keeps the start fast.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from typing import Any

import typer

from iomodel.cli.commands import ANALYSES, OTHERS
from iomodel.errors import IomodelError, MachineError


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit code is 0 done, 1 the machine failed, 2 wrong input, 3 assertion false."""
    try:
        code = _invoke(list(arguments))
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except IomodelError as error:
        return _fail(str(error), error.exit_code)
    except (BrokenPipeError, SystemExit):  # a reader that went away; the option parser may exit for it
        _silence()
        return 0
    except OSError as error:
        if error.errno == errno.EPIPE:
            _silence()
            return 0
        _silence()
        return _fail(f"cannot write: {error.strerror or error}", MachineError.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)


def _invoke(arguments: list[str]) -> int:
    arguments = arguments or ["--help"]
    command = typer.main.get_command(build(arguments))
    try:
        result = command.main(args=arguments, prog_name="iomodel", standalone_mode=False)
    except Exception as error:
        # Usage errors of the option parser: it keeps its exception classes private.
        message = getattr(error, "format_message", None)
        if message is None:
            if type(error).__name__ == "Abort":
                return 130
            raise
        return _usage(error, message(), arguments)
    return result if isinstance(result, int) else 0


def _usage(error: Any, message: str, arguments: list[str]) -> int:
    if "No such command" in message:
        from iomodel.errors import unknown

        name = next((a for a in arguments if not a.startswith("-")), "")
        message = str(unknown("command", name, [*ANALYSES, *OTHERS]))
    return _fail(" ".join(message.split()), 2)


def _fail(message: str, code: int) -> int:
    line = " ".join(message.splitlines())
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(f"iomodel: {line}", file=sys.stderr, flush=True)  # noqa: T201
    return code


def _silence() -> None:
    """Point standard output at nothing, so that the interpreter's last flush cannot fail aloud."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def build(arguments: Sequence[str]) -> typer.Typer:
    """The application for these arguments: the named command whole, the others by their help lines."""
    app = typer.Typer(
        name="iomodel",
        help="How many bytes must cross HBM, how many will, how long that takes, what binds, what fusing saves.",
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def version(value: bool) -> None:
        if value:
            from iomodel import __version__

            typer.echo(f"iomodel {__version__}")
            raise typer.Exit

    @app.callback()
    def root(
        show_version: bool = typer.Option(
            False, "--version", callback=version, is_eager=True, help="Show the version."
        ),
    ) -> None:
        del show_version

    named = next((a for a in arguments if not a.startswith("-")), "")
    for name, command in ANALYSES.items():
        if name == named:
            from iomodel.cli.analyse import analysing_command

            app.command(name, help=command.help)(analysing_command(name, command))
        else:
            app.command(name, help=command.help)(_stub)
    for name, (text, module) in OTHERS.items():
        if name == named:
            import importlib

            importlib.import_module(module).add(app, name, text)
        else:
            app.command(name, help=text)(_stub)
    return app


def _stub() -> None:
    """Stands for a command that this run did not ask for."""
