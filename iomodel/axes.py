"""What a study varies: axes of numbers or names, written as lists, ranges, multiples or draws.

Numbers are never written out: an axis gives the values at some places, so a grid of a billion points
takes no memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from iomodel.errors import InputError
from iomodel.parameters import Parameter, Size
from iomodel.profile import dimension, resolve_key
from iomodel.units import parse_quantity

#: Profile values that formulas branch on, so that they vary one at a time.
LOOPED_VALUES = ("sm.shared_memory", "sustained.fa2.append", "sustained.fa3.append")
#: Most values that a growing range may write out, and most places of any axis.
MOST_LISTED, MOST_PLACES = 1_000_000, 10**12
#: Places that share a random generator.
PAGE = 16384

_RANGE = re.compile(
    r"^\s*(?P<low>.+?)\s*\.\.\s*(?P<high>.+?)(?:\s+(?:[x*]\s*(?P<factor>\S+)|step\s+(?P<step>.+?)))?\s*$"
)
_MULTIPLE = re.compile(r"^(\d+\.?\d*|\.\d+)x$")


@dataclass(frozen=True)
class Listed:
    """Numbers written out."""

    numbers: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.numbers)

    def at(self, places: Any) -> Any:
        """The numbers at some places, as an array."""
        import numpy

        return numpy.array(self.numbers)[places]

    def ends(self) -> tuple[float, float]:
        """The lowest and the highest."""
        return min(self.numbers), max(self.numbers)


@dataclass(frozen=True)
class Stepped:
    """low, low + step, ...: `count` numbers."""

    low: float
    step: float
    count: int

    def __len__(self) -> int:
        return self.count

    def at(self, places: Any) -> Any:
        """The numbers at some places, as an array."""
        return self.low + self.step * places

    def ends(self) -> tuple[float, float]:
        """The lowest and the highest."""
        return self.low, self.low + self.step * (self.count - 1)


@dataclass(frozen=True)
class Drawn:
    """`count` numbers drawn at random between low and high, the same for the same seed wherever one begins.

    Uniform, or uniform in the logarithm; whole where sizes are. Each page of places has a generator of its
    own, so no place depends on what was drawn before. Places are asked for in rising order.
    """

    low: float
    high: float
    count: int
    seed: tuple[int, ...]
    logarithmic: bool
    whole: bool

    def __len__(self) -> int:
        return self.count

    def at(self, places: Any) -> Any:
        """The numbers at some places, as an array."""
        import numpy

        first, last = int(places[0]) // PAGE, int(places[-1]) // PAGE
        drawn = [numpy.random.default_rng((*self.seed, page)).random(PAGE) for page in range(first, last + 1)]
        result = numpy.concatenate(drawn)[places - first * PAGE]
        end = self.high + (1.0 if self.whole else 0.0)
        if self.logarithmic:
            result = self.low * numpy.exp(result * math.log(end / self.low))
        else:
            result = self.low + result * (end - self.low)
        return numpy.minimum(numpy.floor(result) if self.whole else result, self.high)

    def ends(self) -> tuple[float, float]:
        """The lowest and the highest."""
        return self.low, self.high


Numbers = Listed | Stepped | Drawn


@dataclass(frozen=True)
class Axis:
    """One thing that varies: a parameter of the analysis, or a profile value (`set.l2`; then `key` is its path).

    `numbers` broadcast through the engine; `names` (dtypes, GPUs, loop sizes) vary one at a time.
    `multiple`: numbers count in the profile's own value.
    """

    name: str
    numbers: Numbers | None = None
    names: tuple[Any, ...] = ()
    key: str = ""
    multiple: bool = False

    def __len__(self) -> int:
        return len(self.names) if self.numbers is None else len(self.numbers)


@dataclass(frozen=True)
class Dimension:
    """Axes that advance together."""

    axes: tuple[Axis, ...]

    def __len__(self) -> int:
        return len(self.axes[0])

    @property
    def loops(self) -> bool:
        """Whether it holds names, so that it varies one place at a time."""
        return any(axis.numbers is None for axis in self.axes)


@dataclass(frozen=True)
class Sample:
    """How ranges without a step are drawn at random: how many points, from which seed, on which scale."""

    points: int
    seed: int = 0
    logarithmic: bool = True


def parse_axis(name: str, written: Any, known: Parameter | None, where: str, draw: Drawn | None = None) -> Axis:
    """An axis as a study writes it; `known` is the parameter it varies, None for a profile value."""
    key = "" if known else resolve_key(name.removeprefix("set."))
    parse = _parser(name, known, key, where)
    whole = known is not None
    loops = (
        known is not None and not (isinstance(known.kind, Size) and not known.kind.loop)
    ) or key in LOOPED_VALUES
    found = _RANGE.match(written) if isinstance(written, str) else None
    if known is not None and not isinstance(known.kind, Size):
        found = None
    if found:
        multiples = [bool(_MULTIPLE.match(found[end])) for end in ("low", "high")]
        multiple = not whole and all(multiples)
        if multiple:
            parse = _multiple
        numbers = _range(name, found, parse, whole, where, draw)
    else:
        values = list(written) if isinstance(written, list) else [written]
        if not values:
            raise InputError(f"{where}: {name} has no values")
        multiple = not whole and all(isinstance(v, str) and _MULTIPLE.match(v) for v in values)
        if known is not None and not isinstance(known.kind, Size):
            return Axis(name, names=tuple(parse(v) for v in values))
        numbers = Listed(tuple((_multiple if multiple else parse)(v) for v in values))
    if loops:
        if len(numbers) > MOST_LISTED:
            raise InputError(f"{where}: {name} varies one value at a time; {len(numbers):,} are too many")
        import numpy

        return Axis(name, names=tuple(numbers.at(numpy.arange(len(numbers))).tolist()), key=key, multiple=multiple)
    return Axis(name, numbers, key=key, multiple=multiple)


def _multiple(text: Any) -> float:
    value = float(str(text)[:-1])
    if value <= 0:
        raise InputError(f"{text!r} must be above zero")
    return value


def _parser(name: str, known: Parameter | None, key: str, where: str) -> Callable[[Any], Any]:
    def parse(value: Any) -> Any:
        try:
            if known is not None:
                return known.kind.parse(value, name)
            amount = parse_quantity(value, dimension(key))
        except InputError as error:
            text = str(error) if str(error).startswith(name) else f"{name}: {error}"
            raise InputError(f"{where}: {text}") from None
        if amount == 0 and dimension(key) != "s":
            raise InputError(f"{where}: {name}: {value!r} must be above zero")
        return amount

    return parse


def _range(
    name: str, found: re.Match[str], parse: Callable[[Any], Any], whole: bool, where: str, draw: Drawn | None
) -> Numbers:
    low, high = parse(found["low"]), parse(found["high"])
    written = found.group().strip()
    if low > high:
        raise InputError(f"{where}: {name}: {written!r} starts above its end")
    if found["factor"]:
        try:
            factor = float(found["factor"])
        except ValueError:
            factor = math.nan
        if not 1.0 < factor < math.inf:
            raise InputError(f"{where}: {name}: the factor of {written!r} must be a number above 1, as in x2")
        return Listed(_growing(name, low, high, factor, whole, where))
    if found["step"]:
        try:
            step = parse(found["step"])
        except InputError as error:
            raise InputError(f"{where}: {name}: the step of {written!r} must be above zero ({error})") from None
        count = math.floor((high - low) / step + 1e-9) + 1
        if count > MOST_PLACES:
            raise InputError(f"{where}: {name}: {written!r} has {count:.2g} values, above {MOST_PLACES:.0e}")
        return Stepped(low, step, count)
    if draw is None:
        raise InputError(
            f"{where}: {name}: {written!r} does not say how to go; write x2 or step N after it, or sample: to draw"
        )
    return Drawn(low, high, draw.count, draw.seed, draw.logarithmic, whole)


def _growing(name: str, low: float, high: float, factor: float, whole: bool, where: str) -> tuple[float, ...]:
    values: list[float] = []
    power = 0
    while True:
        value = low * factor**power
        value = float(math.floor(value + 0.5)) if whole else value
        if value > high * (1 + 1e-12):
            return tuple(values)
        if not values or value > values[-1]:
            values.append(value)
        if len(values) > MOST_LISTED:
            raise InputError(f"{where}: {name}: more than {MOST_LISTED:,} values; take a larger factor")
        power += 1


def points(dimensions: Sequence[Dimension]) -> int:
    """Places of the grid that some dimensions span."""
    return math.prod(len(d) for d in dimensions)
