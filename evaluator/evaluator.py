"""Measures a subject: every task of the given splits, one episode each, in the worker's slots."""

from __future__ import annotations

import contextlib
import hashlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from distrl.configs.schema import Config
from distrl.core.checkpoints import MANIFEST
from distrl.core.errors import TaskError
from distrl.core.types import Spent, Task, Trajectory
from distrl.evaluator.progress import EvaluationProgress
from distrl.evaluator.results import (
    Evaluation,
    EvaluationDirectory,
    EvaluationSpec,
    Subject,
    check_output,
    episode_result,
    evaluation_of,
    task_digest,
    tasks_digest,
)
from distrl.evaluator.runner import Actor, Attempt, run_episodes
from distrl.evaluator.statistics import EpisodeResult
from distrl.evaluator.suites import load_tasks
from distrl.workers.envs import seed_is_instance, simulator_of
from distrl.workers.episode import PolicyClient


class Evaluator:
    """Measures a subject on splits of the configuration's suite.

    Args:
        splits: Which splits; None: `tasks.test`.
        seed: Of the repetition. It redraws the tasks' start states (see `reseed`), except in environments
            whose seeds choose the instances: there the same instances are tried again.
    """

    def __init__(
        self,
        config: Config,
        output: Path,
        subject: Subject,
        splits: Sequence[str] | None = None,
        resume: bool = False,
        stop: threading.Event | None = None,
        progress: EvaluationProgress | None = None,
        seed: int = 0,
    ) -> None:
        self._config, self._output, self._resume = config, output, resume
        self._splits = tuple(dict.fromkeys(splits or config.tasks.test))
        tasks = [task for split in self._splits for task in _tasks(config, split)]
        keeps_instances = seed_is_instance(config.env)
        self._tasks = tasks if keeps_instances else [reseed(task, seed) for task in tasks]
        # Random actors draw from the task's seed and the lease's id: the id differs where the seed does not.
        self._repetition = seed if keeps_instances else 0
        self._spec = EvaluationSpec(
            suite=config.tasks.suite,
            splits=self._splits,
            subject=subject.seen_from(output),
            temperature=config.evaluate.temperature,
            max_new_tokens=config.learner.max_new_tokens,
            episodes=config.evaluate.episodes,
            seed=seed,
            env=config.env.model_dump(mode="json"),
            agent=config.agent.model_dump(mode="json"),
            rewards=config.worker.rewards.model_dump(mode="json", exclude={"source"}),
            simulator=simulator_of(config.env),
            tasks=tasks_digest(self._tasks),
        )
        # Makes trajectory ids unique: in virtual time they come from the leases' ids, which are the same in
        # every evaluation. The manifest counts because checkpoints of different runs have the same name.
        self._origin = self._spec.model_dump_json()
        if subject.kind == "checkpoint":
            self._origin += (Path(subject.name) / MANIFEST).read_text()
        self._stop = stop or threading.Event()
        self._progress = progress or EvaluationProgress()
        check_output(output, self._spec, resume)

    def run(
        self,
        policy: Callable[[int], PolicyClient] | None = None,
        play: Callable[..., object] = run_episodes,
    ) -> Evaluation:
        """Measures the remaining tasks and writes the numbers.

        Args:
            policy: Makes the client of a slot.
            play: Runs the episodes: `run_episodes`, or `run_instantly` with its engine.

        Raises:
            EvaluationStopped: `stop` was set; `resume` continues from here.
        """
        started_at, clock = time.time(), time.monotonic()
        opened = EvaluationDirectory(self._output, self._spec, self._resume)
        with contextlib.closing(opened) as directory, contextlib.closing(self._progress):
            todo = [task for task in self._tasks if not directory.is_done(task)]
            self._progress.start(len(self._tasks), len(self._tasks) - len(todo))
            if todo:
                self._measure(todo, directory, policy, play)
            duration_s = time.monotonic() - clock if directory.is_new else 0.0
            evaluation = evaluation_of(self._spec, directory.episodes, started_at, duration_s)
            directory.finish(evaluation)
            return evaluation

    def _measure(
        self,
        todo: Sequence[Task],
        directory: EvaluationDirectory,
        policy: Callable[[int], PolicyClient] | None,
        play: Callable[..., object],
    ) -> None:
        spec, kind = self._spec, self._spec.subject.kind
        tried = Counter(episode.task_id for episode in directory.episodes)  # with a fault, before --resume

        def keep(
            attempt: Attempt, trajectory: Trajectory, images: Mapping[str, bytes], spent: Spent
        ) -> EpisodeResult:
            name = hashlib.sha256(f"{self._origin}/{trajectory.id}".encode()).hexdigest()[:32]
            trajectory = trajectory.model_copy(update={"id": name})
            digest = task_digest(attempt.task)  # of the suite's task: an environment may reword the goal
            result = episode_result(trajectory, attempt.number, spec.seed, spent, digest)
            directory.add(result, trajectory, images)
            return result

        play(
            self._config,
            [
                Attempt(task, tried[task.id], repetition=self._repetition, first=tried[task.id])
                for task in todo
            ],
            Actor(
                policy,
                spec.temperature,
                spec.max_new_tokens,
                expert_noise=0.0 if kind == "expert" else None,
                randomly=kind == "random",
            ),
            keep,
            self._progress,
            self._stop,
            self._output,
            distances=self._config.evaluate.distance,
        )


def _tasks(config: Config, split: str) -> list[Task]:
    tasks = select_tasks(load_tasks(config.tasks, split), config.evaluate.episodes)
    if not tasks:
        raise TaskError(f"The split {split!r} of {config.tasks.suite} has no tasks.", "Name another split.")
    return tasks


def select_tasks(tasks: Sequence[Task], limit: int | None) -> list[Task]:
    """The first `limit` tasks (None: all), from each template in turn, in the suite's order."""
    if limit is None or limit >= len(tasks):
        return list(tasks)
    counts: dict[str, int] = {}
    turns = []
    for place, task in enumerate(tasks):
        turn = counts[task.template] = counts.get(task.template, 0) + 1
        turns.append((turn, place))
    chosen = sorted(place for _, place in sorted(turns)[:limit])
    return [tasks[place] for place in chosen]


def reseed(task: Task, seed: int) -> Task:
    """The task as the repetition `seed` measures it: the same instruction, another random start state.

    Only for environments in which a seed does not choose the instance; see
    `distrl.workers.envs.seed_is_instance`. Seed 0 is the suite's own task. Another seed replaces `task.seed`,
    the source of all randomness in the environment, by a number drawn from both. Ids stay, so that
    repetitions of a task can be recognised.
    """
    if seed == 0:
        return task
    drawn = random.Random(f"evaluate/{seed}/{task.seed}/{task.id}").getrandbits(31)
    return task.model_copy(update={"seed": drawn})
