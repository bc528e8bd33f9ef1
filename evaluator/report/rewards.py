"""What episodes earned, part by part: while training, and on the validation tasks."""

from __future__ import annotations

from typing import Any

from distrl.core.types import RewardParts
from distrl.evaluator.report.chart import Point, rolling_mean, short_number, thin
from distrl.evaluator.report.curve import LegendItem, Line, Signal, signal_chart
from distrl.evaluator.report.metrics import UPDATES, RunMetrics

NOTES: dict[str, str] = {
    "outcome": "What the judge pays at the end of an episode",
    "repetition": "For repeating itself on an unchanged screen",
    "invalid": "For answers that are no action",
    "shaping": "For progress on the way",
}


def reward_series(metrics: RunMetrics) -> dict[str, dict[str, list[Point]]]:
    """(updates, mean of an episode) of each part that was ever paid, by part and "train" or "validation".

    A validation round is placed where it began, at the weights that it measured.
    """
    found = {}
    for part in RewardParts.model_fields:
        train = metrics.series(f"reward/{part}", UPDATES)
        name = metrics.find(rf"eval/.+/reward/{part}")
        validation: list[Point] = []
        if name is not None:
            updates = f"{name.removesuffix(f'reward/{part}')}updates"
            validation = [(row[updates], row[name]) for row in metrics.rows if name in row and updates in row]
        if any(value for _, value in [*train, *validation]):
            found[part] = {"train": train, "validation": validation}
    return found


def reward_data(metrics: RunMetrics) -> dict[str, Any]:
    """The same as plain data, thinned."""
    series = reward_series(metrics)
    return {part: {name: thin(points) for name, points in both.items()} for part, both in series.items()}


def reward_signals(metrics: RunMetrics) -> list[Signal]:
    """A small chart for each part that was measured more than once."""
    signals = []
    for part, series in reward_series(metrics).items():
        train, validation = series["train"], series["validation"]
        lines: list[Line] = []
        legend: list[LegendItem] = []
        if len(train) > 1:
            lines.append(Line(thin(rolling_mean(train, max(1, len(train) // 40)), 200), "thin", "c-train"))
            legend.append(LegendItem("training", "line", "c-train"))
        if len(validation) > 1:
            lines.append(Line(validation, "line", "c-after"))
            legend.append(LegendItem("validation", "line", "c-after"))
        if lines:
            title = part.capitalize()
            newest = short_number(lines[-1].points[-1][1])
            signals.append(Signal(title, NOTES[part], newest, signal_chart(title, lines), tuple(legend)))
    return signals
