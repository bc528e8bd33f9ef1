"""Tasks that the simulated phone does not know are told before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from distrl.configs.load import load_config
from distrl.configs.schema import Config
from distrl.core.errors import TaskError
from distrl.core.types import Task
from distrl.evaluator.suites import load_suite
from distrl.evaluator.suites.playable import check_playable

ADB, SIM = {"kind": "adb", "serials": ["emulator-5554"]}, {"kind": "sim"}


def task(template: str = "fly", **params: Any) -> Task:
    return Task(id="mine/1", suite="mine", template=template, split="train", goal="Do it", params=params)


@pytest.mark.parametrize("fields", [{}, {"devices": {"pool": [SIM]}}, {"devices": {"pool": [ADB, SIM]}}])
@pytest.mark.parametrize(
    ("unknown", "message"),
    [
        (task(), r"mine/1: on the simulated phone there is no task template 'fly'\. Templates: open_app, "),
        (task("open_app", app="notes"), r"mine/1: .* takes the params layout, app, start; got app"),
        (task("open_app", layout=0, app="games", start="clock"), "mine/1: .*'games' is no app"),
    ],
)
def test_what_a_simulated_phone_does_not_know_is_refused(
    fields: dict[str, Any], unknown: Task, message: str
) -> None:
    known = task("open_app", layout=0, app="notes", start="clock")
    check_playable(Config.model_validate(fields), [known])
    with pytest.raises(TaskError, match=message):
        check_playable(Config.model_validate(fields), [known, unknown])


@pytest.mark.parametrize(
    "fields",
    [
        {"env": {"kind": "browser"}},
        {"env": {"import_path": "mine:Env"}},
        {"devices": {"pool": [ADB]}},
    ],
)
def test_others_take_any_task(fields: dict[str, Any]) -> None:
    check_playable(Config.model_validate(fields), [task()])


def test_the_shipped_run_passes() -> None:
    check_playable(load_config("quickstart"), load_suite("quickstart"))
