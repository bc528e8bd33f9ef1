"""The pool's table of slots with a clock that stands still, and the steps that its tests take."""

from __future__ import annotations

from pathlib import Path

from pool_devices import Clock, FakeMember

from distrl.core.errors import EnvError
from distrl.simulator.device import SimDevice
from distrl.workers.devices.claims import Claims
from distrl.workers.devices.errors import DeviceTimeout
from distrl.workers.devices.health import Health, SlotState
from distrl.workers.devices.table import Job, JobKind, Slot, SlotTable

FAULT = DeviceTimeout("it does not answer.")


class SlotWorld:
    """A table, its clock, and the steps that tests take again and again."""

    def __init__(self, folder: Path, limit: int = 100, claim: str = "") -> None:
        self.clock, self.folder, self.claim = Clock(), folder, claim
        self.table = SlotTable(Health(), limit, Claims(folder), self.clock, lambda: 0.0)

    def add(self, name: str, tracked: bool = False, forget: bool = False) -> Slot:
        self.table.join(FakeMember(name, claim=self.claim), tracked, forget)
        return self.table.slots[name]

    def ready(self, name: str, tracked: bool = False, forget: bool = False) -> Slot:
        slot = self.add(name, tracked, forget)
        if tracked:
            self.table.listed(name, "device")
        self.open(slot)
        return slot

    def open(self, slot: Slot) -> None:
        self.table.opened(self.job(slot, JobKind.OPEN), SimDevice())

    def job(self, slot: Slot, kind: JobKind) -> Job:
        (job,) = [job for job in self.table.due_jobs() if job.slot is slot]
        assert job.kind is kind
        return job

    def fault(self, slot: Slot, error: EnvError = FAULT) -> None:
        """A lease that ends with `error`."""
        token = self.table.lease(slot)
        self.table.give_back(slot.id, token, error, {}, False)

    def repair(self, slot: Slot) -> Job:
        """A recovery that succeeds."""
        job = self.job(slot, JobKind.RECOVER)
        assert self.table.opened(job, SimDevice())
        return job

    def rest_is_over(self, slot: Slot) -> None:
        self.clock.now = slot.due


def state(slot: Slot) -> SlotState:
    """Where a slot stands."""
    return slot.machine.state
