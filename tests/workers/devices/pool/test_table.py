"""The pool's rules, event by event, with a clock that stands still: leases, probes, faults and repairs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pool_devices import STEPS
from slot_world import FAULT, SlotWorld, state

from distrl.core.errors import EnvError
from distrl.simulator.device import SimDevice
from distrl.workers.devices.errors import (
    DeviceDisconnected,
    DeviceTimeout,
    ServerUnavailable,
    SnapshotFailed,
    SnapshotMissing,
)
from distrl.workers.devices.health import SlotState
from distrl.workers.devices.table import SERVER_S, JobKind, Slot


@pytest.fixture
def world(tmp_path: Path) -> SlotWorld:
    return SlotWorld(tmp_path)


def test_a_device_is_opened_leased_and_given_back(world: SlotWorld) -> None:
    slot = world.add("a")
    assert state(slot) is SlotState.ABSENT
    job = world.job(slot, JobKind.OPEN)
    assert state(slot) is SlotState.STARTING
    assert world.table.pick() is None
    device = SimDevice()
    assert world.table.opened(job, device)
    assert (state(slot), slot.device, slot.generation) == (SlotState.READY, device, 1)
    token = world.table.lease(slot)
    assert (state(slot), world.table.pick()) == (SlotState.BUSY, None)
    world.table.give_back("a", token, None, {}, True)
    assert (state(slot), world.table.pick()) == (SlotState.READY, slot)


def test_what_rested_longest_is_taken_first(world: SlotWorld) -> None:
    slots = [world.ready(name) for name in "abc"]
    for slot in slots:
        world.clock.now += 1.0
        world.table.give_back(slot.id, world.table.lease(slot), None, {}, True)
    assert world.table.pick() is slots[0]
    assert world.table.pick(avoid=["a"]) is slots[1]
    assert world.table.pick(avoid=["a", "b", "c"]) is None


def test_a_lease_can_be_ended_once(world: SlotWorld) -> None:
    slot = world.ready("a")
    first = world.table.lease(slot)
    world.table.give_back("a", first, None, {}, True)
    second = world.table.lease(slot)
    world.table.give_back("a", first, FAULT, {}, False)
    assert state(slot) is SlotState.BUSY
    world.table.give_back("a", second, None, {}, True)
    assert state(slot) is SlotState.READY


def test_an_idle_device_is_probed_every_ten_seconds_and_not_leased_meanwhile(world: SlotWorld) -> None:
    slot = world.ready("a")
    world.clock.now += 9.9
    assert world.table.due_jobs() == []
    assert world.table.next_due() == pytest.approx(world.clock.now + 0.1)
    world.clock.now += 0.1
    assert world.table.pick() is None  # first the probe
    job = world.job(slot, JobKind.PROBE)
    assert job.deadline == world.clock.now + 5.0
    assert (world.table.pick(), world.table.due_jobs()) == (None, [])
    world.table.answered(job)
    assert world.table.pick() is slot


def test_a_failed_probe_leads_to_a_repair(world: SlotWorld) -> None:
    slot = world.ready("a")
    world.clock.now += 10.0
    world.table.failed(world.job(slot, JobKind.PROBE), FAULT)
    assert state(slot) is SlotState.SUSPECT
    assert [step.name for step in world.repair(slot).steps] == list(STEPS)
    assert (state(slot), slot.generation, slot.fault) == (SlotState.READY, 2, None)


def test_a_lease_without_an_episode_does_not_count_as_a_sign_of_life(world: SlotWorld) -> None:
    slot = world.ready("a")
    world.clock.now += 6.0
    world.table.give_back("a", world.table.lease(slot), None, {}, False)
    world.clock.now += 4.0
    world.job(slot, JobKind.PROBE)


def test_a_device_that_does_not_open_is_repaired_then_rests_then_is_tried_again(world: SlotWorld) -> None:
    slot = world.add("a")
    world.table.failed(world.job(slot, JobKind.OPEN), FAULT)
    assert state(slot) is SlotState.SUSPECT
    world.table.failed(world.job(slot, JobKind.RECOVER), FAULT)
    assert (state(slot), slot.due) == (SlotState.QUARANTINED, world.clock.now + 10.0)
    assert world.table.due_jobs() == []
    world.rest_is_over(slot)
    world.table.failed(world.job(slot, JobKind.RECOVER), FAULT)
    assert slot.due == world.clock.now + 20.0
    world.rest_is_over(slot)
    world.repair(slot)
    assert state(slot) is SlotState.READY


def test_the_third_fault_in_ten_minutes_opens_the_circuit_and_a_success_closes_it(world: SlotWorld) -> None:
    slot = world.ready("a")
    for first_step in STEPS[:2]:
        world.fault(slot)
        assert world.repair(slot).steps[0].name == first_step  # what was not enough is not tried again
    world.fault(slot)
    job = world.job(slot, JobKind.RECOVER)
    assert job.steps == ()
    world.table.failed(job, FAULT)
    assert state(slot) is SlotState.QUARANTINED
    world.rest_is_over(slot)
    assert [step.name for step in world.repair(slot).steps] == [STEPS[2]]
    world.fault(slot)
    assert world.repair(slot).steps[0].name == STEPS[0]


@pytest.mark.parametrize("kind", [SnapshotMissing, SnapshotFailed])
def test_a_device_whose_snapshot_does_not_load_is_not_waited_for(
    world: SlotWorld, kind: type[EnvError]
) -> None:
    """It answers: the steps that lose nothing would all seem to have helped."""
    slot = world.ready("a")
    world.fault(slot, kind("the snapshot 'clean' does not load."))
    steps = world.repair(slot).steps
    assert [step.name for step in steps] == list(STEPS[1:])
    assert steps[0].destructive
    world.fault(slot)
    world.repair(slot)
    world.table.give_back("a", world.table.lease(slot), None, {}, True)
    assert slot.member.ladder()[0].destructive is False


def test_a_good_episode_makes_the_next_rest_short(world: SlotWorld) -> None:
    slot = world.add("a")
    world.table.failed(world.job(slot, JobKind.OPEN), FAULT)
    world.table.failed(world.job(slot, JobKind.RECOVER), FAULT)
    world.rest_is_over(slot)
    world.repair(slot)
    world.table.give_back("a", world.table.lease(slot), None, {}, True)
    world.fault(slot)
    world.table.failed(world.job(slot, JobKind.RECOVER), FAULT)
    assert slot.due == world.clock.now + 10.0


def test_faults_of_the_environment_do_not_count_against_the_device(world: SlotWorld) -> None:
    slot = world.ready("a")
    for _ in range(5):
        world.fault(slot, EnvError("the task has no expert."))
        assert world.repair(slot).steps
    assert slot.circuit.count(world.clock.now) == 0


def test_trouble_of_the_server_is_waited_for_and_not_counted(world: SlotWorld) -> None:
    slot = world.ready("a", tracked=True)
    world.fault(slot, ServerUnavailable("the adb server does not answer."))
    assert [step.name for step in world.repair(slot).steps] == ["wait"]
    world.fault(slot, DeviceDisconnected("the connection broke."))  # a moment before the tracker tells why
    world.table.server_lost()
    assert slot.circuit.count(world.clock.now) == 0
    world.repair(slot)
    world.clock.now += SERVER_S / 2
    world.fault(slot, DeviceDisconnected("the connection broke."))
    assert [step.name for step in world.repair(slot).steps] == ["wait"]
    assert slot.circuit.count(world.clock.now) == 0
    world.clock.now += SERVER_S
    world.fault(slot, DeviceDisconnected("the connection broke."))
    assert slot.circuit.count(world.clock.now) == 1


@pytest.mark.parametrize("kind", ["open", "probe", "recover"])
def test_answers_that_come_too_late_are_ignored(world: SlotWorld, kind: str) -> None:
    slot = world.add("a", tracked=True)
    world.table.listed("a", "device")
    job = world.job(slot, JobKind.OPEN)
    if kind != "open":
        world.table.opened(job, SimDevice())
        world.clock.now += 10.0
        job = world.job(slot, JobKind.PROBE)
    if kind == "recover":
        world.table.failed(job, FAULT)
        job = world.job(slot, JobKind.RECOVER)
    world.table.failed(job, DeviceTimeout("it did not end in time."))
    before = state(slot)
    assert not world.table.opened(job, SimDevice())
    assert not world.table.failed(job, FAULT)
    world.table.answered(job)
    assert (state(slot), slot.probing) == (before, False)


def test_a_device_whose_calls_hang_is_left_alone(world: SlotWorld) -> None:
    gate = threading.Event()
    stuck = [threading.Thread(target=gate.wait, daemon=True) for _ in range(2)]
    slot = world.ready("a")
    try:
        for thread in stuck:
            thread.start()
        slot.stuck.extend(stuck)
        world.fault(slot)
        assert (world.table.due_jobs(), state(slot)) == ([], SlotState.QUARANTINED)
        world.rest_is_over(slot)
        assert (world.table.due_jobs(), state(slot)) == ([], SlotState.QUARANTINED)
        assert slot.due > world.clock.now
    finally:
        gate.set()
    for thread in stuck:
        thread.join()
    world.rest_is_over(slot)
    world.repair(slot)
    assert state(slot) is SlotState.READY


def idle(world: SlotWorld, slot: Slot) -> None:
    del world, slot


def leased(world: SlotWorld, slot: Slot) -> None:
    world.table.lease(slot)


def suspected(world: SlotWorld, slot: Slot) -> None:
    world.fault(slot)


def repaired(world: SlotWorld, slot: Slot) -> None:
    world.fault(slot)
    world.table.due_jobs()


def resting(world: SlotWorld, slot: Slot) -> None:
    world.fault(slot)
    world.table.failed(world.job(slot, JobKind.RECOVER), FAULT)


@pytest.mark.parametrize("bring", [idle, leased, suspected, repaired, resting])
def test_every_state_can_end(world: SlotWorld, bring: Callable[[SlotWorld, Slot], None]) -> None:
    slot = world.ready("a")
    bring(world, slot)
    assert world.table.leave_all("the pool is closed") == [slot]
    assert state(slot) is SlotState.LEFT
    assert world.table.due_jobs() == []
