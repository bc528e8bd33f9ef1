"""Loading suites by name, file and import path, and what is said when that fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distrl.configs.schema import TasksConfig
from distrl.core.errors import TaskError
from distrl.evaluator.suites import get_task, load_suite, load_tasks

TASK = {
    "id": "mine/1",
    "goal": "Open the Notes app",
    "template": "open_app",
    "params": {"layout": 0, "app": "notes", "start": "launcher"},
}


def test_a_split_is_chosen_or_refused() -> None:
    assert {task.split for task in load_suite("quickstart", "test")} == {"test"}
    with pytest.raises(TaskError, match=r"no split 'dev'\. Its splits: train, val, test, unseen_layout"):
        load_suite("quickstart", "dev")


def test_templates_are_left_out_of_every_split() -> None:
    config = TasksConfig(leave_out=["alarm", "star"])
    for split in (None, "train", "test"):
        kept = [task for task in load_suite("quickstart", split) if task.template not in ("alarm", "star")]
        assert load_tasks(config, split) == kept
    with pytest.raises(TaskError, match=r"no template 'alarms', which tasks\.leave_out names") as caught:
        load_tasks(TasksConfig(leave_out=["alarms"]))
    assert "Did you mean 'alarm'" in str(caught.value.remedy)
    with pytest.raises(TaskError, match="leaves no task in the split 'test_grounding'"):
        load_tasks(TasksConfig(leave_out=["tap"]), "test_grounding")


def test_tasks_are_found_by_id() -> None:
    assert get_task("quickstart/alarm/test/0007").template == "alarm"
    with pytest.raises(TaskError, match="Did you mean 'quickstart/alarm/test/0007'"):
        get_task("quickstart/alarm/tset/0007")
    with pytest.raises(TaskError, match="Ids begin with a suite"):
        get_task("nowhere/1")


def test_yaml_and_json_lines_give_the_same_tasks(tmp_path: Path) -> None:
    other = TASK | {"id": "mine/2", "split": "train"}
    lines, listed, mapped = tmp_path / "mine.jsonl", tmp_path / "mine.yaml", tmp_path / "m" / "mine.yml"
    mapped.parent.mkdir()
    lines.write_text("\n".join(json.dumps(entry) for entry in (TASK, other)) + "\n")
    listed.write_text(json.dumps([TASK, other]))
    mapped.write_text(json.dumps({"tasks": [TASK, other]}))
    tasks = load_suite(str(lines))
    assert tasks == load_suite(str(listed)) == load_suite(str(mapped))
    assert [(task.suite, task.split) for task in tasks] == [("mine", "test"), ("mine", "train")]
    assert len(load_suite(str(lines), "train")) == 1


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yaml", "- [", r"a\.yaml, line \d+: expected the node content"),
        ("a.yaml", "goal: x", r"a\.yaml: a YAML task file is a list"),
        ("a.yaml", "[]", r"a\.yaml: the task file contains no tasks"),
        ("a.yaml", "- 3", r"a\.yaml, entry 1: a task is a mapping, not '3'"),
        ("a.jsonl", json.dumps(TASK) + "\n{", r"a\.jsonl, line 2: not valid JSON"),
        ("a.jsonl", f"{json.dumps(TASK)}\n" * 2, r"a\.jsonl, line 2: the id 'mine/1' occurs twice"),
        ("a.jsonl", json.dumps(TASK | {"id": ""}), r"a\.jsonl, line 1: id and goal must not be empty"),
        ("a.yaml", "- {id: a/1, gaol: Do it}", r"entry 1: unknown key 'gaol' \(Did you mean 'goal'\?\)"),
        ("a.yaml", "- {id: a/1}", r"entry 1: goal: Field required"),
        ("a.txt", "hello", r"a\.txt: '\.txt' is not a task file's extension"),
        ("a.jsonl", json.dumps(TASK | {"id": "a\nb"}), "an id is one line of at most 160 characters"),
        ("a.jsonl", json.dumps(TASK | {"id": "a" * 161}), "an id is one line of at most 160 characters"),
    ],
)
def test_a_broken_file_names_file_place_and_rule(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(TaskError, match=said):
        load_suite(str(path))


def test_a_missing_file_and_a_missing_suite() -> None:
    with pytest.raises(TaskError, match="cannot be read"):
        load_suite("nowhere.yaml")
    with pytest.raises(TaskError, match="there is no suite 'quikstart'"):
        load_suite("quikstart")


def test_suites_by_import_path() -> None:
    assert load_suite("distrl.simulator.tasks.suites.quickstart:tasks") == load_suite("quickstart")
    with pytest.raises(TaskError, match="cannot be imported"):
        load_suite("distrl.simulator.tasks.suites.quickstart:nothing")
    with pytest.raises(TaskError, match="is not a list of Task"):
        load_suite("distrl.simulator.tasks.suites.quickstart:COUNTS")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none", "'suite_of_mistakes:none' is not a list of Task but None"),
        ("twice", r"suite_of_mistakes:twice': 2 tasks have the id 'a/1'\. Give each its own\."),
        ("dicts", "it contains a dict"),
        ("Tasks", "but the class Tasks"),
        ("boom", r"suite_of_mistakes:boom raised KeyError: 'q' \(suite_of_mistakes\.py:9\)"),
    ],
)
def test_a_mistake_in_one_s_own_suite_is_told(tmp_path: Path, monkeypatch, name: str, said: str) -> None:
    code = """
from distrl.core.types import Task
twice = [Task(id="a/1", suite="a", template="t", split="test", goal=goal) for goal in "xy"]
dicts = [{"id": "a/1", "goal": "x"}]
class Tasks: pass
def none():
    return None
def boom():
    raise KeyError("q")
"""
    (tmp_path / "suite_of_mistakes.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TaskError, match=said):
        load_suite(f"suite_of_mistakes:{name}")
