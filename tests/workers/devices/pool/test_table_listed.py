"""The pool's rules, event by event: devices that come and go, spares, and other processes' devices."""

from __future__ import annotations

from pathlib import Path

import pytest
from slot_world import FAULT, SlotWorld, state

from distrl.workers.devices.errors import DeviceUnauthorized
from distrl.workers.devices.pool.claims import Claims
from distrl.workers.devices.pool.state import SlotState
from distrl.workers.devices.pool.table import CLAIM_S, JobKind


@pytest.fixture
def world(tmp_path: Path) -> SlotWorld:
    return SlotWorld(tmp_path)


def test_a_tracked_device_waits_until_it_is_listed(world: SlotWorld) -> None:
    slot = world.add("a", tracked=True)
    assert world.table.due_jobs() == []
    world.table.listed("a", "offline")
    assert world.table.due_jobs() == []  # it may be coming
    world.table.listed("a", "device")
    world.open(slot)
    assert state(slot) is SlotState.READY


def test_a_device_that_stays_offline_is_looked_at(world: SlotWorld) -> None:
    slot = world.add("a", tracked=True)
    world.table.listed("a", "offline")
    world.clock.now += CLAIM_S
    world.job(slot, JobKind.OPEN)


@pytest.mark.parametrize("listed", ["offline", "unauthorized"])
def test_an_idle_device_that_goes_offline_is_repaired(world: SlotWorld, listed: str) -> None:
    slot = world.ready("a", tracked=True)
    world.table.listed("a", listed)
    assert state(slot) is SlotState.SUSPECT
    assert slot.fault is not None
    assert isinstance(slot.fault.error, DeviceUnauthorized) == (listed == "unauthorized")


def test_a_device_that_goes_while_idle_is_absent_and_comes_back(world: SlotWorld) -> None:
    slot = world.ready("a", tracked=True)
    world.table.listed("a", None)
    assert state(slot) is SlotState.ABSENT
    assert world.table.due_jobs() == []
    world.table.listed("a", "device")
    world.open(slot)
    assert (state(slot), slot.generation) == (SlotState.READY, 2)


def test_a_device_that_goes_during_an_episode_is_known_when_that_ends(world: SlotWorld) -> None:
    slot = world.ready("a", tracked=True)
    token = world.table.lease(slot)
    world.table.listed("a", None)
    assert state(slot) is SlotState.BUSY
    world.table.give_back("a", token, None, {}, True)
    assert state(slot) is SlotState.ABSENT


def test_a_device_that_faulted_and_went_is_waited_for_first(world: SlotWorld) -> None:
    """Its post-mortem must be written, and it may be back in a moment."""
    slot = world.ready("a", tracked=True)
    token = world.table.lease(slot)
    world.table.listed("a", None)
    world.table.give_back("a", token, FAULT, {}, False)
    assert state(slot) is SlotState.SUSPECT
    world.table.failed(world.job(slot, JobKind.RECOVER), FAULT)
    assert state(slot) is SlotState.ABSENT


def test_a_resting_device_is_tried_as_soon_as_it_is_online_again(world: SlotWorld) -> None:
    slot = world.ready("a", tracked=True)
    world.table.listed("a", "unauthorized")
    world.table.failed(world.job(slot, JobKind.RECOVER), FAULT)
    assert state(slot) is SlotState.QUARANTINED
    world.table.listed("a", "device")
    world.repair(slot)
    assert state(slot) is SlotState.READY


def test_a_device_that_comes_and_goes_all_the_time_rests_too(world: SlotWorld) -> None:
    slot = world.ready("a", tracked=True)
    for _ in range(3):
        world.fault(slot)
        world.table.listed("a", None)
        world.table.failed(world.job(slot, JobKind.RECOVER), FAULT)
        assert state(slot) is SlotState.ABSENT
        world.table.listed("a", "device")
        if slot.circuit.count(world.clock.now) < 3:
            world.open(slot)
    assert (world.table.due_jobs(), slot.due) == ([], world.clock.now + 10.0)
    world.rest_is_over(slot)
    world.open(slot)
    assert not slot.circuit.is_open(world.clock.now)


def test_a_device_that_goes_offline_during_its_probe_is_suspected_once(world: SlotWorld) -> None:
    slot = world.ready("a", tracked=True)
    world.clock.now += 10.0
    job = world.job(slot, JobKind.PROBE)
    world.table.listed("a", "offline")
    assert not world.table.failed(job, FAULT)
    assert state(slot) is SlotState.SUSPECT


def test_devices_beyond_the_limit_are_spares(tmp_path: Path) -> None:
    world = SlotWorld(tmp_path, limit=1)
    first = world.ready("a")
    spare = world.add("b")
    assert (state(spare), world.table.due_jobs()) == (SlotState.ABSENT, [])
    assert world.table.next_due() > world.clock.now
    world.fault(first)
    world.table.failed(world.job(first, JobKind.RECOVER), FAULT)
    world.open(spare)
    assert (state(first), state(spare)) == (SlotState.QUARANTINED, SlotState.READY)


def test_a_device_that_joined_by_a_pattern_is_forgotten_when_it_stays_away(world: SlotWorld) -> None:
    slot = world.ready("a", tracked=True, forget=True)
    stays = world.ready("b", tracked=True)
    world.table.listed("a", None)
    world.table.listed("b", None)
    world.clock.now += 600.0
    assert world.table.due_jobs() == []
    assert state(slot) is SlotState.LEFT
    assert list(world.table.slots.values()) == [stays]


def test_a_device_that_another_process_uses_is_waited_for(tmp_path: Path) -> None:
    other = Claims(tmp_path)
    assert other.take("adb-1")
    world = SlotWorld(tmp_path, claim="adb-1")
    slot = world.add("a")
    assert (world.table.due_jobs(), state(slot)) == ([], SlotState.ABSENT)
    other.release("adb-1")
    assert world.table.due_jobs() == []  # not every moment
    world.clock.now += CLAIM_S
    world.open(slot)
    assert not Claims(tmp_path).take("adb-1")


def test_a_device_that_goes_is_free_for_other_processes(tmp_path: Path) -> None:
    world = SlotWorld(tmp_path, claim="adb-1")
    world.ready("a", tracked=True)
    world.table.listed("a", None)
    assert Claims(tmp_path).take("adb-1")
