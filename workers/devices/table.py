"""The devices of a pool: their states, how each is repaired, and the rules of what each event means.

    ABSENT ──► STARTING ──► READY ◄──► BUSY
      ▲            │          │          │
      │            └──────► SUSPECT ◄────┘
      │                       │
      │                       ▼
      ├──────────────── RECOVERING ──► READY
      │                    ▲  │
      │                    │  ▼
      └──────────────── QUARANTINED

    fault ─► circuit closed ─► wait ─► reconnect ─► load snapshot ─► restart ─► cold boot ─► reclone ─┐
               │                 └────────┴── device answers: READY ──┴───────────┘                   │
               └─ open (3 faults in 10 min) ───────────────────────────────────────► quarantine ◄─────┘

After each step the device is probed and opened again; the first step after which that works ends the climb. A
quarantined device is tried again after a pause that doubles each time; the circuit closes when that works. A
failure that the adb server caused ends in a pause of the first length and does not lengthen the next one.
docs/devices.md describes the states for users.

This module has no threads and never waits. `SlotTable` is not thread-safe: `DevicePool` holds its lock around
every call, and none of them blocks.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, Protocol

from distrl.core.errors import EnvError
from distrl.workers.devices.claims import Claims
from distrl.workers.devices.device import Device
from distrl.workers.devices.errors import (
    DeviceError,
    DeviceOffline,
    DeviceUnauthorized,
    Scope,
    SnapshotFailed,
    SnapshotMissing,
    TransportError,
)
from distrl.workers.devices.postmortem import Bundle

PROBE_LIMIT_S = 5.0
"""Longest time of a probe."""
MARGIN_S = 20.0
"""What a recovery may take besides its steps, probes and openings: for its evidence."""
FAULT_WINDOW_S = 600.0
"""The time within which faults open a circuit."""
ONLINE = "device"
"""What adb calls a device that works."""
CLAIM_S = 5.0
"""Pause before a device that another process uses, or that is not online yet, is looked at again."""
SERVER_S, SERVER_BEFORE_S = 10.0, 2.0
"""Connections that break this long after, or before, a loss of the adb server are attributed to it."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Health:
    """Timings in seconds, and limits; tests take others.

    Attributes:
        probe_every_s: From one probe of an idle device to the next.
        max_faults: A device with so many faults within `FAULT_WINDOW_S` rests.
        pause_s, max_pause_s: The first rest, which doubles each time, and the longest.
    """

    probe_every_s: float = 10.0
    max_faults: int = 3
    pause_s: float = 10.0
    max_pause_s: float = 300.0


HEALTH = Health()


class SlotState(str, Enum):
    """Where a device of the pool stands."""

    ABSENT = "absent"
    STARTING = "starting"
    READY = "ready"
    BUSY = "busy"
    SUSPECT = "suspect"
    RECOVERING = "recovering"
    QUARANTINED = "quarantined"


@dataclass(frozen=True)
class RecoveryStep:
    """One rung of a recovery ladder.

    `run` raises a DeviceError when it fails, and takes at most `limit_s`. Whether the device works again is
    probed afterwards. A `destructive` step loses evidence of the fault, such as the device's log.
    """

    name: str
    run: Callable[[], None]
    limit_s: float = 30.0
    destructive: bool = False


class ManagedDevice(Protocol):
    """One member of a pool. Its methods are called by one thread at a time, `close` also while one hangs.

    Attributes:
        id: Unique in the pool, e.g. the serial.
        claim: A name that no two processes of this machine may use at a time; "" when several may.
        open_limit_s: `open` takes no longer than this.
        options: Options of an environment on it besides the device, such as a snapshot or a recipe.
    """

    id: str
    claim: str
    open_limit_s: float
    options: Mapping[str, object]

    def open(self) -> Device:
        """The device, connected or booted, after it has answered with a screen that is not blank.

        Called again after each fault; what an earlier call returned is not used any more. Raises DeviceError
        if the device does not work.
        """

    def probe(self) -> None:
        """Checks for a sign of life: cheap, over within seconds. Raises DeviceError if there is none."""

    def ladder(self) -> Sequence[RecoveryStep]:
        """What may repair it, cheapest first; the first one at least waits. Returns at once."""

    def evidence(self) -> Mapping[str, bytes]:
        """Files about a fault, by name; bounded in time and size. Best effort."""

    def close(self) -> None:
        """Releases it, and stops what `open` started. May be called twice."""


class Circuit:
    """Counts the faults of one device and says when to stop trying."""

    def __init__(self, health: Health = HEALTH) -> None:
        self._limit, self._max_pause_s = health.max_faults, health.max_pause_s
        self._faults: deque[float] = deque(maxlen=self._limit)
        self._quarantines, self._paused_at = 0, float("-inf")
        self.first_pause_s = min(health.pause_s, health.max_pause_s)
        """How long to wait when the device is not to blame, in seconds."""

    def fault(self, now: float) -> None:
        """Counts a fault."""
        self._faults.append(now)

    def forgive(self, since: float) -> None:
        """Removes the faults, and the pause, that began at `since` or later: they were not the device's."""
        self._faults = deque((at for at in self._faults if at < since), maxlen=self._limit)
        if self._paused_at >= since:
            self._quarantines, self._paused_at = self._quarantines - 1, float("-inf")

    def is_open(self, now: float) -> bool:
        """Whether the device failed too often of late."""
        return self.count(now) >= self._limit

    def count(self, now: float) -> int:
        """Faults within the window."""
        return sum(now - at <= FAULT_WINDOW_S for at in self._faults)

    def pause(self, now: float) -> float:
        """How long the quarantine that a fault of the device begins now lasts, in seconds."""
        # 2**20 pauses are beyond every maximum, and still a float.
        pause_s = self.first_pause_s * 2.0 ** min(self._quarantines, 20)
        self._quarantines, self._paused_at = self._quarantines + 1, now
        return min(pause_s, self._max_pause_s)

    def close(self) -> None:
        """The device works again."""
        self._faults.clear()

    def worked(self) -> None:
        """The device has done an episode: the next quarantine is short again."""
        self._quarantines, self._paused_at = 0, float("-inf")


@dataclass
class Fault:
    """Why a slot is not well; `is_host`: the trouble is the machine's or the adb server's.

    `files` are what the user of the device adds to the post-mortem, which `bundle` is once it is begun.
    """

    error: EnvError
    is_host: bool
    files: Mapping[str, bytes] = field(default_factory=dict)
    bundle: Bundle | None = None


@dataclass(eq=False)
class Slot:
    """One device of the pool. The pool's lock guards it, except `member`, which one job or lease uses.

    Times are monotonic.

    Attributes:
        tracked: A tracker says in `listed` whether it is there; otherwise it always is.
        listed: Its state as the adb server lists it; None while it is not there.
        device: What `member.open` returned, while it is to be used.
        generation: Counts openings; what is cached about `device` is void when it changes.
        token: Changes with each state and each probe, so that late answers are recognised.
        last_ok: When it last gave a sign of life.
        last_used: When it was last given back.
        due: Before that time nothing is tried.
        fault: Set while it is suspect, recovering or quarantined, and while it rests in its absence.
        is_claimed: Another process had it at the last attempt to claim it.
    """

    member: ManagedDevice
    circuit: Circuit
    tracked: bool = False
    state: SlotState = SlotState.ABSENT
    listed: str | None = None
    device: Device | None = None
    generation: int = 0
    token: int = 0
    probing: bool = False
    last_ok: float = 0.0
    last_used: float = 0.0
    due: float = 0.0
    fault: Fault | None = None
    is_claimed: bool = False

    @property
    def id(self) -> str:
        """The device's name in the pool."""
        return self.member.id

    @property
    def is_there(self) -> bool:
        """Whether opening it may be tried."""
        return not self.tracked or self.listed is not None

    @property
    def rests(self) -> bool:
        """Whether it went and came back during a rest, which it has to finish before it is opened."""
        return self.state is SlotState.ABSENT and self.is_there and self.fault is not None

    @property
    def lacks(self) -> str:
        """Why it cannot be used, for people; "" if it can, is being opened, or is a spare."""
        if self.state is SlotState.ABSENT and not self.is_there:
            return "adb does not list it"
        if self.fault is not None:
            return str(self.fault.error).removeprefix(f"{self.id}: ")
        if self.state is not SlotState.ABSENT:
            return ""
        if self.is_claimed:
            return "another process has it"
        return "" if not self.tracked or self.listed == ONLINE else f"adb lists it as {self.listed!r}"


@dataclass(frozen=True)
class Job:
    """One thing to do with a device, in a thread of its own.

    A recovery tries `steps`; there are none when the device is only to be looked at and left to rest. `token`
    goes back with the answer, which must come before the monotonic time `deadline`.
    """

    kind: Literal["open", "probe", "recover"]
    slot: Slot
    token: int
    deadline: float
    steps: Sequence[RecoveryStep] = ()
    fault: Fault | None = None


@dataclass(frozen=True)
class PoolSlot:
    """A leased device; also a context manager, which gives it back.

    `options` are those of an environment on it besides the device. `generation` changes when the device was
    opened again since an earlier lease.
    """

    id: str
    device: Device
    options: Mapping[str, object]
    generation: int
    token: int
    give_back: Callable[[PoolSlot, EnvError | None], None] = field(repr=False, compare=False)

    def __enter__(self) -> PoolSlot:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.give_back(self, error if isinstance(error, EnvError) else None)


class SlotTable:
    """All slots of a pool. No more than `limit` are opened; the others are spares."""

    def __init__(
        self, health: Health, limit: int, claims: Claims, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._health, self._limit, self._claims, self._clock = health, limit, claims, clock
        self._host_until = float("-inf")
        self.slots: dict[str, Slot] = {}

    def join(self, member: ManagedDevice, tracked: bool = False) -> None:
        """Adds a device with a new id; one that is `tracked` is there only while `listed` says so."""
        assert member.id not in self.slots, f"two devices are called {member.id}"
        self.slots[member.id] = Slot(member, Circuit(self._health), tracked)

    def listed(self, device: str, state: str | None) -> None:
        """The adb server lists a tracked device in `state` now, or not at all (None)."""
        slot, now = self.slots[device], self._clock()
        before, slot.listed = slot.listed, state
        if state == before:
            return
        if state is None:
            if slot.state in (SlotState.READY, SlotState.QUARANTINED):
                self._absent(slot)
        elif state == ONLINE:
            if slot.state in (SlotState.ABSENT, SlotState.QUARANTINED) and not self._must_rest(slot):
                slot.due = now  # what it lacked is there again
                if slot.state is SlotState.ABSENT:
                    slot.fault = None
        elif slot.state is SlotState.READY:
            self._suspect(slot, not_online(slot.id, state))
        elif slot.state is SlotState.ABSENT:
            slot.due = max(slot.due, now + CLAIM_S)  # a device that comes is offline for a moment

    def server_lost(self) -> None:
        """The adb server went away: what breaks around now is not a device's fault."""
        now = self._clock()
        self._host_until = now + SERVER_S
        for slot in self.slots.values():
            slot.circuit.forgive(now - SERVER_BEFORE_S)
            if slot.state is SlotState.READY:  # a device on the network must be connected to again
                slot.last_ok = min(slot.last_ok, now - self._health.probe_every_s)

    def leave_all(self) -> list[Slot]:
        """Removes all slots, and returns them; answers about them come too late from now on."""
        left = list(self.slots.values())
        for slot in left:
            slot.token += 1
        self.slots.clear()
        return left

    def pick(self) -> Slot | None:
        """The device that may be leased now and was used least recently; None if there is none."""
        free = [
            slot
            for slot in self.slots.values()
            if slot.state is SlotState.READY
            and not slot.probing
            and not self._is_silent(slot)  # it is due for a probe first
        ]
        return min(free, key=lambda slot: slot.last_used, default=None)

    def lease(self, slot: Slot) -> int:
        """Marks it as busy. Returns the lease's token."""
        self._to(slot, SlotState.BUSY, "leased")
        return slot.token

    def give_back(
        self, device: str, token: int, error: EnvError | None, files: Mapping[str, bytes], used: bool
    ) -> None:
        """Ends a lease, with what went wrong, if anything; one that has ended already is ignored.

        `used`: whether the device has shown that it works.
        """
        slot = self.slots.get(device)
        if slot is None or slot.token != token or slot.state is not SlotState.BUSY:
            return
        now = self._clock()
        slot.last_used = now
        if error is not None:
            self._suspect(slot, error, files)
        elif not slot.is_there:
            self._absent(slot)
        elif slot.tracked and slot.listed != ONLINE:
            self._suspect(slot, not_online(slot.id, slot.listed))
        else:
            if used:
                slot.last_ok = now
                slot.circuit.worked()
            self._to(slot, SlotState.READY, "given back")

    def due_jobs(self) -> list[Job]:
        """What is to be done now; the states say that it is under way."""
        found = [self._due_job(slot, self._clock()) for slot in list(self.slots.values())]
        return [job for job in found if job is not None]

    def opened(self, job: Job, device: Device) -> bool:
        """An opening or a recovery succeeded. False if the answer is out of date."""
        slot, now = job.slot, self._clock()
        if slot.token != job.token:
            return False
        slot.device, slot.generation = device, slot.generation + 1
        slot.last_ok = slot.last_used = now
        slot.fault = None
        if slot.circuit.is_open(now):
            slot.circuit.close()
        self._to(slot, SlotState.READY, "it works")
        return True

    def answered(self, job: Job) -> None:
        """A probe succeeded."""
        if job.slot.token == job.token:
            job.slot.token += 1
            job.slot.probing, job.slot.last_ok = False, self._clock()

    def failed(self, job: Job, error: EnvError) -> None:
        """A job failed, or did not end in time. An answer that is out of date is ignored."""
        slot, now = job.slot, self._clock()
        if slot.token != job.token:
            return
        if slot.state is not SlotState.RECOVERING:
            if slot.is_there:
                self._suspect(slot, error)
            else:
                self._absent(slot)
            return
        assert slot.fault is not None
        if job.steps:
            slot.fault.error, slot.fault.is_host = error, self._is_host(error)
        if slot.is_there:
            self._rest(slot, f"no step helped: {error}" if job.steps else "it failed too often.")
        else:
            if not job.steps:
                slot.due = now + slot.circuit.pause(now)  # it rests while it is away
            self._absent(slot)

    def _due_job(self, slot: Slot, now: float) -> Job | None:
        if slot.state is SlotState.ABSENT:
            return self._due_opening(slot, now)
        if slot.state is SlotState.READY and not slot.probing and self._is_silent(slot):
            slot.probing, slot.token = True, slot.token + 1
            return Job("probe", slot, slot.token, now + PROBE_LIMIT_S)
        if slot.state is SlotState.SUSPECT or (slot.state is SlotState.QUARANTINED and slot.due <= now):
            return self._due_recovery(slot, now)
        return None

    def _due_opening(self, slot: Slot, now: float) -> Job | None:
        if not slot.is_there:
            return None
        if self._is_full():
            slot.is_claimed = False  # a spare
            return None
        if slot.due > now:
            return None
        slot.is_claimed = not self._claims.take(slot.member.claim)
        if slot.is_claimed:
            slot.due = now + CLAIM_S
            return None
        self._to(slot, SlotState.STARTING, "it is there")
        return Job("open", slot, slot.token, now + slot.member.open_limit_s)

    def _due_recovery(self, slot: Slot, now: float) -> Job | None:
        fault = slot.fault
        assert fault is not None, f"{slot.id} is not well, for no reason"
        steps: Sequence[RecoveryStep] = ()
        is_resting = slot.state is SlotState.QUARANTINED
        if is_resting or fault.is_host or not slot.circuit.is_open(now):
            ladder = slot.member.ladder()
            # No step on a device repairs a fault of the whole machine: only wait.
            first = 0 if fault.is_host else _first_rung(ladder, fault.error, slot.circuit.count(now))
            steps = ladder[:1] if fault.is_host else ladder[first:]
        self._to(slot, SlotState.RECOVERING, "under repair" if steps else "it failed too often.")
        limit_s = MARGIN_S + sum(step.limit_s + PROBE_LIMIT_S + slot.member.open_limit_s for step in steps)
        return Job("recover", slot, slot.token, now + limit_s, steps, fault)

    def _is_full(self) -> bool:
        counts = self.counts()
        away = counts[SlotState.ABSENT] + counts[SlotState.QUARANTINED]
        return len(self.slots) - away >= self._limit

    def _is_silent(self, slot: Slot) -> bool:
        return self._clock() - slot.last_ok >= self._health.probe_every_s

    def _suspect(self, slot: Slot, error: EnvError, files: Mapping[str, bytes] | None = None) -> None:
        is_host = self._is_host(error)
        if error.fault == "device" and not is_host:
            slot.circuit.fault(self._clock())
        slot.probing = False
        slot.fault = Fault(error, is_host, files or {})
        self._to(slot, SlotState.SUSPECT, str(error))

    def _is_host(self, error: EnvError) -> bool:
        """Whether the trouble is the machine's or the adb server's."""
        if getattr(error, "scope", None) is Scope.HOST:
            return True
        return isinstance(error, TransportError) and self._clock() < self._host_until

    def _must_rest(self, slot: Slot) -> bool:
        """Whether a device that has just come online still has to wait for `due`."""
        fault = slot.fault
        return fault is not None and not fault.is_host and slot.circuit.is_open(self._clock())

    def _rest(self, slot: Slot, reason: str) -> None:
        fault, now = slot.fault, self._clock()
        # The adb server returns for all devices at once; none should be in a long pause then.
        is_server = fault is not None and fault.is_host and isinstance(fault.error, TransportError)
        pause_s = slot.circuit.first_pause_s if is_server else slot.circuit.pause(now)
        slot.due = now + pause_s
        self._to(slot, SlotState.QUARANTINED, f"{reason} Next try in {pause_s:g} s.")

    def _absent(self, slot: Slot) -> None:
        now = self._clock()
        if slot.due <= now:  # else it rests, and continues to rest if it returns before that is over
            slot.fault = None
        slot.probing, slot.is_claimed, slot.due = False, False, max(now, slot.due)
        self._claims.release(slot.member.claim)
        self._to(slot, SlotState.ABSENT, "it is gone")

    def _to(self, slot: Slot, state: SlotState, reason: str) -> None:
        before = slot.state
        slot.state, slot.token = state, slot.token + 1
        is_daily = {before, state} <= {SlotState.READY, SlotState.BUSY}
        level = logging.DEBUG if is_daily else logging.INFO
        if state in (SlotState.SUSPECT, SlotState.QUARANTINED):
            level = logging.WARNING
        _log.log(level, "device %s: %s -> %s: %s", slot.id, before.value, state.value, reason)

    def counts(self) -> Counter[SlotState]:
        """How many slots are in each state."""
        return Counter(slot.state for slot in self.slots.values())


def _first_rung(ladder: Sequence[RecoveryStep], error: EnvError, count: int) -> int:
    """Where on its ladder the repair begins of a device that failed `count` times of late."""
    # One that failed before, although it seemed to work again, needs more than that repair.
    first = max(0, count - 1)
    if isinstance(error, SnapshotMissing | SnapshotFailed):
        # It answers, which is all that the mild steps achieve, and the next episode would fail again.
        first = max(first, next((at for at, step in enumerate(ladder) if step.destructive), 0))
    return min(first, len(ladder) - 1)


def not_online(serial: str, state: str | None) -> DeviceError:
    """What it means that the adb server lists a device in `state`."""
    if state == "unauthorized":
        return DeviceUnauthorized(
            "it has not accepted this machine's adb key.", "Confirm the dialog on its screen.", serial=serial
        )
    remedy = "Look at its cable, or restart it." if state == "offline" else ""
    return DeviceOffline(f"the adb server lists it as {state!r}.", remedy, serial=serial, evidence=str(state))
