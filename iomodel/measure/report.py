"""What a calibration leaves: a profile as YAML, and the residuals on rows it was fitted on and not."""

from __future__ import annotations

from collections.abc import Sequence

from iomodel.measure.fit import STYLES, Fit, Found, Style
from iomodel.measurements import Measured
from iomodel.newprofile import profile_text
from iomodel.profile import Profile, Value, dimension
from iomodel.table import Column, Table
from iomodel.units import show
from iomodel.validate import Comparison, compare_all, percent, quantile


def calibrated_text(name: str, title: str, fit: Fit, datasheet: Profile, header: Sequence[str]) -> str:
    """The profile as YAML: datasheet values copied with their sources, then what was measured and fitted."""
    values: dict[str, Value] = {}
    for path, value in fit.profile.values.items():
        if path in fit.profile.assumed:
            continue  # the family's, found again through `architecture`
        copied = path in datasheet and datasheet.values[path] == value
        source = f"copied from the catalogue's {datasheet.name}: {value.source}" if copied else value.source
        values[path] = Value(value.amount, value.dimension, source, value.note, value.called)
    return profile_text(
        name,
        values,
        vendor=datasheet.vendor,
        title=title,
        architecture=datasheet.architecture,
        header=header,
    )


def constants_table(found: Sequence[Found]) -> Table:
    """Each constant before and after."""
    columns = (
        Column("constant"),
        Column("from"),
        Column("before"),
        Column("fitted"),
        Column("figures", "1"),
        Column(""),
    )
    rows = tuple(
        (
            one.key.removeprefix("sustained."),
            one.style,
            show(one.before, dimension(one.key)),
            show(one.value, dimension(one.key)),
            one.figures,
            "at its bound" if one.at_bound else "",
        )
        for one in found
    )
    return Table(columns, rows)


def residuals_table(rows: Sequence[Measured], fit: Fit, before: Profile) -> Table:
    """Median and 90th percentile of |error| by style and way of timing: rows fitted, rows kept back, and
    the median with the constants from before on the rows kept back. A way in brackets is predicted only."""
    after, old = (compare_all(rows, profile=p)[0] for p in (fit.profile, before))
    columns = (
        Column("residuals of"),
        Column("way"),
        Column("fit", "1"),
        Column("median", "%"),
        Column("p90", "%"),
        Column("kept", "1"),
        Column("median", "%"),
        Column("p90", "%"),
        Column("before", "%"),
    )
    body = []
    for style in STYLES:
        mine = [c for c in after if _of(style, c, fit.profile)]
        for way in dict.fromkeys(c.figure for c in mine):
            fitted, kept = (
                [abs(c.error) for c in mine if c.figure == way and c.row.held_out == held]
                for held in (False, True)
            )
            earlier = [
                abs(c.error) for c in old if _of(style, c, fit.profile) and c.figure == way and c.row.held_out
            ]
            name = way if way in style.ways else f"({way})"
            body.append(
                (style.name, name, len(fitted), *_pair(fitted), len(kept), *_pair(kept), _pair(earlier)[0])
            )
    return Table(columns, tuple(body))


def _of(style: Style, one: Comparison, profile: Profile) -> bool:
    return one.figure != "DRAM read" and style.takes(one.row, profile)


def _pair(errors: Sequence[float]) -> tuple[float | None, float | None]:
    if not errors:
        return None, None
    return percent(quantile(errors, 0.5)), percent(quantile(errors, 0.9))
