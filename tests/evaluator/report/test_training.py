"""A run's staleness and signals in its report: sums over all tables of the learner."""

from __future__ import annotations

import pytest

from distrl.evaluator.report.metrics import RunMetrics
from distrl.evaluator.report.training import (
    FRESHNESS_SIGNALS,
    signal_charts,
    staleness_rows,
)


def table(label: str, **values: float) -> dict[str, float]:
    return {f"staleness/{label}/{name}": value for name, value in values.items()}


MEANS = ("trajectories", "steps", "success", "ratio_mean", "log_ratio_abs", "ess")
FIRST = table("0", **dict(zip(MEANS, (2, 4, 1.0, 1.0, 0.0, 1.0), strict=True)))
# Steps of ratios 1 and 3, and then 2, 2: mean 2, mean square 18/4.
SECOND = table("4-7", clipped_fraction=0.5, **dict(zip(MEANS, (1, 2, 0.0, 2.0, 0.5, 0.8), strict=True)))
THIRD = table("4-7", clipped_fraction=0.0, **dict(zip(MEANS, (3, 2, 1.0, 2.0, 0.7, 1.0), strict=True)))
ROWS = [{"step": 25, "time": 1.0, **FIRST, **SECOND}, {"step": 50, "time": 2.0, **THIRD}]
UPDATES = [
    {
        "step": i,
        "time": float(i),
        "off_policy/staleness_mean": 2.0 + i,
        "off_policy/ingest_staleness": 1.0,
        "off_policy/ess": 0.5,
        "off_policy/clipped_fraction": 0.1,
        "mismatch/kl": 0.1 * i,
        "mismatch/kl_limit": 0.05,
    }
    for i in range(1, 6)
]


def test_tables_are_added_up_over_the_run() -> None:
    fresh, stale = staleness_rows(RunMetrics(ROWS))
    assert (fresh.pop("label"), fresh.pop("shares"), fresh.pop("ratio_std")) == ("0", {}, 0.0)
    assert fresh == dict(zip(MEANS, (2, 4, 1.0, 1.0, 0.0, 1.0), strict=True))
    assert (stale.pop("label"), stale.pop("shares")) == ("4-7", {"clipped_fraction": pytest.approx(0.25)})
    assert stale.pop("ratio_std") == pytest.approx((18 / 4 - 4) ** 0.5)
    sums = dict(zip(MEANS, (4, 4, 3 / 4, 2.0, 0.6, 8**2 / (4 * 18)), strict=True))
    assert stale == pytest.approx(sums)


def test_shares_are_weighed_by_tokens_over_the_updates_that_have_them() -> None:
    common = {"trajectories": 1, "steps": 1, "success": 0, "ratio_mean": 1, "log_ratio_abs": 0, "ess": 1}
    rows = [
        table("1", tokens=9, damped_fraction=1.0, **common),
        table("1", tokens=1, damped_fraction=0.0, **common),
        table("1", tokens=5, clipped_fraction=0.5, **common),  # resumed with another objective
    ]
    (row,) = staleness_rows(RunMetrics(rows))
    assert row["shares"] == pytest.approx({"damped_fraction": 0.9, "clipped_fraction": 0.5})


def test_signals_of_one_kind_share_a_chart() -> None:
    staleness, sample, clipping, mismatch = signal_charts(RunMetrics(UPDATES), FRESHNESS_SIGNALS)
    assert [line.label for line in staleness.chart.legend] == ["in training", "at arrival"]
    assert [line.label for line in mismatch.chart.legend] == ["measured", "limit of the alarm"]
    assert staleness_rows(RunMetrics(UPDATES)) == signal_charts(RunMetrics([]), FRESHNESS_SIGNALS) == []
    assert (staleness.newest, sample.newest, clipping.title) == ("7", "0.5", "Clipping")
