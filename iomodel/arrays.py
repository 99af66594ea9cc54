"""Arithmetic that serves a number and a NumPy array with the same bits.

Formulas use only `+ - * /` and the functions here. Each is correctly rounded (or exact) both in
Python and in NumPy, so a sweep over an array equals the loop over its numbers bit for bit. NumPy is
never imported for a number: a single question must answer at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[np.float64]

#: A float, or a float64 array that broadcasts against the others.
Number: TypeAlias = Any


def is_array(x: object) -> bool:
    """True for anything with a shape (a NumPy array), False for a plain number."""
    return hasattr(x, "shape")


def is_traced(x: object) -> bool:
    """True for an array that is recorded, not yet computed (see `tape`)."""
    return hasattr(x, "ready")


def settled(x: Number) -> Number:
    """x itself; the values of a recorded array, where its inputs have theirs."""
    return x.values() if is_traced(x) and x.ready else x


def choose(names: Sequence[str], index: Number) -> Any:
    """names[index], at each place for an array."""
    if is_traced(index):
        from iomodel.tape import pick

        return pick(names, index)
    return _numpy().array(names)[index.astype(int)] if is_array(index) else names[int(index)]


def _numpy() -> Any:
    import numpy

    return numpy


def maximum(a: Number, b: Number) -> Number:
    """Elementwise larger of two."""
    if is_array(a) or is_array(b):
        return _numpy().maximum(a, b)
    return a if a >= b else b


def minimum(a: Number, b: Number) -> Number:
    """Elementwise smaller of two."""
    if is_array(a) or is_array(b):
        return _numpy().minimum(a, b)
    return a if a <= b else b


def floor(x: Number) -> Number:
    """Largest integer not above x, as a float."""
    return _numpy().floor(x) if is_array(x) else float(math.floor(x))


def ceil(x: Number) -> Number:
    """Smallest integer not below x, as a float."""
    return _numpy().ceil(x) if is_array(x) else float(math.ceil(x))


def ceil_div(a: Number, b: Number) -> Number:
    """ceil(a / b) for whole a and b; exact while a is below 2^52.

    The quotient of whole numbers that is not whole differs from the next whole number by at least
    1/b, which is more than its rounding error, so rounding never crosses it.

    >>> ceil_div(10, 4)
    3.0
    """
    return ceil(a / b)


def sqrt(x: Number) -> Number:
    """Square root, correctly rounded in both worlds."""
    return _numpy().sqrt(x) if is_array(x) else math.sqrt(x)


def where(condition: Number, a: Number, b: Number) -> Number:
    """a where condition holds, else b; for reporting, not for steering a formula by size."""
    if is_array(condition) or is_array(a) or is_array(b):
        return _numpy().where(condition, a, b)
    return a if condition else b


def clip(x: Number, low: Number, high: Number) -> Number:
    """x, but not below low and not above high."""
    return minimum(maximum(x, low), high)


def floor_sum(n: Number, m: float, a: float, b: Number) -> Number:
    """Sum of floor((a*i + b) / m) for i = 0 .. n-1, whole n >= 0, b >= 0, and numbers m > 0, a >= 0.

    Euclid's algorithm on (a, m): a handful of steps whatever n is, so the blocks that a causal or
    windowed tiling visits are counted exactly without walking them. n and b may be arrays.

    Source: Graham, Knuth, Patashnik, Concrete Mathematics, section 3.4.

    >>> floor_sum(4, 3, 5, 1)  # 0 + 2 + 3 + 5
    10.0
    """
    total: Number = 0.0
    sign = 1.0
    while True:
        whole_a, a = divmod(a, m)
        whole_b = floor(b / m)
        b = b - whole_b * m
        total = total + sign * (whole_a * (n * (n - 1) / 2) + whole_b * n)
        if a == 0:
            return total + 0.0
        # Count lattice points under the line by columns instead of rows: floor((a*i+b)/m) summed
        # over i equals n*k minus the same kind of sum with a and m exchanged.
        k = floor((a * n + b) / m)
        total = total + sign * (k * n)
        sign = -sign
        n, m, a, b = k, a, m, m - b - 1 + a
        # sum_{j=1..k} ceil((m*j - b) / a) = sum_{j=0..k-1} floor((m*j + m - b - 1 + a) / a)
