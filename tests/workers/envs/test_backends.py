"""Tasks on a real device: start state, set-up lines, checks, and the guard within `PhoneEnv`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest
from adb_world import AdbWorld, adb_world
from PIL import Image
from scripted_device import ScriptedDevice
from shell_phone import HOME, ShellPhone

from distrl.core.actions import Action, ActionKind
from distrl.core.errors import EnvError, TaskError
from distrl.core.types import Task
from distrl.workers.devices import guard
from distrl.workers.devices.adb import ShellResult
from distrl.workers.devices.device import Device, Key
from distrl.workers.devices.errors import NotReady
from distrl.workers.envs.backends import Check, RecipeBackend
from distrl.workers.envs.phone import PhoneEnv

WIFI = {"shell": "settings get global wifi_on", "equals": "1"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "LEAVE_S", 0.01)  # BACK does not leave the dialer of `ShellPhone`


def task(**params: Any) -> Task:
    return Task(id="p/1", suite="p", template="t", split="train", goal="Do it", params=params)


def env(phone: ShellPhone, device: ScriptedDevice | None = None, **options: Any) -> PhoneEnv:
    backend = RecipeBackend(device or ScriptedDevice(), phone, **options)
    return PhoneEnv(backend=backend, sleep=lambda seconds: None)


def test_an_episode_starts_with_the_snapshot() -> None:
    phone, device = ShellPhone(), ScriptedDevice()
    env(phone, device, recipe={"force_stop": ["com.a"]}, snapshot="clean").reset(task())
    assert device.calls[0] == ("load", "clean")
    assert phone.stopped == []
    assert phone.settings["global/window_animation_scale"] == "0"


def test_without_a_check_there_is_no_ground_truth() -> None:
    phone_env = env(ShellPhone())
    phone_env.reset(task())
    assert not phone_env.has_truth(task())
    with pytest.raises(EnvError, match=r"has no check"):
        phone_env.evaluate()
    with pytest.raises(EnvError, match="no scripted expert"):
        phone_env.expert_action()


@pytest.mark.parametrize(
    ("condition", "output", "holds"),
    [
        ({"equals": " 1"}, "1\n", True),
        ({"equals": "1"}, "11", False),
        ({"contains": "on"}, "wifi is on", True),
        ({"contains": "off"}, "wifi is on", False),
        ({"regex": r"^title=Milk$"}, "id=3\ntitle=Milk", False),
        ({"regex": r"(?m)^title=Milk$"}, "id=3\ntitle=Milk", True),
        ({"equals": ""}, "\n", True),
    ],
)
def test_conditions(condition: dict[str, str], output: str, holds: bool) -> None:
    assert Check(shell="x", **condition).holds(output) is holds


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"check": {"shell": "x"}}, r"params\.check: .*exactly one of equals, contains and regex"),
        ({"check": {"shell": "x", "equals": "1", "regex": "1"}}, "exactly one"),
        ({"check": {"shell": "x", "regex": "("}}, r"params\.check: .*regex"),
        ({"check": {"equals": "1"}}, r"params\.check\.shell"),
        ({"setup": "am start"}, r"params\.setup"),
    ],
)
def test_a_malformed_task_is_the_tasks_error(params: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        env(ShellPhone()).reset(task(**params))


def test_a_check_while_android_restarts_is_a_fault() -> None:
    class Restarting(ShellPhone):
        def shell(self, command: str, *args: Any, **options: Any) -> ShellResult:
            if command == WIFI["shell"]:
                return ShellResult(b"", b"cmd: Can't find service: settings\n", 20)
            return super().shell(command, *args, **options)

    phone_env = env(Restarting())
    phone_env.reset(task(check=WIFI))
    with pytest.raises(NotReady, match="p/1 could not ask Android: cmd: Can't find service"):
        phone_env.evaluate()


def test_a_set_up_line_that_fails_is_a_fault() -> None:
    phone = ShellPhone(refuse={"am force-stop com.x"})
    with pytest.raises(EnvError, match=r"'am force-stop com\.x' ended with status 255: .*SecurityException"):
        env(phone).reset(task(setup=["am force-stop com.x"]))


def test_the_guard_marks_the_step_and_the_frame_is_from_afterwards() -> None:
    phone, device = ShellPhone(), ScriptedDevice()
    unguarded, phone_env = env(phone, device), env(phone, device, guard={})
    for one in (unguarded, phone_env):
        one.reset(task())
    phone.log.clear()
    assert unguarded.step(Action.tap(0.5, 0.5)).guard == ""
    assert phone.log == []
    phone.front = "com.android.dialer/.Main"
    result = phone_env.step(Action.tap(0.5, 0.5))
    assert result.guard == "call: com.android.dialer/com.android.dialer.Main"
    assert phone.front == HOME
    assert phone_env.step(Action.tap(0.5, 0.5)).guard == ""


@pytest.mark.parametrize("late", [2, 3])
def test_an_app_that_comes_up_late_is_caught_too(late: int) -> None:
    class Late(ShellPhone):
        looks = -100

        def _dumpsys_activity(self, what: str) -> str:
            self.looks += 1
            if self.looks == late:
                self.front = "com.android.dialer/.Main"
            return super()._dumpsys_activity(what)

    phone = Late()
    phone_env = env(phone, guard={})
    phone_env.reset(task())
    phone.looks = 0
    assert phone_env.step(Action.tap(0.5, 0.5)).guard.startswith("call: ")


def test_a_call_does_not_ring_until_the_screen_is_still() -> None:
    class Moving(ScriptedDevice):
        """Its screen stands still after ten looks; with the third one a call has begun."""

        looks = -100

        def screenshot(self) -> Image.Image:
            self.looks += 1
            if self.looks == 3:
                phone.front, phone.in_call = "com.android.dialer/com.android.incallui.InCallActivity", True
            rang.append(phone.in_call)
            return Image.new("RGB", self.size, (max(0, min(self.looks, 10)) * 20, 0, 0))

    phone, device = ShellPhone(), Moving()
    rang: list[bool] = []
    backend = RecipeBackend(device, phone, guard={})
    phone_env = PhoneEnv(backend=backend, settle={"ignore": [], "max_s": 60}, sleep=lambda seconds: None)
    phone_env.reset(task())
    device.looks = 0
    rang.clear()
    assert phone_env.step(Action.tap(0.5, 0.5)).guard.startswith("call: ")
    assert rang == [False, False, True, *[False] * 8]
    assert not phone.in_call


def test_actions_reach_the_device() -> None:
    device = ScriptedDevice()
    phone_env = env(ShellPhone(), device)
    phone_env.reset(task())
    for action in (
        Action(kind=ActionKind.DOUBLE_TAP, point=(0.5, 0.5)),
        Action(kind=ActionKind.TYPE, text="milk", point=(0.1, 0.1)),
        Action.type_text("bread"),
        Action(kind=ActionKind.OPEN_APP, text="Clock"),
        Action(kind=ActionKind.ANSWER, text="42"),
        Action(kind=ActionKind.HOME),
    ):
        phone_env.step(action)
    assert device.calls == [
        ("double_tap", 50, 100),
        ("tap", 10, 20),
        ("type", "milk"),
        ("type", "bread"),
        ("open_app", "Clock"),
        ("key", Key.HOME),
    ]


LAUNCHER, CLOCK = "org.simphone.launcher", "org.simphone.clock"
IN_CLOCK = {"shell": "dumpsys activity activities | grep topResumedActivity", "contains": f"{CLOCK}/"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbWorld]:
    with adb_world(tmp_path_factory.mktemp("home"), 270, 600) as found:
        yield found


def adb_env(world: AdbWorld, **options: Any) -> PhoneEnv:
    return PhoneEnv(backend=RecipeBackend(world.device(), world.client, **options))


def tap_on(device: Device, text: str) -> Action:
    """A tap on the middle of the element that says `text`."""
    for node in ElementTree.fromstring(device.hierarchy()).iter("node"):
        if text in (node.get("text"), node.get("content-desc")):
            left, top, right, bottom = map(int, re.findall(r"\d+", node.get("bounds", "")))
            width, height = device.size
            return Action.tap((left + right) / 2 / width, (top + bottom) / 2 / height)
    raise AssertionError(f"nothing says {text!r}")


def test_an_episode_from_recipe_to_check(world: AdbWorld) -> None:
    phone = adb_env(
        world,
        recipe={
            "force_stop": [CLOCK],
            "clear": ["org.simphone.notes"],
            "settings": {"global/wifi_on": "0", "system/font_scale": "1.0"},
            "time_zone": "Europe/Berlin",
        },
    )
    world.client.check(f"am start -n {CLOCK}/.MainActivity", 10.0)
    frame = phone.reset(task(setup=["settings put global wifi_on 1"], check=IN_CLOCK))
    assert LAUNCHER in (frame.app, f"org.simphone.{frame.app}")
    for line, value in (
        ("settings get global wifi_on", "1"),
        ("getprop persist.sys.timezone", "Europe/Berlin"),
        ("settings get global window_animation_scale", "0"),
    ):
        assert world.client.check(line, 10.0).text.strip() == value
    assert phone.has_truth(task(check=IN_CLOCK))
    assert phone.evaluate() == 0.0
    phone.step(tap_on(world.device(), "Clock"))
    assert phone.evaluate() == 1.0
