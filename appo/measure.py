"""Measuring a policy of continuous control: greedy episodes of fresh seeds, and their mean return.

DIR/evaluation.json   what is measured (a resumed evaluation must match it)
DIR/results.json      the numbers, written last by rename: its presence marks a complete evaluation
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np

from distrl.appo.envs import Actor, GymGroup, Space, run_episodes
from distrl.appo.policy import load_policy
from distrl.configs.appo import TEST_SEEDS
from distrl.configs.schema import Config
from distrl.core.errors import CheckpointError, ConfigError, RunDirectoryError
from distrl.core.files import write_atomically
from distrl.core.rundir import is_free
from distrl.core.types import Number, Record
from distrl.evaluator.progress import LINE_EVERY_S
from distrl.evaluator.results import RESULTS_FILE, SPEC_FILE, Subject
from distrl.evaluator.runner import EvaluationStopped
from distrl.evaluator.statistics import Interval, t_interval

EPISODES = 100
"""The default of `evaluate.episodes`."""

RANDOM_SEED = 0


class MeasureSpec(Record):
    """What is measured: the subject, the environment, and the number of episodes."""

    env_id: str
    subject: Subject
    episodes: int


class Returns(Record):
    """The numbers: `results.json`."""

    spec: MeasureSpec
    mean: Number  # of the episodes' undiscounted returns
    std: Number
    interval: Interval | None  # Student's 95% interval of the mean; None for one, and if all are alike
    returns: tuple[Number, ...]  # in the order of the seeds
    lengths: tuple[int, ...]


def measure(
    config: Config,
    subject: Subject,
    output: Path,
    resume: bool = False,
    stop: threading.Event | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Returns:
    """Measures `subject`, a checkpoint or "random", and writes the results to the directory `output`.

    `resume` replaces an earlier measurement of the same subject; `say` takes lines of progress.
    """
    options, evaluate = config.env.options, config.evaluate
    spec = MeasureSpec(
        env_id=str(options["id"]), subject=subject.seen_from(output), episodes=evaluate.episodes or EPISODES
    )
    stop = stop or threading.Event()
    _check_output(output, spec, resume)
    with contextlib.closing(GymGroup(options, min(evaluate.slots, spec.episodes))) as group:
        actor = _actor(subject, spec.env_id, group.space)
        output.mkdir(parents=True, exist_ok=True)
        (output / RESULTS_FILE).unlink(missing_ok=True)
        write_atomically(output / SPEC_FILE, spec.model_dump_json(indent=2))
        say(f"evaluating {spec.env_id}: 0 of {spec.episodes} episodes")
        said_at = time.monotonic()

        def ended(num: int) -> None:
            nonlocal said_at
            if time.monotonic() >= said_at + LINE_EVERY_S or num == spec.episodes:
                said_at = time.monotonic()
                say(f"{num} of {spec.episodes} episodes")

        seeds = range(TEST_SEEDS, TEST_SEEDS + spec.episodes)
        episodes = run_episodes(group, actor, seeds, stop.is_set, ended)
    if episodes is None:
        raise EvaluationStopped("Interrupted; no results were kept.", "Measure again with --resume.")
    returns = [episode.total for episode in episodes]
    result = Returns(
        spec=spec,
        mean=fmean(returns),
        std=pstdev(returns),
        interval=t_interval(returns),
        returns=tuple(returns),
        lengths=tuple(episode.length for episode in episodes),
    )
    write_atomically(output / RESULTS_FILE, result.model_dump_json(indent=2))
    return result


def load_returns(directory: Path) -> Returns:
    """Reads a complete evaluation of continuous control; raises RunDirectoryError if there is none."""
    file = directory / RESULTS_FILE
    try:
        return Returns.model_validate_json(file.read_bytes())
    except (OSError, ValueError) as error:
        raise RunDirectoryError(
            f"{file} is not an evaluation of continuous control.", "Measure again with distrl evaluate."
        ) from error


def _check_output(output: Path, spec: MeasureSpec, resume: bool) -> None:
    """Raises RunDirectoryError unless `output` is empty, or holds an earlier measurement that is replaced."""
    if is_free(output, resume, resuming="replace what is there"):
        return
    try:
        is_same = MeasureSpec.model_validate_json((output / SPEC_FILE).read_bytes()) == spec
    except (OSError, ValueError):
        is_same = False
    if not is_same:
        raise RunDirectoryError(
            f"{output} holds a different evaluation.", "Choose another directory with --output."
        )


def _actor(subject: Subject, env_id: str, space: Space) -> Actor:
    if subject.kind == "random":
        rng = np.random.default_rng(RANDOM_SEED)
        low, high = np.maximum(space.low, -1e3), np.minimum(space.high, 1e3)

        return lambda observations: rng.uniform(low, high, (len(observations), len(low)))
    if subject.kind != "checkpoint":
        raise ConfigError(
            f"Continuous control cannot be measured as {subject.kind!r} because its policies are not served.",
            "Give --checkpoint, or --agent random.",
        )
    policy = load_policy(Path(subject.name) / "policy")
    if policy.spec.env_id != env_id or policy.spec.sizes != space.sizes:
        raise CheckpointError(
            f"{subject.name} is a policy for {policy.spec.env_id}, not for {env_id}.",
            "Use the configuration of its own run.",
        )
    return policy.act_greedily
