"""What the agents' notations share: points on a grid, what is thinking, and why a text is no action."""

from __future__ import annotations

import re
from dataclasses import dataclass

from distrl.core.actions import Point

KEPT_CHARS = 2_000
"""How much of an answer that is no action is kept with the step; the chat keeps all of it."""

_THOUGHT_STARTS = re.compile(r"<think(?:ing)?>")
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>")


class NoAction(ValueError):
    """Why some text is no action. Agents turn it into an INVALID action."""


@dataclass(frozen=True)
class Grid:
    """The whole numbers that points are written in: 0 to `columns` − 1 across, 0 to `rows` − 1 down."""

    columns: int
    rows: int

    def cell(self, point: Point) -> tuple[int, int]:
        """The cell that `point` lies in."""
        x, y = int(point[0] * self.columns), int(point[1] * self.rows)
        return min(self.columns - 1, x), min(self.rows - 1, y)

    def point(self, x: float, y: float) -> Point:
        """The centre of a cell. Raises NoAction if it is not on the grid."""
        column, row = int(x), int(y)
        if not (0 <= column < self.columns and 0 <= row < self.rows):
            raise NoAction(f"({x:g}, {y:g}) is not within 0 to {self.columns - 1} and 0 to {self.rows - 1}")
        return (column + 0.5) / self.columns, (row + 0.5) / self.rows


def encodable(text: str) -> str:
    """`text` without half surrogate pairs, which no encoding can carry."""
    return text.encode("utf-8", "replace").decode("utf-8")


def spoken(text: str) -> str:
    """What stands behind the thinking. Its start may lie in the prompt, so an end alone ends it.

    Raises:
        NoAction: The thinking does not end.
    """
    ends = [match.end() for match in _THOUGHT_ENDS.finditer(text)]
    rest = text[ends[-1] :] if ends else text
    if _THOUGHT_STARTS.search(rest):
        raise NoAction("the thinking does not end")
    return rest
