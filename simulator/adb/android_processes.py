"""The simulated phone's processes: those of the system, one per app that runs, and commands of shells."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from distrl.simulator.adb.packages import LAUNCHER

FIRST_PID = 2000
LAST_PID = 32767
MAX_DAEMONS = 64
"""Most commands that go on after their shell has ended."""

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
    """One process.

    Attributes:
        pid, uid: Process and user id.
        name: Its name as `ps` shows it.
        parent: The process id of its parent.
        task: What to cancel to end it, None when it is no running command.
    """

    pid: int
    name: str
    uid: int
    parent: int = 301
    task: asyncio.Task[Any] | None = None


def user(uid: int) -> str:
    """The user's name, e.g. "u0_a1" for an app."""
    names = {0: "root", 1000: "system", 1001: "radio", 1036: "logd", 2000: "shell"}
    return names.get(uid) or (f"u0_a{uid - 10000}" if uid >= 10000 else str(uid))


class Processes:
    """The process table. Used from the host's event loop only."""

    def __init__(self) -> None:
        self._last = FIRST_PID
        self._table: dict[int, Process] = {}
        self._daemons: set[asyncio.Task[Any]] = set()
        self.reset()

    def reset(self) -> None:
        """Ends what runs in the background and leaves the system's processes only."""
        for task in list(self._daemons):
            task.cancel()
        self._daemons.clear()
        self._table = {pid: Process(pid, name, uid, 1 if pid > 2 else 0) for pid, name, uid in _SYSTEM}
        self.start(LAUNCHER, 10001)

    def fresh_pid(self) -> int:
        """A process id that is not in use."""
        while True:
            self._last = FIRST_PID if self._last >= LAST_PID else self._last + 1
            if self._last not in self._table:
                return self._last

    def add(self, pid: int, name: str, uid: int, task: asyncio.Task[Any] | None = None) -> int:
        """Enters a command's process; returns its id."""
        self._table[pid] = Process(pid, name, uid, 356, task)
        return pid

    def remove(self, pid: int) -> None:
        """Forgets a process."""
        self._table.pop(pid, None)

    def start(self, name: str, uid: int) -> Process | None:
        """Starts an app's process; None when it runs already."""
        if self.find(name):
            return None
        made = Process(self.fresh_pid(), name, uid)
        self._table[made.pid] = made
        return made

    def find(self, name: str) -> list[Process]:
        """The processes of this name."""
        return [process for process in self._table.values() if process.name == name]

    def get(self, pid: int) -> Process | None:
        """The process with this id."""
        return self._table.get(pid)

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Lets a command go on after its shell has ended; beyond `MAX_DAEMONS` it is ended, too."""
        if len(self._daemons) >= MAX_DAEMONS:
            task.cancel()
            return
        self._daemons.add(task)
        task.add_done_callback(self._daemons.discard)

    def __iter__(self) -> Iterator[Process]:
        return iter(sorted(self._table.values(), key=lambda process: process.pid))
