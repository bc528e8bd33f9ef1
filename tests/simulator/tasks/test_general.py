"""The suites `general` and `apps`: every instance solvable and unsolved at its start, honestly split."""

from __future__ import annotations

from collections import Counter

import pytest

from distrl.core.actions import Action, ActionKind
from distrl.core.types import Task
from distrl.evaluator.suites import leakage, load_suite
from distrl.simulator.phone import interruptions
from distrl.simulator.tasks import play as simphone
from distrl.simulator.tasks.base import Family
from distrl.simulator.tasks.suites import apps, general
from distrl.workers.envs.phone import PhoneEnv

TASKS = [*load_suite("general"), *load_suite("apps")]
FAMILIES = [*general.FAMILIES, *apps.FAMILIES]
WAIT = Action(kind=ActionKind.WAIT)


def of(family: Family) -> list[Task]:
    return [task for task in TASKS if task.id.split("/")[1] == family.name]


def test_val_shares_no_parameters_with_test_and_apps_no_template_with_general() -> None:
    trained = [task for task in TASKS if task.split == "train"]
    measured = [task for task in TASKS if task.split != "train" and task.suite == "general"]
    val, test = ([task for task in measured if task.split == split] for split in ("val", "test"))
    assert leakage.find(val, test).broken(["params"]) == []
    assert {task.template for task in trained}.isdisjoint(task.template for task in load_suite("apps"))


def test_every_template_is_trained_and_tested_on_with_several_wordings() -> None:
    for family in general.FAMILIES:
        assert len(family.train) >= 2
        assert len(family.test) >= 2
        splits = Counter(task.split for task in of(family))
        assert (splits["train"], splits["test"]) in {(15, 3), (15, 4), (14, 3), (14, 4)}, family.name


def test_a_third_of_the_instances_is_interrupted() -> None:
    for suite in ("general", "apps"):
        shown = [task.params.get("interruptions", []) for task in TASKS if task.suite == suite]
        assert 0.3 <= sum(map(bool, shown)) / len(shown) <= 0.37
        assert {kind for kinds in shown for kind in kinds} == set(interruptions.KINDS)


@pytest.mark.parametrize(
    ("template", "app", "entries", "key", "value"),
    [
        ("alarm_delete", "clock", "alarms", "minutes", 1),
        ("alarm_delete", "clock", "alarms", "mark", False),  # set anew
        ("event_delete", "calendar", "events", "title", "Other"),
        ("contact_delete", "contacts", "people", "name", "Other"),
        ("note_delete", "notes", "notes", "title", "Other"),
        ("file_delete", "files", "files", "name", "other.pdf"),
    ],
)
def test_what_is_only_renamed_is_not_deleted(
    template: str, app: str, entries: str, key: str, value: object
) -> None:
    task = next(task for task in TASKS if task.template == template)
    state = simphone.start_state(task.template, task.params, task.seed)
    check = simphone.template(task.template, task.params).check
    listed = state["apps"][app][entries]
    meant = next(entry for entry in listed if entry.get("mark"))
    meant[key] = value
    assert not check(state, task.params)
    listed.remove(meant)
    assert check(state, task.params)


def test_what_has_become_impossible_has_no_distance() -> None:
    task = next(task for task in TASKS if task.template == "list_tick")
    env = PhoneEnv()
    env.reset(task)
    assert env.distance() == 3
    state = env._backend.device.phone.state  # type: ignore[attr-defined]
    note = next(note for note in state["apps"]["notes"]["notes"] if note["title"] == task.params["title"])
    note["items"] = []
    assert env.distance() is None
