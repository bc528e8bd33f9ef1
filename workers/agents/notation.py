"""What the agents' notations share: texts that are no action, names, numbers and points."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from distrl.core.actions import Action, Point

KEPT_CHARS = 2_000
"""How much of an answer that is not an action is kept with the step; the chat keeps all of it."""

_THOUGHT_STARTS = re.compile(r"<think(?:ing|t)?>")
_THOUGHT_ENDS = re.compile(r"</think(?:ing|t)?>")


class NoAction(ValueError):
    """Why some text is not an action. Agents turn it into an INVALID action."""


def read_action(
    read: Callable[[str], Action], text: str, max_chars: int = 20_000, kept_chars: int = KEPT_CHARS
) -> Action:
    """The action that `read` finds, else an INVALID one with the reason and `kept_chars` of the text.

    `read` raises NoAction for everything that is not an action, or RecursionError where it is nested too
    deeply; texts beyond `max_chars` are refused unread.
    """
    try:
        if len(text) > max_chars:
            raise NoAction(f"the text has {len(text)} characters, more than {max_chars}")
        return read(text)
    except (NoAction, RecursionError) as problem:
        return Action.invalid(encodable(text[:kept_chars]), encodable(str(problem)))


_Value = TypeVar("_Value")


def one_of(values: Mapping[str, _Value], name: object, what: str) -> _Value:
    """The value of a name. Raises NoAction if `what`, the field's name, has another one."""
    if not isinstance(name, str) or name not in values:
        raise NoAction(f"{what} is {short(name)}, not one of {', '.join(values)}")
    return values[name]


def whole(text: str, what: str) -> str:
    """`text`. Raises NoAction if it holds half a surrogate pair, which no encoding can carry."""
    if encodable(text) != text:
        raise NoAction(f"{what} holds half a surrogate pair")
    return text


def short(value: object) -> str:
    return repr(value)[:40]


@dataclass(frozen=True)
class Grid:
    """The whole numbers that points are written in: 0 to `columns` − 1 across, 0 to `rows` − 1 down."""

    columns: int
    rows: int

    def cell(self, point: Point) -> tuple[int, int]:
        x, y = int(point[0] * self.columns), int(point[1] * self.rows)
        return min(self.columns - 1, x), min(self.rows - 1, y)

    def point(self, x: float, y: float) -> Point:
        """The centre of a cell. Raises NoAction if it is not on the grid."""
        column, row = math.floor(x), math.floor(y)
        if not (0 <= column < self.columns and 0 <= row < self.rows):
            raise NoAction(f"({x:g}, {y:g}) is not within 0 to {self.columns - 1} and 0 to {self.rows - 1}")
        return (column + 0.5) / self.columns, (row + 0.5) / self.rows


def encodable(text: str) -> str:
    """`text` without half surrogate pairs, which no encoding can carry."""
    return text.encode("utf-8", "replace").decode("utf-8")


def spoken(text: str) -> str:
    """What stands behind the thinking, of which only the end may be here. Raises NoAction without an end."""
    ends = [match.end() for match in _THOUGHT_ENDS.finditer(text)]
    rest = text[ends[-1] :] if ends else text
    if _THOUGHT_STARTS.search(rest):
        raise NoAction("the thinking does not end")
    return rest
