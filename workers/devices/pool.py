"""The pool of devices: who may use which one now. Repairs run in the background and block no user.

    slot threads ── acquire, release ──► DevicePool (table of slots, one lock) ◄── jobs, answers ── keeper
                                             ▲                                                        │
    tracker threads ── listed, join ─────────┘             open, probe, recover: a thread each ◄──────┘

The pool owns all states; every thread meets it at one lock, which is held for moments only, never during a
call to a device. `acquire` waits until its turn comes (first come, first served) or its time is up. The
keeper waits in `take_jobs` until something is due, at most `TURN_S`, and never for a device. A job that does
not end by its deadline counts as failed; its thread, a daemon, is left behind and its late answer is ignored.
The pool starts no third job on a device of which two hang.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from distrl.core.errors import EnvError
from distrl.workers.devices.adb import brief
from distrl.workers.devices.claims import Claims
from distrl.workers.devices.device import Device
from distrl.workers.devices.errors import DeviceTimeout, PoolExhausted
from distrl.workers.devices.health import HEALTH, Health, ManagedDevice, SlotState, StepOutcome, climb
from distrl.workers.devices.postmortem import Bundle, Facts, Postmortems
from distrl.workers.devices.table import Fault, Job, JobKind, PoolSlot, Slot, SlotTable

CLOSE_S = 5.0
MAX_REASON = 200
"""Characters of one reason in a line about the pool."""
_log = logging.getLogger(__name__)


class Tracker(Protocol):
    """Reports to the pool which devices there are."""

    def start(self, pool: DevicePool) -> None:
        """Begins, in the background."""
        ...

    def close(self, timeout_s: float) -> None:
        """Ends."""
        ...


@dataclass(eq=False)
class _Waiter:
    """A thread in `acquire`.

    Attributes:
        avoid: Devices that are the last resort.
        turn: Notified when `lease` is set, or the pool has ended.
        lease: What was assigned.
    """

    avoid: frozenset[str]
    turn: threading.Condition
    lease: PoolSlot | None = None


class DevicePool:
    """Devices that are leased for an episode each.

    Args:
        members: Those that are there from the beginning; trackers add others.
        health: Timings and limits.
        limit: No more than this many are opened; the others are spares.
        postmortems: Where faults are recorded; None: nowhere.
        claims: Keeps devices to one process of this machine.
        trackers: Started and closed with the pool.
        close_s: How long `close` may take.
        clock: Monotonic seconds, for health; waiting goes by the real time.
    """

    def __init__(
        self,
        members: Sequence[ManagedDevice] = (),
        health: Health = HEALTH,
        limit: int = 2**31,
        postmortems: Postmortems | None = None,
        claims: Claims | None = None,
        trackers: Sequence[Tracker] = (),
        close_s: float = CLOSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock, self._limit, self._close_s = clock, limit, close_s
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # the keeper waits for it
        self._waiters: list[_Waiter] = []  # in `acquire`, in the order in which they came
        self._claims = claims or Claims()
        self._table = SlotTable(health, limit, self._claims, clock)
        for member in members:
            self._table.join(member)
        self._trackers = trackers
        self._keeper = Keeper(self, postmortems, clock)
        self._is_closed = False
        self._bug: BaseException | None = None

    def start(self) -> DevicePool:
        """Starts to open the devices, in the background."""
        self._keeper.start()
        for tracker in self._trackers:
            tracker.start(self)
        return self

    def __enter__(self) -> DevicePool:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # ---- users of devices ----

    def acquire(self, timeout_s: float, avoid: Collection[str] = ()) -> PoolSlot:
        """Leases the free device that rested longest. Give it back with `release`, or use it in a `with`.

        Args:
            timeout_s: How long to wait for one.
            avoid: Ids of devices that are taken only if no other comes in time, or none can come.

        Raises:
            PoolExhausted: No device was free in time, or the pool is closed.
            Exception: What ended the pool: a missing program, or a bug.
        """
        deadline = time.monotonic() + timeout_s
        with self._changing():
            waiter = _Waiter(frozenset(avoid), threading.Condition(self._lock))
            self._waiters.append(waiter)
        with self._lock:
            while waiter.lease is None:
                remaining_s = deadline - time.monotonic()
                if self._bug is not None or self._is_closed or remaining_s <= 0.0:
                    self._waiters.remove(waiter)
                    return self._last_resort(timeout_s)
                waiter.turn.wait(remaining_s)
            return waiter.lease

    def _last_resort(self, timeout_s: float) -> PoolSlot:
        """When the time is up: a device that was to be avoided, or the error."""
        if self._bug is not None:
            raise self._bug
        if self._is_closed:
            raise PoolExhausted("the pool of devices is closed.")
        slot = self._table.pick()
        if slot is None:
            raise PoolExhausted(f"no device was free within {timeout_s:g} s: {self._line()}.")
        return self._lease(slot)

    def release(
        self,
        lease: PoolSlot,
        fault: EnvError | None = None,
        files: Mapping[str, bytes] | None = None,
        used: bool = True,
    ) -> None:
        """Ends a lease; a second time is ignored. Never waits: repairs happen elsewhere.

        Args:
            lease: What `acquire` gave.
            fault: What ended its use, if it failed.
            files: For the post-mortem, by file name, such as the last screenshots.
            used: Whether it was used, and so has shown that it works.
        """
        with self._changing():
            self._table.give_back(lease.id, lease.token, fault, files or {}, used and fault is None)

    @property
    def capacity(self) -> int:
        """How many devices could be in use at a time: those that are known, up to the limit."""
        with self._lock:
            return min(self._limit, len(self._table.slots))

    @property
    def num_waiting(self) -> int:
        """How many wait for a device now."""
        with self._lock:
            return len(self._waiters)

    def states(self) -> dict[str, SlotState]:
        """The state of each device, by id."""
        with self._lock:
            return {name: slot.machine.state for name, slot in self._table.slots.items()}

    def stats(self) -> dict[str, float]:
        """How many devices are ready, busy, recovering (or starting) and quarantined, for heartbeats."""
        with self._lock:
            counts = self._table.counts()
            resting = sum(slot.rests for slot in self._table.slots.values())
        recovering = (SlotState.STARTING, SlotState.SUSPECT, SlotState.RECOVERING)
        return {
            "devices_ready": counts[SlotState.READY],
            "devices_busy": counts[SlotState.BUSY],
            "devices_recovering": sum(counts[state] for state in recovering),
            "devices_quarantined": counts[SlotState.QUARANTINED] + resting,
        }

    def line(self) -> str:
        """The states of the devices, for people."""
        with self._lock:
            return self._line()

    def check(self) -> None:
        """Raises what ended the pool, if anything did."""
        with self._lock:
            if self._bug is not None:
                raise self._bug

    def close(self) -> None:
        """Ends the pool and releases all devices, at the same time; leased ones fail under their users.

        Whatever does not end within `close_s` is left behind in daemon threads.
        """
        deadline = time.monotonic() + self._close_s
        with self._changing():
            if self._is_closed:
                return
            self._is_closed = True
            left = self._table.leave_all("the pool is closed")
            self._wake_waiters()
        self._keeper.close(left, max(0.0, deadline - time.monotonic()))
        for tracker in self._trackers:  # after the devices: they may need the server that a tracker started
            tracker.close(max(0.0, deadline - time.monotonic()))
        with self._lock:
            self._claims.release_all()

    # ---- trackers ----

    def join(self, member: ManagedDevice, forget: bool = False) -> None:
        """Adds a device that is there only while `listed` says so; a known id is ignored."""
        with self._changing():
            if not self._is_closed and member.id not in self._table.slots:
                self._table.join(member, tracked=True, forget=forget)

    def listed(self, devices: Mapping[str, str | None]) -> None:
        """Takes the adb server's states of tracked devices; None: not listed. Unknown ids are ignored."""
        with self._changing():
            for device, state in devices.items():
                if device in self._table.slots:
                    self._table.listed(device, state)

    def server_lost(self) -> None:
        """The adb server was lost."""
        with self._lock:
            self._table.server_lost()

    # ---- the keeper ----

    def take_jobs(self, timeout_s: float) -> list[Job]:
        """Waits until something is due, at most this long. Marks it as under way."""
        deadline = time.monotonic() + timeout_s
        with self._changing():
            while not self._is_closed:
                jobs = self._table.due_jobs()
                if jobs:
                    return jobs
                due_s = self._table.next_due() - self._clock()
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0.0:
                    return []
                self._changed.wait(min(remaining_s, max(due_s, 0.001)))
            return []

    def opened(self, job: Job, device: Device) -> bool:
        """A device works. False if the answer is out of date."""
        with self._changing():
            return not self._is_closed and self._table.opened(job, device)

    def answered(self, job: Job) -> None:
        """A device gave a sign of life."""
        with self._changing():
            self._table.answered(job)

    def failed(self, job: Job, error: EnvError) -> bool:
        """A device does not work. False if the answer is out of date."""
        with self._changing():
            return not self._is_closed and self._table.failed(job, error)

    def abandon(self, job: Job, thread: threading.Thread, error: EnvError) -> None:
        """A job did not end in time; its thread is left to itself."""
        with self._lock:
            job.slot.stuck.append(thread)
        self.failed(job, error)

    def facts(self, slot: Slot, fault: Fault) -> Facts:
        """The facts about a slot's fault."""
        with self._lock:
            return Facts(
                slot.id,
                slot.member.kind,
                fault.error,
                fault.is_host,
                fault.busy_s,
                self._clock() - slot.last_ok,
                tuple(slot.machine.history),
            )

    def crashed(self, error: BaseException) -> None:
        """A bug, or a failure that no other device is free of: `acquire` raises it."""
        with self._changing():
            self._bug = self._bug or error
            self._wake_waiters()

    def wake(self) -> None:
        """Makes all threads look again, for example after the clock was moved."""
        with self._changing():
            pass

    # ---- under the lock ----

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Holds the lock. Afterwards free devices go to waiting threads, and the keeper looks again."""
        with self._lock:
            yield
            for waiter in list(self._waiters):
                slot = self._table.pick(waiter.avoid)
                if slot is None and waiter.avoid and not self._table.may_come(waiter.avoid):
                    slot = self._table.pick()
                if slot is not None:
                    self._waiters.remove(waiter)
                    waiter.lease = self._lease(slot)
                    waiter.turn.notify()
            self._changed.notify()

    def _wake_waiters(self) -> None:
        for waiter in self._waiters:
            waiter.turn.notify()

    def _lease(self, slot: Slot) -> PoolSlot:
        assert slot.device is not None, f"{slot.id} is ready, but was never opened"
        token = self._table.lease(slot)
        member = slot.member
        return PoolSlot(
            member.id, member.kind, slot.device, member.options, slot.generation, token, self.release
        )

    def _line(self) -> str:
        """How many devices are in each state, and why each of those that cannot be used is not.

        Devices with the same reason share it, so that none of many is cut off.
        """
        counts, now = self._table.counts(), self._clock()
        words = [f"{counts[state]} {state.value}" for state in SlotState if counts[state]]
        lacking: dict[str, list[str]] = {}
        for slot in self._table.slots.values():
            if why := slot.lacks:
                rests = slot.fault is not None and slot.is_there and slot.due > now
                name = f"{slot.id} (next try in {slot.due - now:.0f} s)" if rests else slot.id
                lacking.setdefault(brief(why, MAX_REASON), []).append(name)
        reasons = "; ".join(f"{', '.join(names)}: {why}" for why, names in lacking.items())
        return ", ".join(words or ["no devices"]) + (f" ({reasons})" if reasons else "")


TURN_S = 1.0
LOOK_S = 0.1
"""How late the end of an overdue job may be noticed."""


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
            with contextlib.suppress(EnvError):  # too late: it is not used
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
        """The fault's post-mortem; a device that is tried again after a rest keeps the one it has."""
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
