"""A run's metrics: columns that are filled in, torn lines, breaks, and the learning curve from them."""

from __future__ import annotations

import pytest

from distrl.evaluator.report.metrics import ELAPSED, EPISODES, LEARNER_CLOCK, RunMetrics
from distrl.evaluator.report.training import learning_curve, signal_charts, success_charts

ROWS = [
    {"step": 1, "time": 100.0, "episodes": 10, "train/success": 0.3, "policy/entropy": 2.0},
    {"step": 2, "time": 110.0, "episodes": 20, "train/success": 0.4, "policy/entropy": 1.5},
    {"step": 3, "time": 112.0, "eval/val/success": 0.25, "eval/val/episodes": 4, "eval/val/updates": 0},
    {"step": 3, "time": 120.0, "episodes": 30, "train/success": 0.5, "policy/entropy": 1.0},
    {"step": 3, "time": 125.0, "eval/val/success": 0.75, "eval/val/episodes": 4, "eval/val/updates": 2},
]


def test_a_round_stands_where_its_weights_were() -> None:
    curve = learning_curve(RunMetrics(ROWS), EPISODES)
    assert curve.train == [(10, 0.3), (20, 0.4), (30, 0.5)]
    assert curve.validation == [(0.0, 0.25), (20, 0.75)]
    assert curve.counts == [4, 4]


@pytest.mark.parametrize(
    ("rows", "series"),
    [
        ([(0.0, None), (60.0, None), (90_000.0, None)], [0.0, 60.0, 60.0]),  # a break is no time of training
        ([(0.0, 40.0), (5.0, None)], [40.0, 45.0]),  # the learner's own clock wins
    ],
)
def test_time_goes_on_over_rows_and_not_over_breaks(
    rows: list[tuple[float, float | None]], series: list[float]
) -> None:
    made = [{"time": at, "a": 1.0} | ({} if own is None else {LEARNER_CLOCK: own}) for at, own in rows]
    assert [x for x, _ in RunMetrics(made).series("a", ELAPSED)] == series


def test_charts_are_drawn_over_episodes_and_minutes() -> None:
    metrics = RunMetrics(ROWS)
    episodes, minutes = success_charts(metrics, 0.2, "before")
    assert (episodes.short, minutes.short) == ("Episodes", "Time")
    assert episodes.end is not None
    assert episodes.end.label == "75%"
    assert [style for style, _, _ in episodes.paths] == ["line", "dots", "thin", "dash", "band"]
    assert [line.label for line in episodes.legend][1:] == ["training episodes", "before on the test split"]
    (entropy,) = signal_charts(metrics)
    assert entropy.title == "Entropy"


@pytest.mark.parametrize("rows", [[], [{"step": 1, "time": 1.0}], [ROWS[2]]])
def test_without_data_there_is_no_curve(rows: list[dict[str, float]]) -> None:
    assert success_charts(RunMetrics(rows), None) == []
    assert signal_charts(RunMetrics(rows)) == []


def test_what_was_rolled_back_is_left_out_but_for_evaluations() -> None:
    """Twice the run goes on from step 2: at first it gets to 3 again, then on to 4."""
    start = [
        {"step": 1, "time": 10.0, "time/elapsed_s": 10.0, "a": 1.0},
        {"step": 2, "time": 20.0, "time/elapsed_s": 20.0, "a": 2.0},
    ]
    lost = [
        {"step": 3, "time": 30.0, "time/elapsed_s": 30.0, "a": -1.0, "b": 5.0},
        {"step": 3, "time": 35.0, "eval/val/success": 0.5, "eval/val/updates": 2, "eval/val/episodes": 4},
        {"step": 4, "time": 40.0, "time/elapsed_s": 40.0, "a": -2.0},
    ]
    resumed = {"step": 2, "time": 100.0, "resumed": 1.0}
    later = {"step": 3, "time": 110.0, "time/elapsed_s": 30.0, "a": 3.0}
    last = {"step": 4, "time": 220.0, "time/elapsed_s": 40.0, "a": 4.0}
    metrics = RunMetrics(
        [*start, *lost, resumed, later, resumed | {"time": 200.0}, later | {"time": 210.0}, last]
    )
    assert metrics.series("a", "step") == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    assert metrics.series("a", ELAPSED) == [(10.0, 1.0), (20.0, 2.0), (30.0, 3.0), (40.0, 4.0)]
    assert metrics.last("b") is None
    assert learning_curve(metrics, ELAPSED).validation == [(20.0, 0.5)], "its weights were those of step 2"
