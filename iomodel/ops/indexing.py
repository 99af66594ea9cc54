"""Rules of ops that pick by index, sort or scan; what depends on data is said so."""

from __future__ import annotations

from collections.abc import Sequence

from iomodel.node import Node
from iomodel.op import Op
from iomodel.ops.call import Call, Rule, merged, shown
from iomodel.tensor import Tensor
from iomodel.view import INTEGERS, View, new

#: A row up to this many elements is sorted or scanned by one warp, in registers.
WARP_ROW = 1024

DYNAMIC = (
    "its output's shape depends on the data: how many rows there are is only known when it has run, "
    "so no later kernel's grid can be fixed before"
)
SORTED = "it sorts or scans rows of {} elements, longer than a warp keeps in registers ({}): a kernel of its own"
SCATTER = (
    "it adds into rows picked by index: other thread blocks write the same rows, so what they hold is only "
    "known when all have ended"
)


def _index(call: Call, ids: View) -> View:
    if ids.dtype not in INTEGERS:
        raise call.fail(f"index {shown(ids)} is {ids.dtype}, and whole numbers are needed (int64)")
    return ids


def _gather(call: Call, table: View, ids: View, shape: Sequence[int]) -> View:
    """Add a node that reads a row of the table for each index (never more than all of it)."""
    result = new(call.outs[0], shape, table.dtype)
    reads = (Tensor(table.root, (float(min(result.elements, table.touched)),), table.dtype), ids.tensor())
    work = {"issue": 2.0 * result.elements}
    op = Op(call.op, reads, (result.tensor(),), work, "gather", library={"issue": 6.0 * result.elements})
    call.add(Node(op, (table, ids), (result,), result.shape, indexed=(table.root,)))
    return result


def embedding(call: Call) -> Sequence[View]:
    """Rows of weight [vocabulary, width] picked by ids: reads as many rows as ids (repeats included)."""
    first, second = call.tensors(2)
    table, ids = (second, first) if first.dtype in INTEGERS else (first, second)
    if len(table.shape) != 2:
        raise call.fail(f"weight {shown(table)} is not [vocabulary, width]")
    shape = (*_index(call, ids).shape, table.shape[1])
    return [_gather(call, table, ids, shape)]


def index_select(call: Call) -> Sequence[View]:
    """Slices of x along `dim` picked by a vector of indices."""
    x, ids = call.tensors(2)
    (axis,) = call.axes(x, default=0)
    if len(_index(call, ids).shape) != 1:
        raise call.fail(f"index {shown(ids)} is not a vector")
    shape = (*x.shape[:axis], ids.shape[0], *x.shape[axis + 1 :])
    return [_gather(call, x, ids, shape)]


def gather(call: Call) -> Sequence[View]:
    """Elements of x along `dim`, one for each index."""
    x, ids = call.tensors(2)
    call.axes(x, default=-1)
    if len(_index(call, ids).shape) != len(x.shape):
        raise call.fail(f"{shown(x)} and index {shown(ids)} need as many axes")
    return [_gather(call, x, ids, ids.shape)]


def scatter(call: Call) -> Sequence[View]:
    """index_add, scatter_add: rows of src added into x where the index says; the rows are read and written."""
    x, ids, src = call.tensors(3)
    call.axes(x, default=0)
    _index(call, ids)
    if x.dtype != src.dtype:
        raise call.fail(f"{shown(x)} is {x.dtype} and {shown(src)} is {src.dtype}; cast one")
    result = new(call.outs[0], x.shape, x.dtype)
    work = {"vector:fp32": float(src.elements), "issue": 4.0 * src.elements}
    op = Op(call.op, merged([src, ids, x]), (result.tensor(),), work, "gather")
    call.add(Node(op, (src, ids, x), (result,), result.shape, alone=SCATTER))
    return [result]


def embedding_backward(call: Call) -> Sequence[View]:
    """Gradient of an embedding's weight [vocabulary, width]: rows of grad added where the ids say."""
    grad, ids, table = call.tensors(3)
    _index(call, ids)
    result = new(call.outs[0], table.shape, grad.dtype)
    work = {"vector:fp32": float(grad.elements), "issue": 4.0 * grad.elements}
    op = Op(call.op, merged([grad, ids]), (result.tensor(),), work, "gather")
    call.add(Node(op, (grad, ids), (result,), result.shape, alone=SCATTER))
    return [result]


def topk(call: Call) -> Sequence[View]:
    """The k largest along the last axis: values and int64 indices."""
    (x,) = call.tensors(1)
    (axis,) = call.axes(x, default=-1)
    k = call.whole("k", x.shape[axis]) if call.op == "topk" else x.shape[axis]
    if k > x.shape[axis]:
        raise call.fail(f"k {k} is above the {x.shape[axis]} elements of axis {axis}")
    shape = tuple(k if a == axis else n for a, n in enumerate(x.shape))
    names = call.outs if len(call.outs) == 2 else (call.outs[0], call.fresh("indices"))
    values, indices = new(names[0], shape, x.dtype), new(names[1], shape, "int64")
    long = x.shape[axis] > WARP_ROW
    work = {"vector:fp32": 2.0 * x.elements, "issue": 12.0 * x.elements}
    op = Op(call.op, merged([x]), (values.tensor(), indices.tensor()), work, "reduce")
    alone = SORTED.format(x.shape[axis], WARP_ROW) if long else ""
    call.add(Node(op, (x,), (values, indices), x.shape, (axis,), alone))
    return [values, indices][: len(call.outs)]


def cumsum(call: Call) -> Sequence[View]:
    """Running sums along `dim`."""
    (x,) = call.tensors(1)
    (axis,) = call.axes(x, default=-1)
    to = "int64" if x.dtype in INTEGERS else x.dtype
    result = new(call.outs[0], x.shape, to)
    work = {"vector:fp32": 2.0 * x.elements, "issue": 8.0 * x.elements}
    op = Op(call.op, merged([x]), (result.tensor(),), work, "reduce")
    alone = SORTED.format(x.shape[axis], WARP_ROW)
    call.add(Node(op, (x,), (result,), x.shape, (axis,), alone))
    return [result]


def nonzero(call: Call) -> Sequence[View]:
    """Indices (or, for masked_select, values) where a mask holds; `expected` says how many to reckon with."""
    first, *rest = call.tensors(1, 2)
    count = call.whole("expected")
    source = rest[0] if rest else first
    if count > source.elements:
        raise call.fail(f"expected {count} is above the {source.elements} elements of {shown(source)}")
    masked = call.op == "masked_select"
    shape = (count,) if masked else (count, len(first.shape))
    result = new(call.outs[0], shape, first.dtype if masked else "int64")
    work = {"vector:fp32": 2.0 * source.elements, "issue": 10.0 * source.elements}
    op = Op(call.op, merged([first, *rest]), (result.tensor(),), work, "gather")
    call.add(Node(op, (first, *rest), (result,), source.shape, alone=DYNAMIC))
    return [result]


RULES: dict[str, Rule] = {
    "embedding": embedding,
    "index_select": index_select,
    "gather": gather,
    "index_add": scatter,
    "scatter_add": scatter,
    "embedding_backward": embedding_backward,
    "topk": topk,
    "sort": topk,
    "argsort": topk,
    "cumsum": cumsum,
    "nonzero": nonzero,
    "masked_select": nonzero,
}
