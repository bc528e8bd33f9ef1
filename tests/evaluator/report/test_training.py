"""A run's signals in its report."""

from __future__ import annotations

import pytest

from distrl.evaluator.report.metrics import RunMetrics
from distrl.evaluator.report.training import FRESHNESS_SIGNALS, signal_charts

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


@pytest.mark.parametrize("rows", [[], [{"step": 1, "time": 1.0, "train/success": 0.5}]])
def test_without_measurements_nothing_is_shown(rows: list[dict[str, float]]) -> None:
    metrics = RunMetrics(rows)
    assert signal_charts(metrics, FRESHNESS_SIGNALS) == []


def test_signals_of_one_kind_share_a_chart() -> None:
    staleness, sample, clipping, mismatch = signal_charts(RunMetrics(UPDATES), FRESHNESS_SIGNALS)
    assert [line.label for line in staleness.chart.legend] == ["in training", "at arrival"]
    assert [line.label for line in mismatch.chart.legend] == ["measured", "limit of the alarm"]
    assert (staleness.newest, sample.newest, clipping.title) == ("7", "0.5", "Clipping")
