"""Polynomials of whole numbers, small enough that floating point computes them without rounding.

However such a value is added up or multiplied out, it has the same bits; so two formulas that are the same
polynomial are the same step of a program (`tape`), and a quotient that divides out is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

#: Term (input -> power, as sorted pairs) -> coefficient.
Terms = tuple[tuple[int, int], ...]
Poly = Mapping[Terms, float]
#: Input -> its highest value; inputs are whole and not negative.
Highs = Mapping[int, float]

_LARGEST = 2.0**53
_MOST_TERMS = 12


def variable(number: int) -> Poly:
    """The polynomial of one input."""
    return {((number, 1),): 1.0}


def constant(value: float, highs: Highs) -> Poly | None:
    """The polynomial of a number."""
    return checked({(): value}, highs)


def checked(terms: Mapping[Terms, float], highs: Highs) -> Poly | None:
    """The polynomial, if every value of it is exact: a multiple of a power of two that fits 53 bits.

    >>> checked({((0, 2),): 0.5}, {0: 1024.0}) is None, checked({((0, 2),): 0.1}, {0: 1024.0}) is None
    (False, True)
    """
    kept = {term: c for term, c in terms.items() if c}
    if not kept:
        return {}
    bound = 0.0
    grain = math.inf
    for term, c in kept.items():
        size = abs(c)
        for number, power in term:
            size *= highs[number] ** power
        bound += size
        grain = min(grain, _grain(c))
    return kept if bound <= _LARGEST * grain and len(kept) <= _MOST_TERMS else None


def _grain(value: float) -> float:
    """The largest power of two that divides a number."""
    top, bottom = value.as_integer_ratio()
    return float(top & -top) / bottom if abs(top) < 2**1000 else 0.0


def combined(op: str, a: Poly, b: Poly, highs: Highs) -> Poly | None:
    """a op b for add, subtract, multiply and divide, where the result is exact; else None."""
    if op == "add" or op == "subtract":
        sign = 1.0 if op == "add" else -1.0
        total = dict(a)
        for term, c in b.items():
            total[term] = total.get(term, 0.0) + sign * c
        return checked(total, highs)
    if not a or not b:
        return None  # a zero, whose sign matters
    if op == "multiply":
        product: dict[Terms, float] = {}
        for left, c in a.items():
            for right, d in b.items():
                term = _times(left, right, 1)
                product[term] = product.get(term, 0.0) + c * d
        return checked(product, highs)
    if op == "divide" and len(b) == 1:
        ((under, d),) = b.items()
        quotient: dict[Terms, float] = {}
        for term, c in a.items():
            over = _times(term, under, -1)
            if c / d * d != c or any(power < 0 for _, power in over):
                return None
            quotient[over] = c / d
        found = checked(quotient, highs)
        # an exact quotient times the divisor must be exact as well, or c / d has been rounded
        return found if found is not None and checked(_scaled(quotient, d), highs) is not None else None
    return None


def _scaled(terms: Mapping[Terms, float], factor: float) -> dict[Terms, float]:
    return {term: c * factor for term, c in terms.items()}


def _times(left: Terms, right: Terms, sign: int) -> Terms:
    powers = dict(left)
    for number, power in right:
        powers[number] = powers.get(number, 0) + sign * power
    return tuple(sorted((number, power) for number, power in powers.items() if power))


def key(poly: Poly) -> tuple[tuple[Terms, float], ...]:
    """The same for the same polynomial."""
    return tuple(sorted(poly.items()))


def bounds(poly: Poly, lows: Highs, highs: Highs) -> tuple[float, float]:
    """Bounds of the values of a polynomial."""
    low = high = 0.0
    for term, c in poly.items():
        ends = [c, c]
        for number, power in term:
            ends = [ends[0] * lows[number] ** power, ends[1] * highs[number] ** power]
        low, high = low + min(ends), high + max(ends)
    return low, high


def is_whole(poly: Poly) -> bool:
    """Whether every value is a whole number."""
    return all(c == math.floor(c) for c in poly.values())
