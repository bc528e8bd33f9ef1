"""How far off-policy the steps of updates were, and what the objective made of that.

`StepStats` are kept step by step, so that the numbers of several minibatches, or of one bucket of
staleness, are sums over steps divided once, not means of means. `Freshness` sums them by staleness over
`EVERY` updates, or those up to a checkpoint, and no update twice, so that sums over its tables are exact.
Updates that a resumed run makes again are recognised by their row's step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distrl.core.metrics import VERSIONS
from distrl.learner.losses import RatioLevel, Ratios, per_step

EVERY = 25  # updates
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StepStats:
    """Of N steps that were trained on; a step that several epochs used occurs as often.

    A *unit* is what the objective weighs by one ratio: an action, or a token.

    Attributes:
        row: [N] int64, the place of each step's trajectory in the batch.
        columns: [N] float64 each: `ratio` ρ of the whole action, `log_ratio` |log ρ|, `token_log_ratio` Σ
            over the action's `tokens` of |log π − log μ|, how many `units` it has, Σ of their ratios
            (`unit_ratio`) and of the squares of these (`unit_square`). `noted` ones besides.
        sums: Of further numbers, by the metric's name: [N] float64 each, summed over the units of each step.
    """

    row: Tensor
    columns: Mapping[str, Tensor]
    sums: Mapping[str, Tensor]

    @classmethod
    def of(
        cls,
        row: Tensor,
        ratios: Ratios,
        token_mask: Tensor,
        level: RatioLevel,
        weighed: Mapping[str, Tensor],
        noted: Mapping[str, Tensor] = {},
    ) -> StepStats:
        """The statistics of one pass; fetched from the device at once.

        Args:
            row: [N] int64.
            token_mask: [N, L] bool.
            level: Whether actions or tokens are units.
            noted: [N] each, kept as further columns.
            weighed: By name, one number or truth value per unit: [N], or [N, L] at level "token".
        """
        at = ratios.at(level)
        columns = {
            "ratio": ratios.action,
            "log_ratio": ratios.action.log().abs(),
            "token_log_ratio": per_step(ratios.token.log().abs(), token_mask),
            "tokens": token_mask.sum(dim=1),
            "units": per_step(torch.ones_like(at), token_mask),
            "unit_ratio": per_step(at, token_mask),
            "unit_square": per_step(at.square(), token_mask),
            **noted,
        }
        sums = {name: per_step(values.to(at.dtype), token_mask) for name, values in weighed.items()}
        every = [x.detach().to(at.dtype) for x in (*columns.values(), *sums.values())]
        values = list(torch.stack(every).cpu().double())
        own, further = values[: len(columns)], values[len(columns) :]
        return cls(row.cpu(), dict(zip(columns, own, strict=True)), dict(zip(sums, further, strict=True)))

    @classmethod
    def join(cls, parts: Sequence[tuple[Tensor | None, StepStats]]) -> StepStats:
        """The steps of several passes over parts of one batch."""
        rows = [stats.row if at is None else at.cpu()[stats.row] for at, stats in parts]
        every = [stats for _, stats in parts]
        return cls(
            torch.cat(rows),
            {name: torch.cat([one.columns[name] for one in every]) for name in every[0].columns},
            {name: torch.cat([one.sums[name] for one in every]) for name in every[0].sums},
        )

    def __len__(self) -> int:
        return len(self.row)


def effective_share(total: float, square: float, count: float) -> float:
    """The effective sample size (Σw)² / Σw² as a share of `count`; 0 where all weights are 0."""
    return total * total / (count * square) if square > 0.0 else 0.0


def metrics(stats: StepStats) -> dict[str, float]:
    """The `off_policy/*` metrics of an update: per action, and per unit where the objective weighs units."""
    ratio, size = stats.columns["ratio"], len(stats)
    total = {name: float(values.sum()) for name, values in stats.columns.items()}
    found = {
        "ratio_mean": total["ratio"] / size,
        "ratio_max": float(ratio.max()),
        "ess": effective_share(total["ratio"], float((ratio**2).sum()), size),
        "token_log_ratio_abs": total["token_log_ratio"] / max(total["tokens"], 1.0),
        **{name: float(sums.sum()) / total["units"] for name, sums in stats.sums.items()},
    }
    if total["units"] != size:
        found["token_ess"] = effective_share(total["unit_ratio"], total["unit_square"], total["units"])
    return {f"off_policy/{name}": value for name, value in found.items()}


class Freshness:
    """Sums what the updates since the last table used, by staleness; used by the training thread."""

    def __init__(self) -> None:
        self.num_updates = 0
        self._sums: dict[str, Floats] = {}

    def trained(
        self, staleness: NDArray[np.int64], success: Floats, steps: StepStats, real: NDArray[np.bool_]
    ) -> None:
        """Counts an update's trajectories that are `real`, [B], and their steps."""
        self.num_updates += 1
        bucket, of = VERSIONS.index(staleness), steps.row.numpy()
        real = real & np.isin(np.arange(len(real)), of)  # without those of a minibatch that was skipped
        self._add("trajectories", bucket[real], np.ones(int(real.sum())))
        self._add("success", bucket[real], success[real])
        kept = real[of]
        of_step, columns = bucket[of][kept], steps.columns
        self._add("steps", of_step, np.ones(len(of_step)))
        self._add("square", of_step, columns["ratio"].numpy()[kept] ** 2)
        for name in ("ratio", "log_ratio", "units"):
            self._add(name, of_step, columns[name].numpy()[kept])
        for name, values in steps.sums.items():
            self._add(f"unit/{name}", of_step, values.numpy()[kept])

    def _add(self, name: str, bucket: NDArray[np.int64], values: Floats) -> None:
        sums = np.bincount(bucket, weights=values, minlength=len(VERSIONS))
        self._sums[name] = self._sums.get(name, np.zeros(len(VERSIONS))) + sums

    def take(self) -> dict[str, float]:
        """The table of the updates since the last one; counting starts again."""
        table: dict[str, float] = {}
        for bucket, label in enumerate(VERSIONS.labels):
            sums = {name: float(of_buckets[bucket]) for name, of_buckets in self._sums.items()}
            if sums.get("trajectories"):
                table |= {f"staleness/{label}/{name}": value for name, value in _row(sums).items()}
        self._sums = {}
        self.num_updates = 0
        return table


def _row(sums: Mapping[str, float]) -> dict[str, float]:
    """One bucket's numbers: counts, and means over them."""
    steps, units = sums["steps"], sums["units"]
    unit_means = {
        name.removeprefix("unit/"): value / units for name, value in sums.items() if name.startswith("unit/")
    }
    return {
        "trajectories": sums["trajectories"],
        "steps": steps,
        **({"tokens": units} if units != steps else {}),
        "success": sums["success"] / sums["trajectories"],
        "ratio_mean": sums["ratio"] / steps,
        "log_ratio_abs": sums["log_ratio"] / steps,
        "ess": effective_share(sums["ratio"], sums["square"], steps),
        **unit_means,
    }
