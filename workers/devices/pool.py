"""The pool of devices: who may use which one now. Repairs run in the background and block no user.

    slot threads ── acquire, release ──► DevicePool (table of slots, one lock) ◄── answers ── job threads
                                             ▲                          │                         ▲
    tracker threads ── listed, join ─────────┘                    keeper thread ── open, probe, recover

The pool owns all states; every thread meets it at one lock, which is held for moments only, never during a
call to a device. `acquire` waits until its turn comes (first come, first served) or its time is up. The
keeper starts the jobs that are due, a thread each, and looks again at every change, at least every `LOOK_S`.
A job that does not end by its deadline counts as failed; its thread, a daemon, is left behind and its late
answer is ignored. The pool starts no third job on a device of which two hang.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from distrl.core.errors import EnvError
from distrl.workers.devices.adb import brief
from distrl.workers.devices.claims import Claims
from distrl.workers.devices.device import Device
from distrl.workers.devices.errors import DeviceTimeout, PoolExhausted
from distrl.workers.devices.health import HEALTH, Health, ManagedDevice, SlotState, climb
from distrl.workers.devices.postmortem import Bundle, Postmortems
from distrl.workers.devices.table import Job, PoolSlot, Slot, SlotTable

CLOSE_S = 5.0
LOOK_S = 0.1
"""How late a job may start, and the end of an overdue one be noticed."""
MAX_REASON = 200
"""Characters of one reason in a line about the pool."""
_log = logging.getLogger(__name__)


class Tracker(Protocol):
    """Reports to the pool which devices there are."""

    def start(self, pool: DevicePool) -> None:
        """Begins, in the background."""

    def close(self, timeout_s: float) -> None:
        """Ends."""


@dataclass(eq=False)
class _Waiter:
    """A thread in `acquire`: the devices that are its last resort, and what was assigned to it."""

    avoid: frozenset[str]
    lease: PoolSlot | None = None


class DevicePool:
    """Devices that are leased for an episode each.

    Args:
        members: Those that are there from the beginning; a tracker adds others.
        limit: No more than this many are opened; the others are spares.
        postmortems: Where faults are recorded; None: nowhere.
        tracker: Started and closed with the pool.
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
        tracker: Tracker | None = None,
        close_s: float = CLOSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock, self._limit, self._close_s = clock, limit, close_s
        self._changed = threading.Condition()  # its lock guards all that follows
        self._waiters: list[_Waiter] = []  # in `acquire`, in the order in which they came
        self._claims = claims or Claims()
        self._table = SlotTable(health, limit, self._claims, clock)
        for member in members:
            self._table.join(member)
        self._tracker, self._postmortems = tracker, postmortems
        self._keeper = threading.Thread(target=self._keep, name="device-keeper", daemon=True)
        self._is_closed = False
        self._bug: BaseException | None = None

    def start(self) -> DevicePool:
        """Starts to open the devices, in the background."""
        self._keeper.start()
        if self._tracker is not None:
            self._tracker.start(self)
        return self

    def __enter__(self) -> DevicePool:
        return self.start()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    # ---- users of devices ----

    def acquire(self, timeout_s: float, avoid: Collection[str] = ()) -> PoolSlot:
        """Leases the free device that rested longest. Give it back with `release`, or use it in a `with`.

        Args:
            avoid: Ids of devices that are taken only if no other comes in time, or none can come.

        Raises:
            PoolExhausted: No device was free in time, or the pool is closed.
            Exception: What ended the pool: a missing program, or a bug.
        """
        waiter = _Waiter(frozenset(avoid))
        with self._changing():
            self._waiters.append(waiter)
        with self._changed:
            self._changed.wait_for(
                lambda: waiter.lease is not None or self._bug is not None or self._is_closed, timeout_s
            )
            if waiter.lease is not None:
                return waiter.lease
            self._waiters.remove(waiter)
            if self._bug is not None:
                raise self._bug
            if self._is_closed:
                raise PoolExhausted("the pool of devices is closed.")
            slot = self._table.pick()  # one that was to be avoided
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
            fault: What ended its use, if it failed.
            files: For the post-mortem, by file name, such as the last screenshots.
            used: Whether it was used, and so has shown that it works.
        """
        with self._changing():
            self._table.give_back(lease.id, lease.token, fault, files or {}, used and fault is None)

    @property
    def capacity(self) -> int:
        """How many devices could be in use at a time: those that are known, up to the limit."""
        with self._changed:
            return min(self._limit, len(self._table.slots))

    def states(self) -> dict[str, SlotState]:
        """The state of each device, by id."""
        with self._changed:
            return {name: slot.state for name, slot in self._table.slots.items()}

    def stats(self) -> dict[str, float]:
        """How many devices are ready, busy, recovering (or starting) and quarantined, for heartbeats."""
        with self._changed:
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
        with self._changed:
            return self._line()

    def check(self) -> None:
        """Raises what ended the pool, if anything did."""
        with self._changed:
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
            left = self._table.leave_all()
        threads = [_start(_close, slot, name=f"close-{slot.id}") for slot in left]
        if self._keeper.ident is not None:
            threads.append(self._keeper)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if self._tracker is not None:  # after the devices: they may need the server that it started
            self._tracker.close(max(0.0, deadline - time.monotonic()))
        with self._changed:
            self._claims.release_all()

    # ---- the tracker ----

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
        with self._changed:
            self._table.server_lost()

    def crashed(self, error: BaseException) -> None:
        """A bug, or a failure that no other device is free of: `acquire` raises it."""
        with self._changing():
            self._bug = self._bug or error

    # ---- keeper thread ----

    def _keep(self) -> None:
        running: list[tuple[Job, threading.Thread]] = []
        try:
            while not self._is_closed:
                with self._changed:
                    jobs = self._table.due_jobs()
                    if not jobs:
                        self._changed.wait(LOOK_S)
                for job in jobs:
                    running.append((job, _start(self._do, job, name=f"{job.kind}-{job.slot.id}")))
                running = [(job, thread) for job, thread in running if self._is_running(job, thread)]
        except BaseException as error:  # noqa: BLE001 - `acquire` raises it
            self.crashed(error)

    def _is_running(self, job: Job, thread: threading.Thread) -> bool:
        """Whether a job is still waited for; one that is overdue has failed."""
        if not thread.is_alive():
            return False
        if self._clock() < job.deadline:
            return True
        with self._changing():
            job.slot.stuck.append(thread)
            error = DeviceTimeout(f"its {job.kind} did not end in time.", serial=job.slot.id)
            self._table.failed(job, error)
        return False

    # ---- job threads ----

    def _do(self, job: Job) -> None:
        try:
            if job.kind == "open":
                self._hand_over(job, job.slot.member.open())
            elif job.kind == "probe":
                job.slot.member.probe()
                with self._changing():
                    self._table.answered(job)
            else:
                self._recover(job)
        except EnvError as error:
            with self._changing():
                self._table.failed(job, error)
        except BaseException as error:  # noqa: BLE001 - `acquire` raises it
            _log.exception("the %s of device %s failed for good", job.kind, job.slot.id)
            self.crashed(error)

    def _hand_over(self, job: Job, device: Device) -> None:
        with self._changing():
            if self._table.opened(job, device):
                return
        with contextlib.suppress(EnvError):  # too late: it is not used
            device.close()

    def _recover(self, job: Job) -> None:
        fault, member = job.fault, job.slot.member
        assert fault is not None
        bundle = self._bundle(job)

        def record(step: str, seconds: float, error: str) -> None:
            end = f"failed: {error}" if error else "helped"
            _log.info("device %s: %s %s (%.1f s)", member.id, step, end, seconds)
            if bundle is not None:
                bundle.step(step, seconds, error)

        def collect() -> None:
            if bundle is not None:
                bundle.collect(member.evidence)

        device, result = None, "failed too often: it rests"
        error = fault.error
        try:
            if job.steps:
                device, result = climb(member, job.steps, record, collect, self._clock), "ready"
        except EnvError as last:
            error, result = last, f"no step helped: {last}"
        collect()
        if bundle is not None:
            bundle.close(result)
        if device is None:
            raise error
        self._hand_over(job, device)

    def _bundle(self, job: Job) -> Bundle | None:
        """The fault's post-mortem; a device that is tried again after a rest keeps the one it has."""
        fault, slot = job.fault, job.slot
        assert fault is not None
        if fault.bundle is None and self._postmortems is not None and fault.error.fault == "device":
            with self._changed:
                facts = {
                    "kind": slot.member.kind,
                    "taken_for": "host" if fault.is_host else "device",
                    "busy_s": None if fault.busy_s is None else round(fault.busy_s, 3),
                    "silent_s": round(self._clock() - slot.last_ok, 3),
                    "history": list(slot.history),
                }
            fault.bundle = self._postmortems.begin(slot.id, fault.error, facts)
            fault.bundle.add(fault.files)
        return fault.bundle

    # ---- under the lock ----

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Holds the lock. Afterwards free devices go to waiting threads, and all threads look again."""
        with self._changed:
            yield
            if not self._is_closed:
                self._serve_waiters()
            self._changed.notify_all()

    def _serve_waiters(self) -> None:
        for waiter in self._waiters:
            slot = self._table.pick(waiter.avoid)
            if slot is None and waiter.avoid and not self._table.may_come(waiter.avoid):
                slot = self._table.pick()
            if slot is not None:
                waiter.lease = self._lease(slot)
        self._waiters = [waiter for waiter in self._waiters if waiter.lease is None]

    def _lease(self, slot: Slot) -> PoolSlot:
        assert slot.device is not None, f"{slot.id} is ready, but was never opened"
        token, member = self._table.lease(slot), slot.member
        return PoolSlot(member.id, slot.device, member.options, slot.generation, token, self.release)

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


def _start(target: Callable[..., None], argument: Job | Slot, name: str) -> threading.Thread:
    thread = threading.Thread(target=target, args=(argument,), name=name, daemon=True)
    thread.start()
    return thread


def _close(slot: Slot) -> None:
    try:
        slot.member.close()
    except EnvError as error:
        _log.warning("device %s does not close: %s", slot.id, error)
