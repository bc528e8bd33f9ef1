"""A run's staleness, rewards and mismatch in its report: sums over all tables of the learner."""

from __future__ import annotations

import pytest

from distrl.evaluator.report.metrics import RunMetrics
from distrl.evaluator.report.training import (
    FRESHNESS_SIGNALS,
    mismatch_numbers,
    mismatch_signals,
    reward_series,
    reward_signals,
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
        "reward/outcome": 0.1 * i,
        "reward/repetition": -0.2,
        "reward/shaping": 0.0,
    }
    for i in range(1, 6)
]
ROUNDS = [
    {"step": 3, "time": 3.5, "eval/val/updates": 0, "eval/val/reward/outcome": 0.2},
    {"step": 5, "time": 5.5, "eval/val/updates": 3, "eval/val/reward/outcome": 0.6},
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


def test_rewards_part_by_part_where_something_was_paid() -> None:
    metrics = RunMetrics([*UPDATES, *ROUNDS])
    series = reward_series(metrics)
    assert list(series) == ["outcome", "repetition"]
    assert series["outcome"]["validation"] == [(0, 0.2), (3, 0.6)], "at the weights that a round measured"
    assert series["outcome"]["train"][-1] == (5, 0.5)
    outcome, repetition = reward_signals(metrics)
    assert [line.label for line in outcome.chart.legend] == ["validation", "training"]
    assert [line.label for line in repetition.chart.legend] == ["training"]
    assert outcome.newest == "0.6"


@pytest.mark.parametrize("rows", [[], [{"step": 1, "time": 1.0, "train/success": 0.5}]])
def test_without_measurements_nothing_is_shown(rows: list[dict[str, float]]) -> None:
    metrics = RunMetrics(rows)
    assert staleness_rows(metrics) == signal_charts(metrics, FRESHNESS_SIGNALS) == []
    assert reward_signals(metrics) == mismatch_signals(metrics) == []
    assert mismatch_numbers(metrics) is None


def test_signals_of_one_kind_share_a_chart() -> None:
    staleness, sample, clipping = signal_charts(RunMetrics(UPDATES), FRESHNESS_SIGNALS)
    assert [line.label for line in staleness.chart.legend] == ["in training", "at arrival"]
    assert (staleness.newest, sample.newest, clipping.title) == ("7", "0.5", "Clipping")


def row(
    step: int, kl: float, tokens: int = 100, outside: float = 0.0, alarm: bool = False
) -> dict[str, float]:
    numbers = {"kl": kl, "kl_max": 10 * kl, "outside": outside, "tokens": tokens}
    numbers |= {"kl_limit": 0.05, "kl_recent": kl, "alarm": float(alarm)}
    return {
        "step": step,
        "time": float(step),
        **{f"mismatch/{name}": value for name, value in numbers.items()},
    }


MISMATCHES = [
    row(0, 1e-9),
    row(5, 0.0),
    row(10, 0.4, tokens=300, outside=0.5, alarm=True),
    {"step": 15, "time": 15.0, "mismatch/tokens": 0.0, "mismatch/kl_limit": 0.05, "mismatch/alarm": 1.0},
    row(20, 1e-9),
    row(25, 0.2, alarm=True),
]


def test_the_mismatch_is_over_all_measurements() -> None:
    metrics = RunMetrics(MISMATCHES)
    data = mismatch_numbers(metrics)
    assert data is not None
    assert (data["measurements"], data["tokens"], data["kl"], data["kl_max"]) == (5, 700, 1e-9, 4.0)
    assert data["outside"] == pytest.approx(150 / 700)
    assert data["alarms"] == [
        {"first": 10, "last": 20, "is_open": False},
        {"first": 25, "last": 25, "is_open": True},
    ]
    assert [signal.title for signal in mismatch_signals(metrics)] == ["KL, log₁₀", "Ratios off by 10%"]


def test_a_run_without_measured_tokens_has_no_mismatch() -> None:
    assert mismatch_numbers(RunMetrics([{"step": 5, "mismatch/tokens": 0.0, "mismatch/alarm": 0.0}])) is None
