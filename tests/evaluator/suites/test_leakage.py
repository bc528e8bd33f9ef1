"""What is reported of tasks that are trained on and measured."""

from __future__ import annotations

import json
from typing import Any

import pytest

from distrl.core.types import Task
from distrl.evaluator.suites import SUITES, leakage, load_suite, promises


def make(goal: str, template: str = "t", **params: Any) -> Task:
    return Task(id=goal, suite="s", template=template, split="x", goal=goal, params=params)


TRAINED = [
    make("Set an alarm for 7:15", "alarm", layout=0, hour=7),
    make('Open the note "Rent"', title="Rent"),
]


@pytest.mark.parametrize(
    ("measured", "broken"),
    [
        (make("Wake me at 7", "alarm", layout=0, hour=7), ["tasks", "params"]),
        (make("Wake me at 7", "alarm", layout=1, hour=7), ["params"]),
        (make("set an  ALARM for \u201c7:15\u201d.", "alarm", layout=1, hour=9), ["goals", "phrasings"]),
        (make("Set an alarm for 9:45", "alarm", layout=0, hour=9), ["phrasings"]),
        (make('Open the note "Taxes"', title="Taxes"), ["phrasings"]),
        (make("Read the note on taxes", title="Taxes"), []),
        (make("Set an alarm for 7:15", ""), ["goals", "phrasings"]),
    ],
)
def test_each_rule_finds_what_it_says(measured: Task, broken: list[str]) -> None:
    assert leakage.find(TRAINED, [measured]).broken(leakage.RULES) == broken


def test_goals_without_parameters_are_not_one_task() -> None:
    assert leakage.find([make("Buy milk")], [make("Call Eve")]).broken(leakage.RULES) == []


def test_goals_that_differ_in_a_sign_are_near_and_not_the_same() -> None:
    found = leakage.find([make("Calculate 36 + 48")], [make("Calculate 36 - 48")], similar=0.7)
    assert found.broken(["goals"]) == []
    assert len(found.near) == 1
    vowels = leakage.find([make("\u0915\u093f")], [make("\u0915\u0940")])
    assert vowels.broken(["goals", "phrasings"]) == []


def test_near_duplicates_are_reported_most_alike_first() -> None:
    trained = [make("Search the shop for red shoes"), make("Open the browser")]
    far, near = make("Play some music now"), make("Search the shop for red shoe")
    nearest = make("Search the shop for red  shoes now")
    found = leakage.find(trained, [far, near, nearest], similar=0.8)
    assert [pair.measured for pair in found.near] == [near, nearest]
    assert all(pair.trained is trained[0] and 0.8 <= pair.similarity < 1 for pair in found.near)
    assert leakage.find(trained, [near], similar=1.0).near == []
    assert found.broken(leakage.RULES) == []


@pytest.mark.parametrize("suite", SUITES)
def test_suites_keep_their_promise_of_other_tasks(suite: str) -> None:
    trained = load_suite(promises(suite).trained_on or suite, "train")
    keys = {(task.template, json.dumps(task.params, sort_keys=True)) for task in trained}
    for task in load_suite(suite) if "tasks" in promises(suite).rules else ():
        assert task.split == "train" or (task.template, json.dumps(task.params, sort_keys=True)) not in keys


def test_suites_say_what_they_promise() -> None:
    assert promises("quickstart").rules == ("tasks",)
    assert promises("general").rules == tuple(leakage.RULES)
    assert promises("apps").rules == tuple(leakage.RULES)
    assert promises("apps").trained_on == "general"
    assert promises("quickstart").trained_on is None
