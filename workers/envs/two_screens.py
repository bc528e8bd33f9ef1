"""Two screens with coloured buttons: the smallest GUI in which what to tap must be seen.

    screen 1 ── tap a button ──► screen 2 ── tap a button ──► the end, success if both were the right ones
       ▲                            │
       └────────── BACK ────────────┘

A tap beside the buttons changes nothing. Needs no device and no browser: a step takes microseconds.
"""

from __future__ import annotations

import random
from typing import Annotated, Literal

from PIL import Image, ImageDraw
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from distrl.core.actions import Action, ActionKind, Point
from distrl.core.errors import EnvError, TaskError
from distrl.core.types import Task
from distrl.core.user_errors import first_problem
from distrl.workers.devices.device import Screen
from distrl.workers.envs.base import Frame, StepResult

COLORS = {"red": (214, 40, 40), "green": (46, 160, 67), "blue": (36, 92, 214), "yellow": (246, 200, 20)}
PLACES: tuple[Point, ...] = ((0.25, 0.3), (0.75, 0.3), (0.25, 0.75), (0.75, 0.75))
"""Where a button's middle is, but for the jitter: left and right, above and below."""
_HALF = (0.19, 0.16)  # of a button's width and height
_JITTER = 0.05  # less than that: the middle of a place is always on its button
_BACKGROUND, _INK = (244, 244, 246), (70, 74, 82)

Color = Literal["red", "green", "blue", "yellow"]


class Button(BaseModel):
    """A button: its colour, and which of `PLACES` it is at."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    color: Color
    place: Annotated[int, Field(ge=0, lt=len(PLACES))]


Buttons = tuple[Button, ...]
Index = Annotated[int, Field(ge=0)]


class Arrangement(BaseModel):
    """The parameters of a task: the buttons of each screen, and the index of the right one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    screens: tuple[Buttons, Buttons]
    right: tuple[Index, Index]


Picture = tuple[int, int, int, tuple[tuple[str, Point], ...]]
"""What is to be drawn: width, height, how many taps were made, and the buttons' colours and middles."""


class TwoScreensEnv:
    """The two screens of a task."""

    def __init__(self, width: int = 320, height: int = 640) -> None:
        if min(width, height) < 32:
            raise ValueError(f"a screen of {width}x{height} pixels is too small; take 32 or more")
        self._size = (width, height)
        self._task: Arrangement | None = None
        self._middles: list[list[Point]] = []
        self._tapped: list[int] = []

    def reset(self, task: Task) -> Frame:
        """Shows the first screen. Raises TaskError if the task's parameters are not an arrangement."""
        self._task = arrangement(task)
        rng = random.Random(f"two_screens/{task.seed}")
        self._middles = [[_shaken(PLACES[button.place], rng) for button in s] for s in self._task.screens]
        self._tapped = []
        return self._frame()

    def step(self, action: Action) -> StepResult:
        """A tap on a button shows the next screen, BACK the last one; all else changes nothing."""
        self._arranged()
        if action.kind is ActionKind.BACK and not self._is_over:
            self._tapped = self._tapped[:-1]
        elif action.kind is ActionKind.TAP and action.point is not None and not self._is_over:
            middles = self._middles[len(self._tapped)]
            hit = [index for index, middle in enumerate(middles) if _is_on(middle, action.point)]
            self._tapped += hit[:1]
        return StepResult(self._frame(), done=self._is_over)

    def evaluate(self) -> float:
        return float(tuple(self._tapped) == self._arranged().right)

    def expert_action(self) -> Action:
        """A tap on the right button's place; back where a wrong one was tapped before."""
        task, number = self._arranged(), len(self._tapped)
        if self._is_over:
            return Action(kind=ActionKind.COMPLETE)
        if tuple(self._tapped) != task.right[:number]:
            return Action(kind=ActionKind.BACK)
        return Action.tap(*PLACES[task.screens[number][task.right[number]].place])

    def close(self) -> None:
        """Nothing to release."""

    @property
    def _is_over(self) -> bool:
        return len(self._tapped) == len(self._arranged().screens)

    def _arranged(self) -> Arrangement:
        if self._task is None:
            raise EnvError("the screens show no task.", "Call reset first.")
        return self._task

    def _frame(self) -> Frame:
        task, number = self._arranged(), len(self._tapped)
        buttons: tuple[tuple[str, Point], ...] = ()
        if not self._is_over:
            colors = [button.color for button in task.screens[number]]
            buttons = tuple(zip(colors, self._middles[number], strict=True))
        picture: Picture = (*self._size, number, buttons)
        return Frame(Screen(lambda: draw(picture), ("two_screens", picture)), app="two_screens")


def draw(picture: Picture) -> Image.Image:
    width, height, number, buttons = picture
    image = Image.new("RGB", (width, height), _BACKGROUND)
    pen = ImageDraw.Draw(image)
    for mark in range(2):
        box = _box((0.4 + 0.2 * mark, 0.06), (0.04, 0.02), width, height)
        pen.ellipse(box, fill=_INK if mark < number else None, outline=_INK, width=2)
    for color, middle in buttons:
        pen.rounded_rectangle(_box(middle, _HALF, width, height), radius=width // 16, fill=COLORS[color])
    return image


def _box(middle: Point, half: Point, width: int, height: int) -> tuple[float, float, float, float]:
    (x, y), (dx, dy) = middle, half
    return (x - dx) * width, (y - dy) * height, (x + dx) * width, (y + dy) * height


def _shaken(place: Point, rng: random.Random) -> Point:
    return place[0] + rng.uniform(-_JITTER, _JITTER), place[1] + rng.uniform(-_JITTER, _JITTER)


def _is_on(middle: Point, point: Point) -> bool:
    return all(abs(at - centre) <= half for at, centre, half in zip(point, middle, _HALF, strict=True))


def arrangement(task: Task) -> Arrangement:
    """The parameters of a task. Raises TaskError if they are not an arrangement of buttons."""
    try:
        return Arrangement.model_validate(task.params)
    except ValidationError as error:
        raise TaskError(
            f"Task {task.id!r} is not a task of the env two_screens: {first_problem(error, 'params')}.",
            "Take the suite two_screens, or parameters like those of its tasks.",
        ) from error
