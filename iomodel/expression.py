"""Arithmetic and comparisons over named figures, parsed safely: `fused.speedup >= 2.5 and a < 2*b`.

Names may hold hyphens between letters (`io-lower-bound.speedup`) where a figure of that name exists;
otherwise a hyphen is a minus. Quantities may carry units (`seconds_expected < 5 us`), sizes their
suffixes (`seq <= 32k`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from iomodel.arrays import is_array
from iomodel.errors import InputError, unknown
from iomodel.units import DIMENSIONS, SIZE_SUFFIXES, parse_quantity, parse_size

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][\w.:-]*)"
    r"|(?P<text>'[^']*'|\"[^\"]*\")|(?P<sign><=|>=|==|!=|[-+*/()<>]))"
)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """The value of an expression; an unknown name is an error that offers what is close.

    Names may stand for arrays; then the value is one.

    >>> evaluate("a >= 2 * b - 1", {"a": 5.0, "b": 3.0})
    True
    """
    parser = _Parser(text, names)
    value = parser.either()
    if parser.peek():
        raise InputError(f"expression {text!r}: did not expect {parser.peek()!r}")
    return value


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str, names: Mapping[str, Any]) -> None:
        self.text, self.names = text, names
        self.tokens = self._split()
        self.at = 0

    def _split(self) -> list[str]:
        tokens: list[str] = []
        place, end = 0, len(self.text.rstrip())
        while place < end:
            match = _TOKEN.match(self.text, place)
            if not match:
                raise InputError(f"expression {self.text!r}: cannot read {self.text[place:].strip()[:20]!r}")
            word, place = match.group().strip(), match.end()
            if match["name"]:
                # `a-b` is a difference unless a figure has that name: give back from the last hyphen
                while word not in self.names and "-" in word and word not in ("and", "or", "not"):
                    cut = word.rindex("-")
                    if not any(name.startswith(word[:cut]) for name in self.names):
                        break
                    place -= len(word) - cut
                    word = word[:cut]
            tokens.append(word)
        return tokens

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1] if self.at <= len(self.tokens) else ""

    def either(self) -> Any:
        value = self.both()
        while self.peek() == "or":
            self.take()
            other = self.both()
            value = value | other if is_array(value) or is_array(other) else value or other
        return value

    def both(self) -> Any:
        value = self.negated()
        while self.peek() == "and":
            self.take()
            other = self.negated()
            value = value & other if is_array(value) or is_array(other) else value and other
        return value

    def negated(self) -> Any:
        if self.peek() == "not":
            self.take()
            value = self.negated()
            return ~value if is_array(value) else not value
        return self.comparison()

    def comparison(self) -> Any:
        left = self.sum()
        while self.peek() in _COMPARE:
            sign = self.take()
            right = self.sum()
            if isinstance(left, str) != isinstance(right, str) and sign not in ("==", "!="):
                raise InputError(f"expression {self.text!r}: compares words with numbers")
            if left is None or right is None:
                raise InputError(f"expression {self.text!r}: a figure has no value here")
            left = _COMPARE[sign](left, right)
        return left

    def sum(self) -> Any:
        value = self.product()
        while self.peek() in ("+", "-"):
            value = value + self.product() if self.take() == "+" else value - self.product()
        return value

    def product(self) -> Any:
        value = self.signed()
        while self.peek() in ("*", "/"):
            if self.take() == "*":
                value = value * self.signed()
            else:
                divisor = self.signed()
                if not hasattr(divisor, "shape") and divisor == 0:
                    raise InputError(f"expression {self.text!r}: divides by zero")
                value = value / divisor
        return value

    def signed(self) -> Any:
        if self.peek() == "-":
            self.take()
            return -self.signed()
        return self.atom()

    def atom(self) -> Any:
        token = self.take()
        if token == "(":
            value = self.either()
            if self.take() != ")":
                raise InputError(f"expression {self.text!r}: a parenthesis is not closed")
            return value
        if token and (token[0].isdigit() or token[0] == "."):
            return self._number(token)
        if token[:1] in "'\"" and token:
            return token[1:-1]
        if token in ("true", "false"):
            return token == "true"
        if not token or not (token[0].isalpha() or token[0] == "_"):
            raise InputError(
                f"expression {self.text!r}: a value is missing" + (f" before {token!r}" if token else "")
            )
        if token not in self.names:
            raise unknown("name", token, self.names, f"expression {self.text!r}")
        return self.names[token]

    def _number(self, token: str) -> float:
        unit = self.peek()
        if unit and unit in SIZE_SUFFIXES and unit not in self.names:
            self.take()
            return parse_size(token + unit, f"expression {self.text!r}", 0)
        if unit and unit[0].isalpha() and unit not in self.names and unit not in ("and", "or", "not"):
            slash = "/" + self.tokens[self.at + 2] if self.tokens[self.at + 1 : self.at + 2] == ["/"] else ""
            for spelled in (unit + slash, unit) if slash else (unit,):
                for dimension in DIMENSIONS:
                    try:
                        value = parse_quantity(token + spelled, dimension)
                    except InputError:
                        continue
                    self.at += 3 if spelled != unit else 1
                    return value
        return float(token)
