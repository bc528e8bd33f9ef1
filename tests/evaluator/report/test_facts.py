"""The tiles of a report: only what was measured has one."""

from __future__ import annotations

from distrl.evaluator.report.facts import run_facts
from distrl.evaluator.report.metrics import RunMetrics


def test_actions_a_second_are_the_mean_over_the_run() -> None:
    peers = [
        {"workers/actions_per_s": rate, "inference/batch_size": 2.0 + rate / 10} for rate in (10.0, 30.0)
    ]
    rows = [{"step": float(step), "time": float(step), **row} for step, row in enumerate(peers)]
    fact = next(fact for fact in run_facts({}, RunMetrics(rows)) if fact.key == "actions_per_s")
    assert (fact.number, fact.value, fact.note) == (20.0, "20.0", "per second, in batches of 4.0")


def test_what_was_not_measured_has_no_tile() -> None:
    keys = [fact.key for fact in run_facts({}, RunMetrics([{"step": 1.0, "time": 0.0, "episodes": 4.0}]))]
    assert "actions_per_s" not in keys
    assert "episodes" in keys
