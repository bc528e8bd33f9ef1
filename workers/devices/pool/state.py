"""The states of a pool slot, which may follow which, and the record of every change. Pure data.

    ABSENT ──► STARTING ──► READY ◄──► BUSY
      ▲            │          │          │
      │            └──────► SUSPECT ◄────┘
      │                       │
      │                       ▼
      ├──────────────── RECOVERING ──► READY
      │                    ▲  │
      │                    │  ▼
      └──────────────── QUARANTINED            any ──► LEFT

docs/devices.md says what each state means to a user. Not thread-safe: the pool holds its lock.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

MAX_HISTORY = 64
"""Transitions that a slot remembers."""


class SlotState(str, Enum):
    """Where a device of the pool stands."""

    ABSENT = "absent"
    STARTING = "starting"
    READY = "ready"
    BUSY = "busy"
    SUSPECT = "suspect"
    RECOVERING = "recovering"
    QUARANTINED = "quarantined"
    LEFT = "left"


_S = SlotState

ALLOWED: Mapping[SlotState, frozenset[SlotState]] = {
    _S.ABSENT: frozenset({_S.STARTING, _S.LEFT}),
    _S.STARTING: frozenset({_S.READY, _S.SUSPECT, _S.ABSENT, _S.LEFT}),
    _S.READY: frozenset({_S.BUSY, _S.SUSPECT, _S.ABSENT, _S.LEFT}),
    _S.BUSY: frozenset({_S.READY, _S.SUSPECT, _S.ABSENT, _S.LEFT}),
    _S.SUSPECT: frozenset({_S.RECOVERING, _S.QUARANTINED, _S.ABSENT, _S.LEFT}),
    _S.RECOVERING: frozenset({_S.READY, _S.QUARANTINED, _S.ABSENT, _S.LEFT}),
    _S.QUARANTINED: frozenset({_S.RECOVERING, _S.ABSENT, _S.LEFT}),
    _S.LEFT: frozenset(),
}
"""State → the states that may follow it."""

ALIVE = frozenset({_S.STARTING, _S.READY, _S.BUSY, _S.SUSPECT, _S.RECOVERING})
"""States of a device that works, or may soon work again."""


class IllegalTransition(AssertionError):
    """A state that may not follow: a bug in the pool."""


@dataclass(frozen=True)
class Transition:
    """One change of state.

    Attributes:
        at: Unix time.
        before, after: The states.
        after_s: Seconds that the slot had been in `before`.
        reason: Why, for people.
    """

    at: float
    before: SlotState
    after: SlotState
    after_s: float
    reason: str


class SlotMachine:
    """The state of one slot.

    Args:
        clock: Monotonic seconds.
        wall: Unix time.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._clock, self._wall = clock, wall
        self.state = SlotState.ABSENT
        self.since = clock()
        self.history: deque[Transition] = deque(maxlen=MAX_HISTORY)

    def to(self, after: SlotState, reason: str) -> Transition:
        """Changes the state and records it.

        Raises:
            IllegalTransition: `after` may not follow the present state.
        """
        if after not in ALLOWED[self.state]:
            raise IllegalTransition(f"{self.state.value} -> {after.value} ({reason})")
        now = self._clock()
        change = Transition(self._wall(), self.state, after, now - self.since, reason)
        self.history.append(change)
        self.state, self.since = after, now
        return change
