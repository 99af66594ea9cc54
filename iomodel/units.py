"""The one file where text becomes SI numbers and SI numbers become text.

Inside iomodel everything is bytes, seconds, FLOP and their quotients as plain floats. Decimal
prefixes are decimal (GB is 1e9 bytes), binary ones binary (GiB is 2^30 bytes).
"""

from __future__ import annotations

import math
import re

from iomodel.errors import InputError

#: Prefix -> power of ten, or for binary prefixes a factor.
DECIMAL: dict[str, int | float] = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY: dict[str, int | float] = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
SMALL: dict[str, int | float] = {"": 0, "m": -3, "u": -6, "µ": -6, "n": -9, "p": -12}

#: dimension -> (base unit spellings, prefixes they take). The first spelling is the one shown.
DIMENSIONS: dict[str, tuple[tuple[str, ...], dict[str, int | float]]] = {
    "bytes": (("B", "bytes", "byte"), {**DECIMAL, **BINARY}),
    "bytes/s": (("B/s", "Bps"), {**DECIMAL, **BINARY}),
    "FLOP/s": (("FLOP/s", "FLOPS", "FLOPs", "OP/s", "OPS"), DECIMAL),
    "FLOP": (("FLOP",), DECIMAL),
    "op/s": (("op/s",), DECIMAL),
    "Hz": (("Hz",), DECIMAL),
    "s": (("s",), SMALL),
    "W": (("W",), DECIMAL),
    "1": (("",), {"": 0}),
}

_QUANTITY = re.compile(r"^([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµ/]*)$")
_SIZE = re.compile(r"^(-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+]?\d+)?)\s*(Ki|Mi|Gi|Ti|[kKMGBT])?$", re.ASCII)

#: Suffixes of sizes: k is 1024 because sequence lengths are said that way; the rest are decimal.
SIZE_SUFFIXES = {"": 1, "k": 1024, "K": 1024, "M": 10**6, "G": 10**9, "B": 10**9, "T": 10**12}
SIZE_SUFFIXES |= {name: int(value) for name, value in BINARY.items() if name != "Pi"}

#: Sizes above this are refused: below it every float64 is an exact whole number.
LARGEST_SIZE = 10**15


def parse_quantity(text: object, dimension: str) -> float:
    """A quantity with its unit as an SI float; a missing or foreign unit is an error.

    >>> parse_quantity("3.35 TB/s", "bytes/s")
    3350000000000.0
    >>> parse_quantity("227 KiB", "bytes")
    232448.0
    """
    spellings, prefixes = DIMENSIONS[dimension]
    shown = repr(text) if len(repr(text)) <= 60 else repr(text)[:57] + "..."
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise InputError(f"{shown} is not a quantity in {spellings[0] or 'plain numbers'}")
    match = _QUANTITY.match(str(text).strip().replace("μ", "µ"))
    if not match:
        example = _example(dimension)
        raise InputError(f"{shown} is not a quantity; write a number and a unit, e.g. {example!r}")
    number, unit = match.group(1), match.group(2)
    for spelling in spellings:
        prefix = unit[: len(unit) - len(spelling)] if spelling else unit
        if unit.endswith(spelling) and prefix in prefixes:
            value = _scaled(number, prefixes[prefix])
            if not math.isfinite(value) or value < 0:
                raise InputError(f"{shown} must be finite and not negative")
            return value
    if not unit:
        raise InputError(f"{shown} has no unit; write e.g. {_example(dimension)!r}")
    raise InputError(f"{shown}: unit {unit!r} does not measure {dimension}; write e.g. {_example(dimension)!r}")


def _scaled(number: str, prefix: int | float) -> float:
    """A written number times a prefix, rounded once: 2.039 T is the float of 2.039e12."""
    if isinstance(prefix, float):
        return float(number) * prefix
    mantissa, _, exponent = number.lower().partition("e")
    return float(f"{mantissa}e{int(exponent or 0) + prefix}")


def _example(dimension: str) -> str:
    return {
        "bytes": "50 MB",
        "bytes/s": "3.35 TB/s",
        "FLOP/s": "989.4 TFLOP/s",
        "FLOP": "4096 FLOP",
        "op/s": "4 Top/s",
        "Hz": "1.83 GHz",
        "s": "6.2 us",
        "W": "700 W",
        "1": "132",
    }[dimension]


def parse_size(text: object, name: str, least: int = 1) -> float:
    """A whole size from the command line, a CSV cell or Python, as an exact float.

    `k` is 1024 (16k tokens are 16384); `M`, `G` (or `B`) and `T` are decimal; `Ki`, `Mi`, `Gi` binary.

    >>> parse_size("16k", "seq"), parse_size("8e9", "params"), parse_size("8192.0", "seq")
    (16384.0, 8000000000.0, 8192.0)
    """
    shown = str(text) if len(str(text)[:41]) <= 40 else str(text)[:37] + "..."
    if isinstance(text, bool) or text is None:
        raise InputError(f"{name}: {shown!r} is not a whole number")
    match = _SIZE.match(str(text).strip()) if len(str(text)) < 400 else None
    if not match:
        raise InputError(f"{name}: {shown!r} is not a whole number (write 16384, 16k or 1e4)")
    value = float(match.group(1)) * SIZE_SUFFIXES[match.group(2) or ""]
    if not value <= LARGEST_SIZE:
        raise InputError(f"{name}: {shown} is above the largest size, {LARGEST_SIZE:.0e}")
    if value != math.floor(value):
        raise InputError(f"{name}: {shown} is not a whole number")
    if value < least:
        raise InputError(f"{name}: {shown} must be at least {least}")
    return value


def three_digits(value: float) -> str:
    """Three significant digits without an exponent: 0.537, 5.37, 53.7, 537, 5370.

    >>> [three_digits(v) for v in (0.53687, 69.2563, 402.65, 999.7)]
    ['0.537', '69.3', '403', '1000']
    """
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "-"
    digits = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    digits = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:.{digits}f}"


_STEPS = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")]
_SECONDS = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")]


def show(value: float, unit: str) -> str:
    """An SI value as a person reads it, three significant digits with a fitting prefix.

    >>> show(69.2563e9, "bytes"), show(40.06e-6, "s"), show(3.35e12, "bytes/s"), show(295.3, "FLOP/B")
    ('69.3 GB', '40.1 us', '3.35 TB/s', '295 FLOP/B')
    >>> show(232448.0, "binary")  # capacities of caches and scratch memory are said in powers of two
    '227 KiB'
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "-"
    if unit == "s":
        for step, name in _SECONDS:
            if abs(value) >= step * 0.9995:
                return f"{three_digits(value / step)} {name}"
        return "0 s" if value == 0 else f"{value:.3g} s"
    if unit == "binary":
        for prefix, step in reversed(BINARY.items()):
            if value >= step:
                return f"{three_digits(value / step)} {prefix}B"
        return f"{three_digits(value)} B"
    if unit in ("bytes", "bytes/s", "FLOP", "FLOP/s", "op/s", "Hz", "W"):
        base = {"bytes": "B", "bytes/s": "B/s"}.get(unit, unit)
        for step, prefix in _STEPS:
            if abs(value) >= step * 0.9995:
                return f"{three_digits(value / step)} {prefix}{base}"
        return f"{three_digits(value)} {base}"
    if unit == "x":
        return f"{three_digits(value)}x" if value >= 0.01 else f"{value:.1e}x"
    if unit in ("", "1"):
        return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.4g}"
    return f"{three_digits(value)} {unit}"


#: Units whose prefix a whole column can share.
_PREFIXED = {
    "bytes": "B",
    "bytes/s": "B/s",
    "FLOP": "FLOP",
    "FLOP/s": "FLOP/s",
    "Hz": "Hz",
    "W": "W",
    "op/s": "op/s",
}


def common_step(values: list[float], unit: str) -> tuple[float, str] | None:
    """The prefix that all values of a column can be shown with, as (step, unit with prefix).

    None where the values are too far apart (below a thousandth of the step) or the unit takes none.

    >>> common_step([69.3e9, 0.54e9], "bytes"), common_step([2e-3, 1e-7], "s")
    ((1000000000.0, 'GB'), None)
    """
    sizes = [abs(v) for v in values if v and math.isfinite(v)]
    if unit == "s":
        steps = _SECONDS
    elif unit in _PREFIXED:
        steps = [(step, prefix + _PREFIXED[unit]) for step, prefix in _STEPS]
    else:
        return None
    if not sizes:
        return None
    step, name = next(((s, n) for s, n in steps if max(sizes) >= s * 0.9995), steps[-1])
    return (step, name) if min(sizes) >= step / 1000 else None
