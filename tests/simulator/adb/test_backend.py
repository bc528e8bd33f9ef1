"""A simulated phone behind a real adb server is the one in this process: same episodes, byte for byte."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from adb_world import AdbWorld, adb_world
from waiting import until

from distrl.core.actions import Action, ActionKind
from distrl.core.types import Task
from distrl.evaluator.suites import load_suite
from distrl.simulator.device import SimDevice
from distrl.simulator.phone import nodes
from distrl.simulator.phone.phone import new_state
from distrl.simulator.phone.state import State, show
from distrl.workers.devices.adb_device import AdbDevice
from distrl.workers.devices.device import Key
from distrl.workers.devices.errors import DeviceDisconnected, SnapshotFailed
from distrl.workers.envs.backends import backend_for
from distrl.workers.envs.phone import PhoneEnv

SIZE = (270, 600)
TEMPLATES = (
    *("open_app", "toggle", "alarm", "contact", "star", "shop_search"),
    *("store_install", "store_replace", "store_sign_in"),
)
WORDS = ("Anna", "red mug", "100%", "it's", "a;b|c&d $(x) `y`", "<b> \\n", "-f --x", "ü → 東京 👍", " ", "")
APP_NAMES = ("Clock", "notes app", "org.simphone.weather", "Launcher", "Games", "it's $(x)", "")
TASKS = load_suite("quickstart") + load_suite("install")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbWorld]:
    with adb_world(tmp_path_factory.mktemp("home"), *SIZE) as found:
        yield found


def task_of(template: str, place: int) -> Task:
    """One of a template's tasks; neighbours are on different layouts."""
    return [task for task in TASKS if task.template == template][place]


def random_action(rng: random.Random) -> Action:
    point, to = (rng.random(), rng.random()), (rng.random(), rng.random())
    kind = rng.choice([kind for kind in ActionKind if kind is not ActionKind.MOTION])
    if kind is ActionKind.TYPE:
        return Action.type_text(rng.choice(WORDS))
    if kind is ActionKind.OPEN_APP:
        return Action(kind=kind, text=rng.choice(APP_NAMES))
    return Action(kind=kind, point=point, to=to)


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("noise", [0.0, 0.6])
def test_an_episode_over_adb_is_the_episode_in_this_process(
    world: AdbWorld, template: str, noise: float
) -> None:
    near = PhoneEnv(backend=backend_for(SimDevice(*SIZE)))
    far = PhoneEnv(backend=backend_for(world.device()))
    for place in (0,) if noise else (0, 1, 3):
        task = task_of(template, place)
        rng = random.Random(f"{task.id}/{noise}")
        frames = (near.reset(task), far.reset(task))
        for step in range(10 if noise else 20):
            where = (task.id, step)
            assert frames[0].app == frames[1].app, where
            assert frames[0].image.tobytes() == frames[1].image.tobytes(), where
            assert near.evaluate() == far.evaluate(), where
            action = near.expert_action()
            assert action == far.expert_action(), where
            if action.is_terminal:
                break
            if rng.random() < noise:
                action = random_action(rng)
            frames = (near.step(action).frame, far.step(action).frame)
        if not noise:
            assert (action.kind, far.evaluate()) == (ActionKind.COMPLETE, 1.0)


@pytest.mark.parametrize("name", APP_NAMES)
def test_an_app_is_opened_by_its_name(world: AdbWorld, name: str) -> None:
    near, far = both_with(world, new_state())
    assert near.open_app(name) == far.open_app(name) == (name in APP_NAMES[:3])
    assert (
        near.foreground()
        == far.foreground()
        == ("clock", "notes", "weather", *["launcher"] * 4)[APP_NAMES.index(name)]
    )
    assert far.screenshot().tobytes() == near.screenshot().tobytes()


def both_with(world: AdbWorld, state: State) -> tuple[SimDevice, AdbDevice]:
    """The phone in this process and the one behind adb, in the same state."""
    near, far = SimDevice(*SIZE), world.device()
    world.client.check("cmd simphone load", 10.0, stdin=json.dumps(state).encode())
    near.load(state)
    return near, far


def pixel_of(device: SimDevice, rid: str) -> tuple[int, int]:
    """A pixel of an element on the screen, to the left in it."""
    node = nodes.find(device.phone.tree(), rid)
    assert node is not None
    scale = SIZE[0] / nodes.WIDTH
    return round((node.x + node.w / 4) * scale), round((node.y + node.h / 2) * scale)


@pytest.mark.parametrize("app", ["calculator", "clock"])
def test_a_double_tap_is_two_taps_and_a_long_press_is_none(world: AdbWorld, app: str) -> None:
    """A key is pressed twice; an alarm, held, is deleted."""
    state = new_state()
    show(state, app)
    state["apps"]["clock"]["alarms"] = [{"minutes": 725, "on": True}]
    near, far = both_with(world, state)
    x, y = pixel_of(near, "calc_5" if app == "calculator" else "alarm_0")
    for device in (near, far):
        (device.double_tap if app == "calculator" else device.long_press)(x, y)
    assert far.screenshot().tobytes() == near.screenshot().tobytes()
    assert near.phone.state["apps"]["calculator"]["shown"] == ("55" if app == "calculator" else "0")
    assert len(near.phone.state["apps"]["clock"]["alarms"]) == (app == "calculator")


def test_snapshots_keep_the_whole_state(world: AdbWorld) -> None:
    device = world.device()
    env = PhoneEnv(backend=backend_for(device))
    first = env.reset(task_of("toggle", 0)).image.tobytes()
    device.save_state("start")
    while not env.expert_action().is_terminal:
        env.step(env.expert_action())
    assert env.evaluate() == 1.0
    device.load_state("start")
    assert env.evaluate() == 0.0
    assert device.screenshot().tobytes() == first
    with pytest.raises(SnapshotFailed):
        device.load_state("never-saved")


def test_a_load_breaks_what_was_connected_and_ends_when_the_phone_answers_again(world: AdbWorld) -> None:
    device = world.device()
    device.save_state("here")
    with ThreadPoolExecutor(1) as pool:
        asleep = pool.submit(world.client.shell, "echo > /data/local/tmp/asleep; sleep 50", 60.0)
        until(lambda: "asleep" in world.client.shell("ls /data/local/tmp", 10.0).text, "the command")
        device.load_state("here")
        device.key(Key.HOME)  # an input has one try only
        with pytest.raises(DeviceDisconnected):
            asleep.result(60.0)
