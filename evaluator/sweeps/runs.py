"""One run of a sweep, read from its directory: is it finished, and what did it come to?"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

from distrl.configs.sweep import PlannedRun, Sweep
from distrl.core.checkpoints import pointed
from distrl.core.errors import RunDirectoryError
from distrl.core.rundir import RunDir
from distrl.evaluator.report.chart import Point, rolling_mean
from distrl.evaluator.report.metrics import ELAPSED, EPISODES, UPDATES, RunMetrics
from distrl.evaluator.report.training import learning_curve
from distrl.evaluator.results import RESULTS_FILE
from distrl.evaluator.run_state import FINAL, WARM_START, is_untrained
from distrl.evaluator.statistics import Summary

SMOOTHED = 3
"""Rounds whose mean must be at the threshold: one round of a few dozen episodes gets there by luck."""

FIELDS = {
    "success": "success_rate",
    "score": "mean_score",
    "steps": "mean_steps",
    "reward": "mean_reward",
    "invalid": "invalid_rate",
    "repeats": "repeat_rate",
}
"""What a metric calls a number of an evaluation."""

CONTROL_EPISODES = "train/episodes"

RETURN = "return"
"""The metric of continuous control: the mean return of an evaluation."""


@dataclass(frozen=True)
class _Measured:
    """An evaluation: summaries by split, or of continuous control the mean return."""

    splits: dict[str, Summary]
    mean_return: float | None


@dataclass(frozen=True)
class RunResult:
    """What a run came to.

    Attributes:
        is_finished: Whether it is complete, evaluations included.
        before, after: The sweep's metric, at the warm start and at the end; None if it was not measured.
        splits: Success on each test split, before and after.
        curve: (seconds of the run, value).
        reached_s: When the curve was at the threshold first; None if never, or without one.
        elapsed_s, episodes, updates: How much it did.
    """

    arm: str
    seed: int
    directory: Path
    is_finished: bool = False
    before: float | None = None
    after: float | None = None
    splits: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    curve: tuple[Point, ...] = ()
    reached_s: float | None = None
    elapsed_s: float = 0.0
    episodes: float = 0.0
    updates: float = 0.0


def is_finished(directory: Path) -> bool:
    """Whether a run is complete: its result, after an update or more, and its warm start are evaluated."""
    run = RunDir(directory)
    if pointed(run.checkpoints, FINAL) is None or is_untrained(run):
        return False
    has_start = (run.checkpoints / WARM_START).is_dir()
    return all(
        _evaluation_of(run, name) is not None for name in [FINAL, *([WARM_START] if has_start else [])]
    )


def read_run(planned: PlannedRun, sweep: Sweep) -> RunResult:
    """What `planned` came to so far."""
    directory = planned.directory
    if not (directory / "config.yaml").is_file():
        return RunResult(planned.arm, planned.seed, directory)
    run = RunDir(directory)
    metrics = RunMetrics.read(run.metrics)
    finished = is_finished(directory)
    first, last = _load(run, WARM_START), _load(run, FINAL) if finished else None
    before, after = _metric(sweep.metric, first, last, metrics)
    curve = curve_of(metrics, sweep.curve)
    return RunResult(
        arm=planned.arm,
        seed=planned.seed,
        directory=directory,
        is_finished=finished,
        before=before,
        after=after if finished else None,
        splits={
            split: (_number(first, split, "success"), _number(last, split, "success"))
            for split in planned.config.tasks.test
        },
        curve=tuple(curve),
        reached_s=reached(curve, sweep.threshold),
        elapsed_s=metrics.last(ELAPSED) or 0.0,
        episodes=metrics.last(EPISODES) or metrics.last(CONTROL_EPISODES) or 0.0,
        updates=metrics.last(UPDATES) or 0.0,
    )


def curve_of(metrics: RunMetrics, name: str) -> list[Point]:
    """A metric over the seconds of the run; validation is placed at the weights that it measured."""
    if name.startswith("eval/") and name.endswith("/success"):
        return learning_curve(metrics, ELAPSED).validation
    return metrics.series(name, ELAPSED)


def reached(curve: list[Point], threshold: float | None) -> float | None:
    """The seconds at which the mean of the last `SMOOTHED` points is at the threshold; None if never."""
    if threshold is None:
        return None
    smooth = rolling_mean(curve, SMOOTHED)[SMOOTHED - 1 :]
    return next((seconds for seconds, value in smooth if value >= threshold - 1e-9), None)


def _metric(
    name: str, first: _Measured | None, last: _Measured | None, metrics: RunMetrics
) -> tuple[float | None, float | None]:
    split, _, number = name.rpartition("/")
    if name == RETURN or number in FIELDS:
        ends = _number(first, split, number), _number(last, split, number)
        if ends != (None, None):
            return ends
    values = [value for _, value in metrics.series(name, ELAPSED)]
    return (values[0], values[-1]) if values else (None, None)


def _number(measured: _Measured | None, split: str, name: str) -> float | None:
    """A number of a split, or of several joined by +, each weighing as many as its episodes."""
    if measured is None or name == RETURN:
        return None if measured is None else measured.mean_return
    names = split.split("+")
    if not set(names) <= set(measured.splits):
        return None
    found = [measured.splits[name] for name in names]
    episodes = sum(overall.episodes for overall in found)
    if not episodes:
        return None
    return math.fsum(getattr(one, FIELDS[name]) * one.episodes for one in found) / episodes


def _evaluation_of(run: RunDir, checkpoint: str) -> Path | None:
    """The complete evaluation of a checkpoint, by its name or by a pointer's."""
    name = pointed(run.checkpoints, checkpoint) if checkpoint == FINAL else checkpoint
    directory = run.evaluations / (name or "")
    return directory if name and (directory / RESULTS_FILE).is_file() else None


def _load(run: RunDir, checkpoint: str) -> _Measured | None:
    """What was measured of a checkpoint; None if nothing was.

    Raises:
        RunDirectoryError: The file is damaged.
    """
    directory = _evaluation_of(run, checkpoint)
    if directory is None:
        return None
    file = directory / RESULTS_FILE
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        splits = {
            name: Summary.model_validate(one["overall"]) for name, one in data.get("splits", {}).items()
        }
        return _Measured(splits, float(data["mean"]) if "mean" in data else None)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunDirectoryError(f"{file} is damaged.", "Delete it; the sweep evaluates again.") from error
