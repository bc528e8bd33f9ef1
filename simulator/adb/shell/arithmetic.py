"""Arithmetic as the phone's shell knows it: signed 32-bit numbers, C's operators, variables."""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping

_TOKEN = re.compile(r"\s*(0[xX][0-9a-fA-F]+|\d+|[A-Za-z_]\w*|<<=|>>=|[-+*/%&|^<>=!]=|<<|>>|&&|\|\||.)", re.S)
_ASSIGN = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=")
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", "<=", ">", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
MAX_LENGTH = 10_000
"""Most characters of an expression."""


class ArithmeticFailure(Exception):
    """The expression has no value; the message says why."""


def _wrap(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _divide(left: int, right: int) -> int:
    if right == 0:
        raise ArithmeticFailure("zero divisor")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


_BINARY: dict[str, Callable[[int, int], int]] = {
    "||": lambda a, b: int(bool(a or b)),
    "&&": lambda a, b: int(bool(a and b)),
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
    "<<": lambda a, b: a << (b & 31),
    ">>": lambda a, b: a >> (b & 31),
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
    "%": lambda a, b: a - b * _divide(a, b),
}


def evaluate(text: str, variables: MutableMapping[str, str]) -> int:
    """The value of an expression.

    Args:
        text: The expression, parameters already expanded.
        variables: Where names are looked up and assigned.

    Raises:
        ArithmeticFailure: If it has none.
    """
    if len(text) > MAX_LENGTH:
        raise ArithmeticFailure("expression too long")
    if not text.strip():
        return 0
    evaluator = _Evaluator(text, variables)
    try:
        value = evaluator.comma()
    except RecursionError as error:
        raise ArithmeticFailure("expression too deep") from error
    if evaluator.next:
        raise ArithmeticFailure(f"unexpected '{evaluator.next}'")
    return value


class _Evaluator:
    def __init__(self, text: str, variables: MutableMapping[str, str]) -> None:
        self._tokens = _TOKEN.findall(text.strip())
        self._variables = variables
        self._at = 0

    @property
    def next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self.next
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise ArithmeticFailure(f"missing '{token}'")

    def comma(self) -> int:
        value = self._assignment()
        while self.next == ",":
            self._at += 1
            value = self._assignment()
        return value

    def _assignment(self) -> int:
        name = self.next
        following = self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else ""
        if not name.isidentifier() or following not in _ASSIGN:
            return self._ternary()
        self._at += 2
        value = self._assignment()
        if following != "=":
            value = _wrap(_BINARY[following[:-1]](self._lookup(name), value))
        self._variables[name] = str(value)
        return value

    def _ternary(self) -> int:
        condition = self._binary(0)
        if self.next != "?":
            return condition
        self._at += 1
        then = self._assignment()
        self._expect(":")
        otherwise = self._assignment()
        return then if condition else otherwise

    def _binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._unary()
        value = self._binary(level + 1)
        while self.next in _LEVELS[level]:
            operator = self._take()
            value = _wrap(_BINARY[operator](value, self._binary(level + 1)))
        return value

    def _unary(self) -> int:
        token = self._take()
        if token in ("+", "-", "!", "~"):
            value = self._unary()
            return {"+": value, "-": _wrap(-value), "!": int(not value), "~": ~value}[token]
        if token == "(":
            value = self.comma()
            self._expect(")")
            return value
        if token[:1].isdecimal():
            return _number(token)
        if token.isidentifier():
            return self._lookup(token)
        raise ArithmeticFailure(f"unexpected '{token}'" if token else "unexpected end of expression")

    def _lookup(self, name: str) -> int:
        text = self._variables.get(name, "").strip()
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not text:
            return 0
        if not digits[:1].isdecimal():
            raise ArithmeticFailure(f"{text}: unexpected '{text[:1]}'")
        value = _number(digits)
        return _wrap(-value) if text[0] == "-" else value


def _number(text: str) -> int:
    """A literal: decimal, also with leading zeros (mksh reads octal in its POSIX mode only), or 0x…"""
    try:
        return _wrap(int(text, 16 if text[:2].lower() == "0x" else 10))
    except ValueError as error:
        raise ArithmeticFailure(f"{text}: bad number") from error
