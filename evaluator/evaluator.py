"""Measuring: every task of the asked splits, one episode each, by the worker's own episode code.

    main thread ── attempts ──► SlotPool (N slot threads) ── finished episodes ──► main: judge, keep, count

The main thread alone writes the output directory. A faulted episode is tried again up to `evaluate.retries`
times. It waits for finished episodes with a deadline: if no slot finishes anything for as long as the longest
possible episode, the evaluation fails rather than hang. While no device can be had it says so.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from distrl.configs.schema import Config
from distrl.core.errors import DistrlError, TaskError
from distrl.core.importing import choose
from distrl.core.types import Task
from distrl.evaluator.ended import is_over, verdict_on
from distrl.evaluator.judges import JUDGES
from distrl.evaluator.judges.base import Judge
from distrl.evaluator.progress import EvaluationProgress, make_progress
from distrl.evaluator.repeats import reseed
from distrl.evaluator.results import (
    Evaluation,
    EvaluationDirectory,
    EvaluationSpec,
    Subject,
    check_output,
    episode_result,
    last_per_task,
    split_result,
    version_span,
)
from distrl.evaluator.selection import select_tasks
from distrl.evaluator.slots import Attempt, Finished, HowToAct, SlotPool
from distrl.evaluator.statistics import EpisodeResult
from distrl.evaluator.suites import load_suite
from distrl.evaluator.task_digests import task_digest, tasks_digest
from distrl.evaluator.waiting import next_episode
from distrl.workers.envs import seed_is_instance
from distrl.workers.places import Places, open_places
from distrl.workers.worker import SlotPolicy

STEP_S = 60.0
"""The longest that an environment may take for one step, besides the policy's own deadline."""


class EvaluationStopped(DistrlError):
    """The evaluation was interrupted. What was measured is kept."""

    exit_code = 130


class Evaluator:
    """Measures a subject on splits of the configuration's suite.

    Args:
        config: The sections tasks, env, agent, worker and evaluate, and learner.max_new_tokens, are used.
        output: The directory to write; see `distrl.evaluator.results`.
        subject: Who is measured.
        splits: Which splits; None: `tasks.test`.
        resume: Go on with the evaluation in `output`.
        stop: Ends the evaluation early when set.
        progress: Who is told; by default a bar on a terminal and lines in a log.
        seed: Of the repetition. It draws the tasks' starts anew (`distrl.evaluator.repeats.reseed`) but in
            environments whose seeds choose the instances: there the same instances are tried again.

    Raises:
        TaskError: If there is no such suite or split.
        ConfigError: If there is no such environment.
        RunDirectoryError: If `output` holds something else.
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
        # Random agents draw from the task's seed and the lease's name; this differs where that stays.
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
            tasks=tasks_digest(self._tasks),
        )
        self._judge: Judge = choose(JUDGES, self._spec.judge)()
        self._stop = stop or threading.Event()
        self._progress = progress or make_progress()
        check_output(output, self._spec, resume)

    def run(self, policy: Callable[[int], SlotPolicy] | None = None) -> Evaluation:
        """Measures what is not measured yet, and writes the numbers.

        Args:
            policy: Makes the policy client of a slot, called in the slot's thread; None for baselines.

        Raises:
            EvaluationStopped: `stop` was set; `resume` goes on from here.
            DistrlError: Something that no retry mends. Before the first episode it leaves no directory.
        """
        started_at, clock = time.time(), time.monotonic()
        directory = EvaluationDirectory(self._output, self._spec, self._resume)
        try:
            todo = [task for task in self._tasks if not directory.is_done(task)]
            self._progress.start(len(self._tasks), len(self._tasks) - len(todo))
            if todo:
                self._measure(todo, directory, policy)
            evaluation = self._numbers(directory.episodes, started_at, time.monotonic() - clock)
            directory.finish(evaluation)
            return evaluation
        except EvaluationStopped:
            raise
        except Exception:
            directory.discard()
            raise
        finally:
            self._progress.close()
            directory.close()

    def _measure(
        self,
        todo: Sequence[Task],
        directory: EvaluationDirectory,
        policy: Callable[[int], SlotPolicy] | None,
    ) -> None:
        evaluate = self._config.evaluate
        spec, who = self._spec, self._spec.subject.kind
        act = HowToAct(
            spec.temperature,
            spec.max_new_tokens,
            expert_noise=0.0 if who == "expert" else None,
            randomly=who == "random",
            distances=evaluate.distance,
        )
        num_slots = min(evaluate.slots, len(todo))
        with contextlib.closing(open_places(self._config, num_slots)) as places:
            pool = SlotPool(self._config, places, policy, act, num_slots, capacity=len(todo))
            try:
                for task in todo:
                    pool.submit(Attempt(task, repetition=self._repetition))
                pool.start()
                waiting = len(todo)
                while waiting:
                    finished = self._take(pool, places, max(task.max_steps for task in todo))
                    waiting -= self._keep(finished, pool, directory)
            finally:
                pool.close()

    def _take(self, pool: SlotPool, places: Places, max_steps: int) -> Finished:
        patience_s = max_steps * (self._config.worker.act_timeout_s + STEP_S)
        finished = next_episode(pool, places, patience_s, self._stop, self._progress.say)
        if finished is None:
            raise EvaluationStopped(
                f"Interrupted; {self._output} keeps what was measured.", "Continue with --resume."
            )
        return finished

    def _keep(self, finished: Finished, pool: SlotPool, directory: EvaluationDirectory) -> bool:
        """Judges and keeps an episode. Whether its task is over with."""
        trajectory, attempt = finished.trajectory, finished.attempt
        verdict = verdict_on(finished, self._judge)
        digest = task_digest(attempt.task)  # as the suite has it: an environment may word the goal anew
        result = episode_result(trajectory, verdict, attempt.number, self._spec.seed, finished.spent, digest)
        directory.add(result, trajectory, finished.images)
        return is_over(finished, result, pool, self._progress, self._config.evaluate.retries)

    def _numbers(self, kept: Sequence[EpisodeResult], started_at: float, duration_s: float) -> Evaluation:
        asked = {task.id for task in self._tasks}
        episodes = [episode for episode in kept if episode.task_id in asked]
        return Evaluation(
            spec=self._spec,
            splits={name: split_result(e for e in episodes if e.split == name) for name in self._splits},
            weight_versions=version_span(last_per_task(episodes)),
            started_at=started_at,
            duration_s=duration_s,
        )


def _tasks(config: Config, split: str) -> list[Task]:
    tasks = select_tasks(load_suite(config.tasks.suite, split), config.evaluate.episodes)
    if not tasks:
        raise TaskError(f"The split {split!r} of {config.tasks.suite} has no tasks.", "Name another split.")
    return tasks
