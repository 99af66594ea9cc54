"""`iomodel gpus list | show NAME | lint FILE | new NAME | from-ncu FILE`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from iomodel.catalogue import find_profiles, load_profile
from iomodel.cli.output import write_out
from iomodel.errors import InputError, unknown
from iomodel.render import FORMATS

_HELP = "GPU profiles: what the catalogue holds, and profiles of your own."
_NAMES = typer.Argument(
    ..., metavar="NAME[,NAME...]", help="Catalogue names, aliases, patterns or YAML files.", show_default=False
)
_FILES = typer.Argument(..., metavar="FILE...", help="Profiles (YAML).", show_default=False)
_FORMAT = typer.Option("table", "--format", help=", ".join(FORMATS) + ".")
_OUTPUT = typer.Option(
    None, "--output", help="Write here instead of stdout; replaced whole.", metavar="FILE", show_default=False
)


class _Group(TyperGroup):
    """A group that names its own commands when it is asked for another."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            raise unknown("command", args[0], self.list_commands(ctx), "gpus")
        return super().resolve_command(ctx, args)


def add(app: typer.Typer, name: str, text: str) -> None:
    """Add the group of commands to the application."""
    del text
    group = typer.Typer(help=_HELP, cls=_Group, rich_markup_mode=None)
    group.callback(invoke_without_command=True, help=_HELP)(_bare)
    group.command("list", help="Every profile, a line each.")(list_profiles)
    group.command("show", help="Every value with its source; several: side by side.")(show_profiles)
    group.command("lint", help="Find the mistakes that hardware tables make.")(lint_files)
    group.command("new", help="Write a commented profile to fill in.")(new_profile_file)
    group.command("from-ncu", help="A profile from a wide Nsight Compute export (CSV).")(from_ncu)
    app.add_typer(group, name=name)


def _bare(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        write_out(ctx.get_help() + "\n", None)


def list_profiles(
    vendor: str = typer.Option(None, help="Only this vendor's.", show_default=False),
    min_capacity: str = typer.Option(None, help="Only with at least this much DRAM: 80GB.", show_default=False),
    dtype: str = typer.Option(None, help="Only those that multiply in this dtype: fp8.", show_default=False),
    sort: str = typer.Option(
        "name", help="Largest first: hbm, capacity, l2, tdp, ridge, a dtype; or name, vendor."
    ),
    format_: str = _FORMAT,
    output: str = _OUTPUT,
) -> None:
    """Every profile that passes the filters."""
    from iomodel import catalogue_tables as tables

    _check_format(format_)
    profiles, own = tables.catalogue()
    found = tables.select(profiles, vendor, min_capacity, dtype, sort)
    given = {"vendor": vendor, "min_capacity": min_capacity, "dtype": dtype, "sort": sort}
    if not found:
        _say("no profile passes these filters")
    if format_ == "json":
        write_out(_json("gpus list", given, tables.list_records(found)), output)
    elif format_ == "csv":
        _write_rows(tables.list_records(found) or tables.list_records(profiles)[:1], bool(found), output)
    elif format_ == "markdown":
        from iomodel.render.markdown import table_to_markdown

        table = tables.list_table(found, own, dtype)
        write_out(f"{table_to_markdown(table)}\n\n{tables.list_legend(found, own, dtype)}\n", output)
    elif found:
        from iomodel.render.catalogue import table_in_parts, wrap

        width, colour = _terminal(output)
        text = table_in_parts(tables.list_table(found, own, dtype), width, colour)
        write_out(f"{text}\n\n{wrap(tables.list_legend(found, own, dtype), width, '')}\n", output)


def show_profiles(
    names: list[str] = _NAMES,
    format_: str = _FORMAT,
    output: str = _OUTPUT,
) -> None:
    """One profile whole, or several side by side with ratios to the first."""
    from iomodel import catalogue_tables as tables

    _check_format(format_)
    profiles = find_profiles(",".join(names))
    if format_ == "json":
        write_out(_json("gpus show", {"gpu": ",".join(names)}, tables.profile_documents(profiles)), output)
    elif format_ == "csv":
        _write_rows(tables.value_records(profiles), True, output)
    elif format_ == "markdown":
        write_out(_show_markdown(profiles), output)
    else:
        from iomodel.render.catalogue import profile_to_text, table_in_parts

        width, colour = _terminal(output)
        if len(profiles) == 1:
            write_out(profile_to_text(profiles[0], width), output)
        else:
            write_out(table_in_parts(tables.comparison_table(profiles), width, colour) + "\n", output)


def _show_markdown(profiles: list[Any]) -> str:
    from iomodel import catalogue_tables as tables
    from iomodel.render.markdown import table_to_markdown

    if len(profiles) > 1:
        return table_to_markdown(tables.comparison_table(profiles)) + "\n"
    (profile,) = profiles
    parts = [f"**{profile.name}** {profile.title}", table_to_markdown(tables.ridge_table(profile))]
    parts.append(table_to_markdown(tables.values_table(profile)))
    parts.append("\n".join(f"- {note}" for note in profile.notes))
    return "\n\n".join(part for part in parts if part) + "\n"


def lint_files(
    files: list[str] = _FILES,
) -> int:
    """Findings, one a line; the exit code is 2 when one of them is an error."""
    from iomodel.lint import lint

    findings = {file: lint(file) for file in files}
    for file, found in findings.items():
        if not found:
            _say(f"{file}: nothing found")
    every = [finding for found in findings.values() for finding in found]
    write_out("".join(f"{finding}\n" for finding in every), None)
    return 2 if any(finding.level == "error" for finding in every) else 0


def new_profile_file(
    name: str = typer.Argument(..., metavar="NAME", help="What to call it: my-h100.", show_default=False),
    base: str = typer.Option("h100-sxm", "--from", metavar="GPU", help="The profile to begin with."),
    output: str = typer.Option(
        None, "--output", metavar="FILE", help="Default NAME.yaml here.", show_default=False
    ),
) -> None:
    """A commented copy of a profile, every source still to fill in."""
    from iomodel.newprofile import new_profile

    if name.lower().endswith((".yaml", ".yml")):
        raise InputError(f"profile name {name!r}: write the name, {Path(name).stem}; --output names the file")
    text = new_profile(name, load_profile(base))
    target = output or f"{name}.yaml"
    if Path(target).is_file():
        raise InputError(f"{target}: exists already; choose another name or --output, or delete it")
    write_out(text, target)
    _say(f"wrote {target}; fill in what differs, then: iomodel gpus lint {target}")


def from_ncu(
    file: str = typer.Argument(..., metavar="FILE", help="ncu --page raw --csv, all columns.", show_default=False),
    output: str = _OUTPUT,
) -> None:
    """The profile that the device attributes in an export give, as YAML."""
    from iomodel.importers.ncu_device import profile_from_ncu

    write_out(profile_from_ncu(file), output)


def _check_format(name: str) -> None:
    if name not in FORMATS:
        raise unknown("format", name, FORMATS, "--format")


def _terminal(output: str | None) -> tuple[int, bool]:
    from iomodel.render.text import terminal

    width, colour = terminal()
    return width, colour and output is None


def _json(command: str, inputs: Mapping[str, Any], results: list[dict[str, Any]]) -> str:
    from iomodel import __version__
    from iomodel.table import plain

    given = {key: value for key, value in inputs.items() if value is not None}
    whole = {"iomodel": __version__, "command": command, "inputs": given, "results": results, "notes": []}
    return json.dumps(plain(whole), indent=1, allow_nan=False) + "\n"


def _write_rows(rows: list[dict[str, Any]], with_body: bool, output: str | None) -> None:
    from iomodel.render.machine import rows_to_csv

    text = rows_to_csv(rows)
    write_out(text if with_body else text.partition("\n")[0] + "\n", output)


def _say(text: str) -> None:
    """Talk goes to standard error."""
    if sys.stderr is not None:
        print(f"iomodel: {text}", file=sys.stderr)  # noqa: T201
