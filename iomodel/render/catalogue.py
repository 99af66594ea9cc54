"""Profiles for people: one whole as sections of values, wide tables cut into parts that fit."""

from __future__ import annotations

import textwrap
from itertools import groupby

from iomodel.catalogue_tables import meaning, one_line, ridge_legend, ridge_table, value_text
from iomodel.profile import Profile
from iomodel.render.text import table_to_text
from iomodel.table import Table

#: Sections as they are shown: what the hardware is, then what was measured.
ORDER = ["memory", "compute", "sm", "board", "launch", "sustained"]

#: The narrowest column that a note is set in, beside its value; below that it goes under it.
NARROWEST_NOTE = 28


def table_in_parts(table: Table, width: int, colour: bool = False) -> str:
    """A table as text; one that is too wide is cut into tables of fewer columns, each with the first one."""
    return "\n\n".join(table_to_text(part, width, colour) for part in split(table, width))


def split(table: Table, width: int) -> list[Table]:
    """Tables of as many columns as fit, the first column in each; nothing is left out."""
    cells = range(len(table.rows))
    sizes = [
        max([len(column.header), *(len(table.cell(row, c)) for row in cells)])
        for c, column in enumerate(table.columns)
    ]
    parts: list[list[int]] = []
    for c in range(1, len(table.columns)):
        # two columns of a mark stand before the first column, two of space between columns
        used = 2 + sizes[0] + sum(2 + sizes[i] for i in (parts[-1] if parts else []))
        if parts and used + 2 + sizes[c] <= width:
            parts[-1].append(c)
        else:
            parts.append([c])
    return [
        Table(
            tuple(table.columns[c] for c in (0, *part)),
            tuple(tuple(row[c] for c in (0, *part)) for row in table.rows),
            table.marked,
            table.title,
        )
        for part in parts
    ]


def profile_to_text(profile: Profile, width: int) -> str:
    """A profile whole: ridge points, every value by section, notes, and the sources by number."""
    head = f"{profile.name}: {profile.title} ({', '.join(t for t in (profile.vendor, profile.architecture) if t)})"
    also = f"also called {', '.join(profile.aliases)}" if profile.aliases else ""
    parts = ["\n".join(wrap(text, width) for text in (head, also) if text)]
    ridges = ridge_table(profile)
    if ridges.rows:
        parts.append(wrap(ridge_legend(profile), width) + "\n\n" + table_in_parts(ridges, width))
    numbers: dict[str, int] = {}
    for section, keys in groupby(sorted(profile.values, key=lambda k: ORDER.index(_section(k))), _section):
        parts.append(f"{section}\n" + _entries(profile, list(keys), numbers, width))
    if profile.notes:
        parts.append("notes\n" + "\n".join(wrap(f"  - {one_line(note)}", width, "    ") for note in profile.notes))
    sources = [wrap(f"  [{number}] {source}", width, "      ") for source, number in numbers.items()]
    return "\n\n".join([*parts, "sources\n" + "\n".join(sources)]) + "\n"


def _section(key: str) -> str:
    return key.partition(".")[0]


def _entries(profile: Profile, keys: list[str], numbers: dict[str, int], width: int) -> str:
    """A line a value: key, amount, number of its source, what it is called and what is said about it."""
    amounts = [value_text(profile, key) for key in keys]
    names = [key.partition(".")[2] for key in keys]
    first, second = max(map(len, names)), max(map(len, amounts))
    beside = 2 + first + 2 + second + 2
    lines = []
    for key, name, amount in zip(keys, names, amounts, strict=True):
        value = profile.values[key]
        number = numbers.setdefault(one_line(value.source), len(numbers) + 1)
        said = [f"{profile.assumed[key]} family" if key in profile.assumed else "", value.called]
        said.append(one_line(value.note or meaning(key)))
        text = "; ".join(part for part in said if part)
        if width - beside >= NARROWEST_NOTE:
            line = f"  {name:{first}}  {amount:{second}}  [{number}] {text}"
            lines.append(wrap(line, width, " " * beside))
        else:
            lines.append(wrap(f"  {name}  {amount}  [{number}]", width, "    "))
            lines += [wrap(f"    {text}", width, "    ")] if text else []
    return "\n".join(line.rstrip() for line in lines)


def wrap(text: str, width: int, indent: str = "  ") -> str:
    """Text in lines of the terminal's width, later ones indented; words are not broken, spaces stay."""
    lines = textwrap.wrap(
        text,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
    return "\n".join(lines)
