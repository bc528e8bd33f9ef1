"""A run's metrics.jsonl as series. See `distrl.core.metrics` for the names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from distrl.core.metrics import RESUMED, read_metrics

Point = tuple[float, float]

UPDATES, EPISODES, ELAPSED = "step", "episodes", "elapsed_s"
"""Columns for the x axis: policy updates, training episodes, seconds of training."""

LEARNER_CLOCK = "time/elapsed_s"
EVALUATIONS = "eval/"
BREAK_S = 300.0
"""A longer gap is not training time: the run was stopped and resumed later."""


class RunMetrics:
    """The rows of a metrics file, each with the seconds of training so far, by the learner's clock.

    Of updates that were rolled back, because the run continued from an older checkpoint, only evaluations
    remain: they measured weights that were saved before, and are not repeated.

    Args:
        rows: Maps from metric name to number, oldest first; "time" is Unix time.
    """

    def __init__(self, rows: Sequence[Mapping[str, float]]) -> None:
        self.rows: list[dict[str, float]] = []
        elapsed = 0.0
        before: float | None = None
        for row, is_lost in _with_rolled_back(rows):
            if is_lost:
                kept = {name: value for name, value in row.items() if name.startswith(EVALUATIONS)}
                self.rows += [{**kept, ELAPSED: elapsed}] if kept else []
                continue
            now = row.get("time", before)
            before = now if RESUMED in row else before
            if now is not None and before is not None and 0.0 <= now - before <= BREAK_S:
                elapsed += now - before
            before, elapsed = now, max(elapsed, row.get(LEARNER_CLOCK, elapsed))
            self.rows.append({**row, ELAPSED: elapsed})

    @classmethod
    def read(cls, file: Path) -> RunMetrics:
        """The metrics in `file`; none if it does not exist."""
        return cls(list(read_metrics(file)))

    def series(self, name: str, x: str) -> list[Point]:
        """(x, value) wherever `name` was measured; x is the latest known value of that column."""
        points, position = [], None
        for row in self.rows:
            position = row.get(x, position)
            if name in row and position is not None:
                points.append((position, row[name]))
        return points

    def tables(self, prefix: str, needed: str) -> list[dict[str, float]]:
        """Each row's values whose names begin with `prefix`, by the rest of the name.

        Args:
            needed: A rest; rows without it are left out.
        """
        return [
            {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}
            for row in self.rows
            if f"{prefix}{needed}" in row
        ]

    def at_update(self, update: float, x: str) -> float:
        """The value of the column `x` after this many updates; 0 if no row is older."""
        position = 0.0
        for row in self.rows:
            if row.get(UPDATES, update) > update:
                break
            position = row.get(x, position)
        return position

    def last(self, name: str) -> float | None:
        """The newest value of a metric; None if it was never measured."""
        return next((row[name] for row in reversed(self.rows) if name in row), None)

    def find(self, pattern: str) -> str | None:
        """The first metric name that matches the whole regular expression."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        return next((name for name in names if re.fullmatch(pattern, name)), None)


def _with_rolled_back(rows: Sequence[Mapping[str, float]]) -> list[tuple[Mapping[str, float], bool]]:
    """Each row, and whether its updates were rolled back."""
    found: list[tuple[Mapping[str, float], bool]] = []
    newest = math.inf
    for row in reversed(rows):
        found.append((row, row.get(UPDATES, 0.0) > newest))
        if RESUMED in row:
            newest = min(newest, row.get(UPDATES, newest))
    return found[::-1]
