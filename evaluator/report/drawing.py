"""report.png: the learning curve, the success rates and the failure modes as one picture, by matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrl.core.errors import MissingDependency
from distrl.evaluator.failure_modes import MODE_WORDS, FailureMode
from distrl.evaluator.report import training
from distrl.evaluator.report.metrics import EPISODES, RunMetrics

if TYPE_CHECKING:
    from distrl.evaluator.report.compare import ModeTable
    from distrl.evaluator.report.run import Report

MODE_COLOURS = {
    FailureMode.MISTAKE: "#c8553d",
    FailureMode.STUCK: "#e0a030",
    FailureMode.WRONG_GOAL: "#7a5bb5",
    FailureMode.PREMATURE: "#3f8fb0",
    FailureMode.STEP_LIMIT: "#8d959e",
}
"""As on the page; see templates/style.css."""
BEFORE, AFTER, TRAIN = "#878e96", "#2f57d9", "#93a7e8"


def draw(file: Path, report: Report, metrics: RunMetrics) -> None:
    """Writes the picture.

    Raises:
        MissingDependency: If matplotlib is not installed.
    """
    has_curve, table = bool(report.curves), next(iter(report.failures), None)
    panels = 1 + has_curve + (table is not None)
    figure = new_figure(1 + 5 * panels, 4.2)
    axes = list(figure.subplots(1, panels, squeeze=False)[0])
    if has_curve:
        _draw_curve(axes.pop(0), metrics, report)
    _draw_splits(axes.pop(0), report)
    if table is not None:
        _draw_failures(axes.pop(0), table)
    finish(figure, file, report.name)


def _draw_curve(axis: Any, metrics: RunMetrics, report: Report) -> None:
    data = training.learning_curve(metrics, EPISODES)
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
    axis.set(xlim=(-0.02, 1.02), xlabel="success, with 95% interval", ylim=(max(len(rows), 1) - 0.5, -0.5))
    axis.set_yticks(range(len(rows)), [entry.name for entry in rows])
    axis.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    axis.grid(axis="x", color=LINE, lw=0.8)
    if len(report.tones) > 1:
        axis.legend(frameon=False, fontsize=9, loc="best")


def _draw_failures(axis: Any, table: ModeTable) -> None:
    """The failures of one split: a bar for each evaluation, in pieces for the modes."""
    for place, bar in enumerate(table.bars):
        left = 0.0
        for cell in bar.cells:
            label = MODE_WORDS[cell.mode] if place == 0 else None
            axis.barh(place, cell.share, 0.5, left, color=MODE_COLOURS[cell.mode], label=label)
            left += cell.share
    axis.set(xlim=(0, 1.0), xlabel=f"failures by mode, {table.split}", ylim=(len(table.bars) - 0.3, -0.7))
    axis.set_yticks(range(len(table.bars)), [bar.label for bar in table.bars])
    axis.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    axis.grid(axis="x", color=LINE, lw=0.8)
    axis.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)


INK, LINE = "#17191c", "#e4e5e2"


def new_figure(width: float, height: float) -> Any:
    """An empty figure of that many inches.

    Raises:
        MissingDependency: If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependency(
            "Pictures need the package matplotlib.", "Install the extra: pip install 'distrl[report]'."
        ) from error
    return Figure(figsize=(width, height), dpi=160, layout="constrained")


def finish(figure: Any, file: Path, title: str) -> None:
    """Gives the figure and its axes their looks, and writes it as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(length=0, labelsize=9)
        axis.set_axisbelow(True)
    figure.suptitle(title, fontsize=13, fontweight="bold", color=INK, x=0.01, ha="left")
    file.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(str(file))
