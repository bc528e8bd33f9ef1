"""Places of slots: environments of their own, and environments that stay with the devices of a pool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import worker_envs
from counting_env import counting_task
from pool_devices import Clock, DeviceEnv, FakeMember
from waiting import until

from distrl.configs.devices import HealthConfig
from distrl.configs.schema import Config, EnvConfig
from distrl.core.errors import EnvError
from distrl.core.types import Fault, Trajectory
from distrl.workers.devices.claims import Claims
from distrl.workers.devices.errors import DeviceTimeout
from distrl.workers.devices.health import SlotState
from distrl.workers.devices.pool import DevicePool
from distrl.workers.places import OwnPlaces, Place, PooledPlaces, Visit, open_places

DEADLINE_S = 20.0
TASK, OTHER_TASK = counting_task(1), counting_task(2)


class Rig:
    """Places on a pool of devices, named by letters."""

    def __init__(self, folder: Path, names: str = "ab") -> None:
        self.clock = Clock()
        self.members = [FakeMember(name) for name in names]
        claims = Claims(folder / "claims")
        self.pool = DevicePool(self.members, HealthConfig(max_faults=100), claims=claims, clock=self.clock)
        self.places = PooledPlaces(EnvConfig(import_path="pool_devices:DeviceEnv"), self.pool)
        self.pool.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        until(
            lambda: set(self.pool.states().values()) <= {SlotState.READY, SlotState.BUSY},
            "the devices",
            DEADLINE_S,
        )

    def enter(self, device: str) -> Place:
        """A place on this device."""
        for _ in self.members:
            self.clock.now += 0.01  # the one that rested longest comes next
            place = self.places.enter(0, DEADLINE_S)
            assert place is not None
            if device_of(place) == device:
                return place
            self.places.leave(place)
        raise AssertionError(f"{device} does not come")

    def fail(self, place: Place) -> None:
        """The device fails at TASK."""
        error = DeviceTimeout("it does not answer.")
        trajectory = Trajectory(id="t", task=TASK, fault=Fault.DEVICE, fault_detail=str(error))
        self.places.leave(place, Visit(trajectory, {}, error))
        self.wait_ready()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.places.close()


def device_of(place: Place) -> str:
    assert place.lease is not None
    return place.lease.id


def done(task_fault: Fault = Fault.NONE) -> Visit:
    return Visit(Trajectory(id="t", task=TASK, fault=task_fault), {})


def test_a_task_is_not_run_again_where_it_failed(rig: Rig) -> None:
    rig.fail(rig.enter("a"))
    place = rig.enter("a")
    changed = rig.places.change(place, TASK)
    assert device_of(changed) == "b"
    assert rig.pool.states() == {"a": SlotState.READY, "b": SlotState.BUSY}


def test_other_tasks_stay_where_they_are(rig: Rig) -> None:
    rig.fail(rig.enter("a"))
    place = rig.enter("a")
    assert rig.places.change(place, OTHER_TASK) is place


def test_where_all_devices_failed_the_task_stays(rig: Rig) -> None:
    for device in "ab":
        rig.fail(rig.enter(device))
    place = rig.enter("a")
    assert rig.places.change(place, TASK) is place
    assert rig.pool.states() == {"a": SlotState.BUSY, "b": SlotState.READY}


def test_a_task_waits_for_another_device_no_longer_than_it_may(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrl.workers.places.CHANGE_S", 0.05)
    rig.fail(rig.enter("a"))
    place, other = rig.enter("a"), rig.places.enter(1, DEADLINE_S)
    assert other is not None
    assert rig.places.change(place, TASK) is place
    assert rig.pool.states() == {"a": SlotState.BUSY, "b": SlotState.BUSY}


def test_a_device_that_failed_too_is_no_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distrl.workers.places.CHANGE_S", 0.05)
    rig = Rig(tmp_path, "abc")
    try:
        for device in "ab":
            rig.fail(rig.enter(device))
        rig.enter("c")
        place = rig.enter("a")
        assert rig.places.change(place, TASK) is place
        assert rig.pool.states() == {"a": SlotState.BUSY, "b": SlotState.READY, "c": SlotState.BUSY}
    finally:
        rig.places.close()


def test_an_environment_stays_with_its_device(rig: Rig) -> None:
    place = rig.enter("a")
    rig.places.leave(place, done())
    assert rig.enter("a").env is place.env


def test_a_failed_environment_is_closed_and_made_anew(rig: Rig) -> None:
    place = rig.enter("a")
    rig.fail(place)
    assert rig.members[0].devices[0].is_closed
    again = rig.enter("a")
    assert again.env is not place.env


def test_an_environment_does_not_outlive_a_repair_of_its_idle_device(rig: Rig) -> None:
    place = rig.enter("a")
    rig.places.leave(place, done())
    rig.members[0].fail()
    rig.clock.now += 10.0
    rig.pool.wake()
    until(lambda: len(rig.members[0].devices) == 2, "the repair", DEADLINE_S)
    rig.wait_ready()
    again = rig.enter("a")
    assert again.env is not place.env
    assert isinstance(again.env, DeviceEnv)
    assert again.env.device is rig.members[0].devices[1]


def test_an_unreachable_policy_is_not_the_device_s_fault(rig: Rig) -> None:
    place = rig.enter("a")
    rig.places.leave(place, done(Fault.INFERENCE))
    assert rig.enter("a").env is place.env


def test_when_no_device_is_free_in_time_there_is_no_place(rig: Rig) -> None:
    rig.enter("a")
    assert rig.places.enter(1, DEADLINE_S) is not None
    assert rig.places.enter(2, 0.0) is None


def test_an_environment_that_does_not_start_is_the_device_s_fault(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: DeviceEnv, device: object) -> None:
        raise DeviceTimeout("it does not answer.")

    monkeypatch.setattr(DeviceEnv, "__init__", refuse)
    with pytest.raises(EnvError, match="does not answer"):
        rig.places.enter(0, DEADLINE_S)
    until(lambda: any("wait" in member.log for member in rig.members), "its repair", DEADLINE_S)


def test_a_slot_s_own_environment_is_made_once_and_anew_after_a_fault() -> None:
    worker_envs.FlakyEnv.made, worker_envs.FlakyEnv.closed = 2, 0
    places = OwnPlaces(EnvConfig(import_path="worker_envs:FlakyEnv"), 2)
    first = places.enter(0, 0.0)
    places.leave(first, done())
    assert places.enter(0, 0.0).env is first.env
    assert places.enter(1, 0.0).env is not first.env
    places.leave(first, done(Fault.DEVICE))
    assert worker_envs.FlakyEnv.closed == 1
    assert places.enter(0, 0.0).env is not first.env
    places.quit(0)
    places.quit(1)
    assert worker_envs.FlakyEnv.closed == 3


def test_without_a_pool_each_slot_has_its_own() -> None:
    places = open_places(Config(), 3)
    assert isinstance(places, OwnPlaces)
    assert (places.capacity, places.stats(), places.line()) == (3, {}, "")
