"""The train–inference mismatch of a run: how large it was, when there was an alarm, and charts of both."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from distrl.evaluator.report.chart import thin
from distrl.evaluator.report.curve import LegendItem, Line, Signal, signal_chart
from distrl.evaluator.report.metrics import UPDATES, RunMetrics

SMALLEST = 1e-16
"""What is drawn for 0, on a scale of powers of ten."""


@dataclass(frozen=True)
class Alarm:
    """One stretch of the run, in updates; `is_open` if the run ended in it."""

    first: int
    last: int
    is_open: bool


@dataclass(frozen=True)
class MismatchNumbers:
    """Of all measurements of a run.

    Attributes:
        measurements, tokens: How many.
        kl, kl_max: The median of the measurements' means, and the largest of a single token.
        outside: The share of all tokens with a ratio outside [0.9, 1.1].
        alarms: When there was an alarm.
    """

    measurements: int
    tokens: int
    kl: float
    kl_max: float
    outside: float
    alarms: list[Alarm]


@dataclass(frozen=True)
class Mismatch:
    """The section of a report; `kl` and `kl_max` are those of `numbers` as text."""

    numbers: MismatchNumbers
    kl: str
    kl_max: str
    signals: list[Signal]


def mismatch(metrics: RunMetrics) -> Mismatch | None:
    """All of it; None of a run that measured nothing of the kind."""
    numbers = mismatch_numbers(metrics)
    if numbers is None:
        return None
    return Mismatch(numbers, _power(numbers.kl), _power(numbers.kl_max), _signals(metrics))


def mismatch_data(metrics: RunMetrics) -> dict[str, Any] | None:
    """The numbers as plain data."""
    numbers = mismatch_numbers(metrics)
    return None if numbers is None else asdict(numbers)


def mismatch_numbers(metrics: RunMetrics) -> MismatchNumbers | None:
    """From the learner's rows."""
    rows = [row for row in metrics.rows if "mismatch/kl" in row]
    if not rows:
        return None
    tokens = math.fsum(row["mismatch/tokens"] for row in rows)
    return MismatchNumbers(
        measurements=len(rows),
        tokens=round(tokens),
        kl=median(row["mismatch/kl"] for row in rows),
        kl_max=max(row["mismatch/kl_max"] for row in rows),
        outside=math.fsum(row["mismatch/outside"] * row["mismatch/tokens"] for row in rows) / tokens,
        alarms=_alarms(metrics),
    )


def _alarms(metrics: RunMetrics) -> list[Alarm]:
    found: list[Alarm] = []
    for row in metrics.rows:
        if "mismatch/alarm" not in row:
            continue
        is_on, update = bool(row["mismatch/alarm"]), round(row.get(UPDATES, 0))
        if found and found[-1].is_open:
            found[-1] = Alarm(found[-1].first, update, is_on)
        elif is_on:
            found.append(Alarm(update, update, True))
    return found


def _signals(metrics: RunMetrics) -> list[Signal]:
    """The divergence on a scale of powers of ten, with the alarm's limit, and the share of ratios outside."""
    lines, legend = [], []
    for name, label, colour in (
        ("mismatch/kl", "measured", "c-after"),
        ("mismatch/kl_limit", "limit of the alarm", "c-fault"),
    ):
        points = metrics.series(name, UPDATES)
        if len(points) > 1:
            powers = [(x, math.log10(max(value, SMALLEST))) for x, value in points]
            lines.append(Line(thin(powers, 200), "thin", colour))
            legend.append(LegendItem(label, "line", colour))
    signals = []
    if lines:
        title, note = "KL, log₁₀", "Of a token, between a server's policy and the learner's of that version"
        newest = _power(metrics.last("mismatch/kl") or 0.0)
        signals.append(Signal(title, note, newest, signal_chart(title, lines), tuple(legend)))
    shares = metrics.series("mismatch/outside", UPDATES)
    if len(shares) > 1:
        title, note = "Ratios off by 10%", "Share of tokens whose ratio lies outside [0.9, 1.1]"
        chart = signal_chart(title, [Line(thin(shares, 200), "thin", "c-after")])
        signals.append(Signal(title, note, f"{100 * shares[-1][1]:.0f}%", chart, ()))
    return signals


def _power(value: float) -> str:
    """A number of any size: 0.031, 2.1e-07."""
    return f"{value:.2g}".replace("-", "−")
