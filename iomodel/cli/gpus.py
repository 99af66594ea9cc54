"""`iomodel gpus list | show NAME`."""

from __future__ import annotations

import typer

from iomodel.catalogue import find_profiles, load_profile, profile_files
from iomodel.cli.output import write_out
from iomodel.render.text import table_to_text, terminal
from iomodel.table import Column, Table


def add(app: typer.Typer, name: str, text: str) -> None:
    """Add the group of commands to the application."""
    group = typer.Typer(help=text, no_args_is_help=True, rich_markup_mode=None)
    group.command("list", help="Every profile, a line each.")(list_profiles)
    group.command("show", help="Every value of a profile with its source, and ridge points.")(show_profile)
    app.add_typer(group, name=name)


def list_profiles() -> None:
    """Every profile, a line each."""
    columns = (
        Column("GPU"),
        Column("HBM", "bytes/s"),
        Column("capacity", "bytes"),
        Column("bf16", "FLOP/s"),
        Column("ridge", "FLOP/B"),
    )
    rows = []
    for name in profile_files():
        profile = load_profile(name)
        bf16 = profile["compute.matmul:bf16"] if "compute.matmul:bf16" in profile else None
        rows.append(
            (
                name,
                profile["memory.hbm"],
                profile["memory.capacity"] if "memory.capacity" in profile else None,
                bf16,
                bf16 / profile["memory.hbm"] if bf16 else None,
            )
        )
    write_out(table_to_text(Table(columns, tuple(rows)), *terminal()) + "\n", None)


def show_profile(name: str = typer.Argument(..., help="A catalogue name, an alias, or a YAML file.")) -> None:
    """Every value of a profile with its source, and ridge points."""
    from iomodel.units import show

    for profile in find_profiles(name):
        lines = [f"{profile.name}  {profile.title}  ({profile.vendor}, {profile.architecture})", ""]
        for key, value in profile.values.items():
            family = profile.assumed.get(key)
            source = f"{family} family: {value.source}" if family else value.source
            lines.append(f"  {key:28} {show(value.amount, value.dimension):>14}  {source}")
        lines += [
            "",
            "  ridge points, FLOP/B: " + ", ".join(f"{d} {profile.ridge_point(d):.1f}" for d in profile.dtypes()),
        ]
        write_out("\n".join(lines) + "\n", None)
