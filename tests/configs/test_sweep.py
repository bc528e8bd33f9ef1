"""A sweep's file: which runs it describes, and what is told about mistakes before any of them starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from distrl.configs.load import load_config
from distrl.configs.presets import preset_names
from distrl.configs.sweep import SWEEPS_DIR, Sweep, load_sweep
from distrl.core.errors import ConfigError


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
    changes = [
        "learner.optim.lr=0.001",
        "learner.episodes=7",
        "learner.max_minutes=2",
        "seed=3",
        "name=seed-3",
    ]
    assert one == load_config("quickstart", [*changes, "runs_dir=runs/try/one"])
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
    assert sweep.arms[:3] == [
        "a,weights.0=0.5,alpha=0.5",
        "a,weights.0=0.5,alpha=1.0",
        "a,weights.0=1,alpha=0.5",
    ]
    assert len(sweep.arms) == 8
    last = sweep.runs[-1].config.learner
    assert (last.batch_trajectories, last.replay.weights, last.replay.alpha) == (4, (1.0, 0.3, 0.1), 1.0)
    assert len(load(tmp_path, text, arms=["b"]).arms) == 4
    assert load(tmp_path, text, arms=["b,weights.0=1,alpha=0.5"]).arms == ["b,weights.0=1,alpha=0.5"]


def test_labels_are_as_long_as_they_must_be(tmp_path) -> None:
    sweep = load(
        tmp_path,
        """
base: quickstart
grid: {learner.optim.lr: [1e-4], learner.demonstrations.lr: [0.1], learner.replay.priority: [uniform]}
""",
    )
    assert sweep.arms == ["optim.lr=0.0001,demonstrations.lr=0.1,priority=uniform"]


def test_options_take_the_place_of_the_file_s(tmp_path) -> None:
    text = "base: quickstart\narms: {a: {}, b: {}, c: {}}\nseeds: [0]\nminutes: 5"
    sweep = load(tmp_path, text, seeds=[4, 5], minutes=0.5, arms=["c,a"], runs_dir="elsewhere", name="other")
    assert sweep.arms == ["a", "c"]
    assert {run.seed for run in sweep.runs} == {4, 5}
    assert {run.config.learner.max_minutes for run in sweep.runs} == {0.5}
    assert sweep.directory == Path("elsewhere/other")


def test_the_base_is_found_beside_the_sweep_and_options_of_an_environment_merge(tmp_path) -> None:
    (tmp_path / "mine.yaml").write_text("env: {options: {width: 270}}\nlearner: {policy_lag: 0}")
    text = "base: mine.yaml\narms: {slow: {env.options.latency.median_s: 2}}"
    assert load(tmp_path, text).runs[0].config.env.options == {"width": 270, "latency": {"median_s": 2}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: nowhere", "no configuration file nowhere"),
        ("bass: quickstart", "Did you mean `base`?"),
        ("seeds: [0]", "`base`: Field required"),
        ("- base", "is no sweep"),
        ("base: quickstart\nseeds: []", "`seeds`"),
        ("base: quickstart\nseeds: [1, 1]", "a seed appears twice"),
        ("base: quickstart\nseeds: [one]", "`seeds.0`"),
        ("base: quickstart\nminutes: 0", "`minutes`"),
        ("base: quickstart\ngrid: {learner.optim.lr: []}", "`grid.learner.optim.lr`"),
        ("base: quickstart\narms: {'../up': {}}", "not a valid name of an arm"),
        ("base: quickstart\narms: {a: {}, A: {}}", "two arms are called 'A'"),
        ("base: quickstart\nset: {learner.episods: 3}", "set: unknown key `learner.episods`. Did you mean"),
        ("base: quickstart\narms: {x: {learner.replay.alfa: 1}}", "arm x: unknown key `learner.replay.alfa`"),
        ("base: quickstart\narms: {x: {learner.episodes: many}}", "arm x: `learner.episodes` is 'many'"),
        ("base: quickstart\narms: {x: {learner.episodes.much: 1}}", "leads through 17000"),
        ("base: quickstart\narms: {x: {learner.replay.weights.3: 1}}", "'3' is no place in a list of 3"),
        ("base: quickstart\narms: {x: {seed: 1}}", "`seed` cannot be set in a sweep"),
        (
            "base: quickstart\nseeds: [0]\ngrid: {"
            + ", ".join(f"learner.x{i}: [1, 2]" for i in range(40))
            + "}",
            "runs are more than",
        ),
        ("base: quickstart\nset: {name: x}", "`name` cannot be set in a sweep"),
        ("base: quickstart\narms: {x: {local.workers: 0}}", "arm x: local.workers is 0"),
    ],
)
def test_mistakes_are_one_line(tmp_path, text: str, message: str) -> None:
    assert message in refused(tmp_path, text)


def test_an_arm_that_is_not_there_is_told_with_the_nearest(tmp_path) -> None:
    text = "base: quickstart\narms: {aride: {}, ppo: {}}"
    assert "no arm 'arid'. Did you mean aride?" in refused(tmp_path, text, arms=["arid,ppo"])


@pytest.mark.parametrize("name", preset_names(SWEEPS_DIR))
def test_every_sweep_that_ships_is_sound(name: str) -> None:
    sweep = load_sweep(name)
    assert sweep.name == name
    assert sweep.runs


def test_the_paper_s_grid_is_compared_on_validation_tasks() -> None:
    sweep = load_sweep("dper")
    assert len(sweep.arms) == 7 * 6 * 6
    assert sweep.metric == "val/success"
    assert {run.config.learner.replay.weights for run in sweep.runs} >= {(0.01, 0.01, 0.01), (10.0, 1.0, 1.0)}


def test_own_modules_of_an_arm_are_beside_the_sweep(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    text = "base: quickstart\narms: {theirs: {}, mine: {env.import_path: 'mine:Env'}}\n"
    theirs, mine = load(tmp_path, text).runs
    assert (theirs.config.modules_dir, mine.config.modules_dir) == (None, str(tmp_path))
