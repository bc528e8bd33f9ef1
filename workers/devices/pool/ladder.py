"""Repairing a device: its ladder of steps, how long it rests when none helps, and when trying stops.

    fault ─► circuit closed ─► wait ─► reconnect ─► load snapshot ─► restart ─► cold boot ─► reclone ─┐
               │                 └────────┴── device answers: READY ──┴───────────┘                   │
               └─ open (3 faults in 10 min) ───────────────────────────────────────► quarantine ◄─────┘

After each step the device is probed and opened anew; the first step after which that works ends the climb. A
quarantined device is tried again after a pause that doubles each time; the circuit closes when that works.
A failure that the adb server caused ends in a pause of the first length and does not lengthen the next one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from distrl.core.errors import EnvError
from distrl.workers.devices.base import Device
from distrl.workers.devices.errors import DeviceError, Scope
from distrl.workers.devices.pool.member import ManagedDevice, RecoveryStep

MARGIN_S = 20.0
"""What a recovery may take besides its steps, probes and openings: for its evidence."""


@dataclass(frozen=True)
class StepOutcome:
    """What one step of a ladder came to.

    Attributes:
        name: The step's.
        seconds: How long it took, with the probe and the opening after it.
        error: Why the device still does not work; "" when it does.
    """

    name: str
    seconds: float
    error: str = ""


class Circuit:
    """Counts the faults of one device and says when to stop trying. Not thread-safe: the pool holds its lock.

    Args:
        limit: It opens with this many faults …
        window_s: … within so many seconds.
        pause_s: The first pause of a quarantine; each further one is twice as long …
        max_pause_s: … up to this.
    """

    def __init__(
        self, limit: int = 3, window_s: float = 600.0, pause_s: float = 10.0, max_pause_s: float = 300.0
    ) -> None:
        self._limit, self._window_s = limit, window_s
        self._pause_s, self._max_pause_s = pause_s, max_pause_s
        self._faults: deque[float] = deque(maxlen=limit)
        self._quarantines, self._paused_at = 0, float("-inf")

    def fault(self, now: float) -> None:
        """Notes a fault."""
        self._faults.append(now)

    def forgive(self, since: float) -> None:
        """Forgets the faults, and the pause, that began at `since` or later: they were not the device's."""
        self._faults = deque((at for at in self._faults if at < since), maxlen=self._limit)
        if self._paused_at >= since:
            self._quarantines, self._paused_at = self._quarantines - 1, float("-inf")

    def is_open(self, now: float) -> bool:
        """Whether the device failed too often of late."""
        return self.count(now) >= self._limit

    def pause(self, now: float) -> float:
        """How long the quarantine that a fault of the device begins now lasts, in seconds."""
        # 2**20 pauses are beyond every maximum, and still a float.
        pause_s = self._pause_s * 2.0 ** min(self._quarantines, 20)
        self._quarantines, self._paused_at = self._quarantines + 1, now
        return min(pause_s, self._max_pause_s)

    def short_pause(self) -> float:
        """How long to wait when the device is not to blame, or nothing was tried, in seconds."""
        return min(self._pause_s, self._max_pause_s)

    def count(self, now: float) -> int:
        """Faults within the window."""
        return sum(now - at <= self._window_s for at in self._faults)

    def close(self) -> None:
        """The device works again."""
        self._faults.clear()

    def worked(self) -> None:
        """The device has done an episode: the next quarantine is short again."""
        self._quarantines, self._paused_at = 0, float("-inf")


def limit_of(member: ManagedDevice, steps: Sequence[RecoveryStep], probe_s: float) -> float:
    """The longest that a recovery by these steps may take, in seconds."""
    return MARGIN_S + sum(step.limit_s + probe_s + member.open_limit_s for step in steps)


def climb(
    member: ManagedDevice,
    steps: Sequence[RecoveryStep],
    record: Callable[[StepOutcome], None],
    before_destruction: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
) -> Device:
    """Takes one step after the other until the device works.

    Args:
        member: The device.
        steps: Its ladder, or the part of it that applies.
        record: Told of each step as it ends.
        before_destruction: Called once, before the first step that loses evidence.
        clock: Monotonic seconds.

    Returns:
        The device, opened anew.

    Raises:
        EnvError: No step helped; that of the last one.
    """
    assert steps, f"{member.id} has an empty ladder"
    is_warned = False
    last: EnvError | None = None
    for step in steps:
        if step.destructive and not is_warned:
            is_warned = True
            before_destruction()
        started = clock()
        try:
            step.run()
            member.probe()
            device = member.open()
        except EnvError as error:
            record(StepOutcome(step.name, clock() - started, str(error)))
            last = error
            if isinstance(error, DeviceError) and error.scope is Scope.HOST:
                break  # harsher steps do not help against a full disk or a missing server
            continue
        record(StepOutcome(step.name, clock() - started))
        return device
    assert last is not None
    raise last
