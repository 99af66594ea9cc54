"""What a name in a graph stands for: a tensor, or a view of (part of) one, by its strides.

A view costs nothing and moves nothing, so everything that reads it reads the tensor behind it: its
`root`. Strides count elements of the root; a stride of 0 repeats one element (`expand`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from iomodel.tensor import Tensor

#: Dtypes by kind, as promotion ranks them; within floating point the wider wins.
INTEGERS = ("bool", "uint8", "int8", "int4", "int32", "int64")
FLOATS = ("fp4", "mxfp4", "nvfp4", "fp6", "fp8", "mxfp8", "fp16", "bf16", "tf32", "fp32", "fp64")

#: (size, whether the axis is reduced or repeated), with equal neighbours merged and ones dropped.
Pattern = tuple[tuple[int, bool], ...]


@dataclass(frozen=True)
class View:
    """A shape and strides over the elements of the tensor `root`."""

    root: str
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    offset: int = 0
    #: Elements of the whole tensor behind the view.
    whole: int = 0

    @cached_property
    def elements(self) -> int:
        """Product of the shape: repeated elements count each time."""
        return math.prod(self.shape)

    @cached_property
    def touched(self) -> int:
        """Distinct elements of the root: axes of stride 0 count once."""
        return math.prod(n for n, s in zip(self.shape, self.strides, strict=True) if s != 0 or n == 0)

    @cached_property
    def contiguous(self) -> bool:
        """Whether the elements lie in the order of the shape, without gaps (axes of size 1 do not matter)."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True

    @cached_property
    def is_whole(self) -> bool:
        """Whether it is the tensor itself, element for element in the same order."""
        return self.contiguous and self.offset == 0 and self.elements == self.whole

    @cached_property
    def part(self) -> tuple[object, ...]:
        """Equal for views of the same elements."""
        axes = sorted((s, n) for n, s in zip(self.shape, self.strides, strict=True) if s != 0 and n != 1)
        return () if self.touched == self.whole else (self.offset, *axes)

    def tensor(self, *shape: float) -> Tensor:
        """The part of the root that is touched, as an op reads it; in a canonical shape where given."""
        sizes = tuple(float(n) for n in shape) or tuple(
            float(n) for n, s in zip(self.shape, self.strides, strict=True) if s != 0
        )
        return Tensor(self.root, sizes, self.dtype)

    def over(self, shape: Sequence[int]) -> View:
        """The view broadcast to a shape: missing and repeated axes get stride 0."""
        missing = len(shape) - len(self.shape)
        strides = [0] * missing
        for size, stride, wanted in zip(self.shape, self.strides, shape[missing:], strict=True):
            strides.append(0 if size == 1 and wanted != 1 else stride)
        return replace(self, shape=tuple(shape), strides=tuple(strides))


def permuted(view: View, dims: Sequence[int]) -> View:
    """The same elements with the axes in another order."""
    return replace(view, shape=tuple(view.shape[d] for d in dims), strides=tuple(view.strides[d] for d in dims))


def new(root: str, shape: Sequence[int], dtype: str) -> View:
    """A tensor of its own, row-major.

    >>> new("x", (2, 3), "bf16").strides
    (3, 1)
    """
    sizes = tuple(int(n) for n in shape)
    return View(root, sizes, dtype, row_major(sizes), 0, math.prod(sizes))


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor whose last axis is contiguous."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def broadcast(shapes: Iterable[Sequence[int]]) -> tuple[int, ...] | None:
    """The shape that all broadcast to, aligned at the last axis; None where they do not.

    >>> broadcast([(4, 1), (3,)]), broadcast([(4, 2), (3,)])
    ((4, 3), None)
    """
    result: list[int] = []
    for shape in shapes:
        for back, size in enumerate(reversed(shape)):
            if back == len(result):
                result.append(size)
            elif result[back] == 1:
                result[back] = size
            elif size not in (1, result[back]):
                return None
    return tuple(reversed(result))


def reshaped(view: View, shape: tuple[int, ...]) -> View | None:
    """The same elements in another shape, or None where the strides do not allow a view.

    Axes are merged where the outer stride is the inner stride times the inner size, then cut anew.
    Source: PyTorch's `computeStride` (aten/src/ATen/TensorUtils.cpp), which decides between view and copy.
    """
    runs: list[list[int]] = []  # [size, stride] of axes that lie in one piece
    for size, stride in zip(view.shape, view.strides, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == stride * size:
            runs[-1] = [runs[-1][0] * size, stride]
        else:
            runs.append([size, stride])
    strides: list[int] = []
    wanted = list(shape)
    for size, stride in reversed(runs):
        rest = size
        while rest > 1:
            if not wanted:
                return None
            last = wanted.pop()
            if rest % last:
                return None
            strides.append(stride * (size // rest))
            rest //= last
    while wanted:
        if wanted.pop() != 1:
            return None
        strides.append(1)
    return replace(view, shape=shape, strides=tuple(reversed(strides)))


def pattern(shape: Sequence[int], axes: Iterable[int]) -> Pattern:
    """A shape with some axes marked, in the form that reshaping does not change.

    >>> pattern((4, 8, 16), {2}), pattern((32, 1, 16), {2})
    (((32, False), (16, True)), ((32, False), (16, True)))
    """
    marked = set(axes)
    runs: list[tuple[int, bool]] = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        flag = axis in marked
        if runs and runs[-1][1] == flag:
            runs[-1] = (runs[-1][0] * size, flag)
        else:
            runs.append((size, flag))
    return tuple(runs)


def promote(dtypes: Iterable[tuple[str, int]]) -> str:
    """The dtype of a result from (dtype, number of axes) of its inputs, as `torch.result_type`.

    Kinds rank bool, integer, floating point; a tensor without axes only counts where its kind is
    higher. Within a kind the wider wins, and fp16 with bf16 gives fp32.

    Source: PyTorch documentation, Tensor Attributes, Type promotion.

    >>> promote([("bf16", 2), ("fp32", 2)]), promote([("bf16", 2), ("fp32", 0)])
    ('fp32', 'bf16')
    >>> promote([("fp16", 1), ("bf16", 1)])
    'fp32'
    """
    best: dict[bool, str] = {}
    for name, axes in dtypes:
        key = axes > 0
        best[key] = _wider(best[key], name) if key in best else name
    if True not in best or False not in best:
        return best.get(True) or best[False]
    return best[True] if _kind(best[True]) >= _kind(best[False]) else best[False]


def _kind(name: str) -> int:
    return 2 if name in FLOATS else 0 if name == "bool" else 1


def _wider(a: str, b: str) -> str:
    if a == b:
        return a
    if _kind(a) != _kind(b):
        return a if _kind(a) > _kind(b) else b
    if {a, b} == {"fp16", "bf16"}:
        return "fp32"
    order = FLOATS if a in FLOATS else INTEGERS
    return a if order.index(a) > order.index(b) else b
