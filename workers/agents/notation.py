"""What the agents' notations share: points on a grid, and the reason why a text is no action."""

from __future__ import annotations

from dataclasses import dataclass

from distrl.core.actions import Point

KEPT_CHARS = 2_000
"""How much of an answer that is no action is kept with the step; the chat keeps all of it."""


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
