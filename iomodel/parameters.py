"""What an analysis may be asked: read from the annotations of its Python function.

`Annotated[Number, Size("query tokens")]` in the signature is the only place where a parameter is
described; command-line options, CSV columns and study axes all come from it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from iomodel.arrays import Number, is_array, is_traced
from iomodel.errors import InputError, unknown
from iomodel.units import parse_size


@dataclass(frozen=True)
class Size:
    """A whole number of at least `least`; may be an array. `loop`: one value at a time, never an array."""

    help: str
    least: int = 1
    loop: bool = False

    def parse(self, value: Any, name: str) -> Number:
        if is_array(value):
            return self._array(value, name)
        return parse_size(value, name, self.least)

    def _array(self, value: Any, name: str) -> Number:
        import numpy

        from iomodel.tape import BLOCK, leaf

        if self.loop:
            raise InputError(f"{name}: one number at a time, not an array")
        if is_traced(value):
            return value
        array = numpy.asarray(value, dtype=numpy.float64)
        if array.size == 0:
            raise InputError(f"{name}: an empty array")
        bad = ~(numpy.isfinite(array) & (array >= self.least) & (array <= 1e15) & (array == numpy.floor(array)))
        if bad.any():
            first = array[bad].flat[0]
            raise InputError(f"{name}: {first} is not a whole number from {self.least} to 1e15")
        # Long arrays are recorded first, and computed block by block when the results are there.
        return array if array.size <= BLOCK else leaf(f"{name} {id(array)}", array)


@dataclass(frozen=True)
class Real:
    """A number in [low, high)."""

    help: str
    low: float = 0.0
    high: float = 1.0

    def parse(self, value: Any, name: str) -> float:
        try:
            number = float(str(value)) if not isinstance(value, bool) else math.nan
        except ValueError:
            number = math.nan
        if not self.low <= number < self.high:
            raise InputError(f"{name}: {value!r} must be a number from {self.low:g} to below {self.high:g}")
        return number


@dataclass(frozen=True)
class Flag:
    """Yes or no."""

    help: str

    def parse(self, value: Any, name: str) -> bool:
        text = str(value).strip().lower()
        if text in ("true", "yes", "1", "on"):
            return True
        if text in ("false", "no", "0", "off", ""):
            return False
        raise InputError(f"{name}: {value!r} is neither true nor false")


@dataclass(frozen=True)
class Name:
    """One of some names; `known` lists them when asked, `parse_name` may accept more spellings."""

    help: str
    known: Callable[[], Any]
    parse_name: Callable[[str], str] | None = None

    def parse(self, value: Any, name: str) -> str:
        text = str(value).strip()
        if self.parse_name is not None:
            return self.parse_name(text)
        if text not in list(self.known()):
            raise unknown(name, text, self.known())
        return text


@dataclass(frozen=True)
class Text:
    """Text that the analysis itself parses (a shape, a list of ops). `many`: may be given again, and the
    parts are joined by commas."""

    help: str
    many: bool = False

    def parse(self, value: Any, name: str) -> Any:
        del name
        return value


Kind = Size | Real | Flag | Name | Text


@dataclass(frozen=True)
class Parameter:
    """One parameter of an analysis: its name in Python, what it takes, and its default."""

    name: str
    kind: Kind
    default: Any
    required: bool

    @property
    def option(self) -> str:
        """`kv_heads` as the command line writes it: `--kv-heads`."""
        return "--" + self.name.replace("_", "-")


@lru_cache(maxsize=64)
def parameters(function: Callable[..., Any]) -> Mapping[str, Parameter]:
    """The parameters of an analysis by name, in the order of its signature."""
    hints = get_type_hints(function, include_extras=True)
    found: dict[str, Parameter] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints[name]
        if get_origin(hint) is Union:  # Python 3.10 makes Optional of what defaults to None
            hint = get_args(hint)[0]
        if get_origin(hint) is Annotated:
            kind = get_args(hint)[1]
            required = parameter.default is inspect.Parameter.empty
            found[name] = Parameter(name, kind, None if required else parameter.default, required)
    return found


def parse_arguments(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Checked values for an analysis: every given one parsed, None left to the default."""
    known = parameters(function)
    for parameter in known.values():
        if parameter.required and parameter.name in given and given[parameter.name] is None:
            raise InputError(f"{parameter.option} is missing")
    parsed: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise unknown("option", name, known)
        if value is not None:
            parsed[name] = known[name].kind.parse(value, known[name].option)
    return parsed
