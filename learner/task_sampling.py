"""Samplers of the tasks to train on and to demonstrate, and of the states that imagined episodes start from.

Not thread-safe: the scheduler holds its lock around every call.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from distrl.configs.learner import LearnerConfig
from distrl.configs.world import WorldConfig
from distrl.core.errors import ConfigError
from distrl.core.types import Branch, ChatMessage, Task, Trajectory

RECENT = 8  # episodes of a task that its weight counts
RECENT_OF_TEMPLATE = 40  # episodes of a template that the weight of tasks not tried yet counts
FLOOR = 0.15  # ε, by which a mastered task keeps being tried

Successes = Mapping[str, float]
"""By task id, and by template: the mean success of the last episodes, in [0, 1]."""


Weight = Callable[[Task], float]


class TaskSampler:
    """Draws tasks without replacement until all have been drawn, then again, in another order each time.

    With `weight`, with replacement and P_i ∝ the weight of task i.
    """

    def __init__(self, tasks: Sequence[Task], rng: random.Random, weight: Weight | None = None) -> None:
        assert tasks, "no training tasks"
        self._tasks, self._rng, self._weight = list(tasks), rng, weight
        self._bag: list[int] = []

    def draw(self) -> Task:
        if self._weight is not None:
            return self._rng.choices(self._tasks, list(map(self._weight, self._tasks)))[0]
        if not self._bag:
            self._bag = list(range(len(self._tasks)))
            self._rng.shuffle(self._bag)
        return self._tasks[self._bag.pop()]

    def state_dict(self) -> dict[str, Any]:
        return {"bag": list(self._bag), "rng": rng_state(self._rng)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._bag = [index for index in state["bag"] if index < len(self._tasks)]
        set_rng_state(self._rng, state["rng"])


def rng_state(rng: random.Random) -> list[Any]:
    """The state of a generator, JSON-able."""
    version, internal, gauss = rng.getstate()
    return [version, list(internal), gauss]


def set_rng_state(rng: random.Random, state: list[Any]) -> None:
    version, internal, gauss = state
    rng.setstate((version, tuple(internal), gauss))


def failure_weight(task: Task, successes: Successes) -> float:
    """1 − s + ε (AcceRL's dynamic weighted resampling): s is the task's success, or its template's, or 0."""
    return 1.0 - successes.get(task.id, successes.get(task.template, 0.0)) + FLOOR


def demonstration_sampler(config: LearnerConfig, tasks: Sequence[Task], seed: int) -> TaskSampler:
    """The sampler of tasks to demonstrate: spread over all, or by the weights of their templates.

    Raises:
        ConfigError: The weights name a template that no task has, or leave no task.
    """
    weights = config.demonstrations.weights
    rng = random.Random(seed + 1)  # of another seed than training, which would else begin with the same tasks
    if not weights:
        return TaskSampler(tasks, rng)
    templates = {task.template for task in tasks}
    if unknown := sorted(set(weights) - templates):
        raise ConfigError(
            f"No training task has the template {unknown[0]!r} of learner.demonstrations.weights.",
            f"Templates: {', '.join(sorted(templates))}.",
        )
    if not any(weights.get(template, 1.0) for template in templates):
        raise ConfigError(
            "learner.demonstrations.weights leaves no task to demonstrate.", "Give one a weight above 0."
        )
    return TaskSampler(tasks, rng, lambda task: weights.get(task.template, 1.0))


@dataclass(frozen=True)
class Drift:
    """Tasks to train on from a share `after` of the run on, for a `share` of the draws."""

    tasks: Sequence[Task]
    after: float
    share: float = 1.0


class TaskSource:
    """Draws training tasks.

    Interfaces change while agents are trained on them. With `tasks.drift`, tasks of another split (the same
    templates in another layout) take the place of the training split's, or mix with them, from a share of
    the run's progress on. It never goes back, also when a resumed run is made longer.
    """

    def __init__(self, config: LearnerConfig, train: Sequence[Task], drift: Drift | None, seed: int) -> None:
        self._drift, self.has_drifted = drift, False
        self._recent: dict[str, list[float]] = {}
        self._successes: dict[str, float] = {}
        is_weighted = config.task_sampling == "weighted"
        weight = partial(failure_weight, successes=self._successes) if is_weighted else None
        self._train = TaskSampler(train, random.Random(seed), weight)
        self._after = TaskSampler(drift.tasks, random.Random(f"{seed}/drift"), weight) if drift else None
        self._rng = random.Random(f"{seed}/share")
        self.tasks: dict[str, Task] = {task.id: task for task in (*(drift.tasks if drift else ()), *train)}

    def draw(self, progress: float) -> Task:
        if self._drift is not None and self._after is not None:
            self.has_drifted = self.has_drifted or progress >= self._drift.after
            if self.has_drifted and (self._drift.share >= 1.0 or self._rng.random() < self._drift.share):
                return self._after.draw()
        return self._train.draw()

    def record(self, task: Task, success: float) -> None:
        """Counts an episode's success."""
        for name, limit in ((task.id, RECENT), (task.template, RECENT_OF_TEMPLATE)):
            self._recent[name] = [*self._recent.get(name, ()), success][-limit:]
            self._successes[name] = fmean(self._recent[name])

    def metrics(self) -> dict[str, float]:
        """Whether it has drifted, if it is to."""
        return {"scheduler/drift": float(self.has_drifted)} if self._drift else {}

    def state_dict(self) -> dict[str, Any]:
        drift = None
        if self._after is not None:
            drift = {"sampler": self._after.state_dict(), "rng": rng_state(self._rng)}
        state = {"train": self._train.state_dict(), "drift": drift, "has_drifted": self.has_drifted}
        return {**state, "recent": {name: list(scores) for name, scores in self._recent.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._train.load_state_dict(state["train"])
        self._recent.update(state["recent"])
        self._successes.update({name: fmean(scores) for name, scores in self._recent.items()})
        self.has_drifted = bool(state["has_drifted"])
        if self._after is not None and state["drift"] is not None:
            self._after.load_state_dict(state["drift"]["sampler"])
            set_rng_state(self._rng, state["drift"]["rng"])


class BranchSource:
    """Draws states of the newest real training episodes, all states alike, for imagined ones to go on from.

    What it draws depends on the seed and on the episodes. After a restart they are taken from the store.
    """

    def __init__(self, config: WorldConfig, learner: LearnerConfig, seed: int) -> None:
        self._rng = random.Random(f"{seed}/world")
        discount = float(getattr(learner.algorithm, "gamma", 1.0))
        self._how = {"horizon": config.horizon, "potential": config.potential, "discount": discount}
        self._is_learned = config.model == "learned"
        self._known: deque[tuple[Task, Branch, list[tuple[ChatMessage, ...]]]] = deque(
            maxlen=learner.replay.capacity
        )

    def add(self, trajectory: Trajectory) -> None:
        """A real training episode has come in."""
        whole = Branch.of(trajectory, len(trajectory.steps), **self._how)
        starts = [step.chats[-1].messages if self._is_learned else () for step in trajectory.steps]
        self._known.append((trajectory.task, whole, starts))

    def draw(self) -> tuple[Task, Branch] | None:
        """The task of an episode, and a branch that leaves it before one of its steps; None without any."""
        if not self._known:
            return None
        task, whole, starts = self._rng.choices(self._known, [len(starts) for *_, starts in self._known])[0]
        step = self._rng.randrange(len(starts))
        return task, whole.model_copy(update={"past": whole.past[:step], "start": starts[step]})

    def state_dict(self) -> list[Any]:
        return rng_state(self._rng)

    def load_state_dict(self, state: list[Any]) -> None:
        set_rng_state(self._rng, state)
