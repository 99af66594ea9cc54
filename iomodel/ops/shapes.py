"""Rules of shape ops: views where the strides allow one, copies where not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from iomodel.ops.call import Call, Rule, shown
from iomodel.ops.elementwise import copied
from iomodel.view import View, new, permuted, promote, reshaped


def reshape(call: Call) -> Sequence[View]:
    """Another shape of as many elements; `view` refuses where a copy would be needed."""
    (x,) = call.tensors(1)
    shape = list(call.integers("shape"))
    if shape.count(-1) > 1:
        raise call.fail("only one size may be -1")
    if -1 in shape:
        rest = prod(n for n in shape if n != -1)
        if not rest or x.elements % rest:
            raise call.fail(f"{shown(x)} does not divide into {shape}")
        shape[shape.index(-1)] = x.elements // rest
    return [_reshape(call, x, tuple(shape))]


def _reshape(call: Call, x: View, shape: tuple[int, ...]) -> View:
    if prod(shape) != x.elements:
        raise call.fail(f"{shown(x)} has {x.elements} elements, {list(shape)} has {prod(shape)}")
    found = reshaped(x, shape)
    if found is not None:
        return found
    if call.op == "view":
        raise call.fail(f"the strides of {shown(x)} do not allow {list(shape)} as a view; use reshape")
    return new(copied(call, x, call.outs[0]).root, shape, x.dtype)


def flatten(call: Call) -> Sequence[View]:
    """Axes `start_dim` to `end_dim` as one."""
    (x,) = call.tensors(1)
    rank = len(x.shape)
    (start,), (end,) = call.integers("start_dim", 0), call.integers("end_dim", -1)
    first, last = call.axis(start, rank, "start_dim"), call.axis(end, rank, "end_dim")
    return [_reshape(call, x, (*x.shape[:first], prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))]


def permute(call: Call) -> Sequence[View]:
    """Axes in another order, always a view."""
    (x,) = call.tensors(1)
    dims = [call.axis(d, len(x.shape)) for d in call.integers("dims")]
    if sorted(dims) != list(range(len(x.shape))):
        raise call.fail(f"dims {dims} is not an order of the {len(x.shape)} axes of {shown(x)}")
    return [permuted(x, dims)]


def transpose(call: Call) -> Sequence[View]:
    """Two axes exchanged (`t`: those of a matrix), always a view."""
    (x,) = call.tensors(1)
    rank = len(x.shape)
    if call.op == "t":
        if rank != 2:
            raise call.fail(f"{shown(x)} is not a matrix; use transpose")
        return [permuted(x, (1, 0))]
    (a,), (b,) = call.integers("dim0", -2), call.integers("dim1", -1)
    first, second = call.axis(a, rank, "dim0"), call.axis(b, rank, "dim1")
    dims = list(range(rank))
    dims[first], dims[second] = dims[second], dims[first]
    return [permuted(x, dims)]


def unsqueeze(call: Call) -> Sequence[View]:
    """A new axis of size 1."""
    (x,) = call.tensors(1)
    (dim,) = call.integers("dim")
    at = call.axis(dim, len(x.shape) + 1)
    shape, strides = list(x.shape), list(x.strides)
    shape.insert(at, 1)
    strides.insert(at, 1)
    return [replace(x, shape=tuple(shape), strides=tuple(strides))]


def squeeze(call: Call) -> Sequence[View]:
    """Axes of size 1 dropped."""
    (x,) = call.tensors(1)
    axes = call.axes(x, default=None)
    kept = [a for a, n in enumerate(x.shape) if n != 1 or a not in axes]
    return [replace(x, shape=tuple(x.shape[a] for a in kept), strides=tuple(x.strides[a] for a in kept))]


def expand(call: Call) -> Sequence[View]:
    """Axes of size 1 (and new leading ones) repeated by a stride of 0: a view; -1 keeps a size."""
    (x,) = call.tensors(1)
    shape = list(call.integers("shape"))
    missing = len(shape) - len(x.shape)
    for axis, size in enumerate(shape):
        own = x.shape[axis - missing] if axis >= missing else 1
        if size == -1 and axis >= missing:
            shape[axis] = own
        elif own not in (1, size):
            raise call.fail(f"{shown(x)} does not expand to {shape}")
    if missing < 0:
        raise call.fail(f"{shown(x)} has more axes than {shape}")
    return [x.over(shape)]


def slice_(call: Call) -> Sequence[View]:
    """`slice` (start, end, step) and `narrow` (start, length) along `dim`, a view."""
    (x,) = call.tensors(1)
    (axis,) = call.axes(x, default=0)
    size = x.shape[axis]
    (start,) = call.integers("start", 0)
    step = call.whole("step", 1) if call.op == "slice" else 1
    if call.op == "slice":
        (end,) = call.integers("end", size)
        start, end = (size + start if start < 0 else start), (size + end if end < 0 else min(end, size))
    else:
        end = start + call.whole("length")
    if not 0 <= start < end <= size:
        raise call.fail(f"from {start} to {end} is not within axis {axis} of {shown(x)}")
    return [_cut(x, axis, start, -(-(end - start) // step), step)]


def _cut(x: View, axis: int, start: int, length: int, step: int = 1) -> View:
    shape, strides = list(x.shape), list(x.strides)
    shape[axis] = length
    strides[axis] = x.strides[axis] * step
    offset = x.offset + start * x.strides[axis]
    return replace(x, shape=tuple(shape), strides=tuple(strides), offset=offset)


def select(call: Call) -> Sequence[View]:
    """One index along `dim`, a view without that axis."""
    (x,) = call.tensors(1)
    (axis,) = call.axes(x)
    (index,) = call.integers("index")
    if not -x.shape[axis] <= index < x.shape[axis]:
        raise call.fail(f"index {index} is not within axis {axis} of {shown(x)}")
    one = _cut(x, axis, index % x.shape[axis], 1)
    kept = [a for a in range(len(x.shape)) if a != axis]
    return [replace(one, shape=tuple(one.shape[a] for a in kept), strides=tuple(one.strides[a] for a in kept))]


def split(call: Call) -> Sequence[View]:
    """`split` by `sizes` (a number or a list), `chunk` in as many parts as there are outputs; views."""
    (x,) = call.tensors(1)
    (axis,) = call.axes(x, default=0 if call.op == "split" else -1)
    size, parts = x.shape[axis], len(call.outs)
    if call.op == "chunk":
        each = -(-size // call.whole("chunks", parts))
        lengths = [min(each, size - i * each) for i in range(parts)]
    else:
        sizes = call.integers("sizes")
        lengths = list(sizes)
        if len(sizes) == 1:
            lengths = [min(sizes[0], size - i * sizes[0]) for i in range(parts)]
    if sum(lengths) != size or len(lengths) != parts or min(lengths) < 1:
        raise call.fail(f"axis {axis} of {shown(x)} does not split into {parts} outputs of {lengths}")
    starts = [sum(lengths[:i]) for i in range(parts)]
    return [_cut(x, axis, start, length) for start, length in zip(starts, lengths, strict=True)]


def halves(call: Call, x: View) -> tuple[View, View]:
    """The first and the second half of the last axis, as views."""
    axis, size = len(x.shape) - 1, x.shape[-1] if x.shape else 1
    if size % 2:
        raise call.fail(f"the last axis of {shown(x)} is odd")
    return _cut(x, axis, 0, size // 2), _cut(x, axis, size // 2, size // 2)


def cat(call: Call) -> Sequence[View]:
    """`cat` along `dim`, `stack` along a new axis: a copy of every input."""
    parts = call.tensors(1, 10_000)
    if call.op == "stack":
        call.same_shape(*parts)
        (dim,) = call.integers("dim", 0)
        at = call.axis(dim, len(parts[0].shape) + 1)
        shape = [*parts[0].shape]
        shape.insert(at, len(parts))
    else:
        (axis,) = call.axes(parts[0], default=0)
        shape = list(parts[0].shape)
        for part in parts[1:]:
            if len(part.shape) != len(shape) or any(
                a != b for i, (a, b) in enumerate(zip(part.shape, shape, strict=True)) if i != axis
            ):
                raise call.fail(f"shapes {shown(parts[0])} and {shown(part)} differ outside axis {axis}")
        shape[axis] = sum(part.shape[axis] for part in parts)
    to = promote([(part.dtype, len(part.shape)) for part in parts])
    return [call.pointwise("copy", parts, call.outs[0], to, name="cat", shape=shape, placed=True)]


RULES: dict[str, Rule] = {
    "reshape": reshape,
    "view": reshape,
    "flatten": flatten,
    "permute": permute,
    "transpose": transpose,
    "t": transpose,
    "unsqueeze": unsqueeze,
    "squeeze": squeeze,
    "expand": expand,
    "slice": slice_,
    "narrow": slice_,
    "select": select,
    "split": split,
    "chunk": split,
    "cat": cat,
    "concat": cat,
    "stack": cat,
}
