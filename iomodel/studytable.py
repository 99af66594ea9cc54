"""Rows of a study as a table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iomodel.profile import dimension
from iomodel.study import Study
from iomodel.table import Column, Table, short

#: Figures whose headers people know by a shorter name, and their units.
KNOWN: Mapping[str, tuple[str, str]] = {
    "bytes_compulsory": ("compulsory", "bytes"),
    "bytes_l2": ("L2", "bytes"),
    "bytes_dram": ("DRAM", "bytes"),
    "bytes_dram_read": ("DRAM read", "bytes"),
    "bytes_dram_write": ("DRAM write", "bytes"),
    "seconds_roofline": ("roofline", "s"),
    "seconds_expected": ("expected", "s"),
    "seconds_launch": ("launch", "s"),
    "seconds_host": ("host", "s"),
    "memory_peak": ("memory", "bytes"),
    "intensity": ("intensity", "FLOP/B"),
    "flops": ("work", "FLOP"),
    "speedup": ("gain", "x"),
    "next_to": ("next to", "1"),
}


def study_table(study: Study, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows under headers with units: axes first, then the study's columns."""
    keys = {axis.name: axis for axis in study.axes}
    sought = study.question.settings if study.question else {}
    beside = next((str(sought[k]) for k in ("first", "last", "on") if k in sought), "")
    columns: list[Column] = []
    texts: list[list[Any]] = []
    for name in rows[0]:
        values = [row[name] for row in rows]
        axis = keys.get(beside if name == "next_to" else name)
        known = name.rpartition(".")[2]
        if axis is not None and axis.key:
            unit = "x" if axis.multiple else dimension(axis.key)
        elif name.startswith("gpu."):
            unit = dimension(name.removeprefix("gpu."))
        elif known in KNOWN:
            unit = KNOWN[known][1]
        else:
            unit = "1"
        header = KNOWN[name][0] if name in KNOWN else name
        if any(isinstance(v, (str, bool)) for v in values):
            columns.append(Column(header))
            texts.append([_word(v, name) for v in values])
        elif unit == "1":
            columns.append(Column(header, unit))
            texts.append(values)
        else:
            columns.append(Column(header, unit))
            texts.append(values)
    return Table(tuple(columns), tuple(zip(*texts, strict=True)))


def _word(value: Any, name: str) -> str | None:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return None if value is None else short(value) if name == "bound" else str(value)
