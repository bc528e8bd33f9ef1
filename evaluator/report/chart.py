"""Chart geometry: values become path data and tick positions; HTML and CSS do the drawing.

A plot is an SVG with `viewBox="0 0 1000 1000"` that is stretched to its box; strokes keep their width
(`vector-effect`) and labels are HTML placed in percent, so text stays crisp and readable at every width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SIZE = 1000.0
Point = tuple[float, float]


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


def nice_step(span: float, count: int) -> float:
    """The smallest of 1, 2, 2.5, 5 × 10^k that covers `span` in at most `count` steps."""
    if span <= 0 or count < 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(span / count))
    for factor in (1.0, 2.0, 2.5, 5.0):
        if span / (power * factor) <= count + 1e-9:
            return power * factor
    return power * 10.0


def make_axis(
    low: float,
    high: float,
    count: int = 5,
    label: Callable[[float], str] | None = None,
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
    say = label or short_number
    ticks = [Tick(100 * plain.fraction(k * step), say(k * step)) for k in range(first, last + 1)]
    return Axis(low, high, tuple(ticks))


def line_path(points: Sequence[Point], x: Axis, y: Axis) -> str:
    """SVG path data of a polyline."""
    return "M" + "L".join(_place(point, x, y) for point in points) if points else ""


def dots_path(points: Sequence[Point], x: Axis, y: Axis) -> str:
    """SVG path data of dots: segments of no length, which round line caps turn into discs at any stretch."""
    return "".join(f"M{_place(point, x, y)}h0" for point in points)


def band_path(lower: Sequence[Point], upper: Sequence[Point], x: Axis, y: Axis) -> str:
    """SVG path data of the area between two polylines."""
    if not lower or not upper:
        return ""
    there = "L".join(_place(point, x, y) for point in upper)
    back = "L".join(_place(point, x, y) for point in reversed(lower))
    return f"M{there}L{back}Z"


def bars_path(heights: Sequence[float], offset: float, width: float, y: Axis) -> str:
    """SVG path data of bars on the plot's floor, one for each of equally wide places.

    Args:
        heights: In units of `y`.
        offset, width: Where in its place a bar begins and how wide it is, as shares of the place.
    """
    x = Axis(0.0, float(len(heights)))
    bars = []
    for i, height in enumerate(heights):
        left, right = i + offset, i + offset + width
        corners = ((left, y.low), (left, height), (right, height), (right, y.low))
        bars.append(line_path(corners, x, y) + "Z")
    return "".join(bars)


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


def short_number(value: float) -> str:
    """A number for a tick or a tile: 1,250, 0.25, 12k, 1.2e-05."""
    if abs(value) < 1e-15:  # what rounding leaves of sums that are 0
        return "0"
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.3g}M"
    if size >= 1e4:
        return f"{value / 1e3:.3g}k"
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 1e-3:
        return f"{value:.3g}"
    return f"{value:.1e}"


def _place(point: Point, x: Axis, y: Axis) -> str:
    return f"{SIZE * x.fraction(point[0]):.1f} {SIZE * (1 - y.fraction(point[1])):.1f}"
