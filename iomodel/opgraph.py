"""Workload files: named tensors and the ops between them, read, checked, and turned into nodes.

    name: residual-layernorm-dropout
    dtype: fp16
    sizes: {tokens: 2048}
    inputs: {x: [tokens, 4096], attn: [tokens, 4096], gamma: [4096], beta: [4096]}
    ops:
      - {op: add, in: [x, attn], out: h}
      - {op: layer_norm, in: [h, gamma, beta], out: n}
      - {op: dropout, in: [n], out: y, p: 0.1}
    outputs: [y]

Op names are PyTorch's; one ending in an underscore works in place. Any size, and any number among an
op's attributes, may be the name of a size or an expression of sizes (`heads * head_dim`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iomodel.errors import InputError, unknown
from iomodel.expression import evaluate
from iomodel.node import Node
from iomodel.ops.call import Call
from iomodel.ops.registry import OPS
from iomodel.tensor import dtype as canonical_dtype
from iomodel.units import parse_size
from iomodel.view import View, new
from iomodel.yamlfile import Document

KEYS = ["name", "dtype", "sizes", "inputs", "ops", "outputs", "notes"]
INPUT_KEYS = ["shape", "dtype"]

_EXPRESSION = re.compile(r"^[A-Za-z_]\w*$|^[\w\s*/+()-]*[*/+-][\w\s*/+()-]*$")


@dataclass(frozen=True)
class Line:
    """One op of a file: what it takes (names, or plain numbers), what it makes, and where it stands."""

    op: str
    inputs: tuple[str | float, ...]
    outs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""


@dataclass(frozen=True)
class Graph:
    """A checked graph. `nodes` are in an order that respects every dependency; `views` says what each
    name stands for; `outputs` are the names that the caller keeps."""

    name: str
    inputs: Mapping[str, View]
    lines: tuple[Line, ...]
    nodes: tuple[Node, ...]
    views: Mapping[str, View]
    outputs: tuple[str, ...]
    #: Lines of the forward pass, where the rest is its backward pass.
    forward: int = 0

    @property
    def kept(self) -> tuple[str, ...]:
        """The tensors behind the outputs."""
        return tuple(dict.fromkeys(self.views[name].root for name in self.outputs))


def read_graph(document: Document, sizes: Mapping[str, Any] | None = None, dtype: str = "") -> Graph:
    """The graph of a workload file; `sizes` and `dtype` replace what the file says."""
    data = document.data
    document.check_keys((), data, KEYS, "workload key")
    for key in ("inputs", "ops"):
        if not data.get(key):
            raise InputError(f"{document.path}: a workload needs {key}:")
    known = _sizes(document, data.get("sizes") or {}, sizes or {})
    own = canonical_dtype(str(data.get("dtype", "bf16")), document.where("dtype"))
    element = dtype or own
    document.check_keys(("inputs",), data["inputs"], list(data["inputs"]))
    inputs = {
        str(name): _input(document, str(name), entry, known, own, element)
        for name, entry in data["inputs"].items()
    }
    if not isinstance(data["ops"], list):
        raise InputError(f"{document.where('ops')}: ops: is a list of {{op: ..., in: [...], out: ...}}")
    lines = [_line(document, index, entry, known) for index, entry in enumerate(data["ops"])]
    outputs = data.get("outputs")
    if outputs is not None and not isinstance(outputs, list):
        outputs = [outputs]
    where = document.where("outputs")
    return build(str(data.get("name", "workload")), inputs, lines, outputs, where)


def build(
    name: str,
    inputs: Mapping[str, View],
    lines: Sequence[Line],
    outputs: Sequence[str] | None = None,
    where: str = "",
) -> Graph:
    """The graph of ops over named inputs; without `outputs`, what no op reads."""
    views: dict[str, View] = dict(inputs)
    made: dict[str, str] = {}
    stale: dict[str, str] = {}
    nodes: list[Node] = []
    used: set[str] = set()
    for index, line in enumerate(lines):
        if line.op not in OPS:
            raise unknown("op", line.op, OPS, line.where)
        taken = [_operand(value, line, views, stale) for value in line.inputs]
        used |= {value for value in line.inputs if isinstance(value, str)}
        for out in line.outs:
            if out in views:
                first = f" (first at {made[out]})" if out in made else ", an input"
                raise InputError(f"{line.where}: {line.op}: {out!r} is already made{first}; choose another name")
        call = Call(line.op, taken, line.outs, line.attributes, line.where, index)
        found = list(OPS[line.op](call))
        call.unread()
        if len(found) < len(line.outs):
            raise call.fail(f"has {len(found)} output{'s' * (len(found) > 1)}, and {len(line.outs)} are named")
        nodes += call.nodes
        for node in call.nodes:
            for root in node.in_place:
                for old, view in views.items():
                    if view.root == root:
                        stale.setdefault(old, f"{line.op} ({line.where}) overwrote it")
        for out, view in zip(line.outs, found, strict=False):
            views[out] = view
            made[out] = line.where
    wanted = (
        list(outputs) if outputs is not None else [out for line in lines for out in line.outs if out not in used]
    )
    for out in wanted:
        if out not in views:
            raise unknown("output", out, views, where)
    if not wanted:
        raise InputError(f"{where}: no outputs; name at least one")
    return Graph(name, dict(inputs), tuple(lines), tuple(nodes), views, tuple(str(o) for o in wanted))


def _operand(value: str | float, line: Line, views: Mapping[str, View], stale: Mapping[str, str]) -> View | float:
    if not isinstance(value, str):
        return value
    if value not in views:
        raise unknown("tensor", value, views, f"{line.where}: {line.op}")
    if value in stale:
        newer = [name for name, view in views.items() if view.root == views[value].root and name not in stale]
        hint = f"; its new name is {newer[-1]!r}" if newer else ""
        raise InputError(f"{line.where}: {line.op}: {value!r} no longer holds: {stale[value]}{hint}")
    return views[value]


def _sizes(document: Document, own: Any, given: Mapping[str, Any]) -> dict[str, float]:
    document.check_keys(("sizes",), own, list(own) if isinstance(own, dict) else [])
    for name in given:
        if name not in own:
            raise unknown("size", name, own, document.path)
    found: dict[str, float] = {}
    for name, value in own.items():
        text = given.get(name, value)
        if name not in given and isinstance(text, str) and _EXPRESSION.match(text):
            text = _evaluated(text, found, document.where("sizes", name))
        found[str(name)] = parse_size(text, f"{document.where('sizes', name)}: {name}")
    return found


def _input(document: Document, name: str, entry: Any, sizes: Mapping[str, float], own: str, element: str) -> View:
    where = document.where("inputs", name)
    found = element
    if isinstance(entry, dict):
        document.check_keys(("inputs", name), entry, INPUT_KEYS)
        if "dtype" in entry:
            stated = canonical_dtype(str(entry["dtype"]), where)
            found = element if stated == own else stated
        entry = entry.get("shape")
    if not isinstance(entry, list):
        raise InputError(f"{where}: {name}: write a shape, e.g. [2048, 4096], or {{shape: [...], dtype: ...}}")
    return new(name, [_size(item, sizes, f"{where}: {name}") for item in entry], found)


def _size(item: Any, sizes: Mapping[str, float], where: str) -> int:
    if isinstance(item, str) and _EXPRESSION.match(item):
        item = _evaluated(item, sizes, where)
    return int(parse_size(item, where))


def _evaluated(text: str, sizes: Mapping[str, float], where: str) -> Any:
    try:
        return evaluate(text, sizes)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _line(document: Document, index: int, entry: Any, sizes: Mapping[str, float]) -> Line:
    where = document.where("ops", index)
    if not isinstance(entry, dict) or "op" not in entry:
        raise InputError(f"{where}: an op is {{op: NAME, in: [...], out: ...}}")
    op, outs = str(entry["op"]), entry.get("out")
    outs = outs if isinstance(outs, list) else [outs]
    if not outs or any(not isinstance(out, str) or not out for out in outs):
        raise InputError(f"{where}: {op}: needs out: the name of its result")
    taken = entry.get("in", [])
    taken = taken if isinstance(taken, list) else [taken]
    inputs: list[str | float] = []
    for value in taken:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise InputError(f"{where}: {op}: input {value!r} is neither a name nor a number")
        inputs.append(value)
    rest = {
        str(key): _attribute(value, sizes, where) for key, value in entry.items() if key not in ("op", "in", "out")
    }
    return Line(op, tuple(inputs), tuple(outs), rest, where)


def _attribute(value: Any, sizes: Mapping[str, float], where: str) -> Any:
    """Names and expressions of sizes among attributes become numbers; other words stay words."""
    if isinstance(value, list):
        return [_attribute(item, sizes, where) for item in value]
    if not isinstance(value, str) or not _EXPRESSION.match(value):
        return value
    names = re.findall(r"[A-Za-z_]\w*", value)
    if not names or not all(name in sizes for name in names):
        return value
    number = float(_evaluated(value, sizes, where))
    return int(number) if number.is_integer() else number
