"""The suites `general` and `apps`: honestly split, and strict about what is done."""

from __future__ import annotations

import pytest

from distrl.evaluator.suites import leakage, load_suite
from distrl.simulator.tasks import play as simphone
from distrl.workers.envs.phone import PhoneEnv

TASKS = [*load_suite("general"), *load_suite("apps")]


def test_val_shares_no_parameters_with_test_and_apps_no_template_with_general() -> None:
    trained = [task for task in TASKS if task.split == "train"]
    measured = [task for task in TASKS if task.split != "train" and task.suite == "general"]
    val, test = ([task for task in measured if task.split == split] for split in ("val", "test"))
    assert leakage.find(val, test).broken(["params"]) == []
    assert {task.template for task in trained}.isdisjoint(task.template for task in load_suite("apps"))


@pytest.mark.parametrize(
    ("template", "app", "entries", "key", "value"),
    [
        ("alarm_delete", "clock", "alarms", "minutes", 1),
        ("alarm_delete", "clock", "alarms", "mark", False),  # set again
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
