"""Recipes, checks, snapshots and the guard on a device behind a real adb server: the simulated phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest
from adb_world import AdbWorld, adb_world

from distrl.core.actions import Action
from distrl.core.types import Task
from distrl.workers.devices import recipes
from distrl.workers.devices.device import Device
from distrl.workers.devices.errors import ResetFailed
from distrl.workers.envs.backends import RecipeBackend
from distrl.workers.envs.phone import PhoneEnv

LAUNCHER, CLOCK = "org.simphone.launcher", "org.simphone.clock"
IN_CLOCK = {"shell": "dumpsys activity activities | grep topResumedActivity", "contains": f"{CLOCK}/"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbWorld]:
    with adb_world(tmp_path_factory.mktemp("home"), 270, 600) as found:
        yield found


def task(**params: Any) -> Task:
    return Task(id="p/1", suite="p", template="t", split="train", goal="Do it", params=params)


def env(world: AdbWorld, **options: Any) -> PhoneEnv:
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
    phone = env(
        world,
        recipe={
            "force_stop": [CLOCK],
            "clear": ["org.simphone.notes"],
            "settings": {"global/wifi_on": "0", "system/font_scale": "1.0"},
            "locale": "en-US",
            "time_zone": "Europe/Berlin",
        },
    )
    world.client.check(f"am start -n {CLOCK}/.MainActivity", 10.0)
    frame = phone.reset(task(setup=["settings put global wifi_on 1"], check=IN_CLOCK))
    assert LAUNCHER in (frame.app, f"org.simphone.{frame.app}")
    assert world.client.check("settings get global wifi_on", 10.0).text.strip() == "1"
    assert world.client.check("getprop persist.sys.timezone", 10.0).text.strip() == "Europe/Berlin"
    assert phone.has_truth(task(check=IN_CLOCK))
    assert phone.evaluate() == 0.0
    phone.step(tap_on(world.device(), "Clock"))
    assert phone.evaluate() == 1.0


def test_an_episode_from_a_snapshot(world: AdbWorld) -> None:
    device = world.device()
    world.client.check("settings put global wifi_on 0; input keyevent KEYCODE_HOME", 10.0)
    device.save_state("clean")
    world.client.check(f"settings put global wifi_on 1; am start -n {CLOCK}/.MainActivity", 10.0)
    phone = env(world, snapshot="clean")
    phone.reset(task(check={"shell": "settings get global wifi_on", "equals": "0"}))
    assert phone.evaluate() == 1.0


def test_the_guard_leaves_a_forbidden_app(world: AdbWorld) -> None:
    phone = env(world, guard={"block": [f"{CLOCK}/*"]})
    phone.reset(task())
    result = phone.step(tap_on(world.device(), "Clock"))
    assert result.guard == f"blocked: {CLOCK}/{CLOCK}.MainActivity"
    assert LAUNCHER in (result.frame.app, f"org.simphone.{result.frame.app}")
    assert phone.step(Action.tap(0.5, 0.01)).guard == ""


def test_animations_off_and_a_package_that_is_not_there(world: AdbWorld) -> None:
    world.client.check("settings put global window_animation_scale 1.0", 10.0)
    recipes.turn_off_animations(world.client)
    assert world.client.check("settings get global window_animation_scale", 10.0).text.strip() == "0"
    with pytest.raises(ResetFailed, match=r"data of com\.missing cannot be cleared"):
        env(world, recipe={"clear": ["com.missing"]}).reset(task())
