"""Tables for people: the answer first, then the detail; 80 columns, and plain rows where narrower."""

from __future__ import annotations

import os
import shutil
import sys

from iomodel.results import Analysis
from iomodel.table import Table, gpus_tables, kernels_table, variants_table
from iomodel.units import show

#: Bold green, and back: how a marked row stands out on a terminal.
MARKED, PLAIN = "\x1b[1;32m", "\x1b[0m"

#: Kernels of a plan shown one by one up to this many.
MOST_KERNELS = 16


def render(analysis: Analysis) -> str:
    """Headline, tables and notes for a terminal as wide as this one."""
    width, colour = terminal()
    parts = [_title(analysis, width), _wrap(headline(analysis), width)]
    parts += [table_to_text(table, width, colour) for table in tables(analysis)]
    parts.append("\n".join(_wrap(note, width) for note in analysis.notes))
    return "\n\n".join(part for part in parts if part) + "\n"


def terminal() -> tuple[int, bool]:
    """(columns, whether colour is welcome) of standard output; 80 columns where there is no terminal."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isascii() and columns.isdigit() and int(columns) > 0 else 0
    if not width:
        width = shutil.get_terminal_size((80, 24)).columns if is_terminal else 80
    return max(20, width), is_terminal and "NO_COLOR" not in os.environ


def tables(analysis: Analysis) -> list[Table]:
    """What to show: one GPU's variants and their kernels, or GPUs side by side."""
    if len(analysis.profiles) > 1:
        return gpus_tables(analysis)
    found = [variants_table(analysis.results)]
    for result in analysis.results:
        if 1 < len(result.estimate.kernels) <= MOST_KERNELS:
            detail = kernels_table(result.estimate)
            found.append(Table(detail.columns, detail.rows, detail.marked, f"{result.variant}, kernel by kernel"))
    return found


def headline(analysis: Analysis) -> str:
    """Which variant, by how much, and why, in one sentence."""
    if len(analysis.profiles) > 1:
        return ""
    best = next((r for r in analysis.results if bool(r.recommended)), None)
    first = analysis.results[0]
    if best is None:
        return ""
    one, base = best.estimate, first.estimate
    text = f"{best.variant}: {show(one.seconds.expected, 's')}, bound by {one.bound}"
    if best is not first:
        text += f"; {show(best.speedup, 'x')} faster than {first.variant}"
        if one.bytes.dram and base.bytes.dram / one.bytes.dram > 1.05:
            text += f", {show(base.bytes.dram / one.bytes.dram, 'x')} less HBM traffic"
        saved = base.launches - one.launches
        if saved > 0:
            text += f", {saved} launch{'es' if saved > 1 else ''} fewer"
    return text


def _title(analysis: Analysis, width: int) -> str:
    left = f"{analysis.command}  {analysis.title}"
    if len(analysis.profiles) != 1:
        return _wrap(left, width)
    (profile,) = analysis.profiles.values()
    right = f"{profile.name} {show(profile['memory.hbm'], 'bytes/s')}"
    if len(left) + 2 + len(right) > width:
        return "\n".join(_wrap(part, width) for part in (left, right))
    return left + right.rjust(width - len(left))


def _wrap(text: str, width: int) -> str:
    import textwrap

    return textwrap.fill(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def table_to_text(table: Table, width: int, colour: bool = False) -> str:
    """One table as text: aligned columns, or a block of lines a row where it would not fit."""
    cells = [[table.cell(r, c) for c in range(len(table.columns))] for r in range(len(table.rows))]
    heads = [(column.header, table.unit(c)) for c, column in enumerate(table.columns)]
    widths = [max(len(part) for part in (*heads[c], *(row[c] for row in cells))) for c in range(len(heads))]
    gap = next((g for g in (2, 1) if sum(widths) + g * (len(widths) - 1) + 2 <= width), 0)
    if not gap:
        return _stacked(table, cells)
    lines = []
    for part in range(2 if any(unit for _, unit in heads) else 1):
        lines.append(_line("  ", [head[part] for head in heads], table, widths, gap))
    for index, row in enumerate(cells):
        line = _line("> " if index in table.marked else "  ", row, table, widths, gap)
        lines.append(f"{MARKED}{line}{PLAIN}" if colour and index in table.marked else line)
    return "\n".join([table.title, *lines] if table.title else lines)


def _line(mark: str, cells: list[str], table: Table, widths: list[int], gap: int) -> str:
    """One aligned line: words to the left, numbers to the right. (Rich would draw the same, at a
    fifth of the time that a whole answer takes.)"""
    placed = [
        cell.ljust(width) if column.unit == "text" else cell.rjust(width)
        for cell, column, width in zip(cells, table.columns, widths, strict=True)
    ]
    return (mark + (" " * gap).join(placed)).rstrip()


def _stacked(table: Table, cells: list[list[str]]) -> str:
    """A block a row, for terminals too narrow for the table: no number is ever cut."""
    blocks = [table.title] if table.title else []
    for index, row in enumerate(cells):
        mark = "> " if index in table.marked else "  "
        lines = [mark + row[0]]
        for c, column in enumerate(table.columns[1:], 1):
            lines.append(f"    {column.header}: {row[c]} {table.unit(c)}".rstrip())
        blocks.append("\n".join(lines))
    return "\n".join(blocks)
