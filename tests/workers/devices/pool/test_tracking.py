"""Following the adb server's list, with a server that says what it is told to."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pool_devices import Clock, FakeMember
from waiting import until

from distrl.configs.devices import HealthConfig
from distrl.core.errors import MissingDependency
from distrl.workers.devices import sources
from distrl.workers.devices.adb_server import AdbServer, DeviceEntry
from distrl.workers.devices.claims import Claims
from distrl.workers.devices.errors import DeviceDisconnected, ServerUnavailable
from distrl.workers.devices.health import SlotState
from distrl.workers.devices.pool import DevicePool
from distrl.workers.devices.sources import AdbTracker

DEADLINE_S = 20.0


class FakeServer(AdbServer):
    """Its list is what `say` was called with last.

    Attributes:
        starts: How often it was to be started.
        refuses: What its start raises.
    """

    def __init__(self) -> None:
        super().__init__(port=1)
        self.lists: queue.Queue[list[DeviceEntry] | None] = queue.Queue()
        self.starts = 0
        self.is_ended = False
        self.refuses: Exception | None = None

    def say(self, **states: str) -> None:
        self.lists.put([DeviceEntry(serial, state) for serial, state in states.items()])

    def go_away(self) -> None:
        self.lists.put(None)

    def ensure_running(self, timeout_s: float = 20.0) -> None:
        self.starts += 1
        if self.refuses is not None:
            raise self.refuses

    def track(self, stop: threading.Event) -> Iterator[list[DeviceEntry] | None]:
        while not stop.is_set():
            try:
                yield self.lists.get(timeout=0.01)
            except queue.Empty:
                continue

    def end(self) -> None:
        self.is_ended = True


class Rig:
    """A pool of one named device and two patterns."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.server = Clock(), FakeServer()
        tracker = AdbTracker(
            self.server, [("named", FakeMember), ("new*", FakeMember), ("10.0.0.1:55*", FakeMember)]
        )
        self.pool = DevicePool(
            health=HealthConfig(max_faults=1),
            claims=Claims(folder / "claims"),
            trackers=[tracker],
            clock=self.clock,
        )

    def wait(self, **states: str) -> None:
        wanted = {name: SlotState(state) for name, state in states.items()}
        until(lambda: self.pool.states() == wanted, str(states), DEADLINE_S, details=self.pool.line)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.pool.close()
    assert made.server.is_ended


def test_named_devices_are_known_from_the_beginning_and_others_join(rig: Rig) -> None:
    rig.pool.start()
    rig.wait(named="absent")
    rig.server.say(named="device", new1="device", stranger="device")
    rig.wait(named="ready", new1="ready")
    rig.server.say(new1="device", new2="device")
    rig.wait(named="absent", new1="ready", new2="ready")


def test_devices_on_the_network_join_by_a_pattern_once_they_are_connected(rig: Rig) -> None:
    rig.pool.start()
    rig.wait(named="absent")
    rig.server.say(**{"10.0.0.1:5555": "device", "10.0.0.2:5555": "device"})
    rig.wait(**{"named": "absent", "10.0.0.1:5555": "ready"})


def test_a_device_that_was_forgotten_joins_again(rig: Rig) -> None:
    rig.pool.start()
    rig.server.say(named="device", new1="device")
    rig.wait(named="ready", new1="ready")
    rig.server.say(named="device")
    rig.wait(named="ready", new1="absent")
    rig.clock.now += 600.0
    rig.pool.wake()
    rig.wait(named="ready")
    rig.server.say(named="device", new1="device")
    rig.wait(named="ready", new1="ready")


def test_a_lost_server_is_started_again_and_excuses_its_devices(rig: Rig) -> None:
    rig.pool.start()
    rig.server.say(named="device")
    rig.wait(named="ready")
    assert rig.server.starts == 1
    lease = rig.pool.acquire(DEADLINE_S)
    rig.server.go_away()
    until(lambda: rig.server.starts == 2, "the new server", DEADLINE_S)
    rig.pool.release(lease, DeviceDisconnected("the connection broke."))
    rig.server.say(named="device")
    rig.wait(named="ready")  # one fault of its own would have put it to rest


def test_the_only_device_that_goes_is_no_lost_server(rig: Rig) -> None:
    """Its list is empty then; what the device did wrong is its own fault all the same."""
    rig.pool.start()
    rig.server.say(named="device")
    rig.wait(named="ready")
    lease = rig.pool.acquire(DEADLINE_S)
    rig.server.say()
    rig.server.say(named="device", new1="device")
    rig.wait(named="busy", new1="ready")
    rig.pool.release(lease, DeviceDisconnected("the connection broke."))
    rig.wait(named="quarantined", new1="ready")  # one fault opens its circuit
    assert rig.server.starts == 1


def test_a_server_that_does_not_start_is_tried_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "START_AGAIN_S", 0.01)
    rig.server.refuses = ServerUnavailable("the port is in use.")
    rig.pool.start()
    until(lambda: rig.server.starts >= 3, "more tries", DEADLINE_S)
    rig.server.refuses = None
    rig.server.say(named="device")
    rig.wait(named="ready")


def test_without_an_adb_program_there_is_no_pool(rig: Rig) -> None:
    rig.server.refuses = MissingDependency("there is no adb program.")
    rig.pool.start()
    with pytest.raises(MissingDependency, match="no adb program"):
        rig.pool.acquire(DEADLINE_S)
