"""What a simulated phone's faults are through a real adb server: the right error, in time, and recovery."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from adb_world import AdbWorld, adb_world
from waiting import until

from distrl.workers.devices.errors import (
    ActionOutcomeUnknown,
    BlankFrame,
    DeviceNotFound,
    DeviceOffline,
    DeviceTimeout,
    DeviceUnauthorized,
    TransportError,
)

SOON_S, LONGER_S = 0.5, 2.0
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbWorld]:
    with adb_world(tmp_path_factory.mktemp("home"), 90, 200) as found:
        yield found


@pytest.fixture
def world(shared: AdbWorld) -> Iterator[AdbWorld]:
    """The phone, which is well again after each test."""
    yield shared
    shared.console.command("sim fault none")
    shared.client.wait_ready(PATIENCE_S)


def test_a_hung_phone_answers_in_time_that_it_does_not(world: AdbWorld) -> None:
    device = world.device()
    assert device.size == (90, 200)
    world.console.command("sim fault hang")
    with pytest.raises(DeviceTimeout):
        world.client.shell("true", SOON_S)
    with pytest.raises(DeviceTimeout):
        world.client.exec_out("screencap -p", SOON_S)
    with pytest.raises(ActionOutcomeUnknown):
        world.client.act("input tap 1 2", LONGER_S)
    assert world.client.state() == "device"  # the server has not noticed
    world.client.reconnect()
    with pytest.raises(TransportError):
        world.client.shell("true", SOON_S)
    world.console.command("sim fault none")
    world.client.wait_ready(PATIENCE_S)
    assert device.screenshot().size == (90, 200)


@pytest.mark.parametrize(
    ("fault", "kind"), [("offline", DeviceOffline), ("unauthorized", DeviceUnauthorized)]
)
def test_a_phone_that_cannot_be_used_says_which_way(
    world: AdbWorld, fault: str, kind: type[Exception]
) -> None:
    """Between two attempts to connect the server may not know it at all; that passes."""
    world.console.command(f"sim fault {fault}")
    world.client.reconnect()

    def is_told() -> bool:
        try:
            world.client.shell("true", LONGER_S)
        except TransportError as error:
            return type(error) is kind
        return False

    until(is_told, kind.__name__, PATIENCE_S)


def test_a_blank_screen_is_no_observation(world: AdbWorld) -> None:
    device = world.device()
    device.screenshot()
    world.console.command("sim fault blank")
    with pytest.raises(BlankFrame):
        device.screenshot()
    world.console.command("sim fault none")
    device.screenshot()


def test_a_crash_ends_what_is_under_way_and_the_phone_comes_back(world: AdbWorld) -> None:
    world.console.command("sim fault crash 0.5")
    with pytest.raises(TransportError):
        world.client.shell("true; sleep 30", PATIENCE_S)
    world.client.wait_ready(PATIENCE_S)
    assert world.device().foreground() == "launcher"


def test_nobody_is_asked_for_in_vain(world: AdbWorld) -> None:
    client = type(world.client)("emulator-1", world.client.port)
    with pytest.raises(DeviceNotFound):
        client.shell("true", PATIENCE_S)
