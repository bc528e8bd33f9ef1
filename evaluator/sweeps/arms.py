"""The arms of a sweep: means over seeds with 95% intervals, and the mean learning curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distrl.evaluator.report.chart import Point
from distrl.evaluator.statistics import Interval, t_interval
from distrl.evaluator.sweeps.runs import RunResult

GRID = 60
"""Points of a mean curve."""


@dataclass(frozen=True)
class Mean:
    """A mean over seeds; its interval is unknown for a single one."""

    value: float
    interval: Interval | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Mean | None:
        """Of those values that are there; None if none is."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        return cls(math.fsum(known) / len(known), t_interval(known), len(known))


@dataclass(frozen=True)
class ArmSummary:
    """An arm over its finished runs.

    Attributes:
        seeds: Of its finished runs.
        planned: How many runs it is to have.
        before, after, gain: The sweep's metric; the gain is each run's own.
        splits: Success at the end on each test split.
        num_reached: Runs whose curve was at the threshold.
        reached_s: The median time of that, where runs that never were count as the slowest; None if that is
            most of them, or there is no threshold.
        curve: (seconds, mean, interval) of the learning curve.
    """

    name: str
    seeds: tuple[int, ...]
    planned: int
    before: Mean | None
    after: Mean | None
    gain: Mean | None
    splits: dict[str, Mean | None]
    episodes: Mean | None
    updates: Mean | None
    minutes: Mean | None
    num_reached: int
    reached_s: float | None
    curve: tuple[tuple[float, Mean], ...]


def summarise_arms(results: Sequence[RunResult], names: Sequence[str]) -> list[ArmSummary]:
    """The arms in the order of `names`. Only finished runs count."""
    return [_summary(name, [result for result in results if result.arm == name]) for name in names]


def _summary(name: str, results: Sequence[RunResult]) -> ArmSummary:
    done = [result for result in results if result.is_finished]
    gains = [r.after - r.before if r.after is not None and r.before is not None else None for r in done]
    splits = dict.fromkeys(split for result in done for split in result.splits)
    return ArmSummary(
        name=name,
        seeds=tuple(result.seed for result in done),
        planned=len(results),
        before=Mean.of([result.before for result in done]),
        after=Mean.of([result.after for result in done]),
        gain=Mean.of(gains),
        splits={split: Mean.of([result.splits[split][1] for result in done]) for split in splits},
        episodes=Mean.of([result.episodes for result in done]),
        updates=Mean.of([result.updates for result in done]),
        minutes=Mean.of([result.elapsed_s / 60 for result in done]),
        num_reached=sum(result.reached_s is not None for result in done),
        reached_s=median_time([result.reached_s for result in done]),
        curve=mean_curve([result.curve for result in done]),
    )


def median_time(times: Sequence[float | None]) -> float | None:
    """The median, None counting as longer than all others; None if the median is such a one."""
    if not times:
        return None
    ordered = sorted(math.inf if time is None else time for time in times)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return middle if math.isfinite(middle) else None


def mean_curve(curves: Sequence[Sequence[Point]]) -> tuple[tuple[float, Mean], ...]:
    """The mean of curves and its interval, on a grid over the time that all of them cover.

    Between its points a curve is a straight line. Curves without a point are left out.
    """
    found = [list(zip(*curve, strict=True)) for curve in curves if curve]
    if not found:
        return ()
    low, high = max(times[0] for times, _ in found), min(times[-1] for times, _ in found)
    if high < low:
        return ()
    grid = np.unique(np.linspace(low, high, GRID))
    lines = np.array([np.interp(grid, times, values) for times, values in found])
    means = []
    for index, seconds in enumerate(grid):
        mean = Mean.of([float(value) for value in lines[:, index]])
        assert mean is not None
        means.append((float(seconds), mean))
    return tuple(means)
