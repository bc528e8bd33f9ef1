"""The keeper: one thread that has devices opened, probed and repaired, each in a thread of its own.

    keeper ── take_jobs ──► pool            job thread ── opened | answered | failed ──► pool
       └── starts, and gives up when overdue ──► job thread

The keeper waits in `take_jobs` (until something is due, at most `TURN_S`) and never for a device. A job that
does not end by its deadline counts as failed; its thread, a daemon, is left behind and what it says later is
ignored. The pool starts no third job on a device of which two hang.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from distrl.core.errors import EnvError
from distrl.workers.devices.base import Device
from distrl.workers.devices.errors import DeviceTimeout
from distrl.workers.devices.pool.ladder import StepOutcome, climb
from distrl.workers.devices.pool.postmortem import Bundle, Postmortems
from distrl.workers.devices.pool.slot import Fault, Slot
from distrl.workers.devices.pool.table import Job, JobKind

if TYPE_CHECKING:
    from distrl.workers.devices.pool.pool import DevicePool

TURN_S = 1.0
LOOK_S = 0.1
"""How late the end of an overdue job may be noticed."""

_log = logging.getLogger(__name__)


class Keeper:
    """Looks after the devices of one pool.

    Args:
        pool: Whose jobs to do.
        postmortems: Where faults are recorded; None: nowhere.
        clock: Monotonic seconds, of the jobs' deadlines.
    """

    def __init__(
        self, pool: DevicePool, postmortems: Postmortems | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pool, self._postmortems, self._clock = pool, postmortems, clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="device-keeper", daemon=True)
        # Keeper thread only:
        self._running: list[tuple[Job, threading.Thread]] = []

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self, slots: Iterable[Slot], timeout_s: float) -> None:
        """Ends the thread, and releases the devices of `slots`, each in a thread of its own."""
        deadline = time.monotonic() + timeout_s
        self._stop.set()
        threads = [
            threading.Thread(target=_close, args=(slot,), name=f"close-{slot.id}", daemon=True)
            for slot in slots
        ]
        for thread in threads:
            thread.start()
        if self._thread.ident is not None:
            threads.append(self._thread)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    # ---- keeper thread ----

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for job in self._pool.take_jobs(LOOK_S if self._running else TURN_S):
                    thread = threading.Thread(
                        target=self._do, args=(job,), name=f"{job.kind.value}-{job.slot.id}", daemon=True
                    )
                    thread.start()
                    self._running.append((job, thread))
                self._give_up_overdue()
        except BaseException as error:  # noqa: BLE001 - `acquire` raises it
            self._pool.crashed(error)

    def _give_up_overdue(self) -> None:
        now = self._clock()
        still = []
        for job, thread in self._running:
            if thread.is_alive() and now >= job.deadline:
                what = f"its {job.kind.value} did not end in time."
                self._pool.abandon(job, thread, DeviceTimeout(what, serial=job.slot.id))
            elif thread.is_alive():
                still.append((job, thread))
        self._running = still

    # ---- job threads ----

    def _do(self, job: Job) -> None:
        try:
            if job.kind is JobKind.OPEN:
                self._hand_over(job, job.slot.member.open())
            elif job.kind is JobKind.PROBE:
                job.slot.member.probe()
                self._pool.answered(job)
            else:
                self._recover(job)
        except EnvError as error:
            self._pool.failed(job, error)
        except BaseException as error:  # noqa: BLE001 - `acquire` raises it
            _log.exception("the %s of device %s failed for good", job.kind.value, job.slot.id)
            self._pool.crashed(error)

    def _hand_over(self, job: Job, device: Device) -> None:
        if not self._pool.opened(job, device):
            with contextlib.suppress(EnvError):  # too late: nobody will use it
                device.close()

    def _recover(self, job: Job) -> None:
        fault, member = job.fault, job.slot.member
        assert fault is not None
        bundle = self._bundle(job, fault)

        def record(outcome: StepOutcome) -> None:
            end = f"failed: {outcome.error}" if outcome.error else "helped"
            _log.info("device %s: %s %s (%.1f s)", member.id, outcome.name, end, outcome.seconds)
            if bundle is not None:
                bundle.step(outcome)

        def collect() -> None:
            if bundle is not None and bundle.wants_evidence:
                bundle.wants_evidence = False
                bundle.add(_evidence(job.slot))

        if not job.steps:
            collect()
            _end(bundle, "failed too often: it rests")
            self._pool.failed(job, fault.error)
            return
        try:
            device = climb(member, job.steps, record, collect, self._clock)
        except EnvError as error:
            collect()
            _end(bundle, f"no step helped: {error}")
            self._pool.failed(job, error)
            return
        collect()
        _end(bundle, "ready")
        self._hand_over(job, device)

    def _bundle(self, job: Job, fault: Fault) -> Bundle | None:
        """The fault's post-mortem; a device that is tried again after a rest goes on with the one it has."""
        if fault.bundle is None and self._postmortems is not None and fault.error.fault == "device":
            fault.bundle = self._postmortems.begin(self._pool.facts(job.slot, fault))
            fault.bundle.add(fault.files)
        return fault.bundle


def _end(bundle: Bundle | None, result: str) -> None:
    if bundle is not None:
        bundle.close(result)


def _evidence(slot: Slot) -> Mapping[str, bytes]:
    try:
        return slot.member.evidence()
    except EnvError as error:
        return {"no-evidence.txt": str(error).encode(errors="backslashreplace")}


def _close(slot: Slot) -> None:
    try:
        slot.member.close()
    except EnvError as error:
        _log.warning("device %s does not close: %s", slot.id, error)
