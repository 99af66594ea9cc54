"""Which ops may share a kernel, and in words that teach why the others may not.

A kernel here is a loop over a space of elements, perhaps with rows that one thread block reduces. Two
pieces of work fit in one kernel when each element (or row) that the later needs is held by the thread
block that made it. Everything below is that one condition, case by case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from iomodel.node import Node
from iomodel.tensor import itemsize
from iomodel.tiling import ROW_ON_CHIP
from iomodel.units import show
from iomodel.view import Pattern, View, pattern

#: Ops of one generated kernel: TorchInductor's `max_fusion_size`.
MOST_OPS = 64
#: Values of one element alive at once before registers spill: 255 registers a thread, about 4 elements
#: a thread in flight and a few registers for addresses. Source: CUDA C++ Programming Guide, table of
#: compute capabilities (255 registers a thread).
MOST_LIVE = 48
#: Elements side by side that a strided reduction loads to use whole 32-byte sectors.
SIDE_BY_SIDE = 16

TWO_PRODUCTS = (
    "two matrix products: the second needs whole rows of the first's result, and those lie in the tiles of "
    "several thread blocks; both are compute-bound, so the round trip costs little beside them"
)
EPILOGUE_ROWS = (
    "a reduction along rows of a matrix product: a row spans the tiles of {tiles} thread block{s}, and {why}"
)
EPILOGUE_SHAPE = (
    "an epilogue works on the product's own elements where they lie in registers; this op walks them {how}"
)
PROLOGUE_ROWS = (
    "a reduction before a matrix product: each of {tiles} columns of tiles would reduce the same rows again to "
    "load them, so it is done once and stored"
)
PROLOGUE = (
    "it feeds a matrix product, whose {tiles} columns of tiles each load this operand: fused, it would run "
    "{tiles} times; it is done once and stored"
)
SHARED_PRODUCT = (
    "the product is needed by {others} too, so it is written anyway; together they read it once, in a kernel of "
    "their own"
)
COMPILER_PRODUCT = "a library's matrix product: generated code calls it, and cannot put ops inside"
ATTENTION = (
    "attention is too complex to share: its kernel owns the loop over keys and its on-chip memory is full of "
    "tiles; components fuse within, not across"
)
TRANSPOSED = "it reads the other transposed: an element's row there and here are held by different thread blocks"
OTHER_AXIS = (
    "different parallelism: one reduces along {one}, the other needs the result along {other}; different threads "
    "hold it, and kernels are the only barrier across all thread blocks"
)
WHOLE = (
    "a reduction of the whole tensor ({kept} result{s} of {row} elements each for {sms} SMs): thread blocks share "
    "it, so the result is known only when all of them have ended"
)
LONG_ROW = (
    "rows of {size} do not stay on chip ({limit}), and they lie scattered: normalising would read them a second "
    "time from memory anyway, with fewer thread blocks"
)
SPACES = "they loop over different spaces, {one} and {other} elements, of which neither reduces to the other"
PART = "it needs only a part of the other's result, at other places: another iteration space"
INDEXED = "it picks rows of the other's result by index: any thread block may have made them"
RANDOM = "random numbers would have to be drawn again for each of {times} uses"
TOO_MANY = f"one kernel of more than {MOST_OPS} ops: generated code stops there, compile time and registers grow"
SPILLS = f"more than {MOST_LIVE} values of an element would be alive at once: registers spill to memory"
CYCLE = "a cycle: between them runs {between}, which needs the first and feeds the second"
BACKWARD = "the backward pass starts when the loss is known: what it needs of the forward pass is kept until then"
LITTLE_SHARED = (
    "they share a small table only: side by side in one kernel they would save little and compete for registers"
)
NOTHING_SHARED = "they share no bytes"
SEPARATE_WEIGHTS = (
    "each is a matrix product with a weight of its own; side by side they share the input: "
    "[{names}] as one product of the concatenated weights reads it once"
)


class Edge(NamedTuple):
    """`consumer` reads what `producer` made, through a view."""

    producer: Node
    consumer: Node
    view: View


@dataclass(frozen=True)
class Piece:
    """Nodes in one kernel: the loop they share. `rows` is the pattern of what they reduce, or None;
    `product` the matrix product they surround; `own` a kernel of another make (attention)."""

    nodes: tuple[int, ...]
    elements: int
    rows: Pattern | None = None
    kept: int = 0
    row_bytes: float = 0.0
    product: int = -1
    scrambled: bool = False
    alone: str = ""
    own: str = ""
    prologue: bool = False
    #: node -> how often its work is repeated, where it is computed again by each user.
    repeated: tuple[tuple[int, int], ...] = ()


def piece(index: int, node: Node) -> Piece:
    """A node alone."""
    row = 0.0
    if node.reduced:
        row = node.elements / max(node.kept, 1) * itemsize(node.reads[0].dtype if node.reads else "fp32")
    return Piece(
        nodes=(index,),
        elements=node.elements,
        rows=node.rows,
        kept=node.kept if node.reduced else 0,
        row_bytes=row,
        product=index if node.op.kind == "matmul" else -1,
        alone=node.alone,
    )


def access(view: View, node: Node) -> tuple[str, Pattern | None]:
    """How the loop of a node walks one input: `same` (element for element), `broadcast` (with the axes
    along which it repeats), `permuted`, `part`, `placed`, `indexed`, `operand`."""
    if view.root in node.indexed:
        return "indexed", None
    if node.placed:
        return "placed", None
    if node.op.kind == "matmul":
        return "operand", None
    if view.is_whole and view.elements == node.elements:
        return "same", None
    if len(view.shape) > len(node.space):
        return "part", None
    spread = view.over(node.space) if _fits(view, node.space) else None
    if spread is None:
        return "part", None
    repeated = [axis for axis, n in enumerate(node.space) if n > 1 and spread.strides[axis] == 0]
    if spread.touched == view.whole:
        if repeated and _in_order(spread):
            return "broadcast", pattern(node.space, repeated)
        return "permuted", None
    return "part", None


def _fits(view: View, space: Sequence[int]) -> bool:
    tail = space[len(space) - len(view.shape) :]
    return all(n in (1, wanted) for n, wanted in zip(view.shape, tail, strict=True))


def _in_order(view: View) -> bool:
    strides = [s for n, s in zip(view.shape, view.strides, strict=True) if n > 1 and s != 0]
    return strides == sorted(strides, reverse=True)


@dataclass(frozen=True)
class Limits:
    """What the planner was asked for and what the GPU has."""

    mode: str
    sms: int
    on_chip: float
    tile_n: float


def merge(a: Piece, b: Piece, edges: Sequence[Edge], nodes: Sequence[Node], limits: Limits) -> Piece | str:
    """The piece that two make together (a runs before b), or the reason why they do not."""
    if a.alone or b.alone:
        return a.alone or b.alone
    if a.own or b.own:
        return ATTENTION
    together = tuple(sorted((*a.nodes, *b.nodes)))
    if a.product >= 0 or b.product >= 0:
        return _with_product(a, b, edges, nodes, limits, together)
    joined = _spaces(a, b, edges, nodes, limits)
    if isinstance(joined, str):
        return joined
    if len(together) > MOST_OPS:
        return TOO_MANY
    if _live(together, nodes) > MOST_LIVE:
        return SPILLS
    return replace(joined, nodes=together)


def _with_product(
    a: Piece, b: Piece, edges: Sequence[Edge], nodes: Sequence[Node], limits: Limits, together: tuple[int, ...]
) -> Piece | str:
    if a.product >= 0 and b.product >= 0:
        if edges or nodes[a.product].reads[0].root != nodes[b.product].reads[0].root:
            return TWO_PRODUCTS
        names = ", ".join(nodes[p].out for p in (a.product, b.product))
        return SEPARATE_WEIGHTS.format(names=names)
    product = nodes[a.product if a.product >= 0 else b.product]
    tiles = max(1, round(-(-product.op.writes[0].shape[-1] // limits.tile_n)))
    if limits.mode == "compiler":
        return COMPILER_PRODUCT
    if a.product >= 0:
        if not edges:
            return NOTHING_SHARED
        if b.rows is not None:
            why = "no block holds it whole" if tiles > 1 else "an epilogue has no reduction across its warps"
            return EPILOGUE_ROWS.format(tiles=tiles, s="s" * (tiles > 1), why=why)
        for edge in edges:
            how, _ = access(edge.view, edge.consumer)
            if how != "same":
                words = {"permuted": "transposed", "part": "only in part", "broadcast": "more than once"}
                return EPILOGUE_SHAPE.format(how=words.get(how, "in another order"))
        if b.elements != product.elements:
            return EPILOGUE_SHAPE.format(how="in another shape")
        return replace(a, nodes=together)
    if a.rows is not None:
        return PROLOGUE_ROWS.format(tiles=tiles)
    if any(nodes[i].random for i in a.nodes):
        return RANDOM.format(times=tiles)
    read = sum(v.touched * itemsize(v.dtype) for v in _inputs(a.nodes, nodes))
    operands = {(e.view.root, e.view.part): e.view for e in edges}
    operand = sum(v.touched * itemsize(v.dtype) for v in operands.values())
    if len(operands) != 1 or read >= operand or b.prologue or len(b.nodes) > 1:
        return PROLOGUE.format(tiles=tiles)
    return replace(b, nodes=together, prologue=True, repeated=tuple((i, tiles) for i in a.nodes))


def _inputs(indices: Iterable[int], nodes: Sequence[Node]) -> list[View]:
    chosen = [nodes[i] for i in indices]
    made = {view.root for node in chosen for view in node.writes}
    found = {(v.root, v.part): v for node in chosen for v in node.reads if v.root not in made}
    return list(found.values())


def _spaces(a: Piece, b: Piece, edges: Sequence[Edge], nodes: Sequence[Node], limits: Limits) -> Piece | str:
    """The loop that fits both, by the sizes of their spaces and how b walks what a made."""
    ways = [(edge, *access(edge.view, edge.consumer)) for edge in edges]
    for edge, how, _ in ways:
        if how == "indexed":
            return INDEXED
        if edge.producer.random and edge.producer.elements < edge.consumer.elements:
            return RANDOM.format(times=edge.consumer.elements // max(edge.producer.elements, 1))
    if a.rows is not None and b.rows is not None and not same_rows(a.rows, b.rows):
        if b.elements == a.kept:
            return _whole(b, limits)
        return OTHER_AXIS.format(one=_axes(a.rows), other=_axes(b.rows))
    rows = a.rows if a.rows is not None else b.rows
    with_rows = a if a.rows is not None else b
    scrambled = a.scrambled or b.scrambled or any(how == "permuted" for _, how, _ in ways)
    if rows is not None and scrambled:
        return TRANSPOSED
    base = replace(
        with_rows,
        elements=max(a.elements, b.elements),
        rows=rows,
        row_bytes=max(a.row_bytes, b.row_bytes),
        scrambled=scrambled,
        repeated=(*a.repeated, *b.repeated),
        alone="",
    )
    if rows is not None:
        return _over_rows(a, b, ways, base, limits)
    if a.elements == b.elements:
        if any(how == "part" for _, how, _ in ways):
            return PART
        return base
    if not edges:
        return SPACES.format(one=_count(a.elements), other=_count(b.elements))
    if any(how == "part" for _, how, _ in ways) or a.elements > b.elements:
        return PART if a.elements > b.elements else SPACES.format(one=_count(a.elements), other=_count(b.elements))
    times = b.elements // max(a.elements, 1)
    again = () if all(how == "placed" for _, how, _ in ways) else tuple((i, times) for i in a.nodes)
    return replace(base, repeated=(*base.repeated, *again))


def _over_rows(
    a: Piece,
    b: Piece,
    ways: Sequence[tuple[Edge, str, Pattern | None]],
    base: Piece,
    limits: Limits,
) -> Piece | str:
    """b reads rows, or results of rows, that a thread block holds; or not."""
    rows = base.rows
    assert rows is not None
    small = {base.kept, 1}
    for one, other in ((a, b), (b, a)):
        in_rows = _inner(rows) and ways and one.elements % max(base.kept, 1) == 0
        if one.rows is None and one.elements not in (other.elements, *small) and not in_rows:
            along = next((p for _, how, p in ways if how == "broadcast" and p is not None), None)
            if a.rows is not None and along is not None:
                return OTHER_AXIS.format(one=_axes(rows), other=_axes(along))
            return SPACES.format(one=_count(a.elements), other=_count(b.elements))
    for _, how, along in ways:
        if how in ("part", "placed", "operand"):
            return PART
        if how == "broadcast" and along is not None and not same_rows(rows, along):
            return OTHER_AXIS.format(one=_axes(rows), other=_axes(along))
        if how == "broadcast" and a.rows is not None:
            refused = _used_again(base, limits)
            if refused:
                return refused
    return base


def _used_again(base: Piece, limits: Limits) -> str:
    """Why a reduction's result may not be used along its own rows in the same kernel; empty: it may."""
    assert base.rows is not None
    inner = _inner(base.rows)
    held = base.row_bytes * (1 if inner else SIDE_BY_SIDE)
    if base.row_bytes > ROW_ON_CHIP and base.kept < limits.sms:
        return _whole(base, limits)
    if not inner and held > limits.on_chip:
        return LONG_ROW.format(size=_bytes(base.row_bytes), limit=_bytes(limits.on_chip))
    return ""


def same_rows(a: Pattern, b: Pattern) -> bool:
    """Whether two loops give the same rows to the same thread blocks: equal, or as many rows of
    neighbouring elements, of whatever length.

    >>> same_rows(((32, False), (64, True)), ((32, False), (2, True)))
    True
    """
    return a == b or (_inner(a) and _inner(b) and a[:-1] == b[:-1])


def _inner(rows: Pattern) -> bool:
    """Whether one run of neighbouring elements is reduced."""
    return bool(rows) and rows[-1][1] and sum(flag for _, flag in rows) == 1


def _whole(base: Piece, limits: Limits) -> str:
    kept = max(base.kept, 1)
    return WHOLE.format(kept=kept, s="s" * (kept != 1), row=_count(base.elements // kept), sms=limits.sms)


def _axes(rows: Pattern) -> str:
    """A pattern in words: `the inner axis (4096)`."""
    marked = [i for i, (_, flag) in enumerate(rows) if flag]
    sizes = " x ".join(str(rows[i][0]) for i in marked)
    if len(marked) == len(rows):
        return f"the whole ({sizes})"
    if marked == [len(rows) - 1]:
        return f"the inner axis ({sizes})"
    return f"the outer axis ({sizes})" if marked == [0] else f"axes {sizes}"


def _count(number: int) -> str:
    return f"{number:,}"


def _bytes(size: float) -> str:
    return show(size, "bytes")


def _live(indices: Sequence[int], nodes: Sequence[Node]) -> int:
    """Most values of one element alive at once when the ops run in order."""
    last: dict[str, int] = {}
    for i in indices:
        for view in nodes[i].reads:
            last[view.root] = i
    alive: set[str] = set()
    most = 0
    for i in indices:
        alive |= {v.root for v in nodes[i].reads} | {v.root for v in nodes[i].writes}
        most = max(most, len(alive))
        alive = {root for root in alive if last.get(root, -1) > i}
    return most
