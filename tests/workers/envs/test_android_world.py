"""AndroidWorld through a double of the package: episodes, actions, and what fails, hangs, dies or is left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from android_world_bench import DOUBLE, Emulators, counter, described, task, times
from waiting import until

from distrl.configs.schema import WorkerConfig
from distrl.core.actions import Action, ActionKind
from distrl.core.errors import ConfigError, EnvError, MissingDependency, TaskError
from distrl.core.messages import Lease
from distrl.core.types import Completion, Element, Fault, Outcome
from distrl.workers.agents.androidworld import AndroidWorldAgent
from distrl.workers.envs.android_world import DEADLINES_S, AndroidWorldEnv, WorldProcess
from distrl.workers.envs.android_world_child import instance_seed
from distrl.workers.episode import EpisodeRunner

COMPLETE = Action(kind=ActionKind.COMPLETE)
TAP = Action.tap(0.5, 0.5)
Make = Callable[..., AndroidWorldEnv]


@pytest.fixture
def emulators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Emulators:
    monkeypatch.syspath_prepend(str(DOUBLE))
    monkeypatch.setenv("ANDROID_WORLD_DOUBLE", str(tmp_path))
    monkeypatch.setenv("DISTRL_STATE_DIR", str(tmp_path))
    return Emulators(tmp_path)


@pytest.fixture
def make(emulators: Emulators) -> Iterator[Make]:
    made = []

    def _make(**options: Any) -> AndroidWorldEnv:
        env = AndroidWorldEnv(adb_path=sys.executable, **options)
        made.append(env)
        return env

    yield _make
    for env in made:
        env.close()


class Says:
    """A policy that writes the given actions, in order; the last for ever."""

    def __init__(self, *actions: str) -> None:
        self.actions, self.asked = actions, []

    def act(self, messages: Any, *_: Any) -> Completion:
        self.asked.append(messages[1].parts[0].text)
        action = self.actions[min(len(self.asked), len(self.actions)) - 1]
        return Completion(text=f"Action: {action}", token_ids=(1,))


def test_an_episode_in_the_packages_order(make: Make, emulators: Emulators) -> None:
    before = random.getstate()
    env = make()
    one = counter()
    frame = env.reset(one)
    assert (frame.image.size, frame.app) == ((90, 160), "com.launcher/.Main")
    assert env.goal == one.goal
    for _ in range(times(one)):
        result = env.step(TAP)
    assert result.settle_s > 0.0
    assert result.frame.image.getpixel((0, 0)) == (20 * times(one) + 5,) * 3
    assert env.step(COMPLETE).frame is result.frame
    assert env.evaluate() == 1.0
    assert env.evaluate() == 1.0
    env.close()
    env.close()
    assert emulators.events() == [
        "attach grpc=8554 adb_server=5037",
        "setup apps=False freeze=True",
        "reset go_home=True",
        "hide_automation_ui",
        "initialize CounterReach",
        "reset go_home=True",
        *['action {"action_type": "click", "x": 45, "y": 80}'] * times(one),
        "is_successful CounterReach",
        "tear_down CounterReach",
        "close",
    ]
    assert random.getstate() == before, "the package seeds the random numbers of its own process only"


def test_elements_are_those_that_the_package_lists(make: Make) -> None:
    env = make()
    env.reset(counter())
    env.step(TAP)
    assert env.elements() == (
        Element(
            text="1", class_name="Button", resource_id="count", flags=("clickable",), bounds=(0, 0, 0.5, 0.25)
        ),
    )


def test_goal_and_budget_are_the_packages(emulators: Emulators) -> None:
    found = described("CounterReach", "AskDay", "Wordless", seeds=(30, 31))
    assert [one["max_steps"] for one in found] == [12, 12, 5, 5, 10, 10]
    assert [one["goal"] for one in found[:2]] == [counter(30).goal, counter(31).goal]
    assert found[4]["goal"] == ""
    assert found == described("CounterReach", "AskDay", "Wordless", seeds=(30, 31))


def test_the_instance_seed_is_create_suites() -> None:
    # sha256("30_ContactsAddContact_0") and sha256("30_ContactsAddContact_1"), modulo 2**32
    assert instance_seed(30, "ContactsAddContact") == 1155463587
    assert instance_seed(30, "ContactsAddContact", 1) == 1324763856


def test_a_goal_that_is_worded_at_the_start_is_what_the_agent_reads(make: Make) -> None:
    (one,) = described("AskDay")
    assert one["goal"].startswith("What is on October")
    policy = Says(
        '{"action_type": "answer", "text": "Dentist"}', '{"action_type": "status", "goal_status": "complete"}'
    )
    lease = Lease(id="l", task=task("AskDay", one["goal"]))
    episode = EpisodeRunner(make(), AndroidWorldAgent(), policy, WorkerConfig()).run(lease)
    assert episode is not None
    assert episode[0].outcome is Outcome.SUCCESS
    assert episode[0].task.goal in ("What is on tomorrow?", "What is on the day after tomorrow?")
    assert f"Goal: {episode[0].task.goal}" in policy.asked[0]


def test_actions_are_written_as_the_package_wants_them(make: Make, emulators: Emulators) -> None:
    env = make()
    env.reset(task("AskDay", seed=7, goal=described("AskDay", seeds=(7,))[0]["goal"]))
    started = len(emulators.events())
    for action in (
        Action(kind=ActionKind.LONG_PRESS, point=(0.0, 1.0)),
        Action(kind=ActionKind.DOUBLE_TAP, point=(1.0, 0.0)),
        Action.type_text("milk & 'honey'"),
        Action.swipe((0.5, 0.5), (0.5, 0.0)),
        Action.swipe((0.5, 0.9), (0.5, 0.1)),
        Action(kind=ActionKind.BACK),
        Action(kind=ActionKind.HOME),
        Action(kind=ActionKind.ENTER),
        Action(kind=ActionKind.WAIT),
        Action(kind=ActionKind.OPEN_APP, text="notes"),
        Action(kind=ActionKind.OPEN_APP, text="nothing"),  # the package refuses it: nothing happens
        Action.invalid("?", "no JSON"),
    ):
        env.step(action)
    assert emulators.events()[started:] == [
        'action {"action_type": "long_press", "x": 0, "y": 159}',
        'action {"action_type": "double_tap", "x": 89, "y": 0}',
        """action {"action_type": "input_text", "text": "milk & 'honey'"}""",
        'action {"action_type": "scroll", "direction": "down"}',
        "adb shell input swipe 45 144 45 16 500",
        'action {"action_type": "navigate_back"}',
        'action {"action_type": "navigate_home"}',
        'action {"action_type": "keyboard_enter"}',
        'action {"action_type": "wait"}',
        'action {"action_type": "open_app", "app_name": "notes"}',
        'action {"action_type": "open_app", "app_name": "nothing"}',
    ]


def test_each_slot_has_an_emulator_of_its_own(make: Make, emulators: Emulators) -> None:
    devices = [{"console": 5554}, {"console": 5556, "grpc": 8556, "adb_server": 5038}]
    first, second = make(devices=devices), make(devices=devices)
    assert [first.ports.console, second.ports.console] == [5554, 5556]
    assert emulators.events(5556)[0] == "attach grpc=8556 adb_server=5038"
    with pytest.raises(EnvError, match="all 2 AndroidWorld emulators are in use"):
        make(devices=devices)
    first.close()
    assert make(devices=devices).ports.console == 5554


@pytest.mark.parametrize(
    ("name", "message"),
    [("FailsToStart", "reset: RuntimeError: the app is not installed"), ("FailsToScore", "score: KeyError")],
)
def test_what_the_package_raises_is_a_fault_and_the_task_is_torn_down(
    make: Make, emulators: Emulators, name: str, message: str
) -> None:
    env = make()
    with pytest.raises(EnvError, match=message):
        env.reset(task(name, described(name)[0]["goal"])) and env.evaluate()
    env.close()
    assert emulators.events()[-2:] == [f"tear_down {name}", "close"]


def test_a_score_holds_though_tearing_down_fails_and_the_next_reset_is_the_devices_fault(make: Make) -> None:
    (one,) = described("FailsToEnd")
    env = make()
    env.reset(task("FailsToEnd", one["goal"]))
    for _ in range(int(one["goal"].split()[3])):
        env.step(TAP)
    assert env.evaluate() == 1.0
    with pytest.raises(EnvError, match="the snapshot is gone") as caught:
        env.reset(counter())
    assert caught.value.fault == Fault.DEVICE.value
    env.close()
    make().reset(counter())


@pytest.mark.parametrize(
    ("app", "message"),
    [
        ("hang", r"did not finish step in 0\.5 s; its process was ended"),
        ("crash", r"(?s)ended its process during step, exit status 3\..*about to crash"),
        ("lost", "android_world failed in step: RuntimeError: emulator lost"),
    ],
)
def test_a_package_that_hangs_dies_or_fails_is_the_devices_fault(
    make: Make, monkeypatch: pytest.MonkeyPatch, app: str, message: str
) -> None:
    monkeypatch.setitem(DEADLINES_S, "step", 0.5 if app == "hang" else 60.0)
    env = make()
    env.reset(counter())
    with pytest.raises(EnvError, match=message) as caught:
        env.step(Action(kind=ActionKind.OPEN_APP, text=app))
    assert caught.value.fault == Fault.DEVICE.value
    env.close()
    make().reset(counter())


def test_the_installation_of_the_apps_may_take_longer(
    make: Make, emulators: Emulators, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DEADLINES_S, "attach", 0.0)
    make(setup=True)
    assert "setup apps=True freeze=True" in emulators.events()
    with pytest.raises(EnvError, match="did not finish attach in 0 s"):
        make(devices=[{"console": 5556}])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"params": {"task": "NoSuchTask"}}, "family 'android_world' has no task 'NoSuchTask'"),
        ({"params": {"task": "AskDay", "family": "windows"}}, "Unsupported family: windows"),
        ({"params": {}}, "names no AndroidWorld task in params.task"),
    ],
)
def test_a_task_that_the_package_does_not_have(make: Make, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        make().reset(task("AskDay", **changes))


def test_an_emulator_that_is_not_there_is_the_devices_fault(make: Make, emulators: Emulators) -> None:
    (emulators.folder / "running").unlink()
    for _ in range(2):  # the emulator is released again
        with pytest.raises(EnvError, match="attach: RuntimeError: no emulator at gRPC port 8554") as caught:
            make()
        assert caught.value.fault == Fault.DEVICE.value


ABANDONED = """
import os, signal, sys
from android_world_bench import counter
from distrl.workers.envs.android_world import AndroidWorldEnv

env = AndroidWorldEnv(adb_path=sys.executable)
env.reset(counter())
print(env._process._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_that_is_killed_leaves_no_task_no_process_and_no_file(emulators: Emulators) -> None:
    temporary = emulators.folder / "tmp"
    temporary.mkdir()
    path = os.pathsep.join(filter(None, sys.path))
    result = subprocess.run(
        [sys.executable, "-c", ABANDONED],
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == -signal.SIGKILL, result.stderr
    child = int(result.stdout)
    until(lambda: emulators.events()[-2:] == ["tear_down CounterReach", "close"], "tearing down", 60.0)
    until(lambda: not Path(f"/proc/{child}").exists(), "the child's end", 60.0)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": []}, r"env\.options\.devices`"),
        ({"devices": [{"port": 1}]}, r"env\.options\.devices\.0\.port`: "),
        ({"devices": [{"console": 5554}, {"console": 5556}]}, "two devices share the grpc port 8554"),
        ({"devices": [{"console": 5554}, {"console": 5556, "grpc": 8555}]}, "share the adb_server port 5037"),
        ({"accessibility": "eyes"}, r"env\.options\.accessibility` is 'eyes'"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AndroidWorldEnv(**options)


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRL_STATE_DIR", str(tmp_path))
    with pytest.raises(MissingDependency, match="no adb program /nowhere/adb"):
        AndroidWorldEnv(adb_path="/nowhere/adb")
    if find_spec("android_world") is not None:
        pytest.skip("needs a Python without android_world")
    process = WorldProcess()
    try:
        with pytest.raises(MissingDependency, match=r"needs the package android_world, .*requirements\.txt"):
            process.call("describe", family="android_world", names=[], seeds=[0])
        for said in ("a long story", "end"):  # as the child prints them, to a descriptor that it shares
            process.forget_log()
            subprocess.run(["echo", said], stdout=process._log, check=True)
        assert process._printed() == " It printed: end"
    finally:
        process.close()
