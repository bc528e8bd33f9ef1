"""What a sweep came to, read from run directories: numbers, tables, picture."""

from __future__ import annotations

import csv
import dataclasses
import json
import sys
from pathlib import Path

import pytest
from finished_runs import episodes, evaluate, make_run

from distrl.configs.load import load_config
from distrl.configs.sweep import PlannedRun, Sweep
from distrl.core.checkpoints import point
from distrl.core.errors import RunDirectoryError
from distrl.evaluator.results import Evaluation, EvaluationSpec, Subject, split_result
from distrl.evaluator.statistics import t_interval
from distrl.evaluator.sweeps import write_sweep_report
from distrl.evaluator.sweeps.arms import Mean, mean_curve, median_time, summarise_arms
from distrl.evaluator.sweeps.runs import is_finished, reached, read_run
from distrl.evaluator.sweeps.table import is_share


def plan(
    tmp_path: Path, metric: str = "test/success", threshold: float | None = None, seeds: int = 2
) -> Sweep:
    directory = tmp_path / "sweep"
    runs = tuple(
        PlannedRun(
            arm,
            seed,
            load_config("quickstart", [f"name=seed-{seed}", f"runs_dir={directory}/{arm}", f"seed={seed}"]),
        )
        for seed in range(seeds)
        for arm in ("good", "bad")
    )
    return Sweep("sweep", directory, metric, "eval/val/success", threshold, runs)


def test_a_run_is_finished_when_its_result_and_its_start_are_evaluated(tmp_path) -> None:
    planned = plan(tmp_path).runs[0]
    assert not is_finished(planned.directory)
    run = make_run(planned, 2, None, [0.5])
    assert not is_finished(planned.directory)
    (run.checkpoints / "step_9").mkdir()
    point(run.checkpoints, "final", "step_9")
    evaluate(run, "step_9", 9)
    assert not is_finished(planned.directory)
    evaluate(run, "step_0", 2)
    assert is_finished(planned.directory)


def test_a_run_s_numbers(tmp_path) -> None:
    sweep = plan(tmp_path, threshold=0.5)
    make_run(sweep.runs[0], 2, 9, [0.2, 0.4, 0.6, 0.8, 0.8])
    result = read_run(sweep.runs[0], sweep)
    assert (result.is_finished, result.before, result.after) == (True, 0.2, 0.9)
    assert result.splits == {"test": (0.2, 0.9), "unseen_layout": (None, None)}
    assert result.curve == ((0.0, 0.2), (100.0, 0.4), (200.0, 0.6), (300.0, 0.8), (400.0, 0.8))
    assert result.reached_s == 300.0, "the first three rounds have a mean of 0.4, the next of 0.6"
    assert (result.elapsed_s, result.episodes, result.updates) == (400.0, 200.0, 4.0)


@pytest.mark.parametrize(
    ("metric", "before", "after"),
    [
        ("test/steps", 2.0, 2.0),
        ("loss/policy", 0.3, 0.7),
        ("eval/val/success", 0.3, 0.7),
        ("none", None, None),
    ],
)
def test_any_metric_can_be_compared(tmp_path, metric: str, before: float | None, after: float | None) -> None:
    sweep = plan(tmp_path, metric)
    make_run(sweep.runs[0], 2, 9, [0.3, 0.5, 0.7])
    result = read_run(sweep.runs[0], sweep)
    assert (result.before, result.after) == (before, after)


@pytest.mark.parametrize(
    ("metric", "is_percent"),
    [("test/invalid", True), ("reward/invalid", False), ("eval/val/reward/invalid", False)],
)
def test_a_part_of_the_reward_is_no_share(metric: str, is_percent: bool) -> None:
    assert is_share(metric) == is_percent


def test_continuous_control_is_compared_by_its_return(tmp_path) -> None:
    sweep = plan(tmp_path, "return")
    run = make_run(sweep.runs[0], 2, 9, [0.3])
    for name, mean in (("step_0", -150.5), ("step_9", 210.0)):
        (run.evaluations / name / "results.json").write_text(json.dumps({"mean": mean, "episodes": []}))
    result = read_run(sweep.runs[0], sweep)
    assert (result.before, result.after) == (-150.5, 210.0)
    assert "210" in write_sweep_report(sweep)[0]


def test_damaged_results_are_one_clear_error(tmp_path) -> None:
    sweep = plan(tmp_path)
    run = make_run(sweep.runs[0], 2, 9, [0.3])
    (run.evaluations / "step_9" / "results.json").write_text('{"splits": {"test"')
    with pytest.raises(RunDirectoryError, match="is damaged"):
        read_run(sweep.runs[0], sweep)


def test_splits_can_be_joined(tmp_path) -> None:
    sweep = plan(tmp_path, "test+other/success")
    run = make_run(sweep.runs[0], 2, 9, [0.3])
    assert read_run(sweep.runs[0], sweep).after is None, "one of them was not measured"
    file = run.evaluations / "step_9" / "results.json"
    spec = EvaluationSpec(
        suite="s", splits=("test", "other"), subject=Subject(kind="checkpoint", name="step_9")
    )
    splits = {"test": split_result(episodes(9)), "other": split_result(episodes(0, of=5))}
    file.write_text(Evaluation(spec=spec, splits=splits).model_dump_json())
    assert read_run(sweep.runs[0], sweep).after == pytest.approx(9 / 15)


def test_only_finished_runs_count(tmp_path) -> None:
    sweep = plan(tmp_path, seeds=3)
    for run in sweep.runs:
        if run.seed == 0:
            make_run(run, 1, 9 if run.arm == "good" else 5, [0.1, 0.9])
        if run.seed == 1:
            make_run(run, 2, 8 if run.arm == "good" else None, [0.2, 0.7])
    good, bad = summarise_arms([read_run(run, sweep) for run in sweep.runs], sweep.arms)
    assert (good.seeds, good.planned, bad.seeds) == ((0, 1), 3, (0,))
    assert good.after is not None
    assert good.after.value == pytest.approx(0.85)
    assert good.after.interval == t_interval([0.9, 0.8])
    assert good.gain is not None
    assert good.gain.value == pytest.approx(0.7)
    assert bad.after == Mean(0.5, None, 1)


def test_the_report_is_a_table_in_three_forms_and_a_picture(tmp_path) -> None:
    sweep = plan(tmp_path, threshold=0.5)
    for run in sweep.runs:
        make_run(run, 2, 9 if run.arm == "good" else 4, [0.2, 0.9, 0.9] if run.arm == "good" else [0.2] * 3)
    text, file, hint = write_sweep_report(sweep)
    lines = text.splitlines()
    assert lines[0].split() == ["arm", "seeds", "before", "after", "gain", "time", "to", "50%", "episodes",
                                "updates", "minutes"]  # fmt: skip
    assert lines[2].split()[:10] == ["good", "2/2", "20.0%", "±", "0.0", "90.0%", "±", "0.0", "+70.0%", "±"]
    assert "3.3 min (2/2)" in lines[2]
    assert "— (0/2)" in lines[3]
    assert (sweep.directory / "table.txt").read_text() == text
    rows = list(csv.DictReader((sweep.directory / "table.csv").read_text().splitlines()))
    assert [(row["arm"], row["after"], row["reached_s"]) for row in rows] == [
        ("good", "0.9", "200.0"),
        ("bad", "0.4", ""),
    ]
    data = json.loads((sweep.directory / "results.json").read_text())
    assert data["arms"][0]["after"] == {"mean": 0.9, "low": 0.9, "high": 0.9, "n": 2}
    assert [run["seed"] for run in data["runs"]] == [0, 0, 1, 1]
    if not hint:
        assert file.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_table_is_written_and_the_extra_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    sweep = plan(tmp_path)
    _, file, hint = write_sweep_report(sweep)
    assert file == sweep.directory / "table.txt"
    assert "distrl[report]" in hint


def test_a_sweep_that_has_not_begun_has_a_table(tmp_path) -> None:
    sweep = plan(tmp_path, threshold=0.3)
    text, _, _ = write_sweep_report(sweep)
    assert "0/2" in text
    assert "—" in text


@pytest.mark.needs("matplotlib")
def test_of_many_arms_the_best_are_drawn(tmp_path) -> None:
    from distrl.evaluator.sweeps.plot import best

    values = [0.3, 0.1, 0.2, 0.0]
    (empty,) = summarise_arms([], ["empty"])
    arms = [dataclasses.replace(empty, name=str(value), after=Mean(value, None, 1)) for value in values]
    assert [arm.after.value for arm in best(arms, 2) if arm.after] == [values[0], values[2]]
    assert best(arms, 4) == arms


def test_mean_curves_cover_the_time_that_all_have() -> None:
    curve = mean_curve([[(0.0, 0.0), (100.0, 1.0)], [(20.0, 0.5), (80.0, 0.5)], []])
    assert (curve[0][0], curve[-1][0]) == (20.0, 80.0)
    assert curve[0][1].value == pytest.approx((0.2 + 0.5) / 2)
    assert curve[-1][1].interval == t_interval([0.8, 0.5])
    assert mean_curve([[]]) == ()
    assert mean_curve([[(0.0, 1.0)], [(1.0, 1.0)]]) == (), "no time in common"
    assert [mean.value for _, mean in mean_curve([[(3.0, 0.4)]])] == [0.4]


@pytest.mark.parametrize(
    ("times", "median"),
    [([], None), ([3.0], 3.0), ([1.0, None, 2.0], 2.0), ([1.0, None], None), ([None, None, 1.0], None),
     ([4.0, 2.0, None, 1.0], 3.0)],
)  # fmt: skip
def test_runs_that_never_get_there_count_as_the_slowest(times, median) -> None:
    assert median_time(times) == median


def test_a_single_lucky_round_is_not_the_threshold() -> None:
    assert reached([(0.0, 0.1), (1.0, 0.9), (2.0, 0.2), (3.0, 0.1)], 0.5) is None
    assert reached([(0.0, 0.9), (1.0, 0.9)], 0.5) is None, "fewer than three rounds say nothing"
    assert reached([(0.0, 0.9)], None) is None
