"""How fresh what training learns from is, and what its age does to it: counted, and written now and then.

By staleness: success, ratios, and what the objective made of them. By age: what is in replay, and what was
drawn from it. A table covers `EVERY` updates, or those up to a checkpoint, and no update twice, so that sums
over tables are exact; those of updates that a resumed run makes again are told by their row's step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from distrl.core.metrics import MINUTES, VERSIONS, Histogram
from distrl.learner.episodes import Episode
from distrl.learner.off_policy import Floats, StepStats, effective_share

EVERY = 25  # updates


class Freshness:
    """Counts what the updates since the last table used; used by the training thread."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._num_updates = 0
        self._sums: dict[str, Floats] = {}
        self._minutes = MINUTES.count(())

    @property
    def num_updates(self) -> int:
        """How many updates the next table will cover."""
        return self._num_updates

    def drawn(self, episodes: Sequence[Episode], now: float) -> None:
        """Counts the ages of what is drawn from replay.

        Args:
            now: Unix time.
        """
        self._minutes += MINUTES.count(_minutes(episodes, now))

    def trained(self, staleness: NDArray[np.int64], success: NDArray[np.float64], steps: StepStats) -> None:
        """Counts an update.

        Args:
            staleness: [B] versions between the weights that acted and those that are trained.
            success: [B] outcomes in [0, 1].
            steps: Of the batch's steps.
        """
        self._num_updates += 1
        bucket = VERSIONS.index(staleness)
        self._add("trajectories", bucket, np.ones(len(bucket)))
        self._add("success", bucket, success)
        of_step = bucket[steps.row]
        self._add("steps", of_step, np.ones(len(of_step)))
        self._add("ratio", of_step, steps.ratio)
        self._add("square", of_step, steps.ratio**2)
        self._add("log_ratio", of_step, steps.log_ratio)
        self._add("units", of_step, steps.units)
        for name, values in steps.sums.items():
            self._add(f"unit/{name}", of_step, values)

    def _add(self, name: str, bucket: NDArray[np.int64], values: Floats) -> None:
        sums = np.bincount(bucket, weights=values, minlength=len(VERSIONS))
        self._sums[name] = self._sums.get(name, np.zeros(len(VERSIONS))) + sums

    def take(
        self, episodes: Collection[Episode], version: int, now: float
    ) -> tuple[dict[str, float], dict[str, Histogram]]:
        """The table of the updates since the last one, and the histograms of ages; counting begins anew.

        Args:
            episodes: What is in replay.
            version: The newest weights'.
            now: Unix time.
        """
        trajectories = self._sums.get("trajectories", np.zeros(len(VERSIONS)))
        table = {
            f"staleness/{label}/{name}": value
            for i, label in enumerate(VERSIONS.labels)
            if trajectories[i]
            for name, value in _row({name: float(sums[i]) for name, sums in self._sums.items()}).items()
        }
        histograms = {
            "replay_age/versions": VERSIONS.count([version - e.oldest_version for e in episodes]),
            "replay_age/minutes": MINUTES.count(_minutes(episodes, now)),
            "drawn_age/versions": Histogram(VERSIONS, tuple(int(n) for n in trajectories)),
            "drawn_age/minutes": self._minutes,
        }
        self._begin()
        return table, histograms


def _minutes(episodes: Collection[Episode], now: float) -> list[float]:
    return [(now - episode.ended_at) / 60.0 for episode in episodes]


def _row(sums: Mapping[str, float]) -> dict[str, float]:
    """One bucket's numbers: counts, and means over them."""
    steps, units = sums["steps"], sums["units"]
    return {
        "trajectories": sums["trajectories"],
        "steps": steps,
        **({"tokens": units} if units != steps else {}),
        "success": sums["success"] / sums["trajectories"],
        "ratio_mean": sums["ratio"] / steps,
        "log_ratio_abs": sums["log_ratio"] / steps,
        "ess": effective_share(sums["ratio"], sums["square"], steps),
        **{
            name.removeprefix("unit/"): value / units
            for name, value in sums.items()
            if name.startswith("unit/")
        },
    }
