"""Analysing commands: options from the function's parameters, then call, render, assert, write."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import typer

from iomodel.catalogue import find_profiles, is_path, load_profile
from iomodel.cli.commands import Command
from iomodel.cli.output import write_out
from iomodel.errors import InputError, unknown
from iomodel.parameters import Flag, Parameter, parameters
from iomodel.profile import Profile, parse_override
from iomodel.render import FORMATS, renderer
from iomodel.results import Analysis

_SHARED = "Options that every analysing command takes"


def analysing_command(name: str, command: Command) -> Callable[..., int]:
    """A function whose signature is the analysis' parameters as options, for Typer to read."""
    analyse = command.load()
    known = parameters(analyse)
    signature: list[inspect.Parameter] = []
    for parameter in known.values():
        bare = parameter.name == command.arguments
        signature.append(_word(parameter, command.word) if bare and command.word else _option(parameter, bare))
    if command.arguments and not command.word:
        signature.append(
            _plain("ops_count", str, typer.Option(None, "--ops", help="How many generic ops.", metavar="N"))
        )
    signature += [
        _plain(
            "set_",
            list[str],
            typer.Option([], "--set", help="Override a profile value: hbm=4.0TB/s.", metavar="KEY=QUANTITY"),
        ),
        _plain(
            "cases",
            str,
            typer.Option(
                None,
                "--cases",
                help="One case a row, columns as the options, which fill empty cells; - is stdin.",
                metavar="FILE.csv",
            ),
        ),
        _plain("format_", str, typer.Option("table", "--format", help=", ".join(FORMATS) + ".", metavar="NAME")),
        _plain(
            "output",
            str,
            typer.Option(None, "--output", help="Write here instead of stdout; replaced whole.", metavar="FILE"),
        ),
        _plain(
            "assert_",
            list[str],
            typer.Option([], "--assert", help="Exit 3 unless true: 'fused.speedup >= 2.5'.", metavar="EXPR"),
        ),
    ]

    def handler(**options: Any) -> int:
        return _run(name, command, analyse, options)

    handler.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    handler.__annotations__ = {p.name: p.annotation for p in signature}
    return handler


def _plain(name: str, kind: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind)


def _word(parameter: Parameter, shown: str) -> inspect.Parameter:
    """One bare word, as `graph FILE` takes it."""
    help_text = parameter.kind.help + "."
    return _plain(parameter.name, str, typer.Argument(None, help=help_text, metavar=shown, show_default=False))


def _option(parameter: Parameter, bare: bool) -> inspect.Parameter:
    if bare:
        argument = typer.Argument(None, help=parameter.kind.help + ".", metavar="[OP]...", show_default=False)
        return _plain(parameter.name, list[str], argument)
    text = parameter.kind.help + "."
    if isinstance(parameter.kind, Flag):
        return _plain(parameter.name, bool, typer.Option(False, parameter.option, help=text))
    default = parameter.default
    if default not in (None, ""):
        text += f" Default {default}."
    elif parameter.required:
        text += " Required."
    many = getattr(parameter.kind, "many", False)
    default = [] if many else None
    option = typer.Option(default, parameter.option, help=text, show_default=False, metavar=_metavar(parameter))
    return _plain(parameter.name, list[str] if many else str, option)


def _metavar(parameter: Parameter) -> str:
    return {"Size": "N", "Real": "P", "Name": "NAME", "Text": "TEXT"}.get(type(parameter.kind).__name__, "VALUE")


def _run(name: str, command: Command, analyse: Callable[..., Analysis], options: dict[str, Any]) -> int:
    shown_as, output = options.pop("format_"), options.pop("output")
    cases, asserts = options.pop("cases"), options.pop("assert_")
    overrides = [parse_override(text) for text in options.pop("set_")]
    if shown_as not in FORMATS:
        raise unknown("format", shown_as, FORMATS, "--format")
    if command.arguments and not command.word:
        count, words = options.pop("ops_count"), options.pop(command.arguments)
        if count is not None and words:
            raise InputError("give the ops by name or their number with --ops, not both")
        options[command.arguments] = words or count
    given = {key: value for key, value in options.items() if value not in (None, False, [])}
    for key, parameter in parameters(analyse).items():
        if getattr(parameter.kind, "many", False) and key in given:
            given[key] = ",".join(given[key])
    given.setdefault("gpu", parameters(analyse)["gpu"].default)
    call = partial(_call, analyse, overrides, set())
    if cases is not None:
        from iomodel.cli.cases import run_cases

        return run_cases(call, analyse, cases, given, shown_as, output, asserts)
    for parameter in parameters(analyse).values():
        if parameter.required and parameter.name not in given:
            bare = command.word or f"{parameter.name} (or --ops N)"
            what = bare if parameter.name == command.arguments else parameter.option
            raise InputError(f"{name} needs {what}; see iomodel {name} --help")
    analysis = call(**given)
    failed: list[str] = []
    if asserts:
        from iomodel.cli.asserting import false_assertions

        failed = false_assertions(asserts, analysis)
    write_out(renderer(shown_as)(analysis), output)
    for text in failed:
        typer.echo(f"iomodel: assertion is false: {text}", err=True)
    return 3 if failed else 0


def _call(
    analyse: Callable[..., Analysis], overrides: list[tuple[str, float]], warned: set[str], **given: Any
) -> Analysis:
    """The analysis with the profiles that `gpu` names, each with the values that --set gives."""
    profiles: list[Profile] = []
    gpu = str(given.pop("gpu"))
    for profile in find_profiles(gpu):
        for key, amount in overrides:
            profile = profile.override(key, amount, "--set")
        profiles.append(profile)
    analysis = analyse(**given, gpu=profiles)
    files = [part.strip() for part in gpu.split(",") if is_path(part.strip())]
    if files:
        _warn_of_doubts({load_profile(file).name: file for file in files}, profiles, warned)
    return analysis


def _warn_of_doubts(files: dict[str, str], profiles: list[Profile], warned: set[str]) -> None:
    """One line on stderr, once a run, for each file of a user's own whose values look wrong."""
    from iomodel.lint import doubtful

    for profile in profiles:
        file = files.get(profile.name)
        if file is not None and file not in warned:
            warned.add(file)
            for doubt in doubtful(profile)[:1]:
                text = f"{file}: {doubt.key}: {doubt.text}; check it with: iomodel gpus lint {file}"
                typer.echo(f"iomodel: warning: {text}", err=True)
