"""The pool's rules, event by event, with a clock that stands still."""

from __future__ import annotations

from pathlib import Path

import pytest
from pool_devices import STEPS, Clock, FakeMember

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
from distrl.workers.devices.table import (
    CLAIM_S,
    HEALTH,
    SERVER_S,
    Circuit,
    Health,
    Job,
    Slot,
    SlotState,
    SlotTable,
)

FAULT = DeviceTimeout("it does not answer.")


class SlotWorld:
    """A table, its clock, and the steps that tests take again and again."""

    def __init__(self, folder: Path, limit: int = 100, claim: str = "") -> None:
        self.clock, self.claim = Clock(), claim
        self.table = SlotTable(HEALTH, limit, Claims(folder), self.clock)

    def add(self, name: str, tracked: bool = False) -> Slot:
        self.table.join(FakeMember(name, claim=self.claim), tracked)
        return self.table.slots[name]

    def ready(self, name: str, tracked: bool = False) -> Slot:
        slot = self.add(name, tracked)
        if tracked:
            self.table.listed(name, "device")
        self.open(slot)
        return slot

    def open(self, slot: Slot) -> None:
        self.table.opened(self.job(slot, "open"), SimDevice())

    def job(self, slot: Slot, kind: str) -> Job:
        (job,) = [job for job in self.table.due_jobs() if job.slot is slot]
        assert job.kind == kind
        return job

    def use(self, slot: Slot, error: EnvError | None = None, used: bool = True) -> None:
        """A lease that ends well, or with `error`."""
        self.table.give_back(slot.id, self.table.lease(slot), error, {}, used and error is None)

    def repair(self, slot: Slot) -> list[str]:
        """A recovery that succeeds. Returns the steps that it might have taken."""
        job = self.job(slot, "recover")
        assert self.table.opened(job, SimDevice())
        return [step.name for step in job.steps]

    def give_up(self, slot: Slot, error: EnvError = FAULT) -> None:
        """A recovery that fails."""
        self.table.failed(self.job(slot, "recover"), error)

    def rest_is_over(self, slot: Slot) -> None:
        self.clock.now = slot.due


@pytest.fixture
def world(tmp_path: Path) -> SlotWorld:
    return SlotWorld(tmp_path)


def test_what_rested_longest_is_taken_first(world: SlotWorld) -> None:
    slots = [world.ready(name) for name in "abc"]
    for slot in slots:
        world.clock.now += 1.0
        world.use(slot)
    assert world.table.pick() is slots[0]


def test_a_lease_can_be_ended_once(world: SlotWorld) -> None:
    slot = world.ready("a")
    first = world.table.lease(slot)
    world.table.give_back("a", first, None, {}, True)
    second = world.table.lease(slot)
    world.table.give_back("a", first, FAULT, {}, False)
    assert slot.state is SlotState.BUSY
    world.table.give_back("a", second, None, {}, True)
    assert slot.state is SlotState.READY


def test_an_idle_device_is_probed_every_ten_seconds_and_not_leased_meanwhile(world: SlotWorld) -> None:
    slot = world.ready("a")
    world.clock.now += 6.0
    world.use(slot, used=False)  # no episode, no sign of life
    world.clock.now += 3.9
    assert world.table.due_jobs() == []
    world.clock.now += 0.1
    assert world.table.pick() is None  # first the probe
    job = world.job(slot, "probe")
    assert job.deadline == world.clock.now + 5.0
    assert (world.table.pick(), world.table.due_jobs()) == (None, [])
    world.table.answered(job)
    assert world.table.pick() is slot
    world.clock.now += 10.0
    world.table.failed(world.job(slot, "probe"), FAULT)
    assert slot.state is SlotState.SUSPECT
    assert world.repair(slot) == list(STEPS)


def test_a_device_that_does_not_open_is_repaired_then_rests_then_is_tried_again(world: SlotWorld) -> None:
    slot = world.add("a")
    world.table.failed(world.job(slot, "open"), FAULT)
    assert slot.state is SlotState.SUSPECT
    world.give_up(slot)
    assert (slot.state, slot.due) == (SlotState.QUARANTINED, world.clock.now + 10.0)
    assert world.table.due_jobs() == []
    world.rest_is_over(slot)
    world.give_up(slot)
    assert slot.due == world.clock.now + 20.0
    world.rest_is_over(slot)
    world.repair(slot)
    assert slot.state is SlotState.READY
    world.use(slot)  # a good episode makes the next rest short
    world.use(slot, FAULT)
    job = world.job(slot, "recover")
    world.table.failed(job, FAULT)
    assert slot.due == world.clock.now + 10.0
    assert world.table.leave_all() == [slot]
    assert not world.table.opened(job, SimDevice())


def test_the_third_fault_in_ten_minutes_opens_the_circuit_and_a_success_closes_it(world: SlotWorld) -> None:
    slot = world.ready("a")
    for first_step in STEPS[:2]:
        world.use(slot, FAULT)
        assert world.repair(slot)[0] == first_step  # what was not enough is not tried again
    world.use(slot, FAULT)
    job = world.job(slot, "recover")
    assert job.steps == ()
    world.table.failed(job, FAULT)
    assert slot.state is SlotState.QUARANTINED
    world.rest_is_over(slot)
    assert world.repair(slot) == [STEPS[2]]
    world.use(slot, FAULT)
    assert world.repair(slot)[0] == STEPS[0]


@pytest.mark.parametrize("kind", [SnapshotMissing, SnapshotFailed])
def test_a_device_whose_snapshot_does_not_load_is_not_waited_for(
    world: SlotWorld, kind: type[EnvError]
) -> None:
    """It answers: the steps that lose nothing would all seem to have helped."""
    slot = world.ready("a")
    world.use(slot, kind("the snapshot 'clean' does not load."))
    steps = world.repair(slot)
    assert steps == list(STEPS[1:])


def test_faults_of_the_environment_do_not_count_against_the_device(world: SlotWorld) -> None:
    slot = world.ready("a")
    for _ in range(5):
        world.use(slot, EnvError("the task has no expert."))
        assert world.repair(slot)
    assert slot.circuit.count(world.clock.now) == 0


def test_trouble_of_the_server_is_waited_for_and_not_counted(world: SlotWorld) -> None:
    slot = world.ready("a", tracked=True)
    world.use(slot, ServerUnavailable("the adb server does not answer."))
    assert world.repair(slot) == ["wait"]
    world.use(slot, DeviceDisconnected("the connection broke."))  # a moment before the tracker tells why
    world.table.server_lost()
    assert slot.circuit.count(world.clock.now) == 0
    world.repair(slot)
    world.clock.now += SERVER_S / 2
    world.use(slot, DeviceDisconnected("the connection broke."))
    assert world.repair(slot) == ["wait"]
    assert slot.circuit.count(world.clock.now) == 0
    world.clock.now += SERVER_S
    world.use(slot, DeviceDisconnected("the connection broke."))
    assert slot.circuit.count(world.clock.now) == 1


@pytest.mark.parametrize("kind", ["open", "probe", "recover"])
def test_answers_that_come_too_late_are_ignored(world: SlotWorld, kind: str) -> None:
    slot = world.add("a", tracked=True)
    world.table.listed("a", "device")
    job = world.job(slot, "open")
    if kind != "open":
        world.table.opened(job, SimDevice())
        world.clock.now += 10.0
        job = world.job(slot, "probe")
    if kind == "recover":
        world.table.failed(job, FAULT)
        job = world.job(slot, "recover")
    world.table.failed(job, DeviceTimeout("it did not end in time."))
    before = slot.state
    assert not world.table.opened(job, SimDevice())
    world.table.failed(job, FAULT)
    world.table.answered(job)
    assert (slot.state, slot.probing) == (before, False)


def test_a_tracked_device_waits_until_it_is_listed(world: SlotWorld) -> None:
    slot = world.add("a", tracked=True)
    assert world.table.due_jobs() == []
    world.table.listed("a", "offline")
    assert world.table.due_jobs() == []  # it may be coming
    world.table.listed("a", "device")
    world.open(slot)
    world.table.listed("a", None)
    assert (slot.state, world.table.due_jobs()) == (SlotState.ABSENT, [])
    world.table.listed("a", "offline")
    world.clock.now += CLAIM_S  # it stays offline: it is looked at
    world.open(slot)
    assert (slot.state, slot.generation) == (SlotState.READY, 2)


def test_a_device_that_faulted_and_went_is_waited_for_first(world: SlotWorld) -> None:
    """Its post-mortem must be written, and it may be back in a moment."""
    slot = world.ready("a", tracked=True)
    token = world.table.lease(slot)
    world.table.listed("a", None)
    assert slot.state is SlotState.BUSY
    world.table.give_back("a", token, FAULT, {}, False)
    assert slot.state is SlotState.SUSPECT
    world.give_up(slot)
    assert slot.state is SlotState.ABSENT
    world.table.listed("a", "device")
    world.open(slot)
    token = world.table.lease(slot)
    world.table.listed("a", None)
    world.table.give_back("a", token, None, {}, True)
    assert slot.state is SlotState.ABSENT  # without a fault at once


def test_a_device_that_goes_while_it_is_opened_is_opened_again_as_soon_as_it_is_back(
    world: SlotWorld,
) -> None:
    """Its last answer and the server's list come at the same time."""
    slot = world.add("a", tracked=True)
    world.table.listed("a", "device")
    job = world.job(slot, "open")
    world.table.listed("a", None)
    assert world.table.opened(job, SimDevice())
    world.use(slot, FAULT)
    world.give_up(slot)
    world.table.listed("a", "device")
    world.open(slot)


@pytest.mark.parametrize("listed", ["offline", "unauthorized"])
def test_an_idle_device_that_goes_offline_is_repaired_and_tried_again_as_soon_as_it_is_online(
    world: SlotWorld, listed: str
) -> None:
    slot = world.ready("a", tracked=True)
    world.table.listed("a", listed)
    assert slot.fault is not None
    assert isinstance(slot.fault.error, DeviceUnauthorized) == (listed == "unauthorized")
    world.give_up(slot)
    assert slot.state is SlotState.QUARANTINED
    world.table.listed("a", "device")
    world.repair(slot)
    assert slot.state is SlotState.READY


def test_a_device_that_comes_and_goes_all_the_time_rests_too(world: SlotWorld) -> None:
    slot = world.ready("a", tracked=True)
    for _ in range(3):
        world.use(slot, FAULT)
        world.table.listed("a", None)
        world.give_up(slot)
        assert slot.state is SlotState.ABSENT
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
        world.use(slot, FAULT)
        world.repair(slot)
    world.use(slot, FAULT)
    world.give_up(slot)
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
    world.table.failed(world.job(slot, "probe"), DeviceDisconnected("unknown."))
    assert not slot.circuit.count(world.clock.now)
    world.repair(slot)


def test_trouble_that_outlasts_the_server_s_is_the_device_s_own(world: SlotWorld) -> None:
    """Waiting is enough while the server is to blame; afterwards the harsher steps are tried, too."""
    slot = world.ready("a")
    world.table.server_lost()
    world.use(slot, DeviceDisconnected("it broke."))
    world.table.failed(world.job(slot, "recover"), DeviceDisconnected("it is away."))
    for _ in range(2):
        world.rest_is_over(slot)
        job = world.job(slot, "recover")
        world.table.failed(job, DeviceDisconnected("it is away."))
    assert [step.name for step in job.steps] == list(STEPS)


def test_devices_beyond_the_limit_are_spares(tmp_path: Path) -> None:
    world = SlotWorld(tmp_path, limit=1)
    first = world.ready("a")
    spare = world.add("b")
    assert (spare.state, world.table.due_jobs()) == (SlotState.ABSENT, [])
    world.use(first, FAULT)
    world.give_up(first)
    world.open(spare)
    assert (first.state, spare.state) == (SlotState.QUARANTINED, SlotState.READY)


def test_a_device_that_another_process_uses_is_waited_for(tmp_path: Path) -> None:
    other = Claims(tmp_path)
    assert other.take("adb-1")
    world = SlotWorld(tmp_path, claim="adb-1")
    slot = world.add("a")
    assert (world.table.due_jobs(), slot.state) == ([], SlotState.ABSENT)
    other.release("adb-1")
    assert world.table.due_jobs() == []  # not every moment
    world.clock.now += CLAIM_S
    world.open(slot)
    assert not other.take("adb-1")
    slot.tracked = True
    world.table.listed("a", "device")
    world.table.listed("a", None)
    assert other.take("adb-1")  # a device that goes is free for other processes


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
        leases = [(slot, table.lease(slot)) for slot in self.slots if slot.state is SlotState.READY]
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
            self.seen_ready |= {slot.id for slot in self.slots if slot.state is SlotState.READY}
            self.world.clock.now += 0.5

    def _do(self, job: Job) -> None:
        table = self.world.table
        if job.kind == "recover" and not job.steps:
            assert job.fault is not None
            table.failed(job, job.fault.error)
        elif not self.is_up and job.steps:
            self.waiting.append(job)
        elif not self.is_up:
            table.failed(job, ServerUnavailable("no adb server answers."))
        elif job.kind == "probe":
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
            world.use(slot, FAULT)
            world.repair(slot)
        world.use(slot, FAULT)
        world.give_up(slot)
    assert {slot.state for slot in restarts.slots} == {SlotState.QUARANTINED}
    restarts.run(3.0)
    for number in range(12):
        restarts.seen_ready.clear()
        restarts.restart()
        restarts.run(7.0)
        # The rest that the faults began ends once, and no restart begins another.
        assert number == 0 or restarts.seen_ready == {slot.id for slot in restarts.slots}
    assert {slot.state for slot in restarts.slots} == {SlotState.READY}


def test_faults_are_forgotten_after_ten_minutes_and_pauses_double_up_to_a_maximum() -> None:
    circuit = Circuit(Health(pause_s=10.0, max_pause_s=60.0))
    for now in (0.0, 200.0, 400.0):
        assert not circuit.is_open(now)
        circuit.fault(now)
    assert circuit.is_open(600.0)
    assert not circuit.is_open(601.0)
    assert [circuit.pause(0.0) for _ in range(5)] == [10.0, 20.0, 40.0, 60.0, 60.0]
