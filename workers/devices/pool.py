"""The pool of devices: who may use which one now. Repairs run in the background and block no user.

    slot threads ── acquire, release ──► DevicePool (table of slots, one lock) ◄── answers ── job threads
                                             ▲                          │                         ▲
    tracker thread ─── listed, join ─────────┘                    keeper thread ── open, probe, recover

The pool owns all states; every thread meets it at one lock, which is held for moments only, never during a
call to a device. `acquire` waits until its turn comes (first come, first served) or its time is up. The
keeper starts the jobs that are due, a thread each, and looks again at every change, at least every `LOOK_S`.
A job that does not end by its deadline counts as failed; its thread, a daemon, is left behind and its late
answer is ignored.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from distrl.configs.devices import AvdMembers, SimMembers
from distrl.configs.schema import Config
from distrl.core.errors import EnvError
from distrl.core.importing import import_object
from distrl.core.packing import MAX_NAME
from distrl.core.slot_view import DeviceView
from distrl.workers.devices.adb import brief
from distrl.workers.devices.adb_server import AdbServer
from distrl.workers.devices.claims import Claims
from distrl.workers.devices.device import Device
from distrl.workers.devices.errors import DeviceError, DeviceTimeout, PoolExhausted, Scope
from distrl.workers.devices.postmortem import Bundle
from distrl.workers.devices.table import (
    HEALTH,
    Health,
    Job,
    ManagedDevice,
    PoolSlot,
    Slot,
    SlotState,
    SlotTable,
)

CLOSE_S = 5.0
LOOK_S = 0.1
"""How late a job may start, and the end of an overdue one be noticed."""
MAX_REASON = 200
"""Characters of one reason in a line about the pool."""
SIMULATED = "distrl.simulator.device:SimMember"
_IPV6 = re.compile(r"\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\]:\d+")
_log = logging.getLogger(__name__)


class DevicePool:
    """Devices that are leased for an episode each.

    Args:
        members: Those that are there from the beginning; a tracker adds others.
        limit: No more than this many are opened; the others are spares.
        postmortems: Returns the folder in which faults are recorded, at each fault, because a run's directory
            may be created later; None: nowhere.
        tracker: Started and closed with the pool.
        close_s: How long `close` may take.
        clock: Monotonic seconds, for health; waiting goes by the real time.
    """

    def __init__(
        self,
        members: Sequence[ManagedDevice] = (),
        health: Health = HEALTH,
        limit: int = 2**31,
        postmortems: Callable[[], Path] | None = None,
        claims: Claims | None = None,
        tracker: AdbTracker | None = None,
        close_s: float = CLOSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock, self._limit, self._close_s = clock, limit, close_s
        self._changed = threading.Condition()  # its lock guards all that follows
        self._waiters: list[object] = []  # in `acquire`, in the order in which they came
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

    def acquire(self, timeout_s: float) -> PoolSlot:
        """Leases the free device that rested longest. Give it back with `release`, or use it in a `with`.

        Raises:
            PoolExhausted: No device was free in time, or the pool is closed.
            Exception: What ended the pool: a missing program, or a bug.
        """
        me = object()
        slot: Slot | None = None

        def is_my_turn() -> bool:
            nonlocal slot
            slot = self._table.pick() if self._waiters[0] is me else None
            return slot is not None

        with self._changed:
            self._waiters.append(me)
            try:
                self._changed.wait_for(
                    lambda: self._bug is not None or self._is_closed or is_my_turn(), timeout_s
                )
                if self._bug is not None:
                    raise self._bug
                if self._is_closed:
                    raise PoolExhausted("the pool of devices is closed.")
                if slot is None:
                    raise PoolExhausted(f"no device was free within {timeout_s:g} s: {self._line()}.")
                assert slot.device is not None, f"{slot.id} is ready, but was never opened"
                token, member = self._table.lease(slot), slot.member
                return PoolSlot(member.id, slot.device, member.options, slot.generation, token, self.release)
            finally:
                self._waiters.remove(me)
                self._changed.notify_all()  # it is the next one's turn

    def release(
        self,
        lease: PoolSlot,
        fault: EnvError | None = None,
        files: Mapping[str, bytes] | None = None,
        used: bool = True,
    ) -> None:
        """Ends a lease; a second time is ignored. Never waits: repairs happen elsewhere.

        `fault` is what ended its use, if it failed, and `files` are added to its post-mortem. `used` says
        whether the device has shown that it works.
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

    def views(self) -> list[DeviceView]:
        """The devices with their states, for people who watch."""
        with self._changed:
            now = self._clock()
            return [
                DeviceView(
                    id=slot.id[:MAX_NAME],
                    state=slot.state.value,
                    reason=slot.lacks[:500],
                    faults=slot.circuit.count(now),
                )
                for slot in self._table.slots.values()
            ]

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
        if self._tracker is not None:
            self._tracker.close(max(0.0, deadline - time.monotonic()))
        with self._changed:
            self._claims.release_all()

    def join(self, member: ManagedDevice) -> None:
        """Adds a device that is there only while `listed` says so; a known id is ignored."""
        with self._changing():
            if not self._is_closed and member.id not in self._table.slots:
                self._table.join(member, tracked=True)

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
            error = DeviceTimeout(f"its {job.kind} did not end in time.", serial=job.slot.id)
            self._table.failed(job, error)
        return False

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
        """Takes one step after the other until the device works."""
        fault, member = job.fault, job.slot.member
        assert fault is not None
        if fault.bundle is None and self._postmortems is not None and fault.error.fault == "device":
            fault.bundle = Bundle(self._postmortems(), member.id, fault.error, fault.files)
        bundle = fault.bundle  # a device that is tried again after a rest keeps the one it has
        device, error, result = None, fault.error, "failed too often: it rests"
        for step in job.steps:
            if step.destructive and bundle is not None:
                bundle.collect(member.evidence)
            began, problem, result = self._clock(), "", "ready"
            try:
                step.run()
                member.probe()
                device = member.open()
            except EnvError as caught:
                error, problem, result = caught, str(caught), f"no step helped: {caught}"
            seconds = self._clock() - began
            end = f"failed: {problem}" if problem else "helped"
            _log.info("device %s: %s %s (%.1f s)", member.id, step.name, end, seconds)
            if bundle is not None:
                bundle.step(step.name, seconds, problem)
            # Harsher steps do not help against a full disk or a missing server.
            if device is not None or (isinstance(error, DeviceError) and error.scope is Scope.HOST):
                break
        if bundle is not None:
            bundle.collect(member.evidence)
            bundle.close(result)
        if device is None:
            raise error
        self._hand_over(job, device)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Holds the lock. Afterwards all threads look again."""
        with self._changed:
            yield
            self._changed.notify_all()

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


def is_pattern(serial: str) -> bool:
    """Whether `serial` stands for all that fit it; an IPv6 address does not."""
    return not _IPV6.fullmatch(serial) and any(character in serial for character in "*?[")


class AdbTracker:
    """Reports to a pool which devices the adb server lists.

    Args:
        server: The adb server; started if there is none.
        serials: Serials and patterns, each with what makes a member of a serial. The first that fits counts.
    """

    def __init__(
        self, server: AdbServer, serials: Sequence[tuple[str, Callable[[str], ManagedDevice]]] = ()
    ) -> None:
        self._server, self._serials = server, serials
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._had_devices = False  # tracker thread only

    def start(self, pool: DevicePool) -> None:
        """Adds the devices that are named, and follows the list in the background."""
        for serial, make in self._serials:
            if not is_pattern(serial):
                pool.join(make(serial))
        self._thread = threading.Thread(target=self._run, args=(pool,), name="adb-tracker", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Ends the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self, pool: DevicePool) -> None:
        try:
            for entries in self._server.track(self._stop):
                self._report(pool, entries)
        except BaseException as error:  # noqa: BLE001 - the pool raises it where devices are asked for
            pool.crashed(error)

    def _report(self, pool: DevicePool, listed: Mapping[str, str] | None) -> None:
        """Passes one list on; None: the server was lost, and the devices' states are unknown."""
        if listed is None and self._had_devices:
            pool.server_lost()
        known = pool.states()
        for serial in listed or ():
            make = self._maker(serial)
            if serial not in known and make is not None:
                _log.info("device %s joins the pool", serial)
                pool.join(make(serial))
        pool.listed({**dict.fromkeys(known), **(listed or {})})
        self._had_devices = bool(listed)

    def _maker(self, serial: str) -> Callable[[str], ManagedDevice] | None:
        return next((make for pattern, make in self._serials if fnmatchcase(serial, pattern)), None)


def make_pool(config: Config, limit: int, health: Health = HEALTH) -> DevicePool:
    """The pool of `config.devices`, not started yet.

    Args:
        limit: The most devices that are opened.
        health: Timings of probes and rests.

    Raises:
        ConfigError: A recipe, a guard or the adb server's port is wrong, or there is no such AVD or snapshot.
        MissingDependency: A program is not installed.
    """
    from distrl.workers.devices.members import AdbMember, AvdMember, env_options

    devices = config.devices
    server = AdbServer(port=devices.server_port())
    members: list[ManagedDevice] = []
    tracked: list[tuple[str, Callable[[str], ManagedDevice]]] = []
    for number, part in enumerate(devices.pool):
        if isinstance(part, SimMembers):
            names = (f"sim-{number}-{index}" for index in range(part.count))
            members += [import_object(SIMULATED)(name, part.width, part.height) for name in names]
        elif isinstance(part, AvdMembers):
            launch = threading.Lock()
            members += [AvdMember(part, index, server, launch) for index in range(part.count)]
        else:
            env_options(part)  # mistakes are reported now, not when a device joins
            make = partial(AdbMember, part=part, server=server)
            for serial in part.serials:
                if ":" in serial and not is_pattern(serial):  # listed only once it was connected to
                    members.append(make(serial))
                else:
                    tracked.append((serial, make))
    # A serial that is named is what it is named as, whatever patterns it fits.
    tracked.sort(key=lambda pair: is_pattern(pair[0]))
    has_adb = any(not isinstance(part, SimMembers) for part in devices.pool)
    tracker = AdbTracker(server, tracked) if has_adb else None
    folder = partial(postmortem_folder, config)
    return DevicePool(members, health, limit, folder, tracker=tracker, close_s=devices.close_s)


def postmortem_folder(config: Config) -> Path:
    """Where post-mortems go: the run's directory if it is on this machine, else beside it."""
    runs = Path(config.runs_dir).expanduser()
    run = runs / config.name
    return run / "postmortems" if run.is_dir() else runs / ".postmortems" / config.name
