"""A ten-line GUI: taps count up, BACK resets, the task is solved at three."""

from __future__ import annotations

from PIL import Image

from distrl.core.actions import Action, ActionKind
from distrl.core.errors import EnvError
from distrl.core.types import Task
from distrl.workers.envs.base import Frame, StepResult

TAP, BACK = Action.tap(0.5, 0.5), Action(kind=ActionKind.BACK)
COMPLETE, IMPOSSIBLE = Action(kind=ActionKind.COMPLETE), Action(kind=ActionKind.IMPOSSIBLE)


def counting_task(index: int = 0, max_steps: int = 6) -> Task:
    """A task for the environment."""
    return Task(
        id=f"counting/three/train/{index}",
        suite="counting",
        template="three",
        split="train",
        goal="Reach three",
        max_steps=max_steps,
    )


class CountingEnv:
    """The screen's grey level shows the count.

    Args:
        fail_at: The number of the step of an episode that fails.
        closes_at: The count at which the environment itself ends the episode.
        limit: The number of steps after which its own limit does.
    """

    def __init__(
        self, fail_at: int | None = None, closes_at: int | None = None, limit: int | None = None
    ) -> None:
        self.count, self.calls, self.limit = 0, 0, limit
        self.fail_at, self.closes_at = fail_at, closes_at

    def reset(self, task: Task) -> Frame:
        self.count = self.calls = 0
        return self._frame()

    def step(self, action: Action) -> StepResult:
        self.calls += 1
        if self.calls == self.fail_at:
            raise EnvError("the screen is gone.", fault="device")
        if action.kind is ActionKind.TAP:
            self.count += 1
        elif action.kind is ActionKind.BACK:
            self.count = 0
        return StepResult(
            self._frame(), done=self.count == self.closes_at, truncated=self.calls == self.limit
        )

    def evaluate(self) -> float:
        return float(self.count == 3)

    def expert_action(self) -> Action:
        return COMPLETE if self.count == 3 else TAP if self.count < 3 else BACK

    def close(self) -> None:
        pass

    def _frame(self) -> Frame:
        return Frame.of(Image.new("RGB", (8, 16), (self.count * 10,) * 3), app="counter")
