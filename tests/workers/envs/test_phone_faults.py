"""Latency by app and by episode, and faults on purpose: what a run must live with."""

from __future__ import annotations

from typing import Any

import pytest

from distrl.core.actions import Action, ActionKind
from distrl.core.errors import ConfigError, EnvError
from distrl.core.types import Task
from distrl.simulator.device import SimDevice
from distrl.simulator.tasks.play import SimBackend
from distrl.workers.devices.errors import DeviceDisconnected, DeviceError, DeviceOffline, DeviceTimeout
from distrl.workers.envs.phone import PhoneEnv

WAIT = Action(kind=ActionKind.WAIT)
LATENCY = {"kind": "lognormal", "median_s": 1.0, "sigma": 0.0}


def task(seed: int = 1, start: str = "browser") -> Task:
    params = {"layout": 0, "app": "clock", "start": start}
    return Task(id="t/1", suite="t", template="open_app", split="x", goal="g", params=params, seed=seed)


def waits(start: str, seeds: range, **latency: Any) -> list[float]:
    slept: list[float] = []
    env = PhoneEnv(latency=LATENCY | latency, sleep=slept.append)
    for seed in seeds:
        env.reset(task(seed, start))
        env.step(WAIT)
        env.step(WAIT)
    return slept


def test_an_app_has_a_latency_of_its_own() -> None:
    assert waits("browser", range(1), apps={"browser": 4.0}) == [4.0, 4.0]
    assert waits("settings", range(1), apps={"browser": 4.0}) == [1.0, 1.0]


def test_stragglers_are_slow_for_a_whole_episode_and_the_same_ones_each_time() -> None:
    slept = waits("settings", range(200), stragglers=0.1, straggler_factor=50.0)
    assert slept[::2] == slept[1::2]
    assert set(slept) == {1.0, 50.0}
    assert 8 <= slept[::2].count(50.0) <= 35
    assert slept == waits("settings", range(200), stragglers=0.1, straggler_factor=50.0)
    assert max(waits("settings", range(50), stragglers=1.0, straggler_factor=100.0)) == 60.0, "max_s"


@pytest.mark.parametrize(
    ("kind", "error"), [("hang", DeviceTimeout), ("crash", DeviceDisconnected), ("offline", DeviceOffline)]
)
def test_a_fault_ends_the_episode_as_the_devices(kind: str, error: type[DeviceError]) -> None:
    slept: list[float] = []
    env = PhoneEnv(faults={kind: 1.0, "hang_s": 7.0}, sleep=slept.append)
    env.reset(task())
    with pytest.raises(error, match=r"env\.options\.faults") as failure:
        env.step(WAIT)
    assert isinstance(failure.value, EnvError)
    assert failure.value.fault == "device"
    assert slept == ([7.0] if kind == "hang" else [])
    assert env.reset(task()).app == "browser", "the next episode begins as any"


def test_a_blank_frame_is_black_and_the_action_made() -> None:
    device = SimDevice(72, 160)
    env = PhoneEnv(backend=SimBackend(device), faults={"blank": 1.0})
    assert env.reset(task()).image.getextrema() != ((0, 0),) * 3
    frame = env.step(Action(kind=ActionKind.HOME)).frame
    assert frame.image.getextrema() == ((0, 0),) * 3
    assert (frame.image.size, frame.app) == ((72, 160), "launcher")


def test_faults_come_by_chance_and_another_try_may_do_without() -> None:
    env = PhoneEnv(faults={"offline": 0.1}, sleep=lambda seconds: None)
    ends = []
    for _ in range(40):
        env.reset(task())
        steps = 0
        try:
            for _ in range(10):
                env.step(WAIT)
                steps += 1
        except DeviceOffline:
            pass
        ends.append(steps)
    assert 5 <= ends.count(10) <= 30
    assert len(set(ends)) > 4


@pytest.mark.parametrize(
    ("option", "fields", "said"),
    [
        ("faults", {"fire": 1.0}, r"faults\.fire"),
        ("faults", {"hang": 2.0}, r"faults\.hang"),
        ("faults", {"hang": 0.6, "crash": 0.6}, "add up to 1.2"),
        ("latency", {"straggler_factor": 1000.0}, r"latency\.straggler_factor"),
        ("latency", {"apps": {"browser": 0.0}}, r"latency\.apps\.browser"),
    ],
)
def test_wrong_settings_are_config_errors(option: str, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PhoneEnv(**{option: fields})
