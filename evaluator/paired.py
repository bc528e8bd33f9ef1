"""Two evaluations on the same instances: changes, McNemar's exact test, and the gain's interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from distrl.core.types import Number, Record
from distrl.evaluator.statistics import Z_95, EpisodeResult, Interval, effective_trials


class Paired(Record):
    """The same n instances before and after.

    Attributes:
        both, lost, gained, neither: Solved both times, only before, only after, never.
        gain: (gained − lost) / n, the difference of the success rates.
        interval: Tango's 95% score interval of the gain; over several repetitions with `effective_trials`.
        p_value: McNemar's exact test of gained and lost being equally likely; None over repetitions, which
            are not independent.
        unpaired: Instances that count in only one of the two, or whose task has changed in between.
    """

    both: int
    lost: int
    gained: int
    neither: int
    gain: Number
    interval: Interval
    p_value: Number | None
    unpaired: int = 0

    @property
    def n(self) -> int:
        """How many instances count in both."""
        return self.both + self.lost + self.gained + self.neither


def compare_pairs(before: Iterable[EpisodeResult], after: Iterable[EpisodeResult]) -> Paired | None:
    """The comparison over the instances, tasks with the seed of a repetition, that count in both.

    None if there is none.
    """
    before_by, after_by = _by_instance(before), _by_instance(after)
    common = {key for key in before_by.keys() & after_by.keys() if is_same(before_by[key], after_by[key])}
    if not common:
        return None
    first, last = ({key: found[key].success for key in common} for found in (before_by, after_by))
    both = sum(first[key] and last[key] for key in common)
    lost = sum(first[key] and not last[key] for key in common)
    gained = sum(last[key] and not first[key] for key in common)
    n = len(common)
    tasks: dict[str, list[float]] = {}
    for key in common:
        tasks.setdefault(key[0], []).append(float(last[key]) - float(first[key]))
    worth = effective_trials(tasks.values()) / n
    return Paired(
        both=both,
        lost=lost,
        gained=gained,
        neither=n - both - lost - gained,
        gain=(gained - lost) / n,
        interval=tango(gained * worth, lost * worth, n * worth),
        p_value=mcnemar(gained, lost) if n == len(tasks) else None,
        unpaired=len((before_by.keys() | after_by.keys()) - common),
    )


def instance_of(episode: EpisodeResult) -> tuple[str, int]:
    """The task and the seed of the repetition."""
    return episode.task_id, episode.seed


def is_same(first: EpisodeResult, second: EpisodeResult) -> bool:
    """Whether both are of one instance, whose task did not change in between."""
    return instance_of(first) == instance_of(second) and first.digest == second.digest


def _by_instance(episodes: Iterable[EpisodeResult]) -> dict[tuple[str, int], EpisodeResult]:
    return {instance_of(episode): episode for episode in episodes if episode.counts}


def mcnemar(gained: int, lost: int) -> float:
    """The two-sided p of McNemar's exact test.

    Under the null hypothesis an instance that changed sides is a fair coin, gained ~ B(gained + lost, ½):
    p = min(1, 2 P(X ≤ min(gained, lost))).

    Raises:
        ValueError: A count is negative.
    """
    if gained < 0 or lost < 0:
        raise ValueError(f"counts must not be negative: {gained}, {lost}")
    n = gained + lost
    tail = sum(math.comb(n, k) for k in range(min(gained, lost) + 1))
    return min(1.0, float(2 * tail / 2**n))


def tango(gained: float, lost: float, n: float, z: float = Z_95) -> Interval:
    """The score interval of a difference of paired proportions (Tango 1998, Statistics in Medicine 17: 891).

    With b = gained, c = lost, the interval is all Δ with |Z(Δ)| ≤ z, where

        Z(Δ) = (b − c − nΔ) / sqrt(n (2q + Δ (1 − Δ)))
        q    = (sqrt(B² − 4AC) − B) / 2A,   A = 2n,   B = −b − c + (2n − b + c) Δ,   C = −cΔ (1 − Δ)

    and q is the most likely probability of a loss if the gain is Δ. Z falls with Δ.

    Raises:
        ValueError: If not 0 ≤ gained + lost ≤ n, or n = 0.
    """
    if n <= 0 or min(gained, lost) < 0 or gained + lost > n * (1 + 1e-9):
        raise ValueError(f"{gained} gained and {lost} lost of {n}")

    def score(delta: float) -> float:
        a, b = 2.0 * n, -gained - lost + (2 * n - gained + lost) * delta
        c = -lost * delta * (1.0 - delta)
        q = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
        variance = n * (2 * q + delta * (1.0 - delta))
        distance = gained - lost - n * delta
        if variance <= 0.0:
            return math.copysign(math.inf, distance) if distance else 0.0
        return distance / math.sqrt(variance)

    gain = (gained - lost) / n
    return Interval(low=_root(score, z, -1.0, gain), high=_root(score, -z, gain, 1.0))


def _root(score: Callable[[float], float], level: float, low: float, high: float) -> float:
    """Where the falling function `score` is `level`, between `low` and `high`."""
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if score(middle) > level else (low, middle)
    return (low + high) / 2
