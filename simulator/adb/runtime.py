"""What runs on a simulated phone and is lost at its reboot: the log, processes, and ports.

Used from the event loop of the phone's host only.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from distrl.workers.devices.apps import SIMPHONE

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
        buffer: "main", "system", "crash" or "events".
    """

    serial: int
    time_ms: int
    pid: int
    priority: str
    tag: str
    message: str
    buffer: str = "main"


class LogBuffer:
    """The log. Used from the host's event loop only."""

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
        buffer: str = "main",
    ) -> None:
        """Appends an entry and wakes up the followers of the log."""
        now = int(self._clock() * 1000)
        self._serial += 1
        self._entries.append(Entry(self._serial, now, pid, priority, tag, message, buffer))
        self._wake()

    def note(self, tag: str, message: str) -> None:
        """Appends an entry of a part of the system."""
        self.write("I", tag, message, buffer="system")

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def entries(self, after: int = 0) -> list[Entry]:
        """The entries whose serial is larger than `after`, oldest first."""
        if not self._entries or self._entries[-1].serial <= after:
            return []
        return [entry for entry in self._entries if entry.serial > after]

    async def wait(self, after: int) -> None:
        """Returns once there is an entry whose serial is larger than `after`."""
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
        """Replaces the log by what `dump` gave; serials continue, so that followers see it."""
        self._entries.clear()
        for fields in entries:
            self._serial += 1
            self._entries.append(Entry(**{**fields, "serial": self._serial}))
        self._wake()


FIRST_PID = 2000
LAST_PID = 32767
_SYSTEM = (
    (1, "init", 0),
    (2, "kthreadd", 0),
    (158, "logd", 1036),
    (160, "servicemanager", 1000),
    (301, "zygote64", 0),
    (318, "surfaceflinger", 1000),
    (356, "adbd", 2000),
    (612, "system_server", 1000),
    (784, "com.android.systemui", 10090),
    (921, "com.android.phone", 1001),
    (968, "org.simphone.keyboard", 10091),
)


@dataclass(frozen=True)
class Process:
    """One process."""

    pid: int
    name: str
    uid: int
    parent: int = 301


def user(uid: int) -> str:
    """The user's name, e.g. "u0_a1" for an app."""
    names = {0: "root", 1000: "system", 1001: "radio", 1036: "logd", 2000: "shell"}
    return names.get(uid) or (f"u0_a{uid - 10000}" if uid >= 10000 else str(uid))


class Processes:
    """The process table. Used from the host's event loop only."""

    def __init__(self) -> None:
        self._last = FIRST_PID
        self.reset()

    def reset(self) -> None:
        """Leaves the system's processes only."""
        self._table = {name: Process(pid, name, uid, 1 if pid > 2 else 0) for pid, name, uid in _SYSTEM}
        self.start(SIMPHONE + "launcher", 10001)

    def fresh_pid(self) -> int:
        """A process id that is not in use."""
        while True:
            self._last = FIRST_PID if self._last >= LAST_PID else self._last + 1
            if all(each.pid != self._last for each in self):
                return self._last

    def end(self, name: str) -> None:
        """Ends the process of this name, if there is one."""
        self._table.pop(name, None)

    def start(self, name: str, uid: int) -> Process | None:
        """Starts an app's process; None when it runs already."""
        if name in self._table:
            return None
        self._table[name] = Process(self.fresh_pid(), name, uid)
        return self._table[name]

    def find(self, name: str) -> Process | None:
        """The process of this name."""
        return self._table.get(name)

    def __iter__(self) -> Iterator[Process]:
        return iter(sorted(self._table.values(), key=lambda process: process.pid))


class Pipe(Protocol):
    """One connection, as its handler sees it."""

    async def read(self, size: int) -> bytes:
        """At most `size` bytes; b"" when the other side has closed."""
        ...

    async def write(self, data: bytes) -> None:
        """Sends; returns when there is room for more. Raises ConnectionError when the other side is gone."""
        ...


Answer = Callable[[Pipe], Awaitable[None]]
"""Answers one connection; it is closed when the call returns."""


class Network:
    """The ports of one phone."""

    def __init__(self) -> None:
        self._answers: dict[int, Answer] = {}

    def listen(self, port: int, answer: Answer) -> None:
        """Lets `answer` handle the connections to `port` from now on. Raises OSError."""
        if not 0 < port < 65536:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if port in self._answers:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._answers[port] = answer

    def free_port(self) -> int:
        """A port without a listener."""
        return next(port for port in range(40000, 65536) if port not in self._answers)

    def close(self, port: int) -> None:
        """Stops listening at `port`; open connections continue."""
        self._answers.pop(port, None)

    def answer(self, port: int) -> Answer | None:
        """The handler of connections to `port`; None when they are refused."""
        return self._answers.get(port)

    def clear(self) -> None:
        """Closes all ports, as a reboot does."""
        self._answers.clear()
