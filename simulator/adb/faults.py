"""Faults of a simulated phone: switched at its console or at its start, ended by time or by hand.

    none            as it should be
    slow ARG        answers late: "100" takes 100 times as long, "0.5s" half a second longer
    blank           the screen is black
    offline         the adb handshake gets no answer: the server lists the phone as offline
    unauthorized    the adb key is never accepted
    hang            adbd listens and keeps its connections, but answers nothing
    crash           the phone loses everything in its memory and boots again after SECONDS

One fault at a time; the console keeps working through all but a crash. Owned by the event loop of its host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from distrl.core.errors import ConfigError

_LEAST_BUSY_S = 0.001
"""What an answer of a simulated phone takes at least, when a factor slows it down."""
_MAX_DELAY_S = 30.0
"""Longest delay of one answer."""
CRASH_S = 2.0
"""How long a phone stays away after a crash by default."""


class Kind(str, Enum):
    """The faults by name."""

    NONE = "none"
    SLOW = "slow"
    BLANK = "blank"
    OFFLINE = "offline"
    UNAUTHORIZED = "unauthorized"
    HANG = "hang"
    CRASH = "crash"


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        factor, added_s: For "slow": every answer takes `factor` times as long and `added_s` longer.
        seconds: How long it lasts; None until it is ended. For a crash: until the phone is back.
    """

    kind: Kind = Kind.NONE
    factor: float = 1.0
    added_s: float = 0.0
    seconds: float | None = None


def parse(text: str) -> Fault:
    """Reads `NAME [ARG] [SECONDS]`; only "slow" takes an ARG. Raises ConfigError at anything else."""
    words = text.split()
    names = [kind.value for kind in Kind]
    if not words or words[0] not in names:
        raise ConfigError(f"{text.strip()!r} is not a fault.", f"Choose one of {', '.join(names)}.")
    kind, rest = Kind(words[0]), words[1:]
    factor, added_s = 1.0, 0.0
    if kind is Kind.SLOW:
        if not rest:
            raise ConfigError("the fault slow needs an argument.", "Give a factor (100) or seconds (0.5s).")
        first = rest.pop(0)
        if first.endswith("s"):
            added_s = _number(first[:-1], text)
        else:
            factor = max(1.0, _number(first, text))
    if len(rest) > 1:
        raise ConfigError(f"the fault {text.strip()!r} has too many words.", "Write NAME [ARG] [SECONDS].")
    return Fault(kind, factor, added_s, _number(rest[0], text) if rest else None)


def _number(word: str, text: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1e6:
        raise ConfigError(
            f"{word!r} in the fault {text.strip()!r} is not a valid time or factor.", "Write e.g. 30."
        )
    return value


class Faults:
    """What is wrong with one phone now."""

    def __init__(self) -> None:
        self.fault = Fault()
        self._listeners: list[Callable[[Fault], None]] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def kind(self) -> Kind:
        """What is wrong now."""
        return self.fault.kind

    def on_change(self, listener: Callable[[Fault], None]) -> None:
        """Calls `listener` with every fault that is set from now on, the end of one included."""
        self._listeners.append(listener)

    def set(self, fault: Fault) -> None:
        """Puts `fault` in the place of the present one; it ends by itself after its seconds."""
        self._cancel()
        self.fault = fault
        if fault.seconds is not None and fault.kind not in (Kind.NONE, Kind.CRASH):
            self._timer = asyncio.get_running_loop().call_later(fault.seconds, self.clear)
        for listener in list(self._listeners):
            listener(fault)

    def clear(self) -> None:
        """Ends the present fault."""
        self.set(Fault())

    def close(self) -> None:
        """Changes nothing more and reports nothing more: the phone is down."""
        self._listeners.clear()
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def delay_s(self, busy_s: float) -> float:
        """How much longer an answer takes that took `busy_s`, at most `_MAX_DELAY_S`."""
        if self.fault.kind is not Kind.SLOW:
            return 0.0
        longer = (self.fault.factor - 1.0) * max(busy_s, _LEAST_BUSY_S)
        return min(longer + self.fault.added_s, _MAX_DELAY_S)
