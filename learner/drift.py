"""Where training tasks come from: the training split, and from a point of the run on the drift split.

Interfaces change while agents are being trained on them. `tasks.drift` makes that happen: from a share of
the run's progress on, tasks of another split (the same templates in another layout) take the place of the
training split's, or mix with them. It never goes back, also when a resumed run is made longer.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distrl.configs.schema import LearnerConfig
from distrl.core.types import Task
from distrl.learner.task_sampling import TaskSampler, rng_state, set_rng_state


@dataclass(frozen=True)
class Drift:
    """Tasks to train on from a share `after` of the run on, for a `share` of the draws."""

    tasks: Sequence[Task]
    after: float
    share: float = 1.0


class TaskSource:
    """Draws training tasks; `learner.task_sampling` holds in each split by itself.

    Args:
        config: The kind of sampling.
        train: The training split.
        drift: The other split, if there is to be a drift.
        seed: Of the draws.

    Attributes:
        has_drifted: Whether tasks come from the drift split.
    """

    def __init__(self, config: LearnerConfig, train: Sequence[Task], drift: Drift | None, seed: int) -> None:
        self._drift, self.has_drifted = drift, False
        self._train = _sampler(config, train, random.Random(seed))
        self._after = _sampler(config, drift.tasks, random.Random(f"{seed}/drift")) if drift else None
        self._rng = random.Random(f"{seed}/share")
        self.tasks: dict[str, Task] = {task.id: task for task in (*(drift.tasks if drift else ()), *train)}
        self._ids = {task.id for task in drift.tasks} if drift else set()

    def draw(self, progress: float, count: int = 1) -> Task:
        """A task for `count` episodes, at this share of the run."""
        if self._drift is not None and self._after is not None:
            self.has_drifted = self.has_drifted or progress >= self._drift.after
            if self.has_drifted and (self._drift.share >= 1.0 or self._rng.random() < self._drift.share):
                return self._after.draw(count)
        return self._train.draw(count)

    def of(self, task_id: str) -> TaskSampler:
        """The sampler that this task belongs to."""
        return self._after if self._after is not None and task_id in self._ids else self._train

    @property
    def num_tried(self) -> int:
        """Tasks with at least one finished episode."""
        return self._train.num_tried + (self._after.num_tried if self._after else 0)

    def metrics(self) -> dict[str, float]:
        """Whether it has drifted, if it is to."""
        return {"scheduler/drift": float(self.has_drifted)} if self._drift else {}

    def state_dict(self) -> dict[str, Any]:
        """What a restart needs, JSON-able."""
        drift = None
        if self._after is not None:
            drift = {"sampler": self._after.state_dict(), "rng": rng_state(self._rng)}
        return {"train": self._train.state_dict(), "drift": drift, "has_drifted": self.has_drifted}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores `state_dict`; a drift that the run did not have before begins afresh."""
        self._train.load_state_dict(state["train"])
        self.has_drifted = bool(state["has_drifted"])
        if self._after is not None and state["drift"] is not None:
            self._after.load_state_dict(state["drift"]["sampler"])
            set_rng_state(self._rng, state["drift"]["rng"])


def _sampler(config: LearnerConfig, tasks: Sequence[Task], rng: random.Random) -> TaskSampler:
    return TaskSampler(tasks, config.task_sampling, config.task_sampling_floor, rng)
