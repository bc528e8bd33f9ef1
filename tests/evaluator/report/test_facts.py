"""The tiles of a report: only what was measured has one."""

from __future__ import annotations

from distrl.evaluator.report.metrics import RunMetrics
from distrl.evaluator.report.run import run_facts


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


def test_what_a_judge_took_is_a_tile() -> None:
    said = {"judged": 40.0, "unjudged": 2.0, "calls": 55.0, "input_tokens": 5e4, "output_tokens": 900.0}
    row = {"step": 1.0, "time": 0.0, **{f"judge/{name}": number for name, number in said.items()}}
    facts = {fact.key: fact for fact in run_facts({}, RunMetrics([{**row, "judge/cost": 0.0}]))}
    assert (facts["judged"].value, facts["judged"].note) == ("40", "episodes, and 2 unjudged")
    assert facts["judge_cost"].value == "50,900 tokens"
    assert facts["judge_cost"].note == "55 calls, 50,000 + 900 tokens"
    facts = {fact.key: fact for fact in run_facts({}, RunMetrics([{**row, "judge/cost": 1.5}]))}
    assert (facts["judge_cost"].number, facts["judge_cost"].value) == (1.5, "1.5")
    assert facts["judge_cost"].note.endswith(", cost 1.5")
    nobody = dict.fromkeys(row, 0.0)
    assert run_facts({}, RunMetrics([nobody]))[0].key == "duration_s"
    assert not any(fact.key.startswith("judge") for fact in run_facts({}, RunMetrics([nobody])))
