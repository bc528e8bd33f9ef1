"""Charts: values become path data and tick positions; HTML and CSS do the drawing.

A plot is an SVG with `viewBox="0 0 1000 1000"` that is stretched to its box; strokes keep their width
(`vector-effect`) and labels are HTML placed in percent, so text stays crisp and readable at every width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from distrl.evaluator.report.metrics import ELAPSED, Point

SIZE = 1000.0


@dataclass(frozen=True)
class Tick:
    """A tick: where (percent from the left or the bottom) and what it says."""

    position: float
    label: str


@dataclass(frozen=True)
class Axis:
    """A linear axis from `low` to `high`."""

    low: float
    high: float
    ticks: tuple[Tick, ...] = ()

    def fraction(self, value: float) -> float:
        """Where `value` lies between low (0) and high (1), kept inside."""
        if self.high <= self.low:
            return 0.5
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


@dataclass(frozen=True)
class Line:
    """Points in the units of the axes, with CSS classes; "band" is filled. A label is in the legend."""

    points: Sequence[Point]
    style: str
    colour: str
    label: str = ""


@dataclass(frozen=True)
class Chart:
    """A chart, ready to draw.

    Attributes:
        paths: The CSS classes of style and colour, and SVG path data.
        short: Its name where several charts share a place.
        end: A label at the right edge, at a height in percent.
    """

    title: str
    paths: tuple[tuple[str, str, str], ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    legend: tuple[Line, ...] = ()
    short: str = ""
    x_label: str = ""
    end: Tick | None = None


@dataclass(frozen=True)
class Signal:
    """A small chart with its newest value."""

    title: str
    note: str
    newest: str
    chart: Chart


@dataclass(frozen=True)
class Curve:
    """A learning curve over one x axis; `counts` are the episodes behind each point of `validation`."""

    train: list[Point]
    validation: list[Point]
    counts: list[int]


def nice_step(span: float, count: int) -> float:
    """The smallest of 1, 2, 2.5, 5 × 10^k that covers `span` in at most `count` steps."""
    if span <= 0 or count < 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(span / count))
    for factor in (1.0, 2.0, 2.5, 5.0):
        if span / (power * factor) <= count + 1e-9:
            return power * factor
    return power * 10.0


def short_number(value: float) -> str:
    """A number for a tick or a tile: 1,250, 0.25, 12k, 1.2e-05."""
    size = abs(value)
    if size < 1e-15:  # what rounding leaves of sums that are 0
        return "0"
    if size >= 1e6:
        return f"{value / 1e6:.3g}M"
    if size >= 1e4:
        return f"{value / 1e3:.3g}k"
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if size >= 1e-3 else f"{value:.1e}"


def make_axis(
    low: float,
    high: float,
    count: int = 5,
    label: Callable[[float], str] = short_number,
    round_out: bool = False,
) -> Axis:
    """An axis with about `count` ticks at round values; `round_out` extends it to whole ticks."""
    if high <= low:
        low, high = low - 0.5, high + 0.5
    step = nice_step(high - low, count)
    if round_out:
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    plain = Axis(low, high)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = [Tick(100 * plain.fraction(k * step), label(k * step)) for k in range(first, last + 1)]
    return Axis(low, high, tuple(ticks))


def draw(title: str, lines: Iterable[Line], x: Axis, y: Axis) -> Chart:
    """A chart of lines."""
    shown = [line for line in lines if line.points]
    paths = tuple((line.style, line.colour, _path(line, x, y)) for line in shown)
    return Chart(title, paths, x.ticks, y.ticks, tuple(line for line in shown if line.label))


def _path(line: Line, x: Axis, y: Axis) -> str:
    """SVG path data; dots are segments of no length, which round line caps turn into discs at any stretch."""
    places = [f"{SIZE * x.fraction(px):.1f} {SIZE * (1 - y.fraction(py)):.1f}" for px, py in line.points]
    return "".join(f"M{place}h0" for place in places) if line.style == "dots" else "M" + "L".join(places)


def signal_chart(title: str, note: str, lines: Iterable[Line], newest: str = "") -> Signal | None:
    """A small chart of the lines that have more than one point; None without any."""
    shown = [line for line in lines if len(line.points) > 1]
    if not shown:
        return None
    xs, ys = zip(*(point for line in shown for point in line.points), strict=True)
    x, y = make_axis(min(xs), max(xs), 3), make_axis(min(ys), max(ys), 2, round_out=True)
    return Signal(title, note, newest or short_number(shown[0].points[-1][1]), draw(title, shown, x, y))


def curve_charts(
    what: str,
    columns: Iterable[tuple[str, str, str]],
    curve_of: Callable[[str], Curve],
    labels: tuple[str, str, str],
    level: float | None = None,
    bounds: Callable[[float, int], tuple[float, float]] | None = None,
    y: Axis | None = None,
    say: Callable[[float], str] = short_number,
) -> list[Chart]:
    """The learning curve over each column that has data.

    Args:
        columns: x axes: the column in metrics, the chart's short name, and the axis' label.
        curve_of: The curve over a column; seconds are drawn as minutes.
        labels: Of the validation, the training episodes and the level in the legend.
        level: A value to compare with, drawn as a dashed line.
        bounds: The interval of a validation point, from its value and its count.
        say: Formats values.
    """
    charts = []
    for column, short, x_label in columns:
        curve, scale = curve_of(column), 1 / 60 if column == ELAPSED else 1.0
        train, validation = ([(px * scale, py) for px, py in of] for of in (curve.train, curve.validation))
        points = [*train, *validation]
        if len(points) < 2:
            continue
        heights = [py for _, py in points] + ([] if level is None else [level])
        x = make_axis(0.0, max(px for px, _ in points), 6)
        own_y = y or make_axis(min(heights), max(heights), 4, say, round_out=True)
        counted = zip(validation, curve.counts, strict=False) if bounds is not None else ()
        around = [(px, *bounds(py, n)) for (px, py), n in counted if bounds is not None and n]
        band = [(px, high) for px, _, high in around] + [(px, low) for px, low, _ in reversed(around)]
        lines = [
            Line(validation, "line", "c-after"),
            Line(validation, "dots", "c-after", labels[0]),
            Line(thin(train), "thin", "c-train", labels[1]),
            Line([] if level is None else [(x.low, level), (x.high, level)], "dash", "c-before", labels[2]),
            Line(band, "band", "c-after"),
        ]
        chart = draw(f"{what} over {x_label}", lines, x, own_y)
        last = validation[-1][1] if validation else None
        end = None if last is None else Tick(100 * own_y.fraction(last), say(last))
        charts.append(replace(chart, short=short, x_label=x_label, end=end))
    return charts


def rolling_mean(points: Sequence[Point], window: int) -> list[Point]:
    """The mean of the last `window` values (fewer at the start) at each point."""
    means, total = [], 0.0
    for i, (x, y) in enumerate(points):
        total += y
        if i >= window:
            total -= points[i - window][1]
        means.append((x, total / min(i + 1, window)))
    return means


def thin(points: Sequence[Point], limit: int = 400) -> list[Point]:
    """At most about `limit` points, evenly chosen; the first and the last stay."""
    if len(points) <= limit:
        return list(points)
    stride = (len(points) - 1) / (limit - 1)
    return [points[round(i * stride)] for i in range(limit)]
