"""The double against the package itself, where that is installed: what the adapter relies on is the same."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from distrl.core.actions import Action, ActionKind
from distrl.workers.agents.androidworld import ACTION_TYPES, GESTURES, write_json
from distrl.workers.agents.chat_agent import Grid
from distrl.workers.envs.android_world import WorldProcess
from distrl.workers.envs.android_world_child import Session, instance_seed

pytestmark = pytest.mark.needs("android_world", "android_env")
DOUBLE = Path(__file__).resolve().parents[2] / "fakes" / "android_world_double"


class Both:
    """A module of the package, and the double's of the same name."""

    def __init__(self, name: str) -> None:
        self.real = importlib.import_module(name)
        self.double = self._from_double(name)

    @staticmethod
    def _from_double(name: str) -> ModuleType:
        def ours() -> list[str]:
            return [key for key in sys.modules if key.split(".")[0] in ("android_world", "android_env")]

        kept = {key: sys.modules.pop(key) for key in ours()}
        sys.path.insert(0, str(DOUBLE))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(str(DOUBLE))
            for key in ours():
                del sys.modules[key]
            sys.modules.update(kept)


def takes(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_json_action_is_the_same() -> None:
    both = Both("android_world.env.json_action")
    assert set(both.double._ACTION_TYPES) == set(both.real._ACTION_TYPES) == set(ACTION_TYPES)
    assert [field.name for field in dataclasses.fields(both.double.JSONAction)] == [
        field.name for field in dataclasses.fields(both.real.JSONAction)
    ]
    for wrong in ({"action_type": "fly"}, {"action_type": "scroll", "direction": "north"}):
        for module in (both.real, both.double):
            with pytest.raises(ValueError, match="Invalid"):
                module.JSONAction(**wrong)


def test_the_package_takes_every_action_that_is_written() -> None:
    json_action = importlib.import_module("android_world.env.json_action")
    actions = [Action(kind=kind, point=(0.5, 0.5), to=(0.5, 0.9), text="a") for kind in ActionKind]
    actions += [Action.swipe(*gesture) for gesture in GESTURES.values()]
    for action in actions:
        written = write_json(action, Grid(1080, 2400))
        assert json_action.JSONAction(**written).as_dict() == written


def test_the_functions_that_are_called_take_what_they_are_given() -> None:
    environment = Both("android_world.env.interface")
    for name in ("reset", "get_state", "execute_action", "hide_automation_ui", "close", "__init__"):
        real = getattr(environment.real.AsyncAndroidEnv, name)
        assert takes(getattr(environment.double.AsyncAndroidEnv, name)) == takes(real), name
    for name in ("foreground_activity_name", "controller"):
        assert isinstance(getattr(environment.real.AsyncAndroidEnv, name), property)
    launcher = Both("android_world.env.env_launcher")
    assert takes(launcher.double.setup_env) == takes(launcher.real.setup_env)
    controller = Both("android_world.env.android_world_controller")
    assert takes(controller.double.AndroidWorldController) == takes(controller.real.AndroidWorldController)
    assert {one.value for one in controller.double.A11yMethod} == {
        one.value for one in controller.real.A11yMethod
    }
    adb = Both("android_world.env.adb_utils")
    for name in ("generate_swipe_command", "issue_generic_request"):
        assert takes(getattr(adb.double, name)) == takes(getattr(adb.real, name)), name
    assert adb.double.generate_swipe_command(1, 2, 3, 4, 500) == adb.real.generate_swipe_command(
        1, 2, 3, 4, 500
    )


def test_the_configuration_has_the_fields_and_their_defaults() -> None:
    both = Both("android_env.components.config_classes")
    for name in ("AdbControllerConfig", "EmulatorLauncherConfig", "FilesystemTaskConfig"):
        real, double = getattr(both.real, name)(), getattr(both.double, name)()
        for field in dataclasses.fields(double):
            assert getattr(double, field.name) == getattr(real, field.name), (name, field.name)
    assert {"task", "simulator"} <= {field.name for field in dataclasses.fields(both.real.AndroidEnvConfig)}


def test_a_task_is_initialized_once_scored_only_then_and_torn_down() -> None:
    both = Both("android_world.task_evals.task_eval")
    for name in (
        "initialize_task",
        "is_successful",
        "tear_down",
        "generate_random_params",
        "set_device_time",
    ):
        assert takes(getattr(both.double.TaskEval, name)) == takes(getattr(both.real.TaskEval, name)), name
    assert both.double.TaskEval.start_on_home_screen is both.real.TaskEval.start_on_home_screen is True
    source = inspect.getsource(both.real.TaskEval.initialize_task)
    assert "already called" in source
    assert 'self.params.get("seed")' in source
    with pytest.raises(RuntimeError, match="must be called before"):
        both.real.TaskEval._check_is_initialized(type("T", (), {"initialized": False, "name": "T"})())


@pytest.fixture(scope="module")
def suite() -> Any:
    registry = importlib.import_module("android_world.registry").TaskRegistry()
    utils = importlib.import_module("android_world.suite_utils")
    return utils.create_suite(registry.get_registry("android_world"), seed=30)


def test_seeds_and_parameters_are_those_of_create_suite(suite: Any) -> None:
    session = Session()
    for name, (task,) in suite.items():
        assert instance_seed(30, name) == task.params["seed"]
        ours = session._instance("android_world", name, instance_seed(30, name))
        if name != "MarkorCreateFolder":  # takes its folder's name from the clock
            assert ours.goal == task.goal, name
    session.close()


def test_budgets_are_those_of_the_suites_runner(suite: Any) -> None:
    utils = importlib.import_module("android_world.suite_utils")
    process = WorldProcess()
    try:
        found = process.call("describe", family="android_world", names=[], seeds=[30])["tasks"]
    finally:
        process.close()
    assert {one["name"]: one["max_steps"] for one in found} == {
        name: utils._allocate_step_budget(task.complexity) for name, (task,) in suite.items()
    }
    assert all(one["goal"] for one in found)
