"""The suites of LIBERO: their sentences, and which starts are in which split."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import libero_install
import pytest

from distrl.configs.schema import Config
from distrl.core.errors import MissingDependency, TaskError
from distrl.core.types import Task
from distrl.evaluator.suites import is_trained_on, load_suite
from distrl.evaluator.suites.libero import goal
from distrl.evaluator.suites.playable import check_playable

SIZES = {"libero_spatial": 10, "libero_object": 10, "libero_goal": 10, "libero_10": 10, "libero_90": 90}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LIBERO_CONFIG_PATH", str(tmp_path / "config"))
    monkeypatch.delitem(sys.modules, "libero", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return libero_install.make(tmp_path)


def test_sentences_are_those_of_the_task_files_and_no_start_is_in_two_splits(install: Path) -> None:
    tasks = goal()
    assert {task.template: task.goal for task in tasks} == {
        "open_it": "Open it",
        "turn_on_the_stove": "Turn on the stove",
    }
    assert Counter(task.split for task in tasks) == {
        "train": 70, "val": 10, "test": 20, "train_recorded": 100,
    }  # fmt: skip
    assert len({task.id for task in tasks}) == len(tasks)
    assert [task.template for task in tasks[:4]] == ["open_it", "turn_on_the_stove"] * 2, "they take turns"
    trained, measured = (
        {
            (task.template, task.params["init"])
            for task in tasks
            if "init" in task.params and task.split in splits
        }
        for splits in (["train"], ["val", "test"])
    )
    assert not trained & measured
    assert len(trained | measured) == 2 * 50
    assert {task.split for task in tasks if "recording" in task.params} == {"train_recorded"}
    assert is_trained_on("train_recorded")


def test_task_files_may_be_elsewhere_as_its_config_says(install: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / "libero_goal").mkdir(parents=True)
    (tmp_path / "mine" / "libero_goal" / "x.bddl").write_text("(:language Do it)")
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text(f"bddl_files: {tmp_path / 'mine'}\n")
    assert {task.goal for task in goal()} == {"Do it"}


def test_tasks_that_it_lacks_are_refused_before_the_start(install: Path) -> None:
    config = Config.model_validate({"env": {"kind": "libero"}})
    check_playable(config, goal())
    for name in ("libero_goal/fly", "../libero_goal/open_it", "open_it", None):
        strange = Task(id="mine/1", suite="mine", template="t", split="test", goal="g", params={"env": name})
        with pytest.raises(TaskError, match="Task 'mine/1' is not a task of the env libero"):
            check_playable(config, [strange])


def test_without_the_package_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libero", None)
    with pytest.raises(MissingDependency, match="LIBERO is not installed") as refused:
        goal()
    assert "pip install --no-deps hf-libero" in refused.value.remedy
    assert "\n" not in refused.value.remedy


@pytest.mark.needs("libero")
@pytest.mark.parametrize("suite", SIZES)
def test_every_task_of_the_package_has_a_sentence(suite: str) -> None:
    tasks = load_suite(suite, "test")
    assert len({task.template for task in tasks}) == SIZES[suite]
    assert len(tasks) == 10 * SIZES[suite]
    assert all(len(task.goal.split()) >= 3 for task in tasks)
