"""Making suites of AndroidWorld tasks: names of the package's registry times seeds, as a task file.

A suite's seed s and a task's name give the instance that `suite_utils.create_suite(seed=s)` makes first:
parameters by sha256(f"{s}_{name}_0") mod 2³². The benchmark's own run is seed 30.
"""

from __future__ import annotations

from collections.abc import Sequence

from distrl.core.errors import TaskError
from distrl.core.types import Task
from distrl.workers.envs.android_world import FAMILY, WorldProcess
from distrl.workers.envs.android_world_child import instance_seed

SUITE = "androidworld"
TRAIN, EVAL = "train", "eval"
MAX_SEEDS = 10_000


def parse_seeds(text: str) -> range:
    """The seeds "A:B" from A up to but without B, or the one seed "A"; raises TaskError for others."""
    first, colon, last = text.partition(":")
    try:
        start = int(first)
        seeds = range(start, int(last) if colon else start + 1)
    except ValueError:
        seeds = range(0)
    if not 0 < seeds.stop - seeds.start <= MAX_SEEDS or seeds.start < 0:
        raise TaskError(
            f"{text!r} is not a range of seeds.", f"Write A:B with 0 <= A < B, at most {MAX_SEEDS} of them."
        )
    return seeds


def import_tasks(names: Sequence[str], train: range, evaluation: range, family: str = FAMILY) -> list[Task]:
    """The tasks of the installed `android_world`, without a device.

    Args:
        names: Task names; all of the family if empty.
        train, evaluation: Seeds of the splits "train" and "eval".

    Raises:
        MissingDependency: The package is not installed.
    """
    shared = sorted(set(train) & set(evaluation))
    if shared:
        raise TaskError(
            f"{len(shared)} seeds are in both training and evaluation, e.g. {shared[0]}.",
            "Choose ranges that do not overlap.",
        )
    process = WorldProcess()
    try:
        seeds = [*train, *evaluation]
        found = process.call("describe", family=family, names=list(names), seeds=seeds)["tasks"]
    finally:
        process.close()
    return [
        _task(one["name"], int(one["seed"]), TRAIN if one["seed"] in train else EVAL, family, one)
        for one in found
    ]


def _task(name: str, seed: int, split: str, family: str, one: dict[str, object]) -> Task:
    if not one["goal"]:
        raise TaskError(
            f"the AndroidWorld task {name} has no goal before it runs on a device.", "Leave it out."
        )
    return Task(
        id=f"{SUITE}/{name}/{split}/{seed:04d}",
        suite=SUITE,
        template=name,
        split=split,
        goal=str(one["goal"]),
        params={"task": name, "family": family, "suite_seed": seed},
        seed=instance_seed(seed, name),
        max_steps=int(str(one["max_steps"])),
    )
