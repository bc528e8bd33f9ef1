"""The tiles of a report: only what was measured has one."""

from __future__ import annotations

from distrl.evaluator.report.facts import run_facts
from distrl.evaluator.report.metrics import RunMetrics


def test_actions_a_second_are_the_mean_over_the_time_of_training() -> None:
    measured = [  # time, updates, rate; until 20 s workers demonstrate, then they wait
        (0.0, 0.0, 500.0),
        (20.0, 0.0, 0.0),
        (30.0, 1.0, 10.0),
        (60.0, 9.0, 30.0),
    ]
    rows = [
        {"time": t, "step": step, "workers/actions_per_s": rate, "inference/batch_size": 2.0 + rate / 10}
        for t, step, rate in measured
    ]
    rows.insert(3, {"time": 40.0, "step": 4.0})  # of an update, without this number
    fact = next(fact for fact in run_facts({}, RunMetrics(rows)) if fact.key == "actions_per_s")
    assert (fact.number, fact.value, fact.note) == (25.0, "25.0", "per second, in batches of 4.5")


def test_what_was_not_measured_has_no_tile() -> None:
    keys = [fact.key for fact in run_facts({}, RunMetrics([{"step": 1.0, "time": 0.0, "episodes": 4.0}]))]
    assert "actions_per_s" not in keys
    assert "episodes" in keys
