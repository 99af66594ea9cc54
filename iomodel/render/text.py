"""Tables for people: the answer first, then the detail; 80 columns, and plain rows where narrower."""

from __future__ import annotations

import io
import os
import shutil
import sys

from iomodel.results import Analysis
from iomodel.table import Table, gpus_tables, kernels_table, variants_table
from iomodel.units import show

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
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable(box=None, padding=(0, gap, 0, 0), pad_edge=False, show_edge=False)
    units = any(unit for _, unit in heads)
    for index, column in enumerate(table.columns):
        header = ("  " if index == 0 else "") + column.header + (f"\n{heads[index][1]}" if units else "")
        grid.add_column(Text(header), justify="left" if column.unit == "text" else "right", no_wrap=True)
    for index, row in enumerate(cells):
        mark = "> " if index in table.marked else "  "
        style = "bold green" if index in table.marked else ""
        grid.add_row(*(Text(c) for c in (mark + row[0], *row[1:])), style=style)
    stream = io.StringIO()
    console = Console(
        file=stream, width=max(width, 20), force_terminal=colour, no_color=not colour, highlight=False
    )
    console.print(grid)
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    return "\n".join([table.title, *lines] if table.title else lines)


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
