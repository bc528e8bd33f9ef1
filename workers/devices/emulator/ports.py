"""Ports for emulators: an even console port, and adb at the next; claimed by file locks.

    claim = exclusive flock on STATE/ports/CONSOLE.lock, held by an open descriptor of the claiming process
            + both ports can be bound at this moment

The lock keeps apart the processes of one user that have claimed but not yet bound; binding keeps apart all
others. The kernel drops the lock with its process, so nothing is ever left over.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from distrl.core.errors import ConfigError
from distrl.workers.devices.emulator.state_dir import state_dir
from distrl.workers.devices.errors import PortInUse

FIRST, LAST = 5554, 5682
"""What the emulator takes as `-port`. The adb server finds those up to 5584 by itself; others announce
themselves."""


@dataclass
class Ports:
    """The claimed ports of one emulator; a context manager.

    Attributes:
        console: The console's port, even; the number in the serial.
    """

    console: int
    _lock: int | None = None

    @property
    def adb(self) -> int:
        """The port of its adb daemon."""
        return self.console + 1

    @property
    def serial(self) -> str:
        """The name under which adb lists it."""
        return f"emulator-{self.console}"

    def release(self) -> None:
        """Gives the ports back. May be called twice."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def __enter__(self) -> Ports:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class PortAllocator:
    """Claims ports.

    Args:
        directory: Where the locks are; the same for all processes that shall not clash.
        first, last: The console ports to choose from, even.
    """

    def __init__(self, directory: Path | None = None, first: int = FIRST, last: int = LAST) -> None:
        if first % 2 or not 1024 <= first <= last <= 65000:
            raise ConfigError(
                f"console ports must be even and from 1024 to 65000, got {first} to {last}.",
                f"The emulator's own range is {FIRST} to {LAST}.",
            )
        self._directory = (directory or state_dir()) / "ports"
        self._candidates = range(first, last + 1, 2)

    def claim(self, console: int | None = None) -> Ports:
        """Claims the first free ports, or those of one console port.

        Args:
            console: A console port, if it must be this one.

        Raises:
            PortInUse: If it is taken, or all are.
            ConfigError: If `console` is odd or out of range.
        """
        if console is not None:
            if console % 2 or not 1024 <= console <= 65000:
                raise ConfigError(f"a console port is even and at most 65000, got {console}.", "Take 5554.")
            return self._claim(console)
        last: PortInUse | None = None
        for candidate in self._candidates:
            try:
                return self._claim(candidate)
            except PortInUse as error:
                last = error
        first, final = self._candidates[0], self._candidates[-1]
        raise PortInUse(
            f"all console ports from {first} to {final} are taken.",
            "Stop emulators that nobody uses: `distrl cleanup` shows those that this tool started.",
            evidence=str(last),
        )

    def _claim(self, console: int) -> Ports:
        lock = self._locked(console)
        try:
            for port in (console, console + 1):
                if not is_free(port):
                    raise _taken(console, f"port {port} is in use by another process")
        except PortInUse:
            os.close(lock)
            raise
        return Ports(console, lock)

    def _locked(self, console: int) -> int:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._directory / f"{console}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise _taken(console, "another process of this tool has claimed it") from error
        return lock


def _taken(console: int, why: str) -> PortInUse:
    return PortInUse(
        f"the console port {console} cannot be had: {why}.",
        f"Choose another even port, or see who has it: `ss -ltnp 'sport = :{console}'`.",
        serial=f"emulator-{console}",
    )


def is_free(port: int) -> bool:
    """Whether a server could listen on the loopback addresses' `port` now."""
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                # As the emulator does: connections that are being forgotten do not count.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
        except OSError as error:
            # A machine without IPv6 has no such address; everything else means that the port is not for us.
            if family == socket.AF_INET or error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
    return True
