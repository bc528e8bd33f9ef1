"""Sweeps: the runs that a file describes, mistakes before any of them starts, and their results."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from finished_runs import episodes, evaluate, make_run

from distrl.configs.load import load_config
from distrl.core.checkpoints import point
from distrl.core.errors import ConfigError, RunDirectoryError
from distrl.core.terminal import Console
from distrl.evaluator.experiment_results import (
    Mean,
    ResultsFile,
    as_markdown,
    check_metric,
    chosen_arms,
    is_finished,
    mean_curve,
    median_time,
    reached,
    read_run,
    summarise_arms,
    write_sweep,
)
from distrl.evaluator.experiments import PlannedRun, Sweep, difference, load_sweep
from distrl.evaluator.results import Evaluation, EvaluationSpec, Subject, split_result
from distrl.evaluator.statistics import t_interval

REGIMES = ["r1-reuse", "r2-phones", "r3-sparse", "r4-lag", "r5-drift"]
SWEEPS = ["dper", "learning", "staleness", "world", "world-arms", "arms-objectives", *REGIMES]


GATES = "arms: {a: {}}\ngates: {ratios: {arm: a, metric: %s, most: 0.7}}"


def load(tmp_path: Path, text: str, **options: object) -> Sweep:
    file = tmp_path / "try.yaml"
    file.write_text(text)
    return load_sweep(file, **options)  # type: ignore[arg-type]


def refused(tmp_path: Path, text: str, **options: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_arms_and_seeds_make_runs_seed_by_seed(tmp_path) -> None:
    sweep = load(
        tmp_path,
        """
base: quickstart
set: {learner.optim.lr: 0.001, learner: {episodes: 7}}
arms:
  one: {}
  two: {learner.replay.priority: uniform}
seeds: [3, 1]
minutes: 2
""",
    )
    assert [(run.arm, run.seed) for run in sweep.runs] == [("one", 3), ("two", 3), ("one", 1), ("two", 1)]
    assert sweep.arms == ["one", "two"]
    assert (sweep.name, sweep.directory) == ("try", Path("runs/try"))
    assert [str(run.directory) for run in sweep.runs[:2]] == ["runs/try/one/seed-3", "runs/try/two/seed-3"]
    one, two = sweep.runs[0].config, sweep.runs[1].config
    changes = ["learner.optim.lr=0.001", "learner.episodes=7", "learner.max_minutes=2", "seed=3"]
    assert one == load_config("quickstart", [*changes, "name=seed-3", "runs_dir=runs/try/one"])
    assert two.learner.replay == one.learner.replay.model_copy(update={"priority": "uniform"})
    assert (sweep.metric, sweep.curve, sweep.threshold) == ("test/success", "eval/val/success", None)


def test_a_grid_is_every_combination_of_each_arm(tmp_path) -> None:
    text = """
base: quickstart
arms: {a: {}, b: {learner.batch_trajectories: 4}}
grid:
  learner.replay.weights.0: [0.5, 1]
  learner.replay.alpha: [0.5, 1.0]
"""
    sweep = load(tmp_path, text)
    assert sweep.arms[:2] == ["a,weights.0=0.5,alpha=0.5", "a,weights.0=0.5,alpha=1.0"]
    assert len(sweep.arms) == 8
    last = sweep.runs[-1].config.learner
    assert (last.batch_trajectories, last.replay.weights, last.replay.alpha) == (4, (1.0, 0.3, 0.1), 1.0)
    long = load(
        tmp_path, "base: quickstart\ngrid: {learner.optim.lr: [1e-4], learner.demonstrations.lr: [0.1]}"
    )
    assert long.arms == ["learner.optim.lr=0.0001,learner.demonstrations.lr=0.1"]
    assert len(load(tmp_path, text, arms=["b"]).arms) == 4
    assert load(tmp_path, text, arms=["b,weights.0=1,alpha=0.5"]).arms == ["b,weights.0=1,alpha=0.5"]


def test_what_a_policy_has_of_its_agent_is_that_of_the_changed_agent(tmp_path: Path) -> None:
    text = """
base: metaworld
set: {agent.options.chunk: 3, learner.max_new_tokens: 12}
arms: {a: {agent.options.bins: 7}}
"""
    (run,) = load(tmp_path, text).runs
    assert (run.config.policy.chunk, run.config.policy.bins) == (3, 7)  # type: ignore[union-attr]


def test_options_take_the_place_of_the_file_s(tmp_path) -> None:
    text = "base: quickstart\narms: {a: {}, b: {}, c: {}}\nseeds: [0]\nminutes: 5"
    sweep = load(tmp_path, text, seeds=[4, 5], minutes=0.5, arms=["c,a"], runs_dir="elsewhere", name="other")
    assert sweep.arms == ["a", "c"]
    assert {run.seed for run in sweep.runs} == {4, 5}
    assert {run.config.learner.max_minutes for run in sweep.runs} == {0.5}
    assert sweep.directory == Path("elsewhere/other")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: nowhere", "no configuration file nowhere"),
        ("bass: quickstart", "unknown key `bass`. Known keys there: name, title, base, set,"),
        (
            "base: quickstart\nagents: {a: {agnet: expert}}\nsuites: {s: {}}",
            "unknown key `agents.a.agnet`. Known keys there: agent, checkpoint, inference,",
        ),
        ("seeds: [0]", "`base`: Field required"),
        ("base: quickstart\nseeds: [1, 1]", "a seed appears twice"),
        ("base: quickstart\ngrid: {learner.optim.lr: []}", "`grid.learner.optim.lr`"),
        ("base: quickstart\narms: {'../up': {}}", "is not a valid name"),
        ("base: quickstart\narms: {a: {}, A: {}}", "two arms are called 'A'"),
        ("base: quickstart\nset: {learner.episods: 3}", "set: unknown key `learner.episods`. Did you mean"),
        ("base: quickstart\narms: {x: {learner.episodes.much: 1}}", "leads through 4200"),
        ("base: quickstart\narms: {x: {learner.replay.weights.3: 1}}", "'3' is not a position in a list"),
        ("base: quickstart\narms: {x: {seed: 1}}", "`seed` cannot be set in an experiment"),
        ("base: quickstart\narms: {x: {local.workers: 0}}", "arm x: local.workers is 0"),
    ],
)
def test_mistakes_are_one_line(tmp_path, text: str, message: str) -> None:
    assert message in refused(tmp_path, text)


def test_an_unknown_arm_is_refused_with_the_nearest(tmp_path) -> None:
    text = "base: quickstart\narms: {aride: {}, ppo: {}}"
    assert "no arm 'arid' here. Did you mean 'aride'?" in refused(tmp_path, text, arms=["arid,ppo"])


def test_sections_with_keys_of_the_user_are_compared_whole() -> None:
    one, other = {"env": {"options": {"a": 1}}}, {"env": {"options": {"a": 1, "b": 2}, "kind": "phone"}}
    assert difference(one, other) == difference(other, one) == "env.options"
    assert difference({"a": 1, "b": {"c": 1}}, {"b": {"c": 1}, "d": 2}) is None
    assert difference({"b": {"c": 1}}, {"b": {"c": 2}}) == "b.c"


@pytest.mark.parametrize("name", SWEEPS)
def test_every_sweep_that_ships_is_sound(name: str) -> None:
    sweep = load_sweep(name)
    check_metric(sweep)
    assert (sweep.name, bool(sweep.runs)) == (name, True)


def test_own_modules_of_an_arm_are_beside_the_sweep(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    text = "base: quickstart\narms: {theirs: {}, mine: {env.import_path: 'mine:Env'}}\n"
    theirs, mine = load(tmp_path, text).runs
    assert (theirs.config.modules_dir, mine.config.modules_dir) == (None, str(tmp_path))


@pytest.mark.parametrize(
    ("base", "names", "message"),
    [
        ("quickstart", "metric: test+unseen_layout/invalid", ""),
        ("quickstart", "metric: staleness/4-7/success\ncurve: loss/policy", ""),
        ("appo-hopper", "metric: solved/return\ncurve: train/return", ""),
        ("appo-hopper", "metric: return", ""),
        ("quickstart", "metric: test/sucess", "is not measured by its runs. Did you mean 'test/success'?"),
        ("quickstart", "metric: tset/success", "is not measured by its runs. Did you mean 'test/success'?"),
        ("quickstart", "metric: test+unseen_layuot/success", "is not measured by its runs."),
        ("quickstart", "metric: test/return", "is not measured by its runs."),
        ("quickstart", GATES % "off_policy/ess", ""),
        ("quickstart", GATES % "off_polcy/ess", "The sweep's gate metric off_polcy/ess is not measured"),
        ("quickstart", "curve: val/success", "The sweep's curve val/success is not measured by its runs."),
        ("appo-hopper", "metric: retrun", "Did you mean 'return'?"),
    ],
)
def test_metrics_that_no_run_records_are_refused(tmp_path: Path, base: str, names: str, message: str) -> None:
    sweep = load(tmp_path, f"base: {base}\n{names}\n", runs_dir=str(tmp_path / "runs"))
    if not message:
        check_metric(sweep)
        return
    with pytest.raises(ConfigError) as caught:
        check_metric(sweep)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


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
    (run.evaluations / "step_9" / "results.json").write_text('{"splits": {"test"')
    with pytest.raises(RunDirectoryError, match="is damaged"):
        read_run(planned, plan(tmp_path))


def test_a_run_s_numbers(tmp_path) -> None:
    sweep = plan(tmp_path, threshold=0.5)
    make_run(sweep.runs[0], 2, 9, [0.2, 0.4, 0.6, 0.8, 0.8])
    result = read_run(sweep.runs[0], sweep)
    assert (result.is_finished, result.before, result.after) == (True, 0.2, 0.9)
    assert result.splits == {"test": (0.2, 0.9), "unseen_layout": (None, None)}
    assert result.curve == ((0.0, 0.2), (100.0, 0.4), (200.0, 0.6), (300.0, 0.8), (400.0, 0.8))
    assert result.reached_s == 300.0, "the first three rounds have a mean of 0.4, the next of 0.6"
    assert (result.elapsed_s, result.episodes, result.updates) == (400.0, 200.0, 4.0)


def test_a_curve_is_not_that_of_another_split(tmp_path) -> None:
    sweep = replace(plan(tmp_path), curve="eval/other/success")
    make_run(sweep.runs[0], 2, 9, [0.2, 0.4])
    assert read_run(sweep.runs[0], sweep).curve == ()


def test_a_run_of_own_modules_counts_wherever_it_was_made(tmp_path) -> None:
    def planned(place: Path) -> Sweep:
        (run, *_), own = plan(place).runs, {"modules_dir": str(place)}
        return replace(plan(place), runs=(replace(run, config=run.config.model_copy(update=own)),))

    here, there, file = planned(tmp_path / "here"), planned(tmp_path / "there"), tmp_path / "results.json"
    make_run(here.runs[0], 2, 9, [0.2, 0.4])
    ResultsFile(here, file).update()
    known = ResultsFile(there, file)
    assert (known.left_out, known.is_done(there.runs[0])) == ([], True)


def test_continuous_control_is_compared_by_its_return(tmp_path) -> None:
    sweep = plan(tmp_path, "return")
    run = make_run(sweep.runs[0], 2, 9, [0.3])
    for name, mean in (("step_0", -150.5), ("step_9", 210.0)):
        (run.evaluations / name / "results.json").write_text(json.dumps({"mean": mean, "episodes": []}))
    result = read_run(sweep.runs[0], sweep)
    assert (result.before, result.after) == (-150.5, 210.0)
    assert "210" in write_sweep(sweep)[0].markdown()


def test_the_return_of_training_is_not_that_of_the_evaluation(tmp_path) -> None:
    sweep = plan(tmp_path, "train/return")
    run = make_run(sweep.runs[0], 2, 9, [0.3])
    (run.evaluations / "step_9" / "results.json").write_text(json.dumps({"mean": 210.0, "episodes": []}))
    with run.metrics.open("a") as rows:
        rows.write('{"step": 9, "time/elapsed_s": 500.0, "train/return": 7.0}\n')
    assert read_run(sweep.runs[0], sweep).after == 7.0


def test_splits_can_be_joined(tmp_path) -> None:
    sweep = plan(tmp_path, "test+other/success")
    run = make_run(sweep.runs[0], 2, 9, [0.3])
    assert read_run(sweep.runs[0], sweep).after is None, "one of them was not measured"
    spec = EvaluationSpec(suite="s", splits=("test", "other"), subject=Subject(kind="checkpoint", name="x"))
    splits = {"test": split_result(episodes(9)), "other": split_result(episodes(0, of=5))}
    evaluation = Evaluation(spec=spec, splits=splits)
    (run.evaluations / "step_9" / "results.json").write_text(evaluation.model_dump_json())
    assert read_run(sweep.runs[0], sweep).after == pytest.approx(9 / 15)


def test_only_finished_runs_count(tmp_path) -> None:
    sweep = plan(tmp_path, seeds=3)
    for run, after in zip(sweep.runs, (9, 5, 8, None), strict=False):
        make_run(run, 2, after, [0.2, 0.9])
    good, bad = summarise_arms([read_run(run, sweep) for run in sweep.runs], sweep.arms)
    assert (good.seeds, good.planned, bad.seeds) == ((0, 1), 3, (0,))
    assert (good.after, bad.after) == (Mean.of([0.9, 0.8]), Mean(value=0.5, n=1))
    assert good.gain is not None
    assert good.gain.value == pytest.approx(0.65)


def test_the_report_is_a_table_numbers_and_a_picture(tmp_path) -> None:
    sweep = plan(tmp_path, threshold=0.5)
    for run in sweep.runs:
        solved = 9 - run.seed if run.arm == "good" else 4
        make_run(run, 2, solved, [0.2, 0.9, 0.9] if run.arm == "good" else [0.2] * 3)
    block, hint = write_sweep(sweep)
    assert block.header[:7] == ["arm", "seeds", "before", "after", "gain", "area", "time to 50%"]
    assert block.rows[0][:5] == ["good", "2/2", "20.0%", "85.0% ± 63.5", "+65.0% ± 63.5"]
    assert block.rows[0][5:7] == ["72.5%", "3.3 min (2/2)"]
    assert block.rows[1][6] == "– (0/2)"
    assert (sweep.directory / "table.md").read_text() == as_markdown([block])
    out = io.StringIO()
    block.show(Console(file=out))
    assert "│  20.0% │ 85.0% ± 63.5 │ +65.0% ± 63.5 │" in out.getvalue(), "nothing is cut in a file"
    data = json.loads((sweep.directory / "results.json").read_text())
    assert data["arms"][0]["before"] == {"value": 0.2, "interval": None, "n": 2}
    assert (data["arms"][0]["reached_s"], data["arms"][1]["reached_s"]) == (200.0, None)
    assert [run["seed"] for run in data["runs"]] == [0, 0, 1, 1]
    assert data["settings"].keys() == {run["settings"] for run in data["runs"]}
    if not hint:
        assert (sweep.directory / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_table_is_written_and_the_extra_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    sweep = plan(tmp_path)
    _, hint = write_sweep(sweep)
    assert "| good | 0/2 | – |" in (sweep.directory / "table.md").read_text()
    assert "distrl[report]" in hint


def test_mean_curves_cover_the_time_that_all_have() -> None:
    curve = mean_curve([[(0.0, 0.0), (100.0, 1.0)], [(20.0, 0.5), (80.0, 0.5)], []])
    assert (curve[0][0], curve[-1][0]) == (20.0, 80.0)
    assert curve[0][1].value == pytest.approx((0.2 + 0.5) / 2)
    assert curve[-1][1].interval == t_interval([0.8, 0.5])
    assert mean_curve([[]]) == ()
    assert mean_curve([[(0.0, 1.0)], [(1.0, 1.0)]]) == (), "no time in common"
    assert [mean.value for _, mean in mean_curve([[(3.0, 0.4)]])] == [0.4]


def test_runs_that_never_get_there_count_as_the_slowest() -> None:
    times: list[list[float | None]] = [[], [1.0, None, 2.0], [1.0, None], [4.0, 2.0, None, 1.0]]
    assert list(map(median_time, times)) == [None, 2.0, None, 3.0]


def test_a_single_lucky_round_is_not_the_threshold() -> None:
    assert reached([(0.0, 0.1), (1.0, 0.9), (2.0, 0.2), (3.0, 0.1)], 0.5) is None
    assert reached([(0.0, 0.9), (1.0, 0.9)], 0.5) is None, "fewer than three rounds say nothing"
    assert reached([(0.0, 0.9)], None) is None


VIRTUAL = """
base: quickstart
time: virtual
tune: {key: learner.optim.lr, values: [0.001, 0.002], seeds: [0]}
arms:
  one: {}
  two: {learner.replay.priority: uniform}
gates:
  loss: {arm: one, metric: loss/policy, least: 0.3, most: 0.6}
  control: {arm: two, over: one, least: 0.15}
curve: eval/val/success
seeds: [0, 1, 2]
"""


def test_the_tuned_value_is_that_with_the_largest_area(tmp_path) -> None:
    sweep = load(tmp_path, VIRTUAL, runs_dir=str(tmp_path))
    assert [run.seed for run in sweep.runs[:4]] == [0] * 4
    runs = {(run.arm, run.seed): run for run in sweep.runs}
    make_run(runs["one,lr=0.001", 0], 2, 9, [0.2, 0.4])
    results = [read_run(run, sweep) for run in sweep.runs]
    assert chosen_arms(sweep, results) == {}  # another value may be better
    make_run(runs["one,lr=0.002", 0], 2, 8, [0.2, 0.8])
    results = [read_run(run, sweep) for run in sweep.runs]
    assert chosen_arms(sweep, results) == {"one": "one,lr=0.002"}
    block, _ = write_sweep(sweep)
    assert [row[0] for row in block.rows] == ["one,lr=0.002", "two,lr=0.001", "two,lr=0.002"]
    assert block.rows[0][1:6] == ["0/2", "–", "–", "–", "–"], "the seed that chose it does not count"
    make_run(runs["one,lr=0.002", 1], 2, 6, [0.2, 0.8])
    for rate, curve in (("0.001", [0.2, 0.4]), ("0.002", [0.2, 0.8])):
        make_run(runs[f"two,lr={rate}", 0], 2, 1, curve)
    make_run(runs["two,lr=0.002", 1], 2, 4, [0.2, 0.8])
    block, _ = write_sweep(sweep)
    assert [row[3] for row in block.rows] == ["60.0%", "40.0%"]
    assert block.rows[0][5] == "50.0%"  # the area of a line from 0.2 to 0.8
    assert "Seeds that chose learner.optim.lr are left out: 0." in block.text
    assert "(test/success of one less that of two, least 0.15): 0.2, holds." in block.text


def test_gates_say_whether_they_hold(tmp_path) -> None:
    sweep = load(tmp_path, VIRTUAL.replace("tune:", "#"), runs_dir=str(tmp_path))
    runs = {(run.arm, run.seed): run for run in sweep.runs}
    assert "(loss/policy of one, least 0.3, most 0.6): not measured." in write_sweep(sweep)[0].text
    for seed, (one, two) in enumerate([(9, 7), (8, 7)]):
        make_run(runs["one", seed], 2, one, [0.2, 0.8])
        make_run(runs["two", seed], 2, two, [0.2, 0.8])
    make_run(runs["two", 2], 2, 0, [0.2, 0.8])  # it has no pair
    text = write_sweep(sweep)[0].text
    assert "Gate loss (loss/policy of one, least 0.3, most 0.6): 0.5, holds." in text
    assert "(test/success of one less that of two, least 0.15): 0.15" in text
    saved = json.loads((sweep.directory / "results.json").read_text())
    assert len(saved["gates"]) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("arm: two, over", "arm: three, over"), "names the arm 'three'"),
        (("over: one, least: 0.15", "over: one"), "give least, most or both"),
        (("over: one, least", "over: one, metric: x, least"), "exactly one of metric and over"),
        (("seeds: [0]}", "seeds: [0, 1, 2]}"), "must be some of"),
        (("arms:", "grid: {learner.gamma: [0.9]}\narms:"), "gates name arms"),
        (("time: virtual", "time: later"), "time"),
    ],
)
def test_gates_and_tuning_that_cannot_be_are_refused(tmp_path, change, message) -> None:
    assert message in refused(tmp_path, VIRTUAL.replace(*change))


def test_arms_may_be_in_a_file_of_their_own(tmp_path) -> None:
    (tmp_path / "shared.yaml").write_text("one: {}\ntwo: {learner.optim.lr: 0.1}\n")
    sweep = load(tmp_path, "base: quickstart\narms: shared.yaml\n")
    assert sweep.arms == ["one", "two"]
