"""The success rate that a judge's verdicts give, with an interval that knows which are of one task."""

from __future__ import annotations

from collections.abc import Iterable

from distrl.core.types import Number, Record
from distrl.evaluator.statistics import Interval, wilson_by_task


class Solved(Record):
    """How much is solved, if a judge is believed.

    Attributes:
        successes, episodes: Counts k and n.
        rate: k / n; 0 when n = 0.
        interval: Wilson's 95% interval, of as many trials as the episodes are worth: `effective_trials`.
    """

    successes: int
    episodes: int
    rate: Number
    interval: Interval

    def describe(self) -> str:
        """The rate with its interval and counts, in one line."""
        if not self.episodes:
            return "nothing decided"
        low, high = 100 * self.interval.low, 100 * self.interval.high
        counts = f"{self.successes} of {self.episodes}"
        return f"{100 * self.rate:.1f}% solved ({low:.1f} to {high:.1f}), {counts}"


def solved(ends: Iterable[tuple[str, bool]]) -> Solved:
    """The numbers over episodes.

    Args:
        ends: The task's id of each episode, and whether it was a success.
    """
    tasks: dict[str, list[float]] = {}
    for task_id, success in ends:
        tasks.setdefault(task_id, []).append(float(success))
    n = sum(map(len, tasks.values()))
    k = int(sum(map(sum, tasks.values())))
    return Solved(successes=k, episodes=n, rate=k / n if n else 0.0, interval=wilson_by_task(tasks.values()))
