"""report.png: the learning curve and the success rates as one picture, by matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrl.evaluator.figures import LINE, finish, new_figure
from distrl.evaluator.report import curve
from distrl.evaluator.report.metrics import EPISODES, RunMetrics

if TYPE_CHECKING:
    from distrl.evaluator.report.run import Report

BEFORE, AFTER, TRAIN = "#878e96", "#2f57d9", "#93a7e8"


def draw(file: Path, report: Report, metrics: RunMetrics) -> None:
    """Writes the picture.

    Raises:
        MissingDependency: If matplotlib is not installed.
    """
    has_curve = bool(report.curves)
    figure = new_figure(11 if has_curve else 6, 4.2)
    axes = figure.subplots(1, 2 if has_curve else 1, squeeze=False)[0]
    if has_curve:
        _draw_curve(axes[0], metrics, report)
    _draw_splits(axes[-1], report)
    finish(figure, file, report.name)


def _draw_curve(axis: Any, metrics: RunMetrics, report: Report) -> None:
    data = curve.learning_curve(metrics, EPISODES)
    if data.train:
        axis.plot(*zip(*data.train, strict=True), color=TRAIN, lw=1.4, label="training episodes")
    if data.validation:
        axis.plot(*zip(*data.validation, strict=True), "o-", color=AFTER, lw=2, ms=5, label="validation")
    if report.headline is not None and len(report.headline.overall.arms) > 1:
        first = report.headline.overall.arms[0]
        axis.axhline(first.summary.success_rate, color=BEFORE, ls="--", lw=1.2, label=f"{first.label}, test")
    axis.set(ylim=(0, 1.02), xlabel="training episodes", ylabel="success")
    axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    axis.grid(axis="y", color=LINE, lw=0.8)
    axis.legend(frameon=False, fontsize=9)


def _draw_splits(axis: Any, report: Report) -> None:
    rows = [block.overall for block in report.blocks]
    for row, entry in enumerate(rows):
        for place, arm in enumerate(entry.arms):
            s = arm.summary
            y = row + (0.0 if len(entry.arms) == 1 else 0.3 * (place / (len(entry.arms) - 1) - 0.5))
            colour = AFTER if report.tones[arm.label] == "after" else BEFORE
            error = [[s.success_rate - s.interval.low], [s.interval.high - s.success_rate]]
            label = arm.label if row == 0 else None
            axis.errorbar(s.success_rate, y, xerr=error, fmt="o", color=colour, ms=7, lw=3, label=label)
    axis.set(xlim=(-0.02, 1.02), xlabel="success, with 95% interval", ylim=(len(rows) - 0.5, -0.5))
    axis.set_yticks(range(len(rows)), [entry.name for entry in rows])
    axis.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    axis.grid(axis="x", color=LINE, lw=0.8)
    if len(report.tones) > 1:
        axis.legend(frameon=False, fontsize=9, loc="best")
