"""Claims by file locks: no two processes of this machine use the same device, or the same emulator ports.

A lock is a file in the state directory; the kernel releases it when its process ends, however it ends.
Processes that share a configuration (the workers of a run, an evaluation) thus share its devices: each takes
those that are free, as many as it has slots. Ports of an emulator, an even console port and adb at the next,
are claimed by a lock and by a look whether both can be bound: the lock keeps apart the processes of one user
that have claimed but not yet bound, binding keeps apart all others.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from distrl.core.errors import ConfigError, RunDirectoryError
from distrl.core.files import HeldLock, try_lock
from distrl.workers.devices.errors import PortInUse
from distrl.workers.devices.processes import state_dir

CONSOLE_PORTS = range(5554, 5683, 2)
"""The emulator's range for `-port`. The adb server finds those up to 5584 by itself."""


def _try_lock(path: Path) -> HeldLock | None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return try_lock(path)
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be locked: {error}.", "Set DISTRL_STATE_DIR.") from error


class Claims:
    """The claims of one pool. Not thread-safe: the pool holds its lock. No call waits."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._locks: dict[str, HeldLock] = {}

    def take(self, name: str) -> bool:
        """Takes a claim. False if another process has it; what is held or has no name is granted."""
        if not name or name in self._locks:
            return True
        folder = self._folder or state_dir() / "claims"
        lock = _try_lock(folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}.lock")
        if lock is not None:
            self._locks[name] = lock
        return lock is not None

    def release(self, name: str) -> None:
        """Gives a claim back; one that is not held is ignored."""
        if name in self._locks:
            self._locks.pop(name).release()

    def release_all(self) -> None:
        """Gives all back."""
        for name in list(self._locks):
            self.release(name)


@dataclass
class Ports:
    """The claimed ports of one emulator; a context manager. The adb daemon's follows the console's."""

    console: int
    _lock: HeldLock

    @property
    def serial(self) -> str:
        """The name under which adb lists it."""
        return f"emulator-{self.console}"

    def release(self) -> None:
        """Gives the ports back. May be called twice."""
        self._lock.release()

    def __enter__(self) -> Ports:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.release()


def claim_ports(console: int | None = None, candidates: Sequence[int] = CONSOLE_PORTS) -> Ports:
    """Claims the first free ports, or those of one console port.

    `candidates` are even console ports. Raises PortInUse if none is free.
    """
    if console is not None and (console % 2 or not 1024 <= console <= 65000):
        raise ConfigError(f"a console port is even and at most 65000, got {console}.", "Take 5554.")
    why = ""
    for candidate in candidates if console is None else [console]:
        lock = _try_lock(state_dir() / "ports" / f"{candidate}.lock")
        if lock is None:
            why = "another process of this tool has claimed it"
            continue
        busy = [port for port in (candidate, candidate + 1) if not is_free(port)]
        if not busy:
            return Ports(candidate, lock)
        lock.release()
        why = f"port {busy[0]} is in use by another process"
    if console is not None:
        raise PortInUse(
            f"the console port {console} is not available: {why}.",
            f"Choose another even port, or see which process uses it: `ss -ltnp 'sport = :{console}'`.",
        )
    raise PortInUse(
        f"all console ports from {candidates[0]} to {candidates[-1]} are taken.",
        "Stop unused emulators: `distrl cleanup` lists those that this tool started.",
    )


def is_free(port: int) -> bool:
    """Whether a server could listen on the loopback addresses' `port` now."""
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                # As the emulator does: connections in TIME_WAIT do not count.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
        except OSError as error:
            # A machine without IPv6 has no such address; any other error means that the port is taken.
            if family == socket.AF_INET or error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
    return True
