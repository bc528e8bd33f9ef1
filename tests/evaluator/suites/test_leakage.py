"""What is reported of tasks that are trained on and measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from distrl.core.types import Task
from distrl.evaluator.suites import leakage, promises


def make(goal: str, template: str = "t", **params: Any) -> Task:
    return Task(id=goal, suite="s", template=template, split="x", goal=goal, params=params)


def broken(trained: list[Task], measured: Task, rules: Iterable[str] = leakage.RULES) -> list[str]:
    found = leakage.find(trained, [measured])
    return [rule for rule in rules if found[rule]]


TRAINED = [
    make("Set an alarm for 7:15", "alarm", layout=0, hour=7),
    make('Open the note "Rent"', title="Rent"),
]


@pytest.mark.parametrize(
    ("measured", "rules"),
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
def test_each_rule_finds_what_it_says(measured: Task, rules: list[str]) -> None:
    assert broken(TRAINED, measured) == rules


def test_a_name_that_is_trained_on_is_found_in_any_parameter() -> None:
    trained, measured = make("Call Ann Holt", name="Ann Holt"), make("Write to Ann Holt", to="Ann Holt")
    other = make("Write to Ann Reed", to="Ann Reed")
    found = leakage.find([trained], [measured, other], names=lambda task: [*task.params.values()])
    assert found["names"] == [(measured, trained)]


def test_names_are_left_out_as_whole_words() -> None:
    kept = leakage.without("Also tell Al, or Al Ober, so", ["Al", "Al Ober", ""])
    assert kept.split() == ["Also", "tell", ",", "or", ",", "so"]


def test_goals_without_parameters_are_not_one_task() -> None:
    assert broken([make("Buy milk")], make("Call Eve")) == []


def test_goals_that_differ_in_a_sign_or_vowel_are_not_the_same() -> None:
    assert broken([make("Calculate 36 + 48")], make("Calculate 36 - 48"), ["goals"]) == []
    assert broken([make("\u0915\u093f")], make("\u0915\u0940"), ["goals", "phrasings"]) == []


def test_suites_say_what_they_promise() -> None:
    assert promises("quickstart").rules == ("tasks", "goals", "phrasings", "names")
    assert promises("general").rules == tuple(leakage.RULES)
    assert promises("miniwob").rules == ()
