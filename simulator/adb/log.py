"""The simulated phone's log: a ring of entries that `logcat` prints and follows."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

CAPACITY = 4096
"""Most entries kept; the oldest goes first, as in logd's ring buffers."""
PRIORITIES = "VDIWEFS"
"""Priority letters, from verbose to silent."""


@dataclass(frozen=True)
class Entry:
    """One line of the log.

    Attributes:
        serial: Its number since boot.
        time_ms: Milliseconds since 1970, by the phone's clock.
        pid, tid, uid: Who wrote it.
        priority: One of `PRIORITIES`.
        tag, message: What it says.
        buffer: "main", "system", "crash" or "events".
    """

    serial: int
    time_ms: int
    pid: int
    tid: int
    uid: int
    priority: str
    tag: str
    message: str
    buffer: str = "main"


class LogBuffer:
    """The log. Used from the host's event loop only.

    Args:
        clock: Gives the phone's time in seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: deque[Entry] = deque(maxlen=CAPACITY)
        self._serial = 0
        self._news = asyncio.Event()

    def write(
        self,
        priority: str,
        tag: str,
        message: str,
        pid: int = 612,
        uid: int = 1000,
        buffer: str = "main",
    ) -> None:
        """Appends an entry and wakes up those who follow the log."""
        now = int(self._clock() * 1000)
        self._serial += 1
        self._entries.append(Entry(self._serial, now, pid, pid, uid, priority, tag, message, buffer))
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def entries(self, after: int = 0) -> list[Entry]:
        """The entries whose serial is larger than `after`, oldest first."""
        if not self._entries or self._entries[-1].serial <= after:
            return []
        return [entry for entry in self._entries if entry.serial > after]

    async def wait(self, after: int) -> None:
        """Returns once there is an entry whose serial is larger than `after`, or the log was cleared."""
        if not self.entries(after):
            await self._news.wait()

    @property
    def last(self) -> int:
        """The serial of the newest entry ever written."""
        return self._serial

    def clear(self, buffers: tuple[str, ...] = ()) -> None:
        """Forgets the entries of `buffers`, all of them when empty."""
        kept = [entry for entry in self._entries if buffers and entry.buffer not in buffers]
        self._entries = deque(kept, maxlen=CAPACITY)

    def dump(self) -> list[dict[str, Any]]:
        """The entries as plain data, without their serials."""
        return [{**asdict(entry), "serial": 0} for entry in self._entries]

    def load(self, entries: list[dict[str, Any]]) -> None:
        """Replaces the log by what `dump` gave; serials go on from the present ones, so followers see it."""
        self._entries.clear()
        for fields in entries:
            self._serial += 1
            self._entries.append(Entry(**{**fields, "serial": self._serial}))
        self._wake()
