"""One line of a workload file as its rule sees it: inputs, attributes, and the nodes that it becomes.

A rule is a function of a Call. It reads inputs and attributes (each checked, errors name op and line),
adds nodes, and returns the views that its outputs stand for. A composite op adds several nodes: the
kernels that a framework would launch for it one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from iomodel.errors import InputError, unknown
from iomodel.node import Node
from iomodel.op import Op
from iomodel.ops.normalise import row_op
from iomodel.ops.pointwise import pointwise
from iomodel.tensor import Tensor, dtype
from iomodel.view import View, broadcast, new, permuted, promote

#: A rule returns what the outputs stand for, in the order of `out:`.
Rule = Callable[["Call"], Sequence[View]]

_MISSING = object()


class Call:
    """An op of the file being turned into nodes. `index` numbers the calls of a graph."""

    def __init__(
        self,
        op: str,
        inputs: Sequence[View | float],
        outs: Sequence[str],
        attributes: Mapping[str, Any],
        where: str,
        index: int,
    ) -> None:
        self.op, self.inputs, self.outs = op, tuple(inputs), tuple(outs)
        self.attributes, self.where, self.index = attributes, where, index
        self.nodes: list[Node] = []
        self._asked: list[str] = []

    # --- what the file says ------------------------------------------------------------------

    def fail(self, text: str) -> InputError:
        """An error that names the line and the op."""
        return InputError(f"{self.where}: {self.op}: {text}")

    def attribute(self, name: str, default: Any = _MISSING) -> Any:
        """An attribute as it stands in the file."""
        self._asked.append(name)
        if name not in self.attributes:
            if default is _MISSING:
                raise self.fail(f"needs {name}: ...")
            return default
        return self.attributes[name]

    def number(self, name: str, default: Any = _MISSING) -> float:
        """An attribute that is a number."""
        value = self.attribute(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.fail(f"{name}: {value!r} is not a number")
        return value

    def whole(self, name: str, default: Any = _MISSING, least: int = 1) -> int:
        """An attribute that is a whole number."""
        value = self.number(name, default)
        if value != int(value) or value < least:
            raise self.fail(f"{name}: {value!r} is not a whole number of at least {least}")
        return int(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """An attribute that is true or false."""
        value = self.attribute(name, default)
        if not isinstance(value, bool):
            raise self.fail(f"{name}: {value!r} is neither true nor false")
        return value

    def choice(self, name: str, known: Sequence[str], default: str) -> str:
        """An attribute that is one of some words."""
        value = str(self.attribute(name, default))
        if value not in known:
            raise unknown(name, value, known, f"{self.where}: {self.op}")
        return value

    def dtype(self, name: str = "dtype", default: Any = _MISSING) -> str:
        """An attribute that is a dtype."""
        return dtype(str(self.attribute(name, default)), f"{self.where}: {self.op}")

    def integers(self, name: str, default: Any = _MISSING) -> tuple[int, ...]:
        """An attribute that is a list of whole numbers, or one."""
        value = self.attribute(name, default)
        items = value if isinstance(value, (list, tuple)) else [value]
        for item in items:
            if isinstance(item, bool) or not isinstance(item, (int, float)) or item != int(item):
                raise self.fail(f"{name}: {item!r} is not a whole number")
        return tuple(int(item) for item in items)

    def axis(self, value: int, rank: int, name: str = "dim") -> int:
        """An axis counted from the front; negative ones count from the back."""
        if not -rank <= value < rank:
            raise self.fail(f"{name} {value} is not an axis of a tensor with {rank} axes")
        return value % rank

    def axes(self, x: View, name: str = "dim", default: Any = _MISSING) -> tuple[int, ...]:
        """Axes of a tensor; absent with a default of None means all."""
        if name not in self.attributes and default is None:
            self._asked.append(name)
            return tuple(range(len(x.shape)))
        return tuple(sorted({self.axis(v, len(x.shape), name) for v in self.integers(name, default)}))

    def unread(self) -> None:
        """Refuse attributes that the rule never asked for."""
        for name in self.attributes:
            if name not in self._asked:
                known = list(dict.fromkeys(self._asked))
                if not known:
                    raise self.fail(f"takes no attribute {name!r}")
                raise unknown("attribute", name, known, f"{self.where}: {self.op}")

    def tensors(self, least: int, most: int | None = None) -> list[View]:
        """The inputs as views; so many of them, and no plain numbers."""
        most = least if most is None else most
        if not least <= len(self.inputs) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise self.fail(f"takes {wanted} inputs, found {len(self.inputs)}")
        for value in self.inputs:
            if not isinstance(value, View):
                raise self.fail(f"input {value!r} is a number, and a tensor is needed")
        return [value for value in self.inputs if isinstance(value, View)]

    def same_shape(self, *views: View) -> None:
        """Refuse views of different shapes."""
        for view in views[1:]:
            if view.shape != views[0].shape:
                raise self.fail(f"shapes {shown(views[0])} and {shown(view)} differ")

    # --- what it becomes ---------------------------------------------------------------------

    def fresh(self, suffix: str) -> str:
        """A name for an intermediate of this call."""
        return f"{self.outs[0]}.{suffix}"

    def add(self, node: Node, kernel: str = "") -> None:
        """Add a node; `kernel` says how a framework launches the nodes of this call."""
        library = replace(node.library, call=self.index, kernel=kernel or node.library.kernel)
        self.nodes.append(replace(node, library=library, where=self.where))

    def pointwise(
        self,
        cost: str,
        inputs: Sequence[View],
        out: str,
        to: str = "",
        name: str = "",
        saved: Sequence[View] = (),
        shape: Sequence[int] | None = None,
        onto: View | None = None,
        kernel: str = "",
        **more: Any,
    ) -> View:
        """Add a pointwise node over the broadcast of its inputs and return its output; `onto` is the
        tensor whose memory it overwrites."""
        found = tuple(shape) if shape is not None else broadcast([v.shape for v in inputs])
        if found is None:
            raise self.fail(f"shapes {' and '.join(shown(v) for v in inputs)} do not broadcast")
        order = () if more.get("placed") or onto is not None else _memory_order(inputs, found)
        if order:  # written in the memory order of the input, as frameworks do
            turned = [permuted(v.over(found), order) for v in inputs]
            kept = self.pointwise(cost, turned, out, to, name, saved, None, None, kernel, **more)
            return permuted(kept, sorted(range(len(order)), key=order.__getitem__))
        result = new(out, found, to or promote([(v.dtype, len(v.shape)) for v in inputs]))
        if onto is not None:
            if onto.shape != found or not onto.is_whole:
                raise self.fail(f"works in place on {shown(onto)}, which is not the whole result {list(found)}")
            result = new(onto.root, found, onto.dtype)
            more["in_place"] = (onto.root,)
        uneven = len(inputs) > 1 and any(v.elements != result.elements or not v.contiguous for v in inputs)
        if uneven and cost in ("op", "add", "sub", "mul", "div", "where", "copy"):
            cost = "bias"  # a framework's kernel for operands that do not line up, bound by address arithmetic
        saved_tensors = tuple(v.tensor() for v in saved)
        op = pointwise(cost, merged(inputs), result.tensor(), saved_tensors)
        op = replace(op, name=name or self.op)
        self.add(Node(op, tuple(inputs), (result, *saved), found, **more), kernel)
        return result

    def row(
        self,
        cost: str,
        inputs: Sequence[View],
        out: str,
        axes: Sequence[int],
        to: str = "",
        train: bool = False,
        name: str = "",
        kernel: str = "",
        **more: Any,
    ) -> View:
        """Add a node that reduces along `axes` of its first input and uses the result along them."""
        x = inputs[0]
        columns = prod(x.shape[a] for a in axes)
        rows = max(1, x.elements // max(columns, 1))
        result = new(out, x.shape, to or x.dtype)
        first = x.tensor(rows, columns) if x.touched == x.elements else x.tensor()
        rest = [t for t in merged(inputs) if t.name != x.root]
        op = row_op(cost, (first, *rest), Tensor(out, (float(rows), float(columns)), result.dtype), train)
        statistics = tuple(new(t.name, (rows,), t.dtype) for t in op.writes[1:])
        op = replace(op, name=name or self.op)
        self.add(Node(op, tuple(inputs), (result, *statistics), x.shape, tuple(axes), **more), kernel)
        return result

    def reduce(
        self,
        flops: float,
        inputs: Sequence[View],
        out: str,
        axes: Sequence[int],
        to: str,
        keepdim: bool = False,
        name: str = "",
        issue: float = 15.0,
        fused: float | None = None,
        space: Sequence[int] | None = None,
        kernel: str = "",
        **more: Any,
    ) -> View:
        """Add a reduction over `axes` of `space` (the first input's shape): `flops` an element, and
        instructions an element of a framework's kernel (`issue`) and in a generated one (`fused`)."""
        found = tuple(space) if space is not None else inputs[0].shape
        kept = tuple(1 if a in axes else n for a, n in enumerate(found))
        if not keepdim:
            kept = tuple(n for a, n in enumerate(found) if a not in axes)
        result = new(out, kept, to)
        elements = float(prod(found))
        # A generated kernel reduces what it already holds: a few instructions, at most the library's.
        each = min(2.0 * flops, issue) if fused is None else fused
        work = {"vector:fp32": flops * elements, "issue": each * elements}
        op = Op(
            name=name or self.op,
            reads=merged(inputs),
            writes=(result.tensor(),),
            work=work,
            kind="reduce",
            library={"issue": issue * elements},
        )
        self.add(Node(op, tuple(inputs), (result,), found, tuple(axes), **more), kernel)
        return result


def _memory_order(inputs: Sequence[View], shape: Sequence[int]) -> tuple[int, ...]:
    """Axes from the largest stride to the smallest, by the first input of the full shape; empty where
    that is the order that they have. Source: PyTorch's TensorIterator, which keeps a permutation."""
    full = next((v for v in inputs if v.shape == tuple(shape)), None)
    if full is None or any(s == 0 for n, s in zip(full.shape, full.strides, strict=True) if n > 1):
        return ()
    long = [a for a in range(len(full.shape)) if full.shape[a] > 1]
    ranked = sorted(long, key=lambda a: -full.strides[a])
    if ranked == long:
        return ()
    place = iter(ranked)
    return tuple(next(place) if full.shape[a] > 1 else a for a in range(len(full.shape)))


def merged(views: Sequence[View]) -> tuple[Tensor, ...]:
    """What an op reads through these views: each root once, distinct parts of it together.

    >>> x = new("x", (4, 8), "bf16")
    >>> [t.bytes for t in merged([x, x])]
    [64.0]
    """
    parts: dict[str, dict[tuple[object, ...], View]] = {}
    for view in views:
        parts.setdefault(view.root, {}).setdefault(view.part, view)
    found = []
    for seen in parts.values():
        first = next(iter(seen.values()))
        touched = sum(view.touched for view in seen.values())
        if len(seen) == 1:
            found.append(first.tensor())
        else:
            found.append(first.tensor(min(touched, first.whole)))
    return tuple(found)


def shown(view: View) -> str:
    """A shape in an error: `x [4, 8]`."""
    return f"{view.root} {list(view.shape)}"
