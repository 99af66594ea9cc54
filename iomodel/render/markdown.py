"""Markdown: the tables of the text output, for reports and pull requests."""

from __future__ import annotations

from iomodel.render.text import headline, tables
from iomodel.results import Analysis
from iomodel.table import Table


def render(analysis: Analysis) -> str:
    """Title, tables and notes as Markdown."""
    parts = [f"**{analysis.command}** {analysis.title}", headline(analysis)]
    parts += [table_to_markdown(table) for table in tables(analysis)]
    parts += [f"- {note}" for note in analysis.notes]
    return "\n\n".join(part for part in parts if part) + "\n"


def table_to_markdown(table: Table) -> str:
    """One table as a Markdown table; marked rows are bold."""
    heads = [
        f"{column.header}, {table.unit(c)}" if table.unit(c) else column.header
        for c, column in enumerate(table.columns)
    ]
    rules = ["---" if column.unit == "text" else "---:" for column in table.columns]
    lines = ["| " + " | ".join(heads) + " |", "| " + " | ".join(rules) + " |"]
    for index in range(len(table.rows)):
        cells = [table.cell(index, c).replace("|", "\\|") for c in range(len(heads))]
        if index in table.marked:
            cells[0] = f"**{cells[0]}**"
        lines.append("| " + " | ".join(cells) + " |")
    text = "\n".join(lines)
    return f"{table.title}\n\n{text}" if table.title else text
