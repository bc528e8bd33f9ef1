"""What came of gradients by how many versions they were behind: the learner's tables, added up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from distrl.core.buckets import VERSIONS
from distrl.evaluator.report.metrics import RunMetrics


@dataclass(frozen=True)
class StalenessRow:
    """The gradients of one staleness, over the whole run; rounds that only measured are left out.

    Attributes:
        label: Versions, as "4-7".
        gradients, steps, episodes: How many were taken, their transitions, the episodes that ended.
        mean_return: Of these episodes; None without any.
        kl: Between the policy that acted and the one in training, nats: mean over steps.
        silenced: Share of transitions that the clip silences.
    """

    label: str
    gradients: int
    steps: int
    episodes: int
    mean_return: float | None
    kl: float
    silenced: float


def staleness_rows(metrics: RunMetrics) -> list[StalenessRow]:
    """Those of which there are gradients; none of a run that did not measure them."""
    by_label = {label: metrics.tables(f"staleness/{label}/", "gradients") for label in VERSIONS.labels}
    return [_row(label, tables) for label, tables in by_label.items() if tables]


def _row(label: str, tables: Sequence[dict[str, float]]) -> StalenessRow:
    def mean(name: str, of: str) -> float:
        return math.fsum(table.get(name, 0.0) * table[of] for table in tables) / sums[of]

    sums = {name: math.fsum(table[name] for table in tables) for name in ("gradients", "steps", "episodes")}
    return StalenessRow(
        label=label,
        gradients=round(sums["gradients"]),
        steps=round(sums["steps"]),
        episodes=round(sums["episodes"]),
        mean_return=mean("return", "episodes") if sums["episodes"] else None,
        kl=mean("kl", "steps"),
        silenced=mean("silenced_fraction", "steps"),
    )
