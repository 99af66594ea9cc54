"""`iomodel validate`: the model against shipped measurements, or one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from iomodel.cli.output import write_out
from iomodel.errors import InputError, unknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iomodel.measurements import Measured
    from iomodel.table import Table
    from iomodel.validate import Report, Summary

HELP = (
    "Run the model on recorded measurements: median and 90th percentile of |error| by family, "
    "the rows it misses most, and bounds that a measurement beats."
)

#: Worst rows shown.
WORST = 12

_DATA = typer.Option(
    [],
    "--data",
    help="Your own rows instead, in either format of configs/measurements; repeatable.",
    metavar="FILE.csv",
    show_default=False,
)


def add(app: typer.Typer, name: str, text: str) -> None:
    """Add the command to the application."""
    del text
    app.command(name, help=HELP)(validate)


def validate(
    data: list[str] = _DATA,
    against: str = typer.Option(
        "model", "--against", help="What predicts: model, roofline, constant.", metavar="NAME"
    ),
    gpu: str = typer.Option(
        None,
        "--gpu",
        help="Only rows of these GPUs; with --data, also the GPU of rows that name none.",
        metavar="NAME[,NAME]",
        show_default=False,
    ),
    profile: str = typer.Option(
        None,
        "--profile",
        help="Predict with this profile instead of each row's own GPU.",
        metavar="NAME",
        show_default=False,
    ),
    family: str = typer.Option(
        None,
        "--family",
        help="Only families that begin so: attention, 'gemm bf16', chain.",
        metavar="NAME[,NAME]",
        show_default=False,
    ),
    held_out: bool = typer.Option(False, "--held-out", help="Only rows that fits leave out."),
    format_: str = typer.Option("table", "--format", help="table, json, csv, markdown.", metavar="NAME"),
    json_: bool = typer.Option(False, "--json", help="As --format json."),
    output: str = typer.Option(
        None,
        "--output",
        help="Write here instead of stdout; replaced whole.",
        metavar="FILE",
        show_default=False,
    ),
) -> None:
    """Read, filter, compare, show."""
    from iomodel.catalogue import load_profile
    from iomodel.render import FORMATS
    from iomodel.validate import AGAINST
    from iomodel.validate import validate as compare

    shown_as = "json" if json_ else format_
    if shown_as not in FORMATS:
        raise unknown("format", shown_as, FORMATS, "--format")
    if against not in AGAINST:
        raise unknown("baseline", against, AGAINST, "--against")
    predictor = load_profile(profile) if profile else None
    rows = _kept(_rows(data, gpu or ""), gpu or "", family or "", held_out)
    report = compare(rows, against, predictor)
    if not report.comparisons and not report.writes:
        raise InputError("validate: none of the rows holds a figure that the model predicts")
    inputs = {
        "data": data,
        "against": against,
        "gpu": gpu,
        "profile": predictor.name if predictor else None,
        "family": family,
        "held_out": held_out,
    }
    write_out(_SHOWN[shown_as](report, rows, inputs), output)


def _rows(data: list[str], gpu: str) -> list[Measured]:
    from iomodel.measurements import read_measurements, shipped

    if not data:
        return shipped()
    named = gpu if gpu and "," not in gpu else ""
    return [row for file in data for row in read_measurements(file, named)]


def _kept(rows: list[Measured], gpu: str, family: str, held_out: bool) -> list[Measured]:
    """The rows that the filters leave; a filter that leaves none says what there is."""
    from iomodel.catalogue import load_profile

    if gpu:
        present = {row.gpu for row in rows}
        wanted = {part if part in present else load_profile(part).name for part in gpu.split(",")}
        if not wanted & present:
            raise unknown("GPU", gpu, present, "--gpu: no rows of it")
        rows = [row for row in rows if row.gpu in wanted]
    if family:
        prefixes = tuple(part.strip() for part in family.split(","))
        families = {row.family.removeprefix("table ") for row in rows}
        rows = [row for row in rows if f"{row.family.removeprefix('table ')} {row.variant}".startswith(prefixes)]
        if not rows:
            raise unknown("family", family, families, "--family")
    return [row for row in rows if row.held_out] if held_out else rows


def _title(inputs: Mapping[str, Any]) -> str:
    from iomodel.validate import DESCRIPTIONS

    text = f"validate  {DESCRIPTIONS[inputs['against']]} against measurements"
    if inputs["profile"]:
        text += f", with {inputs['profile']}"
    return text + (", rows that fits leave out" if inputs["held_out"] else "")


def _tables(report: Report) -> list[Table]:
    from iomodel.validate import summarise, summary_table, worst_table, writes_table

    tables = [summary_table(summarise(report.comparisons)), worst_table(report.comparisons, WORST)]
    return [*tables, writes_table(report.writes)] if report.writes else tables


def _closing(report: Report, rows: Sequence[Measured]) -> list[str]:
    """Bounds that do not hold, and rows that nobody was asked about."""
    from iomodel.recorded import unasked

    lines = [f"bound violated: {text}" for text in report.violations] or ["bound violations: none"]
    skipped = unasked(rows)
    if skipped:
        listed = ", ".join(f"{name} {count}" for name, count in skipped.items())
        lines.append(f"not compared, since no analysis covers them: {listed}")
    return lines


def _as_text(report: Report, rows: Sequence[Measured], inputs: Mapping[str, Any]) -> str:
    import textwrap

    from iomodel.render.text import table_to_text, terminal

    width, colour = terminal()
    parts = [textwrap.fill(_title(inputs), width)]
    parts += [table_to_text(table, width, colour) for table in _tables(report)]
    parts.append("\n".join(textwrap.fill(line, width, subsequent_indent="  ") for line in _closing(report, rows)))
    return "\n\n".join(parts) + "\n"


def _as_markdown(report: Report, rows: Sequence[Measured], inputs: Mapping[str, Any]) -> str:
    from iomodel.render.markdown import table_to_markdown

    parts = [f"**{_title(inputs)}**", *(table_to_markdown(table) for table in _tables(report))]
    return "\n\n".join([*parts, "\n".join(f"- {line}" for line in _closing(report, rows))]) + "\n"


def _as_json(report: Report, rows: Sequence[Measured], inputs: Mapping[str, Any]) -> str:
    import json

    from iomodel import __version__
    from iomodel.recorded import unasked
    from iomodel.table import plain
    from iomodel.validate import summarise

    worst = sorted(report.comparisons, key=lambda one: -abs(one.error))[:WORST]
    document = {
        "iomodel": __version__,
        "command": "validate",
        "inputs": dict(inputs),
        "rows": len(rows),
        "families": [_summary(one) for one in summarise(report.comparisons)],
        "worst": _records_of(worst),
        "writes": [
            {
                "row": one.row.name,
                "predicted": one.predicted,
                "measured": one.measured,
                "least": one.least,
                "most": one.most,
                "inside": one.inside,
            }
            for one in report.writes
        ],
        "violations": list(report.violations),
        "not_compared": unasked(rows),
    }
    return json.dumps(plain(document), indent=1, allow_nan=False) + "\n"


def _summary(one: Summary) -> dict[str, Any]:
    return {
        "family": one.family,
        "figure": one.figure,
        "rows": one.rows,
        "median": one.median,
        "p90": one.p90,
        "max": one.worst,
        "worst_row": one.worst_row,
    }


def _records_of(comparisons: Sequence[Any]) -> list[dict[str, Any]]:
    """One flat record a figure: SI numbers, errors as shares."""
    return [
        {
            "row": one.row.name,
            "family": one.family,
            "gpu": one.row.gpu,
            "figure": one.figure,
            "held_out": one.row.held_out,
            "predicted": one.predicted,
            "measured": one.measured,
            "error": one.error,
        }
        for one in comparisons
    ]


def _as_csv(report: Report, rows: Sequence[Measured], inputs: Mapping[str, Any]) -> str:
    from iomodel.render.machine import rows_to_csv

    del rows, inputs
    return rows_to_csv(_records_of(report.comparisons))


_SHOWN = {"table": _as_text, "json": _as_json, "csv": _as_csv, "markdown": _as_markdown}
