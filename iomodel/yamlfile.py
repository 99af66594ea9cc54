"""Strict YAML: plain data with the line of every key, and one-line errors.

Refused: duplicate keys, anchors and aliases (a small file could expand without bound), tabs as
indentation, anything that is not UTF-8 text, files that are not regular or above 1 MB. Scalars stay
text except whole numbers, decimals, true and false, so `2.039e12` is not read differently here than by a person.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iomodel.errors import InputError, unknown

LARGEST_FILE = 1_000_000
DEEPEST = 24

_INT = re.compile(r"^[-+]?\d+$", re.ASCII)
_FLOAT = re.compile(r"^[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?$", re.ASCII)


@dataclass(frozen=True)
class Document:
    """The data of a YAML file and where each part of it stands."""

    path: str
    data: Any
    lines: dict[tuple[Hashable, ...], int] = field(repr=False)

    def where(self, *keys: Hashable) -> str:
        """`file.yaml:12` for the value at a path of keys (or its nearest parent with a line)."""
        path = keys
        while path not in self.lines and path:
            path = path[:-1]
        return f"{self.path}:{self.lines.get(path, 1)}"

    def check_keys(self, keys: tuple[Hashable, ...], found: Any, known: list[str], kind: str = "key") -> None:
        """Refuse a mapping with an unknown key, naming the nearest known one and its line."""
        if not isinstance(found, dict):
            raise InputError(f"{self.where(*keys)}: expected keys ({', '.join(known)}), found {_shown(found)}")
        for key in found:
            if key not in known:
                raise unknown(kind, key, known, self.where(*keys, key))


def read_text(path: str | Path, largest: int = LARGEST_FILE) -> str:
    """The text of a regular UTF-8 file, or an InputError in one line."""
    file = Path(path)
    try:
        status = file.stat()
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{path}: is a directory, not a file")
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path}: is not a regular file")
        if status.st_size > largest:
            raise InputError(f"{path}: {status.st_size} bytes; files above {largest} bytes are refused")
        raw = file.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"{str(path)!r}: {error}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a UTF-8 text file") from None
    if "\0" in text:
        raise InputError(f"{path}: not a text file (it holds NUL bytes)")
    return text


def read_yaml(path: str | Path) -> Document:
    """A YAML file as a Document; every fault is an InputError that names file and line."""
    return parse_yaml(read_text(path), str(path))


def parse_yaml(text: str, name: str) -> Document:
    """YAML text as a Document; `name` stands in for the file in errors."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for number, line in enumerate(text.splitlines(), 1):
        if line[: len(line) - len(line.lstrip())].count("\t"):
            raise InputError(f"{name}:{number}: tab used for indentation; use spaces")
    if text.count("[") + text.count("{") > 20 and _deepest_bracket(text) > DEEPEST:
        raise InputError(f"{name}: nested deeper than {DEEPEST} levels")
    try:
        # Composed nodes no longer say who was an anchor. Without these two characters there is none,
        # and the pass over all events, half of the time, is saved.
        for event in yaml.parse(text, Loader=loader) if "&" in text or "*" in text else ():
            if getattr(event, "anchor", None):
                place = f"{name}:{event.start_mark.line + 1}" if event.start_mark else name
                raise InputError(f"{place}: anchors and aliases (&, *) are not used here; write it out")
        node = yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        line = f":{mark.line + 1}" if mark else ""
        raise InputError(f"{name}{line}: not valid YAML: {problem}") from None
    except RecursionError:
        raise InputError(f"{name}: nested deeper than {DEEPEST} levels") from None
    if node is None:
        raise InputError(f"{name}: the file is empty")
    lines: dict[tuple[Hashable, ...], int] = {}
    return Document(name, _plain(node, (), lines, name), lines)


def _deepest_bracket(text: str) -> int:
    deepest = depth = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def _plain(node: Any, path: tuple[Hashable, ...], lines: dict[tuple[Hashable, ...], int], name: str) -> Any:
    lines.setdefault(path, node.start_mark.line + 1)
    if len(path) > DEEPEST:
        raise InputError(f"{name}: nested deeper than {DEEPEST} levels")
    if node.id == "mapping":
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = _plain(key_node, (*path, "<key>"), {}, name)
            line = key_node.start_mark.line + 1
            if not isinstance(key, (str, int)):
                raise InputError(f"{name}:{line}: a key must be a plain word")
            here = (*path, key)
            if key in result:
                first = lines[here]
                raise InputError(f"{name}:{line}: duplicate key {key!r} (first on line {first})")
            lines[here] = line
            result[key] = _plain(value_node, here, lines, name)
        return result
    if node.id == "sequence":
        return [_plain(item, (*path, index), lines, name) for index, item in enumerate(node.value)]
    return _scalar(node)


def _scalar(node: Any) -> Any:
    text = node.value
    if node.style in ("'", '"', "|", ">"):
        return text
    if text in ("true", "false"):
        return text == "true"
    if text in ("", "~", "null"):
        return None
    if _INT.match(text) and len(text) < 400:
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    return text


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
