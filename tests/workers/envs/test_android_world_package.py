"""The double against the package itself, where that is installed: what the adapter relies on is the same."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from distrl.core.actions import Action, ActionKind
from distrl.workers.agents.androidworld import GESTURES, write_json
from distrl.workers.agents.notation import Grid
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


METHODS = {
    "android_world.env.interface:AsyncAndroidEnv": (
        "__init__ reset get_state execute_action hide_automation_ui close"
    ),
    "android_world.env.env_launcher": "setup_env",
    "android_world.env.android_world_controller": "AndroidWorldController",
    "android_world.env.adb_utils": "generate_swipe_command issue_generic_request",
    "android_world.env.json_action": "JSONAction",
    "android_world.env.representation_utils": "BoundingBox UIElement",
    "android_world.task_evals.task_eval:TaskEval": (
        "initialize_task is_successful tear_down generate_random_params set_device_time"
    ),
    "android_env.components.config_classes": (
        "AdbControllerConfig EmulatorLauncherConfig FilesystemTaskConfig"
    ),
}


@pytest.mark.parametrize("place", METHODS)
def test_what_is_called_takes_what_it_is_given(place: str) -> None:
    module, _, owner = place.partition(":")
    both = Both(module)
    real, double = ((getattr(one, owner) if owner else one) for one in (both.real, both.double))
    for name in METHODS[place].split():
        assert set(takes(getattr(double, name))) <= set(takes(getattr(real, name))), name


def test_the_package_takes_every_action_that_is_written() -> None:
    json_action = importlib.import_module("android_world.env.json_action")
    actions = [
        Action(kind=kind, point=(0.5, 0.5), to=(0.5, 0.9), text="a")
        for kind in ActionKind
        if kind is not ActionKind.MOTION
    ]
    actions += [Action.swipe(*gesture) for gesture in GESTURES.values()]
    for action in actions:
        written = write_json(action, Grid(1080, 2400))
        assert json_action.JSONAction(**written).as_dict() == written


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
