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
from distrl.workers.devices.claims import Claims
from distrl.workers.devices.errors import (
    DeviceDisconnected,
    DeviceTimeout,
    DeviceUnauthorized,
    ServerUnavailable,
    SnapshotFailed,
    SnapshotMissing,
)
from distrl.workers.devices.health import SlotState
from distrl.workers.devices.table import CLAIM_S, SERVER_S, Job, JobKind, Slot


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


def test_a_device_that_goes_and_comes_back_rests_no_longer(world: SlotWorld) -> None:
    slot = world.ready("a", tracked=True)
    for _ in range(2):
        world.fault(slot)
        world.repair(slot)
    world.fault(slot)
    world.table.failed(world.job(slot, JobKind.RECOVER), FAULT)
    rest_ends = world.clock.now + 10.0
    for _ in range(4):
        world.clock.now += 2.0
        world.table.listed("a", None)
        world.table.listed("a", "device")
        assert (world.table.due_jobs(), slot.due) == ([], rest_ends)
    world.rest_is_over(slot)
    world.open(slot)


def test_a_device_on_the_network_is_looked_at_when_the_server_was_lost(world: SlotWorld) -> None:
    """A new server does not know it: it must be connected to before an episode needs it."""
    slot = world.ready("a")
    world.table.server_lost()
    assert world.table.pick() is None
    world.table.failed(world.job(slot, JobKind.PROBE), DeviceDisconnected("unknown."))
    assert not slot.circuit.count(world.clock.now)
    world.repair(slot)


def test_trouble_that_outlasts_the_server_s_is_the_device_s_own(world: SlotWorld) -> None:
    """Waiting is enough while the server is to blame; afterwards the harsher steps are tried, too."""
    slot = world.ready("a")
    world.table.server_lost()
    world.fault(slot, DeviceDisconnected("it broke."))
    world.table.failed(world.job(slot, JobKind.RECOVER), DeviceDisconnected("it is away."))
    for _ in range(2):
        world.rest_is_over(slot)
        job = world.job(slot, JobKind.RECOVER)
        world.table.failed(job, DeviceDisconnected("it is away."))
    assert [step.name for step in job.steps] == list(STEPS)


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


class Restarts:
    """Devices whose adb server is restarted, and a keeper whose jobs take no time while there is one.

    Args:
        world: The table and its clock.
        slots: Devices that work whenever the server lists them.
        tracked: The server's list tells whether they are there.
    """

    def __init__(self, world: SlotWorld, slots: list[Slot], tracked: bool) -> None:
        self.world, self.slots, self.tracked, self.is_up = world, slots, tracked, True
        self.seen_ready: set[str] = set()
        self.waiting: list[Job] = []  # repairs: their first step waits for the server

    def restart(self, down_s: float = 2.0) -> None:
        """Leases break, everything is gone, and comes back: offline at first."""
        table, self.is_up = self.world.table, False
        leases = [(slot, table.lease(slot)) for slot in self.slots if state(slot) is SlotState.READY]
        for slot, token in leases:  # what the server's loss breaks may be noticed before the loss itself
            table.give_back(slot.id, token, DeviceDisconnected("it broke."), {}, True)
        self.run(0.5)
        table.server_lost()
        self.list(None)
        self.run(down_s)
        self.list("offline")
        self.run(0.5)
        self.is_up = True
        self.list("device")

    def list(self, listed: str | None) -> None:
        for slot in self.slots if self.tracked else ():
            self.world.table.listed(slot.id, listed)

    def run(self, seconds: float) -> None:
        """Lets the keeper work for so long, in half seconds."""
        for _ in range(int(seconds * 2)):
            jobs, self.waiting = self.waiting, []
            for job in [*jobs, *self.world.table.due_jobs()]:
                self._do(job)
            self.seen_ready |= {slot.id for slot in self.slots if state(slot) is SlotState.READY}
            self.world.clock.now += 0.5

    def _do(self, job: Job) -> None:
        table = self.world.table
        if job.kind is JobKind.RECOVER and not job.steps:
            assert job.fault is not None
            table.failed(job, job.fault.error)
        elif not self.is_up and job.steps:
            self.waiting.append(job)
        elif not self.is_up:
            table.failed(job, ServerUnavailable("no adb server answers."))
        elif job.kind is JobKind.PROBE:
            table.answered(job)
        else:
            table.opened(job, SimDevice())


@pytest.mark.parametrize("tracked", [True, False], ids=["listed", "on the network"])
def test_a_server_that_restarts_again_and_again_costs_no_device_anything(
    world: SlotWorld, tracked: bool
) -> None:
    """Eight devices rest after three faults each, and the adb server restarts every ten seconds."""
    restarts = Restarts(world, [world.ready(f"d{number}", tracked) for number in range(8)], tracked)
    for slot in restarts.slots:
        for _ in range(2):
            world.fault(slot)
            world.repair(slot)
        world.fault(slot)
        world.table.failed(world.job(slot, JobKind.RECOVER), FAULT)
    assert {state(slot) for slot in restarts.slots} == {SlotState.QUARANTINED}
    restarts.run(3.0)
    for number in range(12):
        restarts.seen_ready.clear()
        restarts.restart()
        restarts.run(7.0)
        # The rest that the faults began ends once, and no restart begins another.
        assert number == 0 or restarts.seen_ready == {slot.id for slot in restarts.slots}
    assert {state(slot) for slot in restarts.slots} == {SlotState.READY}
