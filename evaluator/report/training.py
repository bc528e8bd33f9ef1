"""The training sections of a report: learning curve, signals, staleness."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from distrl.core.metrics import VERSIONS
from distrl.core.types import RewardParts
from distrl.evaluator.report.chart import (
    Chart,
    Curve,
    Line,
    Signal,
    curve_charts,
    make_axis,
    rolling_mean,
    signal_chart,
    thin,
)
from distrl.evaluator.report.metrics import ELAPSED, EPISODES, UPDATES, Point, RunMetrics
from distrl.evaluator.statistics import wilson

TRAIN_SUCCESS = "train/success"
VALIDATION_SUCCESS = r"eval/.+/success"
COLUMNS = (
    (EPISODES, "Episodes", "training episodes"),
    (ELAPSED, "Time", "minutes since the start"),
)
"""The learning curve's x axes: column, short name, label."""

SignalSpec = tuple[str, str, tuple[tuple[str, str], ...]]
"""Title, note, and the metrics with their labels in the legend."""

SIGNALS: tuple[SignalSpec, ...] = (
    ("Reward", "Mean return of new training episodes, penalties included", (("reward/total", ""),)),
    (
        "Reward by part",
        "Means of new training episodes",
        tuple((f"reward/{part}", part) for part in RewardParts.model_fields),
    ),
    ("Episode length", "Steps of new training episodes", (("episode/length", ""),)),
    ("Entropy", "Nats per token", (("policy/entropy", ""),)),
    (
        "Critic accuracy",
        "Outcomes that the critic predicts at the last step",
        (("value/trajectory_accuracy", ""),),
    ),
    ("Gradient norm", "The policy's, before clipping", (("policy/grad_norm", ""),)),
    (
        "Waiting",
        "Share of the learner's time without new episodes, and until a batch was ready",
        (("time/wait_for_episodes", "for episodes"), ("time/wait_for_batch", "for batches")),
    ),
)

SHARES = {
    "clipped_fraction": "Clipped",
    "silenced_fraction": "Silenced",
    "capped_fraction": "Weight capped",
    "damped_fraction": "Damped",
}
"""How an objective may change a ratio, with headings."""

FRESHNESS_SIGNALS: tuple[SignalSpec, ...] = (
    (
        "Staleness",
        "Versions between acting and training",
        (("off_policy/staleness_mean", "in training"), ("off_policy/ingest_staleness", "at arrival")),
    ),
    (
        "Effective sample",
        "Share of a batch that remains after importance weighting",
        (("off_policy/ess", "of actions"), ("off_policy/token_ess", "of tokens")),
    ),
    (
        "Clipping",
        "Share of ratios that the objective clips or caps",
        tuple((f"off_policy/{name}", heading.lower()) for name, heading in SHARES.items()),
    ),
    (
        "Log-ratio",
        "Mean absolute value per token, between the trained policy and the one that acted",
        (("off_policy/token_log_ratio_abs", ""),),
    ),
    (
        "Train–inference mismatch",
        "KL per token, between a server's policy and the learner's of that version",
        (("mismatch/kl", "measured"), ("mismatch/kl_limit", "limit of the alarm")),
    ),
)

COLOURS = ("c-after", "c-train", "c-before", "c-fault")


def learning_curve(metrics: RunMetrics, x: str) -> Curve:
    """Success over `x`: episodes or elapsed seconds."""
    validation, counts = [], []
    name = metrics.find(VALIDATION_SUCCESS)
    for row in metrics.rows if name is not None else ():
        if name in row:
            stem = name.removesuffix("success")
            # A round is written when it ends, but measures the weights of its start.
            updates = row.get(f"{stem}updates", row.get(UPDATES, 0.0))
            validation.append((metrics.at_update(updates, x), row[name]))
            counts.append(int(row.get(f"{stem}episodes", 0)))
    return Curve(metrics.series(TRAIN_SUCCESS, x), validation, counts)


def bounds(rate: float, n: int) -> tuple[float, float]:
    """The 95% interval of a success rate over n episodes."""
    interval = wilson(min(n, round(rate * n)), n)
    return interval.low, interval.high


def success_charts(metrics: RunMetrics, baseline: float | None, baseline_label: str = "") -> list[Chart]:
    """The learning curve over episodes and over minutes; none without data.

    Args:
        metrics: The run's.
        baseline: The success rate before training, drawn as a dashed line, with its label.
    """

    def percent(value: float) -> str:
        return f"{100 * value:.0f}%"

    labels = "validation, with 95% interval", "training episodes", f"{baseline_label} on the test split"
    y = make_axis(0.0, 1.0, 4, percent)
    return curve_charts(
        "Success", COLUMNS, lambda x: learning_curve(metrics, x), labels, baseline, bounds, y, percent
    )


def signal_charts(metrics: RunMetrics, chosen: Sequence[SignalSpec] = SIGNALS) -> list[Signal]:
    """A small chart for each chosen training signal that was measured more than once."""
    found = []
    for title, note, series in signal_series(metrics, chosen):
        lines = [
            Line(points, "thin", colour, label)
            for colour, (_, label, points) in zip(COLOURS, series, strict=False)
        ]
        found.append(signal_chart(title, note, lines))
    return [signal for signal in found if signal is not None]


def signal_series(
    metrics: RunMetrics, chosen: Sequence[SignalSpec]
) -> list[tuple[str, str, list[tuple[str, str, list[Point]]]]]:
    """Title and note of each chosen signal, and its metrics: name, label and smoothed points over updates."""
    return [
        (
            title,
            note,
            [(name, label, _smooth(metrics.series(name, UPDATES))) for name, label in series],
        )
        for title, note, series in chosen
    ]


def _smooth(points: Sequence[Point]) -> list[Point]:
    """The rolling mean over a fortieth of the points, thinned."""
    return thin(rolling_mean(points, max(1, len(points) // 40)), 200)


_NO_SHARES = ("trajectories", "steps", "tokens", "success", "ratio_mean", "log_ratio_abs", "ess")


def staleness_rows(metrics: RunMetrics) -> list[dict[str, Any]]:
    """Training on trajectories by staleness, over the whole run: the learner's tables, added up.

    Each row has its label (versions, as "4-7"); the numbers of trajectories and steps (repeated use counts
    again); success of the trajectories; ratio_mean and ratio_std, ρ of whole actions; log_ratio_abs, mean
    |log ρ|; ess, the effective sample size as a share of steps; and `shares`, means over actions or tokens
    such as `clipped_fraction`. Every mean is the sum over all steps, divided once.
    """
    by_label = {label: metrics.tables(f"staleness/{label}/", "trajectories") for label in VERSIONS.labels}
    return [_staleness_row(label, tables) for label, tables in by_label.items() if tables]


def _staleness_row(label: str, tables: list[dict[str, float]]) -> dict[str, Any]:
    def mean(name: str, weight: str) -> float:
        """Over the tables that have this number; a run resumed with another objective has others."""
        found = [(table[name], table.get(weight, table["steps"])) for table in tables if name in table]
        return math.fsum(value * n for value, n in found) / math.fsum(n for _, n in found)

    trajectories, steps = (math.fsum(table[name] for table in tables) for name in ("trajectories", "steps"))
    ratio = mean("ratio_mean", "steps")
    # ESS = (Σρ)² / (N Σρ²) gives each table's Σρ².
    square = math.fsum(t["steps"] * t["ratio_mean"] ** 2 / t["ess"] for t in tables if t["ess"] > 0)
    names = dict.fromkeys(name for table in tables for name in table if name not in _NO_SHARES)
    return {
        "label": label,
        "trajectories": round(trajectories),
        "steps": round(steps),
        "success": mean("success", "trajectories"),
        "ratio_mean": ratio,
        "ratio_std": math.sqrt(max(0.0, square / steps - ratio**2)),
        "log_ratio_abs": mean("log_ratio_abs", "steps"),
        "ess": steps * ratio**2 / square if square > 0 else 0.0,
        "shares": {name: mean(name, "tokens") for name in names},
    }
