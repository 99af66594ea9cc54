"""Formulas recorded once and replayed over blocks of points, with the bits of plain NumPy.

A `Traced` stands for an array. Formulas run on it as on any number and leave behind what they did. A
`Program` keeps what the wanted figures need, each operation once, and replays it over blocks that
fit a core's caches. Operations are left out or swapped only where the result is the same bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from iomodel import exact
from iomodel.errors import IomodelError

#: Points replayed at once: few enough for the arrays in use to stay in a core's caches, enough that
#: the cost of calling NumPy does not show.
BLOCK = 12288

_SWAPS = {"add", "multiply", "maximum", "minimum", "equal", "not_equal", "bitwise_and", "bitwise_or"}
_YES_NO = {"less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "isfinite", "isnan"}
_YES_NO |= {"bitwise_and", "bitwise_or", "invert", "logical_and", "logical_or", "logical_not"}


class UntraceableError(IomodelError):
    """A formula looked at the values of an input that has none yet."""


class Traced(NDArrayOperatorsMixin):
    """An array that is not there yet: an operation and what it is applied to.

    `op` is the name of a NumPy function, `input` or `pick` (names by index). An input of an array
    that exists carries it as `data`; whatever is made of such inputs (`ready`) gives its values to
    anything that asks, so it serves wherever an array does.
    """

    __slots__ = ("args", "data", "op", "ready", "shape")
    __array_priority__ = 100.0

    def __init__(self, op: str, args: tuple[Any, ...], shape: tuple[int, ...], data: Any = None) -> None:
        self.op, self.args, self.shape, self.data = op, args, shape, data
        inputs = [a for a in args if isinstance(a, Traced)]
        self.ready: bool = all(a.ready for a in inputs) if inputs else data is not None

    @property
    def ndim(self) -> int:
        """How many axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many values."""
        return math.prod(self.shape)

    def values(self) -> Any:
        """The array itself."""
        return evaluate([self])[0]

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options or ufunc.nout != 1:
            return getattr(ufunc, method)(*(_values(x) for x in inputs), **options)
        return _node(ufunc.__name__, inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        if function is np.where and len(args) == 3:
            return _node("where", args)
        return function(*(_values(a) for a in args), **{k: _values(v) for k, v in options.items()})

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.values(), dtype=dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.values(), name)

    def __getitem__(self, key: Any) -> Any:
        return self.values()[key]

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        return bool(self.values())

    __hash__ = object.__hash__


def leaf(name: str, data: Any = None) -> Traced:
    """An input: of an array that exists, or without values, to be given block by block."""
    return Traced("input", (name,), (2,) if data is None else data.shape, data)


def pick(names: Sequence[str], index: Traced) -> Traced:
    """names[index] at each place."""
    return Traced("pick", (tuple(names), index), index.shape)


def _node(op: str, args: Sequence[Any]) -> Any:
    if op == "remainder" and args[0] is args[1]:
        return 0.0  # whole numbers above zero
    words = [a for a in args if isinstance(a, str)]
    if words and op in ("equal", "not_equal"):  # a picked name against a word: the index against its place
        names, index = next(a.args for a in args if isinstance(a, Traced))
        return _node(op, (index, float(names.index(words[0])) if words[0] in names else -1.0))
    kept = tuple(a if isinstance(a, Traced) else _constant(a) for a in args)
    shapes = [a.shape for a in kept if isinstance(a, Traced)]
    shape = shapes[0] if all(s == shapes[0] for s in shapes) else np.broadcast_shapes(*shapes)
    return Traced(op, kept, shape)


def _constant(value: Any) -> Any:
    array = np.asarray(value)
    if array.ndim:
        return leaf(f"array {id(array)}", array)
    return bool(array) if array.dtype == bool else float(array)


def _values(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_values(v) for v in value)
    return value.values() if isinstance(value, Traced) else value


class _Step:
    """One operation of a program, and bounds of what it gives."""

    __slots__ = ("args", "constant", "high", "low", "op", "plain", "poly", "yes_no")

    def __init__(self, op: str, args: tuple[int, ...], constant: Any, yes_no: bool) -> None:
        self.op, self.args, self.constant, self.yes_no = op, args, constant, yes_no
        self.low, self.high = -math.inf, math.inf
        self.poly: exact.Poly | None = None
        self.plain = False  # never the zero with a minus sign


@dataclass(frozen=True)
class Range:
    """Lowest and highest value of an input, and whether all are whole numbers."""

    low: float
    high: float
    whole: bool = False


class Program:
    """What some traced figures need, in order, each operation once.

    `ranges` says what is known of inputs: what a maximum or minimum can be seen to choose everywhere is
    not computed, and formulas that are the same polynomial of whole numbers are one (`exact`).
    """

    def __init__(self, wanted: Sequence[Any], ranges: Mapping[str, Range] | None = None) -> None:
        self.ranges = ranges or {}
        self._lows: dict[int, float] = {}
        self._highs: dict[int, float] = {}
        self.steps: list[_Step] = []
        self.inputs: dict[str, int] = {}
        self.leaves: dict[str, Traced] = {}
        self._numbers: dict[Any, int] = {}
        self._of: dict[int, int] = {}
        self._nodes: list[Traced] = []  # kept alive, so that an id stays one node's
        self.wanted = [self._number(x) for x in wanted]
        self._plans: dict[tuple[frozenset[int], int], Any] = {}

    def run(self, given: Mapping[str, Any], count: int) -> list[Any]:
        """The wanted figures of one block of `count` points, in arrays that the next run overwrites.

        An input of one value serves all points; what depends on such inputs only has one value.
        """
        wide = frozenset(i for name, i in self.inputs.items() if given[name].size > 1)
        if (wide, count) not in self._plans:
            self._plans[wide, count] = self._allocate(wide, count)
        inputs, steps, results = self._plans[wide, count]
        for name, register in inputs.items():
            np.copyto(register, given[name])
        with np.errstate(divide="ignore", invalid="ignore"):
            for step in steps:
                step()
        return list(results)

    # --- numbering: the same operation on the same values is the same step ---

    def _number(self, value: Any) -> int:
        if not isinstance(value, Traced):
            return self._constant(value)
        stack = [value]
        while stack:
            node = stack[-1]
            missing = [a for a in node.args if isinstance(a, Traced) and id(a) not in self._of]
            if missing and id(node) not in self._of:
                stack += reversed(missing)
                continue
            stack.pop()
            if id(node) not in self._of:
                self._of[id(node)] = self._place(node)
                self._nodes.append(node)
        return self._of[id(value)]

    def _place(self, node: Traced) -> int:
        if node.op == "input":
            name = node.args[0]
            self.leaves[name] = node
            self.inputs[name] = self._enter(("input", name), _Step("input", (), None, False))
            self._numbers["exact", exact.key(exact.variable(self.inputs[name]))] = self.inputs[name]
            number, known = self.inputs[name], self.ranges.get(name)
            step = self.steps[number]
            if known is not None:
                step.low, step.high, step.plain = known.low, known.high, known.low > 0
                if known.whole and known.low >= 0 and known.high < 2.0**53:
                    self._lows[number], self._highs[number] = known.low, known.high
                    step.poly = exact.variable(number)
            return number
        if node.op == "pick":
            names, index = node.args[0], self._of[id(node.args[1])]
            if self.steps[index].op == "constant":
                return self._constant(names[int(self.steps[index].constant)])
            return self._enter(("pick", names, index), _Step("pick", (index,), names, False))
        args = tuple(self._of[id(a)] if isinstance(a, Traced) else self._constant(a) for a in node.args)
        return self._operation(node.op, args)

    def _operation(self, op: str, args: tuple[int, ...]) -> int:
        """The number of an operation, or of what gives the same bits for less."""
        same = self._same(op, args)
        if same is not None:
            return same
        steps = [self.steps[a] for a in args]
        if op == "divide" and steps[1].op == "constant" and math.frexp(steps[1].constant)[0] == 0.5:
            # x / 2^k and x * 2^-k round the same real number
            return self._operation("multiply", (args[0], self._constant(1.0 / steps[1].constant)))
        yes_no = op in _YES_NO or (op == "where" and all(step.yes_no for step in steps[1:]))
        low, high = _interval(op, [(step.low, step.high) for step in steps])
        key: Any = (op, *(sorted(args) if op in _SWAPS else args))
        poly = None
        if len(steps) == 2 and steps[0].poly is not None and steps[1].poly is not None:
            poly = exact.combined(op, steps[0].poly, steps[1].poly, self._highs)
        if poly is not None:
            if all(not term for term in poly):
                return self._constant(poly.get((), 0.0))
            within = exact.bounds(poly, self._lows, self._highs)
            low, high = max(low, within[0]), min(high, within[1])
            key = ("exact", exact.key(poly))
        elif op in ("ceil", "floor") and steps[0].poly is not None and exact.is_whole(steps[0].poly):
            return args[0]
        if low == high and math.copysign(1.0, low) == math.copysign(1.0, high):
            return self._constant(bool(low) if yes_no else low)
        number = self._enter(key, _Step(op, args, None, yes_no))
        self.steps[number].low, self.steps[number].high, self.steps[number].poly = low, high, poly
        self.steps[number].plain = poly is not None or low > 0 or _is_plain(op, steps)
        if op in ("ceil", "floor") and low >= 0 and high < 2.0**53 and number not in self._lows:
            self._lows[number], self._highs[number] = low, high  # whole as well
            self.steps[number].poly = exact.variable(number)
        return number

    def _same(self, op: str, args: tuple[int, ...]) -> int | None:
        """The argument that the result is, whatever the values within their bounds."""
        if op == "where" and self.steps[args[0]].op == "constant":
            return args[1] if self.steps[args[0]].constant else args[2]
        if len(args) != 2:
            return None
        a, b = (self.steps[i] for i in args)
        if op in ("maximum", "minimum") and (args[0] == args[1] or a.low > b.high or b.low > a.high):
            larger, smaller = (0, 1) if a.low > b.high else (1, 0)
            return args[larger if op == "maximum" else smaller]
        for constant, other, place in ((a, b, args[1]), (b, a, args[0])):
            if constant.op == "constant" and (
                (op == "multiply" and constant.constant == 1.0)
                or (op == "add" and constant.constant == 0.0 and other.plain)
                or (op == "divide" and constant.constant == 1.0 and constant is b)
            ):
                return place
        return None

    def _constant(self, value: Any) -> int:
        number = self._enter(("constant", repr(value)), _Step("constant", (), value, isinstance(value, bool)))
        if isinstance(value, (bool, int, float)):
            self.steps[number].low = self.steps[number].high = float(value)
        if isinstance(value, float) and math.isfinite(value):
            self.steps[number].poly = exact.constant(value, self._highs)
            self.steps[number].plain = math.copysign(1.0, value) > 0 or value != 0
        return number

    def _enter(self, key: Any, step: _Step) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.steps)
            self.steps.append(step)
        return self._numbers[key]

    # --- registers: an array is used again once its value has had its last reader ---

    def _live(self) -> list[int]:
        needed = set(self.wanted)
        for i in range(len(self.steps) - 1, -1, -1):
            if i in needed:
                needed.update(self.steps[i].args)
        return sorted(needed)

    def _allocate(self, wide_inputs: frozenset[int], count: int) -> Any:
        live = self._live()
        last = {a: i for i in live for a in self.steps[i].args} | dict.fromkeys(self.wanted, len(self.steps))
        registers: dict[int, Any] = {}
        spread: dict[int, Any] = {}
        free: dict[tuple[int, bool], list[Any]] = {}
        calls: list[Callable[[], Any]] = []
        wide: dict[int, bool] = {}
        for i in live:
            step = self.steps[i]
            wide[i] = i in wide_inputs or any(wide[a] for a in step.args)
            size = count if wide[i] else 1
            arguments = [registers[a] for a in step.args]
            if step.op == "constant":
                registers[i] = np.array(step.constant)
            elif step.op == "input":
                registers[i] = np.empty(size)
            elif step.op == "pick":
                names = np.array(step.constant)
                registers[i] = np.empty(size, names.dtype)
                calls.append(partial(_pick, names, arguments[0], registers[i]))
            else:
                if wide[i] and step.op in ("maximum", "minimum", "where"):
                    for k, a in enumerate(step.args):  # NumPy is twice as fast where all are arrays
                        if self.steps[a].op == "constant":
                            if a not in spread:
                                spread[a] = np.full(count, self.steps[a].constant)
                            arguments[k] = spread[a]
                for a in dict.fromkeys(step.args):
                    if last[a] == i and self.steps[a].op not in ("constant", "input", "pick"):
                        free.setdefault((registers[a].size, self.steps[a].yes_no), []).append(registers[a])
                spare = free.get((size, step.yes_no))
                registers[i] = spare.pop() if spare else np.empty(size, bool if step.yes_no else np.float64)
                calls.append(_call(step.op, arguments, registers[i]))
        inputs = {name: registers[i] for name, i in self.inputs.items() if i in registers}
        return inputs, calls, [registers[i] for i in self.wanted]


def _call(op: str, arguments: Sequence[Any], out: Any) -> Callable[[], Any]:
    if op == "where":
        condition, a, b = arguments
        return partial(_where, condition, a, b, out)
    function = getattr(np, op)
    if op in ("maximum", "minimum"):  # these want `out` by name, for which a closure is the faster way
        a, b = arguments
        return lambda: function(a, b, out=out)
    return partial(function, *arguments, out)


def _where(condition: Any, a: Any, b: Any, out: Any) -> None:
    np.copyto(out, np.where(condition, a, b))


def _pick(names: Any, index: Any, out: Any) -> None:
    np.take(names, index.astype(np.intp), out=out)


def _interval(op: str, args: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Bounds of an operation's result from those of its arguments.

    Rounding is monotone, so the operation on the ends, rounded itself, bounds it on all between.
    """
    ends: list[float] = []
    with np.errstate(all="ignore"):
        if op in ("add", "subtract", "multiply", "divide", "maximum", "minimum"):
            (a, b), (c, d) = args
            if op != "divide" or c > 0 or d < 0:
                ends = [float(getattr(np, op)(x, y)) for x in (a, b) for y in (c, d)]
        elif op in ("ceil", "floor", "negative") or (op == "sqrt" and args[0][0] >= 0):
            ends = [float(getattr(np, op)(x)) for x in args[0]]
        elif op == "where":
            ends = [*args[1], *args[2]]
        elif op in ("less", "less_equal", "greater", "greater_equal"):
            (a, b), (c, d) = args
            ends = [float(getattr(np, op)(x, y)) for x, y in ((a, d), (b, c))]
    if not ends or any(math.isnan(x) for x in ends):
        return -math.inf, math.inf
    return min(ends), max(ends)


def _is_plain(op: str, args: Sequence[_Step]) -> bool:
    """Whether an operation never gives the zero with a minus sign."""
    plain = [a.plain for a in args]
    if op == "add":
        return any(plain)
    if op == "subtract":
        return plain[0]
    if op in ("multiply", "divide", "sqrt", "ceil", "floor"):
        return all(plain) and all(a.low >= 0 for a in args)
    if op == "where":
        return all(plain[1:])
    return op in ("maximum", "minimum") and all(plain)


def evaluate(wanted: Sequence[Any]) -> list[Any]:
    """Traced figures as arrays, block by block; every input must carry its data."""
    program = Program(wanted)
    leaves = program.leaves
    if not leaves:
        return list(wanted)
    for name, node in leaves.items():
        if node.data is None:
            raise UntraceableError(f"{name} has no values yet")
    program = Program(wanted, {name: _range(node.data) for name, node in leaves.items()})
    shape = np.broadcast_shapes(*(node.shape for node in leaves.values()))
    count = math.prod(shape)
    flat = {
        name: np.broadcast_to(node.data, shape).reshape(-1) if node.size > 1 else node.data.reshape(-1)
        for name, node in leaves.items()
    }
    results: list[Any] = []
    for start in range(0, count, BLOCK):
        end = min(start + BLOCK, count)
        block = {name: data[start:end] if data.size > 1 else data for name, data in flat.items()}
        values = program.run(block, end - start)
        if not results:
            once: dict[int, Any] = {}
            for number, value in zip(program.wanted, values, strict=True):
                once.setdefault(number, np.empty(count, value.dtype))
            results = [once[number] for number in program.wanted]
        for number, result in once.items():
            result[start:end] = values[program.wanted.index(number)]
    return [
        _shaped(result, x.shape, shape) if isinstance(x, Traced) else x
        for result, x in zip(results, wanted, strict=True)
    ]


def _range(data: Any) -> Range:
    return Range(float(data.min()), float(data.max()), bool((data == np.floor(data)).all()))


def _shaped(flat: Any, own: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """A result over all points, cut back to the axes along which it varies."""
    whole = flat.reshape(shape)
    if own == shape:
        return whole
    padded = (1,) * (len(shape) - len(own)) + tuple(own)
    cut = tuple(slice(None) if a == b else slice(0, 1) for a, b in zip(padded, shape, strict=True))
    return whole[cut].reshape(own)


def settle(wanted: Sequence[Any]) -> list[Any]:
    """The same figures, with those that are traced over existing arrays made into arrays."""
    places = [i for i, x in enumerate(wanted) if isinstance(x, Traced) and x.ready]
    settled = list(wanted)
    for i, array in zip(places, evaluate([wanted[i] for i in places]), strict=True):
        settled[i] = array
    return settled
