"""The cells of a table as they were measured: each split of each, over the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from distrl.configs.table import TableSpec
from distrl.evaluator.measure import pooled, seed_directory
from distrl.evaluator.results import SplitResult, load_evaluation
from distrl.evaluator.statistics import EpisodeResult
from distrl.evaluator.tables.plan import Cell, columns_of
from distrl.evaluator.tables.run import measured_seeds

Key = tuple[str, str, str, str]
"""Agent, suite, the suite that it was trained for, split."""
Column = tuple[str, str, str]
"""The same without the agent."""


@dataclass(frozen=True)
class CellResult:
    """A split of a cell: its numbers over the seeds that are measured, and their episodes."""

    seeds: tuple[int, ...]
    rates: tuple[float, ...]
    mean: float
    sd: float | None
    result: SplitResult
    episodes: tuple[EpisodeResult, ...]

    @property
    def text(self) -> str:
        """Mean and standard deviation in percent; the mean alone of a single seed."""
        return f"{100 * self.mean:.1f}" + ("" if self.sd is None else f" ± {100 * self.sd:.1f}")

    def data(self) -> dict[str, Any]:
        """As plain data."""
        overall = self.result.overall
        return {
            "seeds": self.seeds,
            "rates": self.rates,
            "mean": self.mean,
            "sd": self.sd,
            "interval": overall.interval.model_dump(),
            "episodes": overall.episodes,
            "faulted": len(self.result.faulted),
            "levels": {level: found.success_rate for level, found in self.result.levels.items()},
            "step_ratio": overall.step_ratio,
            "failure_modes": {mode.value: count for mode, count in overall.modes.items()},
        }


def read_cells(spec: TableSpec, cells: Sequence[Cell]) -> dict[Key, CellResult]:
    """What is measured so far. A seed none of whose episodes counts, as all faulted, has no rate."""
    trained = [trained_on for _, _, trained_on in columns_of(spec)] * len(spec.agents)
    found = {}
    for cell, trained_on in zip(cells, trained, strict=True):
        seeds = measured_seeds(cell)
        if not seeds:
            continue
        parts = [load_evaluation(seed_directory(cell.directory, seed)) for seed in seeds]
        evaluation = pooled(parts, seeds)
        for split in cell.splits:
            result = evaluation.splits[split]
            by_seed = {
                seed: part.evaluation.splits[split].overall for seed, part in zip(seeds, parts, strict=True)
            }
            rates = {seed: overall.success_rate for seed, overall in by_seed.items() if overall.episodes}
            sd = None if result.repeats is None else result.repeats.sd
            if rates:
                key, mean = (cell.agent, cell.suite, trained_on, split), sum(rates.values()) / len(rates)
                episodes = tuple(e for part in parts for e in part.episodes if e.split == split)
                found[key] = CellResult(tuple(rates), tuple(rates.values()), mean, sd, result, episodes)
    return found
