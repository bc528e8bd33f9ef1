"""Actions as environments understand them: what a finger, a keyboard, an arm or the agent itself can do.

Points are (x, y) fractions of the screen, 0 at the left and top edge, 1 at the right and bottom edge.
How an agent *writes* an action (AutoUI text, tool-call JSON) is the agent's codec, not this file.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

Fraction = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Point = tuple[Fraction, Fraction]
MAX_ROWS, MAX_AXES = 64, 32
"""The largest motion."""
Number = Annotated[float, Field(ge=-1.0, le=1.0, allow_inf_nan=False)]
Motion = Annotated[
    tuple[Annotated[tuple[Number, ...], Field(min_length=1, max_length=MAX_AXES)], ...],
    Field(max_length=MAX_ROWS),
]


class ActionKind(str, Enum):
    """The kinds of action; the fields each one uses are listed in `Action`."""

    TAP = "tap"
    DOUBLE_TAP = "double_tap"
    LONG_PRESS = "long_press"
    SWIPE = "swipe"
    TYPE = "type"
    BACK = "back"
    HOME = "home"
    ENTER = "enter"
    OPEN_APP = "open_app"
    ANSWER = "answer"
    MOTION = "motion"
    WAIT = "wait"
    COMPLETE = "complete"
    IMPOSSIBLE = "impossible"
    INVALID = "invalid"


TERMINAL_KINDS = frozenset({ActionKind.COMPLETE, ActionKind.IMPOSSIBLE})
POINTED_KINDS = frozenset({ActionKind.TAP, ActionKind.DOUBLE_TAP, ActionKind.LONG_PRESS, ActionKind.SWIPE})
"""The kinds that cannot do without a point."""


class Action(BaseModel):
    """One action.

    Attributes:
        kind: What is done.
        point: Where (`tap`, `double_tap`, `long_press`), where from (`swipe`), or what is tapped before the
            text is typed (`type`, where it may be left out).
        to: Where a `swipe` ends.
        text: What is typed (`type`), the app's name (`open_app`), the answer to the user (`answer`, which
            leaves the screen alone), or the model text that could not be understood (`invalid`).
        reason: Why an `invalid` action is invalid.
        motion: Rows of a `motion`, in the order in which they are executed, each with a number in [-1, 1] for
            every axis of the arm.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: ActionKind
    point: Point | None = None
    to: Point | None = None
    text: str = ""
    reason: str = ""
    motion: Motion = ()

    @model_validator(mode="after")
    def _has_its_fields(self) -> Action:
        if self.kind in POINTED_KINDS and self.point is None:
            raise ValueError(f"{self.kind.value} needs a point")
        if self.kind is ActionKind.SWIPE and self.to is None:
            raise ValueError("swipe needs an end point")
        if self.kind is ActionKind.MOTION and not self.motion:
            raise ValueError("motion needs rows")
        if len({len(row) for row in self.motion}) > 1:
            raise ValueError("the rows of a motion have different lengths")
        return self

    @property
    def is_terminal(self) -> bool:
        """Whether the agent says that the episode is over."""
        return self.kind in TERMINAL_KINDS

    @classmethod
    def tap(cls, x: float, y: float) -> Action:
        """A tap at (x, y)."""
        return cls(kind=ActionKind.TAP, point=(x, y))

    @classmethod
    def swipe(cls, start: tuple[float, float], end: tuple[float, float]) -> Action:
        """A swipe from `start` to `end`."""
        return cls(kind=ActionKind.SWIPE, point=start, to=end)

    @classmethod
    def type_text(cls, text: str) -> Action:
        """Type `text` into the focused field."""
        return cls(kind=ActionKind.TYPE, text=text)

    @classmethod
    def move(cls, motion: Iterable[Iterable[float]]) -> Action:
        """A motion of an arm, row by row."""
        return cls(kind=ActionKind.MOTION, motion=tuple(tuple(row) for row in motion))

    @classmethod
    def invalid(cls, text: str, reason: str) -> Action:
        """A model output that is not an action; the environment does nothing."""
        return cls(kind=ActionKind.INVALID, text=text, reason=reason)
