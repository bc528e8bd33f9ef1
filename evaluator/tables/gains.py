"""What one row of a table has gained over another, with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distrl.configs.table import TableSpec
from distrl.evaluator.paired import Paired, compare_pairs
from distrl.evaluator.statistics import Interval, t_interval
from distrl.evaluator.tables.cells import CellResult, Key


@dataclass(frozen=True)
class Gain:
    """Of a row over the row `over`, on the tasks and seeds that both have.

    Attributes:
        pairs: Episode by episode; its interval is about other tasks, with these very runs.
        seeds: The gain of each seed.
        over_seeds: The t-interval of their mean, about other runs; None for one seed, or if all are alike.
    """

    over: str
    pairs: Paired
    seeds: dict[int, float]
    over_seeds: Interval | None

    @property
    def text(self) -> str:
        """In points of success, with the intervals."""
        found = [interval for interval in (self.pairs.interval, self.over_seeds) if interval is not None]
        intervals = "; ".join(f"{100 * one.low:+.1f} to {100 * one.high:+.1f}" for one in found)
        return f"{100 * self.pairs.gain:+.1f} ({intervals})"

    def data(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "over": self.over,
            **self.pairs.model_dump(),
            "seeds": self.seeds,
            "interval_over_seeds": None if self.over_seeds is None else self.over_seeds.model_dump(),
        }


def find_gains(spec: TableSpec, results: Mapping[Key, CellResult]) -> dict[Key, Gain]:
    """Of each row with `over`, where both rows have a task in common."""
    found = {}
    for key, result in results.items():
        over = spec.agents[key[0]].over
        before = None if over is None else results.get((over, *key[1:]))
        pairs = None if before is None else compare_pairs(before.episodes, result.episodes)
        if over is not None and before is not None and pairs is not None:
            first, last = (dict(zip(one.seeds, one.rates, strict=True)) for one in (before, result))
            seeds = {seed: last[seed] - first[seed] for seed in last if seed in first}
            found[key] = Gain(over, pairs, seeds, _over_seeds(list(seeds.values())))
    return found


def _over_seeds(gains: list[float]) -> Interval | None:
    """Cut to what a gain can be."""
    interval = t_interval(gains) if len(set(gains)) > 1 else None
    return None if interval is None else Interval(low=max(-1.0, interval.low), high=min(1.0, interval.high))
