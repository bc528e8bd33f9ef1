"""Which task is tried next: all alike, or in turn, or those more often that fail, or that sometimes fail."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from distrl.configs.schema import LearnerConfig
from distrl.core.errors import ConfigError
from distrl.core.types import Task
from distrl.learner.turns import Turns

Kind = Literal["uniform", "round_robin", "weighted", "learnable"]
RECENT = 8
PRIOR = 2.0
"""So many episodes at its template's mean success are added to a task's own."""
REDRAW_EVERY = 16


class TaskSampler:
    """Draws training tasks.

    "uniform": without replacement until all have been drawn, then again, in another order each time.
    "round_robin": no curriculum at all: in one fixed order (shuffled once, by the seed), every task equally
    often; see `Turns` for what counts.
    "weighted": P_i ∝ 1 − s_i + ε, AcceRL's dynamic weighted resampling.
    "learnable": P_i ∝ 4 s_i (1 − s_i) + ε. Where all episodes succeed, or all fail, advantages are about 0
    and teach nothing; the variance of the outcome is largest in between (Rutherford et al. 2024).

    s_i is the mean success of the task's last `RECENT` episodes, shrunk towards that of all recent episodes
    of its template, since with hundreds of tasks most have been tried once or twice. Before anything was
    tried, all are alike. (AcceRL's eq. 11 sums failures over the window, by which a task that was tried once
    weighs less than one of the same success that was tried often: the mean is taken. A task that was never
    tried counts as its template does.)

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
        self._by_id = {task.id: task for task in tasks}
        self._turns: Turns | None = None
        if kind == "round_robin":
            order = list(self._by_id)
            rng.shuffle(order)
            self._turns = Turns(order)

    def draw(self, count: int = 1) -> Task:
        """The next task, for `count` episodes."""
        if self._turns is not None:
            return self._by_id[self._turns.next(count)]
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

    def end(self, task_id: str, is_drawn: bool = True) -> None:
        """An episode of this task is over. `is_drawn`: it was drawn, or taken, from this sampler."""
        if self._turns is not None:
            if not is_drawn:
                self._turns.take(task_id)
            self._turns.end(task_id)

    def take(self, task_id: str) -> None:
        """An episode of this task is going to be run without a draw."""
        if self._turns is not None:
            self._turns.take(task_id)

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

    def state_dict(self) -> dict[str, Any]:
        """What a restart needs, JSON-able."""
        return {
            "recent": {task: list(scores) for task, scores in self._recent.items()},
            "bag": list(self._bag),
            "rng": rng_state(self._rng),
            "draws": self._draws,
            "weights": list(self._weights),
            "turns": self._turns.state_dict() if self._turns else {},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`."""
        self._recent = {task: list(scores) for task, scores in state["recent"].items()}
        self._bag = [index for index in state["bag"] if index < len(self._tasks)]
        set_rng_state(self._rng, state["rng"])
        self._weights = [float(weight) for weight in state["weights"]]
        self._draws = int(state["draws"]) if len(self._weights) == len(self._tasks) else 0
        if self._turns is not None:
            self._turns.load_state_dict(state["turns"])


def rng_state(rng: random.Random) -> list[Any]:
    """The state of a generator, JSON-able."""
    version, internal, gauss = rng.getstate()
    return [version, list(internal), gauss]


def set_rng_state(rng: random.Random, state: list[Any]) -> None:
    """Restores `rng_state`."""
    version, internal, gauss = state
    rng.setstate((version, tuple(internal), gauss))


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


def demonstration_sampler(
    config: LearnerConfig, tasks: Sequence[Task], seed: int
) -> TaskSampler | TemplateSampler:
    """What draws tasks to demonstrate: spread over all, whatever `task_sampling` is; or by template."""
    weights = config.demonstrations.weights
    if weights:
        return TemplateSampler(tasks, weights, random.Random(seed))
    # Of another seed than training, which would else begin with the same tasks.
    return TaskSampler(tasks, "uniform", config.task_sampling_floor, random.Random(seed + 1))
