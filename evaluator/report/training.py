"""The training sections of a report: learning curve, signals, rewards by part, staleness, mismatch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from distrl.core.metrics import MINUTES, VERSIONS, Buckets, Histogram
from distrl.core.types import RewardParts
from distrl.evaluator.report.chart import (
    Axis,
    Point,
    Tick,
    band_path,
    bars_path,
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
    ("policy/entropy", "Entropy", "Nats per token"),
    ("value/trajectory_accuracy", "Critic accuracy", "Outcomes that the critic predicts at the last step"),
    ("policy/grad_norm", "Gradient norm", "The policy's, before clipping"),
    ("time/wait_for_episodes", "Waiting for episodes", "Share of the learner's time without new episodes"),
    ("time/wait_for_batch", "Waiting for batches", "Share of the learner's time until a batch was ready"),
)
"""Metric, title, note."""


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
            # A round is written when it ends, but measures the weights of its start.
            updates = row.get(f"{stem}updates", row.get(UPDATES, 0.0))
            validation.append((metrics.at_update(updates, x), row[name]))
            counts.append(int(row.get(f"{stem}episodes", 0)))
    return Curve(metrics.series(TRAIN_SUCCESS, x), validation, counts)


def curve_charts(metrics: RunMetrics, baseline: float | None) -> list[Chart]:
    """The learning curve over episodes and over minutes; none without data.

    Args:
        metrics: The run's.
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
    """The legend of the curve."""
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
            line = Line(_smooth(points), "thin", "c-after")
            signals.append(_signal(title, note, short_number(line.points[-1][1]), [(line, "")]))
    return signals


def _smooth(points: Sequence[Point]) -> list[Point]:
    """The rolling mean over a fortieth of the points, thinned."""
    return thin(rolling_mean(points, max(1, len(points) // 40)), 200)


def _signal(title: str, note: str, newest: str, lines: Sequence[tuple[Line, str]]) -> Signal:
    """A small chart of lines, each with its label in the legend, "" for none."""
    legend = tuple(LegendItem(label, "line", line.colour) for line, label in lines if label)
    return Signal(title, note, newest, signal_chart(title, [line for line, _ in lines]), legend)


def signal_chart(title: str, lines: Sequence[Line]) -> Chart:
    """A small chart of one or more lines."""
    points = [point for line in lines for point in line.points]
    positions, values = [x for x, _ in points], [y for _, y in points]
    x = make_axis(min(positions), max(positions), 3)
    y = make_axis(min(values), max(values), 2, round_out=True)
    paths = tuple(Path(line_path(line.points, x, y), line.style, line.colour) for line in lines)
    return Chart(title, title, paths, x.ticks, y.ticks)


REWARD_NOTES: dict[str, str] = {
    "outcome": "Success, at the end of an episode",
    "repetition": "Penalty for repeating an action on an unchanged screen",
    "invalid": "Penalty for answers that are not an action",
    "shaping": "Bonus for progress",
}


def reward_series(metrics: RunMetrics) -> dict[str, dict[str, list[Point]]]:
    """(updates, mean per episode) of each part that was ever nonzero, by part and "train" or "validation".

    A validation round is placed at its start, at the weights that it measured.
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
        lines: list[tuple[Line, str]] = []
        if len(train) > 1:
            lines.append((Line(_smooth(train), "thin", "c-train"), "training"))
        if len(validation) > 1:
            lines.append((Line(validation, "line", "c-after"), "validation"))
        if lines:
            newest = short_number(lines[-1][0].points[-1][1])
            signals.append(_signal(part.capitalize(), REWARD_NOTES[part], newest, lines))
    return signals


SHARES: tuple[tuple[str, str], ...] = (
    ("clipped_fraction", "Clipped"),
    ("silenced_fraction", "Silenced"),
    ("capped_fraction", "Weight capped"),
    ("damped_fraction", "Damped"),
)
"""How an objective may change a ratio: metric, heading."""

FRESHNESS_SIGNALS: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
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
        tuple((f"off_policy/{name}", heading.lower()) for name, heading in SHARES),
    ),
    (
        "Log-ratio",
        "Mean absolute value per token, between the trained policy and the one that acted",
        (("off_policy/token_log_ratio_abs", ""),),
    ),
)
"""Title, note, and the metrics with their labels in the legend."""

AGES: tuple[tuple[str, Buckets, str, str], ...] = (
    ("versions", VERSIONS, "Age in versions", "How many weight versions ago trajectories began"),
    ("minutes", MINUTES, "Age in minutes", "How many minutes ago trajectories ended"),
)
"""Unit, buckets, title, note."""

COLOURS = ("c-after", "c-train", "c-before", "c-fault")


@dataclass(frozen=True)
class StalenessRow:
    """Training on trajectories of one staleness, over the whole run.

    Attributes:
        label: Versions, as "4-7".
        trajectories, steps: How many were trained on; repeated use counts again.
        success: Of the trajectories.
        ratio_mean, ratio_std: ρ of whole actions.
        log_ratio_abs: Mean |log ρ|.
        ess: Effective sample size as a share of the steps.
        shares: Further means over actions or tokens, such as `clipped_fraction`.
    """

    label: str
    trajectories: int
    steps: int
    success: float
    ratio_mean: float
    ratio_std: float
    log_ratio_abs: float
    ess: float
    shares: dict[str, float]


@dataclass(frozen=True)
class AgeHistogram:
    """Ages of what was in replay and of what was drawn, summed over the run's snapshots."""

    unit: str
    title: str
    note: str
    replay: Histogram
    drawn: Histogram


@dataclass(frozen=True)
class Freshness:
    """The section of a report. `columns` are those of `SHARES` that were measured."""

    rows: list[StalenessRow]
    columns: list[tuple[str, str]]
    signals: list[Signal]
    ages: list[Signal]


def freshness(metrics: RunMetrics) -> Freshness | None:
    """The section; None if the run did not measure it."""
    rows = staleness_rows(metrics)
    signals = [
        signal for entry in FRESHNESS_SIGNALS if (signal := _freshness_signal(metrics, *entry)) is not None
    ]
    ages = [_age_signal(histogram) for histogram in age_histograms(metrics)]
    columns = [(name, heading) for name, heading in SHARES if any(name in row.shares for row in rows)]
    return Freshness(rows, columns, signals, ages) if rows or signals or ages else None


def freshness_data(metrics: RunMetrics) -> dict[str, Any]:
    """The numbers as plain data."""
    return {
        "by_versions": [asdict(row) for row in staleness_rows(metrics)],
        "ages": {
            one.unit: {
                "replay": dict(zip(one.replay.buckets.labels, one.replay.counts, strict=True)),
                "drawn": dict(zip(one.drawn.buckets.labels, one.drawn.counts, strict=True)),
            }
            for one in age_histograms(metrics)
        },
    }


def staleness_rows(metrics: RunMetrics) -> list[StalenessRow]:
    """The learner's tables, added up: every mean is the sum over all steps, divided once."""
    by_label = {label: metrics.tables(f"staleness/{label}/", "trajectories") for label in VERSIONS.labels}
    return [_staleness_row(label, tables) for label, tables in by_label.items() if tables]


_NO_SHARES = ("trajectories", "steps", "tokens", "success", "ratio_mean", "log_ratio_abs", "ess")


def _staleness_row(label: str, tables: list[dict[str, float]]) -> StalenessRow:
    def total(name: str, weight: str) -> float:
        return math.fsum(table.get(name, 0.0) * table.get(weight, table["steps"]) for table in tables)

    trajectories = math.fsum(table["trajectories"] for table in tables)
    steps = math.fsum(table["steps"] for table in tables)
    mean = total("ratio_mean", "steps") / steps
    # ESS = (Σρ)² / (N Σρ²) gives each table's Σρ².
    square = math.fsum(t["steps"] * t["ratio_mean"] ** 2 / t["ess"] for t in tables if t["ess"] > 0)
    names = dict.fromkeys(name for table in tables for name in table if name not in _NO_SHARES)
    return StalenessRow(
        label=label,
        trajectories=round(trajectories),
        steps=round(steps),
        success=total("success", "trajectories") / trajectories,
        ratio_mean=mean,
        ratio_std=math.sqrt(max(0.0, square / steps - mean**2)),
        log_ratio_abs=total("log_ratio_abs", "steps") / steps,
        ess=steps * mean**2 / square if square > 0 else 0.0,
        shares={name: _share(name, tables) for name in names},
    )


def _share(name: str, tables: list[dict[str, float]]) -> float:
    """The mean over the tables that have this share; a run resumed with another objective has others."""
    found = [(table[name], table.get("tokens", table["steps"])) for table in tables if name in table]
    return math.fsum(share * units for share, units in found) / math.fsum(units for _, units in found)


def age_histograms(metrics: RunMetrics) -> list[AgeHistogram]:
    """The histograms that were measured."""
    found = []
    for unit, buckets, title, note in AGES:
        replay, drawn = (_counts(metrics, f"{what}_age/{unit}", buckets) for what in ("replay", "drawn"))
        if replay.total or drawn.total:
            found.append(AgeHistogram(unit, title, note, replay, drawn))
    return found


def _counts(metrics: RunMetrics, name: str, buckets: Buckets) -> Histogram:
    return Histogram(
        buckets,
        tuple(
            round(sum(row.get(f"{name}/{label}", 0.0) for row in metrics.rows)) for label in buckets.labels
        ),
    )


def _freshness_signal(
    metrics: RunMetrics, title: str, note: str, series: tuple[tuple[str, str], ...]
) -> Signal | None:
    lines: list[tuple[Line, str]] = []
    for name, label in series:
        points = metrics.series(name, UPDATES)
        if len(points) > 1:
            lines.append((Line(_smooth(points), "thin", COLOURS[len(lines)]), label))
    if not lines:
        return None
    if len(lines) == 1:
        lines = [(lines[0][0], "")]
    return _signal(title, note, short_number(lines[0][0].points[-1][1]), lines)


def _age_signal(ages: AgeHistogram) -> Signal:
    shares = [
        ([count / max(1, histogram.total) for count in histogram.counts], colour, label)
        for histogram, colour, label in (
            (ages.drawn, "c-after", "drawn"),
            (ages.replay, "c-train", "in replay"),
        )
    ]
    y = make_axis(
        0.0,
        max(share for heights, _, _ in shares for share in heights),
        2,
        lambda share: f"{100 * share:.0f}%",
        round_out=True,
    )
    labels = ages.replay.buckets.labels
    paths = tuple(
        Path(bars_path(heights, 0.1 + 0.4 * i, 0.4, y), "bar", colour)
        for i, (heights, colour, _) in enumerate(shares)
    )
    ticks = tuple(
        Tick(100 * (i + 0.5) / len(labels), label.replace("-", "–")) for i, label in enumerate(labels)
    )
    chart = Chart(ages.title, ages.title, paths, ticks, y.ticks)
    legend = tuple(LegendItem(label, "dot", colour) for _, colour, label in shares)
    return Signal(ages.title, ages.note, "", chart, legend)


SMALLEST = 1e-16
"""Drawn for 0 on a logarithmic scale."""


@dataclass(frozen=True)
class Alarm:
    """One stretch of the run, in updates; `is_open` if the run ended in it."""

    first: int
    last: int
    is_open: bool


@dataclass(frozen=True)
class MismatchNumbers:
    """The numbers over all measurements of a run.

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
    """The section; None if the run did not measure it."""
    numbers = mismatch_numbers(metrics)
    if numbers is None:
        return None
    return Mismatch(numbers, _power(numbers.kl), _power(numbers.kl_max), _mismatch_signals(metrics))


def mismatch_data(metrics: RunMetrics) -> dict[str, Any] | None:
    """The numbers as plain data."""
    numbers = mismatch_numbers(metrics)
    return None if numbers is None else asdict(numbers)


def mismatch_numbers(metrics: RunMetrics) -> MismatchNumbers | None:
    """The numbers of the learner's rows; None if there are none."""
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


def _mismatch_signals(metrics: RunMetrics) -> list[Signal]:
    """The divergence on a logarithmic scale with the alarm's limit, and the share of ratios outside."""
    lines = []
    for name, label, colour in (
        ("mismatch/kl", "measured", "c-after"),
        ("mismatch/kl_limit", "limit of the alarm", "c-fault"),
    ):
        points = metrics.series(name, UPDATES)
        if len(points) > 1:
            powers = [(x, math.log10(max(value, SMALLEST))) for x, value in points]
            lines.append((Line(thin(powers, 200), "thin", colour), label))
    signals = []
    if lines:
        note = "Per token, between a server's policy and the learner's of that version"
        signals.append(_signal("KL, log₁₀", note, _power(metrics.last("mismatch/kl") or 0.0), lines))
    shares = metrics.series("mismatch/outside", UPDATES)
    if len(shares) > 1:
        line = Line(thin(shares, 200), "thin", "c-after")
        note = "Share of tokens whose ratio lies outside [0.9, 1.1]"
        signals.append(_signal("Ratios off by 10%", note, f"{100 * shares[-1][1]:.0f}%", [(line, "")]))
    return signals


def _power(value: float) -> str:
    """A number of any size: 0.031, 2.1e-07."""
    return f"{value:.2g}".replace("-", "−")
