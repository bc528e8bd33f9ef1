"""How fresh training data was: success and ratios by staleness, charts of both, and the ages in replay."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from distrl.core.buckets import MINUTES, VERSIONS, Buckets, Histogram
from distrl.evaluator.report.chart import Tick, bars_path, make_axis, rolling_mean, short_number, thin
from distrl.evaluator.report.curve import Chart, LegendItem, Line, Path, Signal, signal_chart
from distrl.evaluator.report.metrics import UPDATES, RunMetrics

SHARES: tuple[tuple[str, str], ...] = (
    ("clipped_fraction", "Clipped"),
    ("silenced_fraction", "Silenced"),
    ("capped_fraction", "Weight capped"),
    ("damped_fraction", "Damped"),
    ("masked_fraction", "Masked"),
)
"""What an objective may do to a ratio: metric, heading."""

SIGNALS: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Staleness",
        "Versions between acting and training",
        (("off_policy/staleness_mean", "in training"), ("off_policy/ingest_staleness", "coming in")),
    ),
    (
        "Effective sample",
        "Share of a batch that counts after importance weighting",
        (("off_policy/ess", "of actions"), ("off_policy/token_ess", "of tokens")),
    ),
    (
        "Clipping",
        "Share of ratios that the objective clips or caps",
        tuple((f"off_policy/{name}", heading.lower()) for name, heading in SHARES),
    ),
    (
        "Log-ratio",
        "Of a token, between the trained policy and the one that acted, mean size",
        (("off_policy/token_log_ratio_abs", ""),),
    ),
)
"""Title, what it is, and the metrics that are drawn with their names in the legend."""

AGES: tuple[tuple[str, Buckets, str, str], ...] = (
    ("versions", VERSIONS, "Age in versions", "How many weight versions ago trajectories began"),
    ("minutes", MINUTES, "Age in minutes", "How many minutes ago trajectories ended"),
)
"""Unit, its buckets, title, what it is."""

COLOURS = ("c-after", "c-train", "c-before", "c-fault")


@dataclass(frozen=True)
class StalenessRow:
    """What training made of trajectories of one staleness, over the whole run.

    Attributes:
        label: Versions, as "4-7".
        trajectories, steps: How many were trained on; the same one again counts again.
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
    """All of it; None of a run that measured nothing of the kind."""
    rows = staleness_rows(metrics)
    signals = [signal for entry in SIGNALS if (signal := _signal(metrics, *entry)) is not None]
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
    """Over the tables that have it: a run that was resumed with another objective has others, too."""
    found = [(table[name], table.get("tokens", table["steps"])) for table in tables if name in table]
    return math.fsum(share * units for share, units in found) / math.fsum(units for _, units in found)


def age_histograms(metrics: RunMetrics) -> list[AgeHistogram]:
    """Those that were measured."""
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


def _signal(metrics: RunMetrics, title: str, note: str, series: tuple[tuple[str, str], ...]) -> Signal | None:
    lines: list[Line] = []
    legend: list[LegendItem] = []
    for name, label in series:
        points = metrics.series(name, UPDATES)
        if len(points) > 1:
            smooth = rolling_mean(points, max(1, len(points) // 40))
            colour = COLOURS[len(lines)]
            lines.append(Line(thin(smooth, 200), "thin", colour))
            legend.append(LegendItem(label, "line", colour))
    if not lines:
        return None
    shown = tuple(legend) if len(legend) > 1 else ()
    return Signal(title, note, short_number(lines[0].points[-1][1]), signal_chart(title, lines), shown)


def _age_signal(ages: AgeHistogram) -> Signal:
    shares = [
        ([count / max(1, histogram.total) for count in histogram.counts], colour, label)
        for histogram, colour, label in (
            (ages.drawn, "c-after", "drawn"),
            (ages.replay, "c-train", "in replay"),
        )
    ]
    y = make_axis(
        0.0, max(share for heights, _, _ in shares for share in heights), 2, _percent, round_out=True
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


def _percent(value: float) -> str:
    return f"{100 * value:.0f}%"
