"""An arm on a plane that is to reach a bright square: what Meta-World is to tests, without MuJoCo."""

from __future__ import annotations

import random

from PIL import Image, ImageDraw

from distrl.core.actions import Action, ActionKind
from distrl.core.types import Task
from distrl.workers.envs.base import Frame, StepResult

SIDE, NEAR, STEP = 24, 0.15, 0.2


class ReachingArm:
    """Rows of a motion are steps of up to `STEP` along both axes of the unit square."""

    seed_is_instance = True

    def reset(self, task: Task) -> Frame:
        rng = random.Random(task.seed)
        self.target, self.hand = (rng.uniform(0.2, 0.8), rng.uniform(0.2, 0.8)), (0.5, 0.1)
        return self._frame()

    def step(self, action: Action) -> StepResult:
        if action.kind is ActionKind.MOTION:
            for row in action.motion:
                x, y = (min(1.0, max(0.0, p + STEP * n)) for p, n in zip(self.hand, row, strict=True))
                self.hand = (x, y)
        return StepResult(self._frame(), done=bool(self.evaluate()))

    def evaluate(self) -> float:
        return float(max(abs(g - h) for g, h in zip(self.target, self.hand, strict=True)) < NEAR)

    def expert_action(self) -> Action:
        row = [max(-1.0, min(1.0, (g - h) / STEP / 2)) for g, h in zip(self.target, self.hand, strict=True)]
        return Action.move([row, row])

    def close(self) -> None:
        """Nothing to release."""

    def _frame(self) -> Frame:
        image = Image.new("RGB", (SIDE, SIDE), (90, 90, 90))
        x, y = (round(SIDE * part) for part in self.target)
        ImageDraw.Draw(image).rectangle((x - 2, y - 2, x + 2, y + 2), fill=(255, 220, 0))
        return Frame.of(image, "plane", self.hand)


def tasks() -> list[Task]:
    return [
        Task(
            id=f"reaching/{split}/{number}",
            suite="reaching",
            template="reach",
            split=split,
            goal=f"Reach square {seed + number}",
            seed=seed + number,
            max_steps=5,
        )
        for split, seed, count in (("train", 0, 20), ("val", 1000, 3), ("test", 2000, 3))
        for number in range(count)
    ]
