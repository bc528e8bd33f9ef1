"""How far off-policy the steps of updates were, what the objective made of that, and how old the data was.

`StepStats` are kept step by step, so that the numbers of several minibatches, or of one bucket of
staleness, are sums over steps divided once, not means of means. `Freshness` sums them by staleness over
`EVERY` updates, or those up to a checkpoint, and no update twice, so that sums over its tables are exact.
Updates that a resumed run makes again are recognised by their row's step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distrl.core.metrics import MINUTES, VERSIONS, Histogram
from distrl.learner.losses import RatioLevel, Ratios

if TYPE_CHECKING:
    from distrl.learner.episodes import Episode

EVERY = 25  # updates
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StepStats:
    """Of N steps that were trained on; a step that several epochs used occurs as often.

    A *unit* is what the objective weighs by one ratio: an action, or a token.

    Attributes:
        row: [N] int64, the place of each step's trajectory in the batch.
        ratio: [N] ρ of the whole action.
        log_ratio: [N] |log ρ|, clamped as ρ is.
        token_log_ratio: [N] Σ over the action's tokens of |log π − log μ|.
        tokens: [N] how many tokens it has.
        units: [N] how many units it has.
        unit_ratio, unit_square: [N] Σ of the units' ratios, and of their squares.
        sums: Of further numbers, by the metric's name: [N] each, summed over the units of each step.
    """

    row: NDArray[np.int64]
    ratio: Floats
    log_ratio: Floats
    token_log_ratio: Floats
    tokens: Floats
    units: Floats
    unit_ratio: Floats
    unit_square: Floats
    sums: Mapping[str, Floats]

    @classmethod
    def of(
        cls,
        row: Tensor,
        ratios: Ratios,
        token_mask: Tensor,
        level: RatioLevel,
        weighed: Mapping[str, Tensor],
    ) -> StepStats:
        """The statistics of one pass; fetched from the device at once.

        Args:
            row: [N] int64.
            token_mask: [N, L] bool.
            level: Whether actions or tokens are units.
            weighed: By name, one number or truth value per unit: [N], or [N, L] at level "token".
        """
        at = ratios.at(level)
        given = {"log_ratio_clamped": ratios.clamped_at(level), **weighed}
        mask = token_mask if level == "token" else torch.ones_like(at, dtype=torch.bool)
        columns = {
            "ratio": ratios.action,
            "log_ratio": ratios.action.log().abs(),
            "token_log_ratio": torch.where(token_mask, ratios.token.log().abs(), 0.0).sum(dim=1),
            "tokens": token_mask.sum(dim=1),
            "units": _per_step(mask, mask),
            "unit_ratio": _per_step(at, mask),
            "unit_square": _per_step(at.square(), mask),
        }
        all_ = [*columns.values(), *(_per_step(x, mask) for x in given.values())]
        values = torch.stack([x.detach().to(at.dtype) for x in all_]).cpu().double().numpy()
        own, sums = values[: len(columns)], values[len(columns) :]
        return cls(
            row=row.cpu().numpy(),
            **dict(zip(columns, own, strict=True)),
            sums=dict(zip(given, sums, strict=True)),
        )

    @classmethod
    def join(cls, parts: Sequence[tuple[Tensor | None, StepStats]]) -> StepStats:
        """The steps of several passes over parts of one batch.

        Args:
            parts: The rows of the batch that a pass saw, None for all of them, and its steps.
        """
        rows = [stats.row if at is None else at.cpu().numpy()[stats.row] for at, stats in parts]
        every = [stats for _, stats in parts]
        names = [item.name for item in fields(cls) if item.name not in ("row", "sums")]
        return cls(
            row=np.concatenate(rows),
            **{name: np.concatenate([getattr(stats, name) for stats in every]) for name in names},
            sums={name: np.concatenate([stats.sums[name] for stats in every]) for name in every[0].sums},
        )

    def __len__(self) -> int:
        return len(self.row)


def _per_step(values: Tensor, mask: Tensor) -> Tensor:
    """[N] the sums over the real units of each step."""
    values = values.float() if values.dtype is torch.bool else values
    return torch.where(mask, values, 0.0).sum(dim=1) if values.dim() == 2 else values


def effective_share(total: float, square: float, count: float) -> float:
    """The effective sample size (Σw)² / Σw² as a share of `count`; 0 where all weights are 0."""
    return total * total / (count * square) if square > 0.0 else 0.0


def metrics(stats: StepStats) -> dict[str, float]:
    """The `off_policy/*` metrics of an update: per action, and per unit where the objective weighs units."""
    units = float(stats.units.sum())
    found = {
        "ratio_mean": float(stats.ratio.mean()),
        "ratio_max": float(stats.ratio.max()),
        "ess": effective_share(float(stats.ratio.sum()), float((stats.ratio**2).sum()), len(stats)),
        "token_log_ratio_abs": float(stats.token_log_ratio.sum() / max(stats.tokens.sum(), 1.0)),
        **{name: float(sums.sum()) / units for name, sums in stats.sums.items()},
    }
    if units != len(stats):
        total, square = float(stats.unit_ratio.sum()), float(stats.unit_square.sum())
        found["token_ess"] = effective_share(total, square, units)
    return {f"off_policy/{name}": value for name, value in found.items()}


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
        """The table of the updates since the last one, and the histograms of ages; counting starts again.

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
