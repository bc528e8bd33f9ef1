"""The charts of a run: the learning curve over episodes and over time, and small ones of training signals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distrl.evaluator.report.chart import (
    Axis,
    Point,
    Tick,
    band_path,
    dots_path,
    line_path,
    make_axis,
    rolling_mean,
    short_number,
    thin,
)
from distrl.evaluator.report.metrics import ELAPSED, EPISODES, UPDATES, RunMetrics
from distrl.evaluator.statistics import wilson

TRAIN_SUCCESS = "train/success"
VALIDATION_SUCCESS = r"eval/.+/success"

SIGNALS: tuple[tuple[str, str, str], ...] = (
    ("reward/total", "Reward", "Mean return of new training episodes, penalties included"),
    ("episode/length", "Episode length", "Steps of new training episodes"),
    ("policy/entropy", "Entropy", "Nats per token: how undecided the policy is"),
    ("value/trajectory_accuracy", "Critic accuracy", "Outcomes that the critic tells from the last step"),
    ("policy/grad_norm", "Gradient norm", "Of the policy, before clipping"),
    ("time/wait_for_episodes", "Waiting for episodes", "Share of the learner's time with nothing to learn"),
    ("time/wait_for_batch", "Waiting for batches", "Share of its time until one was made ready"),
)
"""Metric, title, what it is, in a few words."""


@dataclass(frozen=True)
class Path:
    """SVG path data with the CSS classes of its drawing style and colour."""

    data: str
    style: str
    colour: str


@dataclass(frozen=True)
class End:
    """A label at the right edge, at a height in percent."""

    label: str
    position: float
    colour: str


@dataclass(frozen=True)
class Chart:
    """A chart, ready to draw."""

    title: str
    short: str
    paths: tuple[Path, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    x_label: str = ""
    ends: tuple[End, ...] = ()


@dataclass(frozen=True)
class LegendItem:
    """An entry of a legend."""

    label: str
    style: str
    colour: str


@dataclass(frozen=True)
class Signal:
    """A small chart with its newest value, "" for none."""

    title: str
    note: str
    newest: str
    chart: Chart
    legend: tuple[LegendItem, ...] = ()


@dataclass(frozen=True)
class Line:
    """A polyline, with the CSS classes of its drawing style and colour."""

    points: Sequence[Point]
    style: str
    colour: str


@dataclass(frozen=True)
class Curve:
    """The numbers behind the learning curve over one x axis.

    Attributes:
        train: (x, share of the latest training episodes solved).
        validation: (x, success rate).
        counts: Episodes behind each validation point.
    """

    train: list[Point]
    validation: list[Point]
    counts: list[int]


def learning_curve(metrics: RunMetrics, x: str) -> Curve:
    """The curve over `x`: episodes or elapsed seconds."""
    validation, counts = [], []
    name = metrics.find(VALIDATION_SUCCESS)
    for row in metrics.rows if name is not None else ():
        if name in row:
            stem = name.removesuffix("success")
            # A round is written when it ends, but it measures the weights of when it began.
            updates = row.get(f"{stem}updates", row.get(UPDATES, 0.0))
            validation.append((metrics.at_update(updates, x), row[name]))
            counts.append(int(row.get(f"{stem}episodes", 0)))
    return Curve(metrics.series(TRAIN_SUCCESS, x), validation, counts)


def curve_charts(metrics: RunMetrics, baseline: float | None) -> list[Chart]:
    """The learning curve over episodes and over minutes; none without data.

    Args:
        metrics: Of the run.
        baseline: The success rate before training, drawn as a dashed line.
    """
    charts = []
    axes: tuple[tuple[str, str, str, float], ...] = (
        (EPISODES, "Episodes", "training episodes", 1.0),
        (ELAPSED, "Time", "minutes since the start", 1 / 60),
    )
    for column, short, label, scale in axes:
        curve = _scaled(learning_curve(metrics, column), scale)
        if len(curve.train) + len(curve.validation) > 1:
            charts.append(_curve_chart(curve, short, label, baseline))
    return charts


def legend(metrics: RunMetrics, baseline: float | None, baseline_label: str) -> list[LegendItem]:
    """What the curve's lines mean."""
    items = []
    if metrics.find(VALIDATION_SUCCESS):
        items.append(LegendItem("validation, with 95% interval", "dot", "c-after"))
    if metrics.find(TRAIN_SUCCESS):
        items.append(LegendItem("training episodes", "line", "c-train"))
    if baseline is not None:
        items.append(LegendItem(f"{baseline_label} on the test split", "dash", "c-before"))
    return items


def _scaled(curve: Curve, scale: float) -> Curve:
    def times(points: list[Point]) -> list[Point]:
        return [(x * scale, y) for x, y in points]

    return Curve(times(curve.train), times(curve.validation), curve.counts)


def _curve_chart(curve: Curve, short: str, label: str, baseline: float | None) -> Chart:
    x = make_axis(0.0, max(point[0] for point in [*curve.train, *curve.validation]), 6)
    y = make_axis(0.0, 1.0, 4, lambda value: f"{100 * value:.0f}%")
    paths = [Path(line_path(thin(curve.train), x, y), "thin", "c-train")]
    if baseline is not None:
        paths.append(Path(line_path([(x.low, baseline), (x.high, baseline)], x, y), "dash", "c-before"))
    paths += _intervals(curve, x, y)
    paths.append(Path(line_path(curve.validation, x, y), "line", "c-after"))
    paths.append(Path(dots_path(curve.validation, x, y), "dots", "c-after"))
    ends = []
    if curve.validation:
        last = curve.validation[-1][1]
        ends.append(End(f"{100 * last:.0f}%", 100 * last, "c-after"))
    shown = tuple(path for path in paths if path.data)
    return Chart(f"Success over {label}", short, shown, x.ticks, y.ticks, label, tuple(ends))


def _intervals(curve: Curve, x: Axis, y: Axis) -> list[Path]:
    known = [(point, n) for point, n in zip(curve.validation, curve.counts, strict=True) if n]
    bounds = [(px, wilson(min(n, round(rate * n)), n)) for (px, rate), n in known]
    lower, upper = [(px, b.low) for px, b in bounds], [(px, b.high) for px, b in bounds]
    return [Path(band_path(lower, upper, x, y), "band", "c-after")]


def signal_charts(metrics: RunMetrics, chosen: Sequence[tuple[str, str, str]] = SIGNALS) -> list[Signal]:
    """A small chart for each chosen training signal that was measured more than once."""
    signals = []
    for name, title, note in chosen:
        points = metrics.series(name, UPDATES)
        if len(points) > 1:
            smooth = rolling_mean(points, max(1, len(points) // 40))
            chart = signal_chart(title, [Line(thin(smooth, 200), "thin", "c-after")])
            signals.append(Signal(title, note, short_number(smooth[-1][1]), chart))
    return signals


def signal_chart(title: str, lines: Sequence[Line]) -> Chart:
    """A small chart of one line or more, on axes that hold them all."""
    points = [point for line in lines for point in line.points]
    positions, values = [x for x, _ in points], [y for _, y in points]
    x = make_axis(min(positions), max(positions), 3)
    y = make_axis(min(values), max(values), 2, round_out=True)
    paths = tuple(Path(line_path(line.points, x, y), line.style, line.colour) for line in lines)
    return Chart(title, title, paths, x.ticks, y.ticks)
