"""Repetitions: the same tasks measured once for each seed, in one directory, with mean and deviation."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

from distrl.core.errors import ConfigError, RunDirectoryError
from distrl.core.files import write_atomically
from distrl.core.rundir import is_free
from distrl.core.types import Task
from distrl.core.verdicts import Spent
from distrl.evaluator.results import (
    RESULTS_FILE,
    SPEC_FILE,
    Evaluation,
    LoadedEvaluation,
    last_per_task,
    load_evaluation,
    split_result,
    version_span,
)


def reseed(task: Task, seed: int) -> Task:
    """The task as the repetition `seed` measures it: the same instruction, another start where it is random.

    Only for environments in which a seed is no more than that; see `distrl.workers.envs.seed_is_instance`.
    With seed 0 it is the suite's own task. Another seed replaces `task.seed`, of which everything random in
    the environment comes, by a number drawn from both. Ids stay, so that repetitions of a task are known as
    such.
    """
    if seed == 0:
        return task
    drawn = random.Random(f"evaluate/{seed}/{task.seed}/{task.id}").getrandbits(31)
    return task.model_copy(update={"seed": drawn})


def check_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    """The seeds, if each is there once.

    Raises:
        ConfigError: There is none, or one is negative or there twice.
    """
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise ConfigError(
            f"{', '.join(map(str, seeds)) or 'nothing'} is not a list of seeds.",
            "Give each seed once, as in 0,1,2.",
        )
    return tuple(seeds)


def seed_directory(directory: Path, seed: int) -> Path:
    """Where the repetition with this seed is."""
    return directory / f"seed-{seed}"


def check_repeated_output(directory: Path, resume: bool) -> None:
    """Checks that repetitions may be written below `directory`. Changes nothing.

    Raises:
        RunDirectoryError: It holds something and `resume` is off, or it holds a single evaluation.
    """
    if is_free(directory, resume):
        return
    if (directory / SPEC_FILE).exists() or not directory.is_dir():
        raise RunDirectoryError(
            f"{directory} holds an evaluation without repetitions.",
            "Leave --seeds out, or name another directory with --output.",
        )


def pool(directory: Path, seeds: Sequence[int]) -> Evaluation:
    """Writes results.json over the complete repetitions in `directory`, and returns it.

    Raises:
        RunDirectoryError: One of them is not complete.
    """
    parts = [load_evaluation(seed_directory(directory, seed)) for seed in seeds]
    evaluation = pooled(parts, seeds)
    write_atomically(directory / RESULTS_FILE, evaluation.model_dump_json(indent=2))
    return evaluation


def pooled(parts: Sequence[LoadedEvaluation], seeds: Sequence[int]) -> Evaluation:
    """The numbers over all repetitions. Splits are those of the first."""
    first = parts[0].evaluation
    episodes = [episode for part in parts for episode in part.episodes]
    splits = {name: split_result(e for e in episodes if e.split == name) for name in first.splits}
    for name, result in splits.items():
        measured = [part.evaluation.splits[name] for part in parts]
        retries, spent = sum(one.num_retries for one in measured), Spent.total(one.spent for one in measured)
        splits[name] = result.model_copy(update={"num_retries": retries, "spent": spent})
    return Evaluation(
        spec=first.spec,
        splits=splits,
        weight_versions=version_span(last_per_task(episodes)),
        started_at=min((part.evaluation.started_at for part in parts), default=time.time()),
        duration_s=sum(part.evaluation.duration_s for part in parts),
        seeds=tuple(seeds),
    )
