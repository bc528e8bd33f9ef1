"""A run's staleness, ages and rewards in its report: sums over all tables, and nothing of older runs."""

from __future__ import annotations

import pytest

from distrl.configs.schema import Config
from distrl.core.metrics import MetricsWriter
from distrl.core.rundir import RunDir
from distrl.evaluator.report import write_run_report
from distrl.evaluator.report.chart import Axis, bars_path
from distrl.evaluator.report.metrics import RunMetrics
from distrl.evaluator.report.training import (
    Alarm,
    age_histograms,
    freshness,
    mismatch,
    mismatch_data,
    reward_series,
    reward_signals,
    staleness_rows,
)


def table(label: str, **values: float) -> dict[str, float]:
    return {f"staleness/{label}/{name}": value for name, value in values.items()}


FIRST = table("0", trajectories=2, steps=4, success=1.0, ratio_mean=1.0, log_ratio_abs=0.0, ess=1.0)
# Steps of ratios 1 and 3, and then 2, 2: mean 2, mean square 18/4.
SECOND = table(
    "4-7",
    trajectories=1,
    steps=2,
    success=0.0,
    ratio_mean=2.0,
    log_ratio_abs=0.5,
    ess=0.8,
    clipped_fraction=0.5,
)
THIRD = table(
    "4-7",
    trajectories=3,
    steps=2,
    success=1.0,
    ratio_mean=2.0,
    log_ratio_abs=0.7,
    ess=1.0,
    clipped_fraction=0.0,
)
ROWS = [
    {"step": 25, "time": 1.0, **FIRST, **SECOND, "replay_age/versions/0": 5, "drawn_age/versions/4-7": 2},
    {"step": 50, "time": 2.0, **THIRD, "replay_age/versions/0": 3, "replay_age/versions/1": 8},
]
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
    assert (fresh.label, fresh.trajectories, fresh.steps, fresh.ratio_std, fresh.shares) == (
        "0",
        2,
        4,
        0.0,
        {},
    )
    assert (stale.label, stale.trajectories, stale.steps) == ("4-7", 4, 4)
    assert stale.success == pytest.approx(3 / 4)
    assert stale.ratio_mean == 2.0
    assert stale.ratio_std == pytest.approx((18 / 4 - 4) ** 0.5)
    assert stale.ess == pytest.approx(8**2 / (4 * 18))
    assert stale.log_ratio_abs == pytest.approx(0.6)
    assert stale.shares == {"clipped_fraction": pytest.approx(0.25)}


def test_shares_of_tokens_are_weighed_by_tokens() -> None:
    common = {"trajectories": 1, "steps": 1, "success": 0, "ratio_mean": 1, "log_ratio_abs": 0, "ess": 1}
    rows = [table("1", tokens=n, damped_fraction=share, **common) for n, share in ((9, 1.0), (1, 0.0))]
    (row,) = staleness_rows(RunMetrics(rows))
    assert row.shares == {"damped_fraction": pytest.approx(0.9)}


def test_shares_are_of_the_updates_that_have_them() -> None:
    """The run was resumed with another objective."""
    other = {name: value for name, value in SECOND.items() if "clipped" not in name}
    (row,) = staleness_rows(RunMetrics([SECOND, other | table("4-7", damped_fraction=0.25)]))
    assert row.shares == {"clipped_fraction": 0.5, "damped_fraction": 0.25}


def test_ages_are_counted_over_the_run() -> None:
    (versions,) = age_histograms(RunMetrics(ROWS))
    assert versions.replay.counts == (8, 8, 0, 0, 0, 0, 0)
    assert versions.drawn.counts == (0, 0, 0, 2, 0, 0, 0)


def test_rewards_part_by_part_where_something_was_paid() -> None:
    metrics = RunMetrics([*UPDATES, *ROUNDS])
    series = reward_series(metrics)
    assert list(series) == ["outcome", "repetition"]
    assert series["outcome"]["validation"] == [(0, 0.2), (3, 0.6)], "at the weights that a round measured"
    assert series["outcome"]["train"][-1] == (5, 0.5)
    outcome, repetition = reward_signals(metrics)
    assert [item.label for item in outcome.legend] == ["training", "validation"]
    assert [item.label for item in repetition.legend] == ["training"]
    assert outcome.newest == "0.6"


@pytest.mark.parametrize("rows", [[], [{"step": 1, "time": 1.0, "train/success": 0.5}]])
def test_of_an_older_run_nothing_is_shown(rows: list[dict[str, float]]) -> None:
    metrics = RunMetrics(rows)
    assert freshness(metrics) is None
    assert reward_signals(metrics) == []


def test_bars_stand_on_the_floor() -> None:
    assert bars_path([0.5, 1.0], 0.25, 0.5, Axis(0.0, 1.0)) == (
        "M125.0 1000.0L125.0 500.0L375.0 500.0L375.0 1000.0Z"
        "M625.0 1000.0L625.0 0.0L875.0 0.0L875.0 1000.0Z"
    )  # fmt: skip


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


def test_the_numbers_are_of_all_measurements() -> None:
    data = mismatch_data(RunMetrics(MISMATCHES))
    assert data is not None
    assert data["measurements"] == 5
    assert data["tokens"] == 700
    assert data["kl"] == 1e-9
    assert data["kl_max"] == 4.0
    assert data["outside"] == pytest.approx(150 / 700)


def test_alarms_are_stretches_of_updates() -> None:
    found = mismatch(RunMetrics(MISMATCHES))
    assert found is not None
    assert found.numbers.alarms == [Alarm(10, 20, False), Alarm(25, 25, True)]
    assert [signal.title for signal in found.signals] == ["KL, log₁₀", "Ratios off by 10%"]


def test_a_run_that_measured_nothing_has_no_section() -> None:
    assert mismatch(RunMetrics([])) is None
    assert mismatch(RunMetrics([{"step": 5, "mismatch/tokens": 0.0, "mismatch/alarm": 0.0}])) is None
    assert mismatch_data(RunMetrics([])) is None


@pytest.mark.needs("jinja2")
def test_the_page_says_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("distrl.evaluator.report.drawing.draw", lambda *given: None)
    config = Config(name="run", runs_dir=str(tmp_path))
    run = RunDir.create_or_open(config, resume=False)
    run.write_config(config)
    writer = MetricsWriter(run.metrics)
    for one in MISMATCHES:
        writer.write(int(one["step"]), {name: value for name, value in one.items() if "/" in name})
    writer.close()
    page = write_run_report(run.path, {}).read_text()
    assert "Train–inference mismatch" in page
    assert "updates 10 to 20" in page
    assert "from update 25 to the end" in page
    assert "median 1e−09" in page
