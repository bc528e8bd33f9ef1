"""Which task is tried next, from which split, and what became of each.

    TaskSource   the training split, and from a point of the run on the drift split
    TaskSampler  all tasks alike, or more often those that fail, or that sometimes fail
    TaskRecord   totals of a task, which `distrl inspect` shows

Not thread-safe: the scheduler holds its lock around every call.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from distrl.configs.learner import LearnerConfig
from distrl.core.errors import ConfigError, StoreError
from distrl.core.files import write_atomically
from distrl.core.types import Fault, Outcome, Task, Trajectory

Kind = Literal["uniform", "weighted", "learnable"]
RECENT = 8
PRIOR = 2.0
"""So many episodes at its template's mean success are added to a task's own."""
REDRAW_EVERY = 16
FLOOR = 0.15
"""ε, by which a mastered task keeps being tried."""


class TaskSampler:
    """Draws training tasks.

    "uniform": without replacement until all have been drawn, then again, in another order each time.
    "weighted": P_i ∝ 1 − s_i + ε, AcceRL's dynamic weighted resampling.
    "learnable": P_i ∝ 4 s_i (1 − s_i) + ε. Where all episodes succeed, or all fail, advantages are about 0
    and teach nothing; the variance of the outcome is largest in between (Rutherford et al. 2024).

    s_i is the mean success of the task's last `RECENT` episodes, shrunk towards that of all recent episodes
    of its template, since with hundreds of tasks most have been tried once or twice. Before anything was
    tried, all are alike. (AcceRL's eq. 11 sums failures over the window, by which a task that was tried once
    weighs less than one of the same success that was tried often: the mean is taken. A task that was never
    tried counts as its template does.)
    """

    def __init__(self, tasks: Sequence[Task], kind: Kind, rng: random.Random) -> None:
        assert tasks, "no training tasks"
        self._tasks, self._kind, self._rng = list(tasks), kind, rng
        self._bag: list[int] = []
        self._recent: dict[str, list[float]] = {}
        self._weights: list[float] = []
        self._draws = 0

    def draw(self) -> Task:
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
            weights.append(max(0.0, worth) + FLOOR)  # no score may stop the draws
        return weights

    @property
    def num_tried(self) -> int:
        return len(self._recent)

    def state_dict(self) -> dict[str, Any]:
        return {
            "recent": {task: list(scores) for task, scores in self._recent.items()},
            "bag": list(self._bag),
            "rng": rng_state(self._rng),
            "draws": self._draws,
            "weights": list(self._weights),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._recent = {task: list(scores) for task, scores in state["recent"].items()}
        self._bag = [index for index in state["bag"] if index < len(self._tasks)]
        set_rng_state(self._rng, state["rng"])
        self._weights = [float(weight) for weight in state["weights"]]
        self._draws = int(state["draws"]) if len(self._weights) == len(self._tasks) else 0


def rng_state(rng: random.Random) -> list[Any]:
    """The state of a generator, JSON-able."""
    version, internal, gauss = rng.getstate()
    return [version, list(internal), gauss]


def set_rng_state(rng: random.Random, state: list[Any]) -> None:
    version, internal, gauss = state
    rng.setstate((version, tuple(internal), gauss))


class TemplateSampler:
    """Draws tasks with P_i ∝ the weight of the task's template.

    Args:
        weights: By template; 1 for those not named.

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
        return self._rng.choices(self._tasks, self._weights)[0]


def demonstration_sampler(
    config: LearnerConfig, tasks: Sequence[Task], seed: int
) -> TaskSampler | TemplateSampler:
    """The sampler of tasks to demonstrate: spread over all regardless of `task_sampling`, or by template."""
    weights = config.demonstrations.weights
    if weights:
        return TemplateSampler(tasks, weights, random.Random(seed))
    # Of another seed than training, which would else begin with the same tasks.
    return TaskSampler(tasks, "uniform", random.Random(seed + 1))


@dataclass(frozen=True)
class Drift:
    """Tasks to train on from a share `after` of the run on, for a `share` of the draws."""

    tasks: Sequence[Task]
    after: float
    share: float = 1.0


class TaskSource:
    """Draws training tasks; `learner.task_sampling` applies to each split by itself.

    Interfaces change while agents are trained on them. With `tasks.drift`, tasks of another split (the same
    templates in another layout) take the place of the training split's, or mix with them, from a share of
    the run's progress on. It never goes back, also when a resumed run is made longer.
    """

    def __init__(self, config: LearnerConfig, train: Sequence[Task], drift: Drift | None, seed: int) -> None:
        self._drift, self.has_drifted = drift, False
        kind = config.task_sampling
        self._train = TaskSampler(train, kind, random.Random(seed))
        self._after = TaskSampler(drift.tasks, kind, random.Random(f"{seed}/drift")) if drift else None
        self._rng = random.Random(f"{seed}/share")
        self.tasks: dict[str, Task] = {task.id: task for task in (*(drift.tasks if drift else ()), *train)}
        self._ids = {task.id for task in drift.tasks} if drift else set()

    def draw(self, progress: float) -> Task:
        if self._drift is not None and self._after is not None:
            self.has_drifted = self.has_drifted or progress >= self._drift.after
            if self.has_drifted and (self._drift.share >= 1.0 or self._rng.random() < self._drift.share):
                return self._after.draw()
        return self._train.draw()

    def of(self, task_id: str) -> TaskSampler:
        return self._after if self._after is not None and task_id in self._ids else self._train

    @property
    def num_tried(self) -> int:
        return self._train.num_tried + (self._after.num_tried if self._after else 0)

    def metrics(self) -> dict[str, float]:
        """Whether it has drifted, if it is to."""
        return {"scheduler/drift": float(self.has_drifted)} if self._drift else {}

    def state_dict(self) -> dict[str, Any]:
        drift = None
        if self._after is not None:
            drift = {"sampler": self._after.state_dict(), "rng": rng_state(self._rng)}
        return {"train": self._train.state_dict(), "drift": drift, "has_drifted": self.has_drifted}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._train.load_state_dict(state["train"])
        self.has_drifted = bool(state["has_drifted"])
        if self._after is not None and state["drift"] is not None:
            self._after.load_state_dict(state["drift"]["sampler"])
            set_rng_state(self._rng, state["drift"]["rng"])


@dataclass
class TaskRecord:
    """One task's totals."""

    template: str = ""
    episodes: int = 0  # training episodes without a fault
    judged: int = 0  # those of them that a judge gave a score
    success: float = 0.0  # sum of the scores
    steps: int = 0
    seconds: float = 0.0
    faults: int = 0  # episodes that a device, the environment or inference failed, and that were run again
    expired: int = 0  # leases that their worker let expire
    abandoned: int = 0  # episodes given up after several attempts

    @property
    def mean_success(self) -> float | None:
        return self.success / self.judged if self.judged else None

    @property
    def mean_steps(self) -> float | None:
        return self.steps / self.episodes if self.episodes else None

    @property
    def mean_seconds(self) -> float | None:
        return self.seconds / self.episodes if self.episodes else None


class TaskStatistics(dict[str, TaskRecord]):
    """Records by task id."""

    def of(self, task: Task) -> TaskRecord:
        return self.setdefault(task.id, TaskRecord(task.template))

    def account(self, trajectory: Trajectory) -> None:
        """A training episode has been taken, or came to nothing by a fault."""
        record = self.of(trajectory.task)
        if trajectory.fault is not Fault.NONE:
            record.faults += 1
            return
        record.episodes += 1
        record.steps += len(trajectory.steps)
        record.seconds += trajectory.duration_s
        if trajectory.outcome is not Outcome.UNJUDGED:
            record.judged += 1
            record.success += trajectory.success


def write_table(path: Path, table: Mapping[str, TaskRecord]) -> None:
    """Replaces the file by `table`, as JSON: an object per task id."""
    rows = {name: asdict(record) for name, record in table.items()}
    write_atomically(path, json.dumps(rows, indent=1) + "\n")


def read_table(path: Path) -> dict[str, TaskRecord]:
    """What `write_table` wrote.

    Raises:
        StoreError: There is no such file, or it is not one of these.
    """
    try:
        return {name: TaskRecord(**record) for name, record in json.loads(path.read_text()).items()}
    except FileNotFoundError as error:
        raise StoreError(
            f"There is no {path}.", "A learner writes it with each checkpoint; name a run that has one."
        ) from error
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} cannot be read: {error}.", "Use the distrl that wrote it.") from error
