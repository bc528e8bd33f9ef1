"""A device in the pool: what the pool needs of it, its states, and how it is repaired. No threads.

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
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from distrl.core.errors import EnvError
from distrl.workers.devices.device import Device
from distrl.workers.devices.errors import DeviceError, Scope

PROBE_LIMIT_S = 5.0
"""Longest time of a probe."""
MARGIN_S = 20.0
"""What a recovery may take besides its steps, probes and openings: for its evidence."""
FAULT_WINDOW_S = 600.0
"""The time within which faults open a circuit."""


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


ALIVE = frozenset(SlotState) - {SlotState.ABSENT, SlotState.QUARANTINED}
"""States of a device that works, or may soon work again."""


@dataclass(frozen=True)
class RecoveryStep:
    """One rung of a recovery ladder.

    Attributes:
        name: For people and post-mortems, e.g. "reconnect".
        run: Does it; raises a DeviceError when it fails. Whether the device works again is probed afterwards.
        limit_s: It takes no longer than this.
        destructive: It loses evidence of the fault, such as the device's log.
    """

    name: str
    run: Callable[[], None]
    limit_s: float = 30.0
    destructive: bool = False


class ManagedDevice(Protocol):
    """One member of a pool. Its methods are called by one thread at a time, `close` also while one hangs.

    Attributes:
        id: Unique in the pool, e.g. the serial.
        kind: The kind of its source, as in the configuration.
        claim: A name that no two processes of this machine may use at a time; "" when several may.
        open_limit_s: `open` takes no longer than this.
        options: Options of an environment on it besides the device, such as a snapshot or a recipe.
    """

    id: str
    kind: str
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
    """Counts the faults of one device and says when to stop trying. Not thread-safe: the pool holds its lock.

    Args:
        limit: It opens with this many faults within `FAULT_WINDOW_S`.
        pause_s: The first pause of a quarantine; each further one is twice as long …
        max_pause_s: … up to this.
    """

    def __init__(self, limit: int = 3, pause_s: float = 10.0, max_pause_s: float = 300.0) -> None:
        self._limit, self._max_pause_s = limit, max_pause_s
        self._faults: deque[float] = deque(maxlen=limit)
        self._quarantines, self._paused_at = 0, float("-inf")
        self.first_pause_s = min(pause_s, max_pause_s)
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


def limit_of(member: ManagedDevice, steps: Sequence[RecoveryStep]) -> float:
    """The longest that a recovery by these steps may take, in seconds."""
    return MARGIN_S + sum(step.limit_s + PROBE_LIMIT_S + member.open_limit_s for step in steps)


def climb(
    member: ManagedDevice,
    steps: Sequence[RecoveryStep],
    record: Callable[[str, float, str], None],
    before_destruction: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
) -> Device:
    """Takes one step after the other until the device works. Returns the device, opened again.

    Args:
        record: Called as each step ends with its name, the seconds that it took with the probe and the
            opening after it, and why the device still does not work; "" when it does.
        before_destruction: Called before each step that loses evidence.

    Raises:
        EnvError: No step helped; that of the last one.
    """
    assert steps, f"{member.id} has an empty ladder"
    last: EnvError | None = None
    for step in steps:
        if step.destructive:
            before_destruction()
        started = clock()
        try:
            step.run()
            member.probe()
            device = member.open()
        except EnvError as error:
            record(step.name, clock() - started, str(error))
            last = error
            if isinstance(error, DeviceError) and error.scope is Scope.HOST:
                break  # harsher steps do not help against a full disk or a missing server
            continue
        record(step.name, clock() - started, "")
        return device
    assert last is not None
    raise last
