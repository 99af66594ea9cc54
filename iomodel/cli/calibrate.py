"""`iomodel calibrate`: a profile for the GPU in this machine, or from recorded rows."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from iomodel.cli.output import write_out
from iomodel.errors import InputError

if TYPE_CHECKING:
    from iomodel.measurements import Measured
    from iomodel.profile import Profile

HELP = (
    "Measure the GPU in this machine and fit a profile's launch and sustained constants. "
    "Needs PyTorch and three minutes; with --data, only recorded rows and SciPy."
)


#: What a profile may be called.
PROFILE_NAME = re.compile(r"[a-z0-9][a-z0-9._+-]*")

_DATA = typer.Option(
    [], "--data", help="Fit these rows, with no GPU; repeatable.", metavar="FILE.csv", show_default=False
)


def add(app: typer.Typer, name: str, text: str) -> None:
    """Add the command to the application."""
    del text
    app.command(name, help=HELP)(calibrate)


def calibrate(
    data: list[str] = _DATA,
    like: str = typer.Option(
        None, "--like", help="Take datasheet rates from this profile.", metavar="NAME", show_default=False
    ),
    output: str = typer.Option(
        None,
        "--output",
        help="The profile to write; measured rows go beside it as .csv. Default my-NAME.yaml.",
        metavar="FILE.yaml",
        show_default=False,
    ),
    quick: bool = typer.Option(False, "--quick", help="A third of the workloads, in under a minute."),
    seed: int = typer.Option(0, "--seed", help="Of the random inputs.", metavar="N"),
) -> None:
    """Measure or read rows, fit, write the rows and the profile, print the residuals."""
    target = _target(output) if output else None
    if data:
        if quick:
            raise InputError("--quick measures less; with --data nothing is measured")
        _from_rows(data, like or "", target)
    else:
        _from_gpu(like or "", target, quick, seed)


def _target(output: str) -> Path:
    """Where the profile goes; what would fail at the end fails now."""
    target = Path(output)
    if target.suffix not in (".yaml", ".yml"):
        raise InputError(f"--output {output}: the name of a profile ends in .yaml")
    if not PROFILE_NAME.fullmatch(target.stem):
        raise InputError(
            f"--output {output}: name the file in small letters, digits and dashes, e.g. my-h100.yaml"
        )
    if not target.parent.is_dir():
        raise InputError(f"--output {output}: there is no folder {target.parent}")
    return target


def _from_rows(files: list[str], like: str, target: Path | None) -> None:
    from iomodel.catalogue import load_profile
    from iomodel.measure import extra
    from iomodel.measurements import read_measurements

    extra("scipy.optimize", "fitting")
    given = load_profile(like) if like else None
    rows = [row for file in files for row in read_measurements(file, given.name if given else "")]
    gpus = sorted({row.gpu for row in rows})
    if len(gpus) > 1:
        if given is None or given.name not in gpus:
            raise InputError(f"--data: rows of {', '.join(gpus)}; choose one of these with --like")
        rows = [row for row in rows if row.gpu == given.name]
    datasheet = given or load_profile(gpus[0])
    name = datasheet.name if datasheet.name.startswith("my-") else f"my-{datasheet.name}"
    what = ", ".join(dict.fromkeys([Path(file).name for file in files] + [row.how for row in rows if row.how][:1]))
    _finish(rows, datasheet, datasheet, name, datasheet.title, what, target, None)


def _from_gpu(like: str, target: Path | None, quick: bool, seed: int) -> None:
    from iomodel.measure import extra

    torch = extra("torch", "measuring")
    extra("scipy.optimize", "fitting")
    from iomodel.measure.device import datasheet_of, described, find_device
    from iomodel.measure.session import measure, rows_text

    device = find_device(torch)
    datasheet = datasheet_of(device, like)
    profile = described(device, datasheet)
    name = f"my-{device.slug}"
    session = measure(torch, device, profile, name if like else datasheet.name, quick, seed)
    for line in session.left_out:
        typer.echo(f"left out: {line}", err=True)
    if not session.rows:
        raise InputError("calibrate: no workload ran on this GPU; the lines above say why")
    what = session.rows[0].how
    _finish(session.rows, profile, datasheet, name, device.title, what, target, rows_text(session.rows))


def _finish(
    rows: list[Measured] | tuple[Measured, ...],
    profile: Profile,
    datasheet: Profile,
    name: str,
    title: str,
    what: str,
    target: Path | None,
    raw: str | None,
) -> None:
    """Fit and report; files are written last and each is whole or not there."""
    from iomodel.measure.fit import fit
    from iomodel.measure.report import calibrated_text, constants_table, residuals_table
    from iomodel.render.text import table_to_text, terminal

    today = date.today().isoformat()

    def source(style: str, figures: int) -> str:
        if style == "launch":
            return f"measured: {what}"
        return f"fitted {today} on {figures} figures of {style} kernels: {what}"

    fitted = fit(profile, rows, source)
    if not fitted.found:
        raise InputError("calibrate: no constant can be fitted from these rows: " + "; ".join(fitted.left))
    file = target or Path(f"{name}.yaml")
    own = file.stem
    header = [
        f"{title}, calibrated {today} with iomodel calibrate.",
        f"Check it with: iomodel gpus lint {file.name}",
    ]
    text = calibrated_text(own, title, fitted, datasheet, header)
    width, colour = terminal()
    tables = [constants_table(fitted.found), residuals_table(rows, fitted, profile)]
    report = "\n\n".join(table_to_text(table, width, colour) for table in tables)
    if raw is not None:
        write_out(raw, str(file.with_suffix(".csv")))
    write_out(text, str(file))
    for line in fitted.left:
        typer.echo(f"not fitted: {line}", err=True)
    written = f"{file.with_suffix('.csv')} and {file}" if raw is not None else str(file)
    legend = (
        "kept: rows that the fit did not see; before: their median error with the old\n"
        "constants; (way): predicted, but not used in the fit."
    )
    write_out(f"{report}\n\n{legend}\n\nwritten: {written}\n", None)
