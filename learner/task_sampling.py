"""Which task is tried next: all alike, or those more often that still fail, or that sometimes fail."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from distrl.core.errors import ConfigError
from distrl.core.types import Task

Kind = Literal["uniform", "weighted", "learnable"]
RECENT = 8
PRIOR = 2.0
"""So many episodes at its template's mean success are added to a task's own."""
REDRAW_EVERY = 16


class TaskSampler:
    """Draws training tasks.

    "uniform": without replacement until all have been drawn, then again.
    "weighted": P_i ∝ 1 − s_i + ε, AcceRL's dynamic weighted resampling.
    "learnable": P_i ∝ 4 s_i (1 − s_i) + ε. Where all episodes succeed, or all fail, advantages are about 0
    and teach nothing; the variance of the outcome is largest in between (Rutherford et al. 2024).

    s_i is the mean success of the task's last `RECENT` episodes, shrunk towards that of all recent episodes
    of its template, since with hundreds of tasks most have been tried once or twice. Before anything was
    tried, all are alike.

    Args:
        tasks: The training tasks.
        kind: As above.
        floor: ε > 0, so that a mastered task keeps being tried.
        rng: Its state belongs to the sampler's.
    """

    def __init__(self, tasks: Sequence[Task], kind: Kind, floor: float, rng: random.Random) -> None:
        assert tasks, "no training tasks"
        self._tasks, self._kind, self._floor, self._rng = list(tasks), kind, floor, rng
        self._bag: list[int] = []
        self._recent: dict[str, list[float]] = {}
        self._weights: list[float] = []
        self._draws = 0

    def draw(self) -> Task:
        """The next task."""
        if self._kind != "uniform":
            if self._draws % REDRAW_EVERY == 0:
                self._weights = self.weights()
            self._draws += 1
            return self._rng.choices(self._tasks, self._weights)[0]
        if not self._bag:
            self._bag = list(range(len(self._tasks)))
            self._rng.shuffle(self._bag)
        return self._tasks[self._bag.pop()]

    def record(self, task_id: str, success: float) -> None:
        """Takes note of a finished training episode."""
        recent = self._recent.setdefault(task_id, [])
        recent.append(success)
        del recent[:-RECENT]

    def weights(self) -> list[float]:
        """1 − s_i + ε, or 4 s_i (1 − s_i) + ε, of each task in order."""
        sums: dict[str, float] = defaultdict(float)
        counts: dict[str, int] = defaultdict(int)
        for task in self._tasks:
            scores = self._recent.get(task.id, [])
            sums[task.template] += sum(scores)
            counts[task.template] += len(scores)
        weights = []
        for task in self._tasks:
            scores = self._recent.get(task.id, [])
            prior = sums[task.template] / max(1, counts[task.template])
            mean = (sum(scores) + PRIOR * prior) / (len(scores) + PRIOR)
            worth = 4.0 * mean * (1.0 - mean) if self._kind == "learnable" else 1.0 - mean
            weights.append(max(0.0, worth) + self._floor)  # no score may stop the draws
        return weights

    @property
    def num_tried(self) -> int:
        """Tasks with at least one finished episode."""
        return len(self._recent)

    def success(self) -> dict[str, tuple[float, int]]:
        """Mean success and number of the recent episodes of each task tried."""
        return {task: (sum(scores) / len(scores), len(scores)) for task, scores in self._recent.items()}

    def state_dict(self) -> dict[str, Any]:
        """What a restart needs, JSON-able."""
        version, internal, gauss = self._rng.getstate()
        return {
            "recent": {task: list(scores) for task, scores in self._recent.items()},
            "bag": list(self._bag),
            "rng": [version, list(internal), gauss],
            "draws": self._draws,
            "weights": list(self._weights),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`."""
        self._recent = {task: list(scores) for task, scores in state["recent"].items()}
        self._bag = [index for index in state["bag"] if index < len(self._tasks)]
        version, internal, gauss = state["rng"]
        self._rng.setstate((version, tuple(internal), gauss))
        self._weights = [float(weight) for weight in state["weights"]]
        self._draws = int(state["draws"]) if len(self._weights) == len(self._tasks) else 0


class TemplateSampler:
    """Draws tasks with P_i ∝ the weight of the task's template.

    Args:
        tasks: The tasks.
        weights: By template; 1 for those not named.
        rng: Of the draws.

    Raises:
        ConfigError: A weight is for a template that no task has, or no task can be drawn.
    """

    def __init__(self, tasks: Sequence[Task], weights: Mapping[str, float], rng: random.Random) -> None:
        templates = {task.template for task in tasks}
        unknown = sorted(set(weights) - templates)
        if unknown:
            raise ConfigError(
                f"No training task has the template {unknown[0]!r} of learner.demonstrations.weights.",
                f"Templates: {', '.join(sorted(templates))}.",
            )
        self._tasks, self._rng = list(tasks), rng
        self._weights = [weights.get(task.template, 1.0) for task in tasks]
        if not any(self._weights):
            raise ConfigError(
                "learner.demonstrations.weights leaves no task to demonstrate.", "Give one a weight above 0."
            )

    def draw(self) -> Task:
        """The next task."""
        return self._rng.choices(self._tasks, self._weights)[0]
