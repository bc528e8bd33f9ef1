"""Processes as /proc shows them: who is who beyond a number, who listens where, and signals to the right one.

A process id alone says little, the kernel uses it again. Together with the time of its start and the boot it
names one process for ever. Signals go through a pidfd, which is opened first and compared then: between the
look and the signal the number cannot become another process.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_ESTABLISHED, _LISTEN = "01", "0A"
_LOCAL, _REMOTE = 1, 2


@dataclass(frozen=True)
class ProcessKey:
    """One process, told from all others that ever had its number.

    Attributes:
        pid: Its process id.
        started: Its start, in clock ticks since the boot.
        boot: The boot it lives in.
    """

    pid: int
    started: int
    boot: str


def boot_id() -> str:
    """What tells this boot of the machine from others; "" where the kernel does not say."""
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def key_of(pid: int) -> ProcessKey | None:
    """The process that has this number now; None if there is none, or only a zombie."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name stands in parentheses and may hold anything, parentheses too.
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in "ZX":
        return None
    return ProcessKey(pid, int(fields[19]), boot_id())


def is_alive(key: ProcessKey) -> bool:
    """Whether this very process runs."""
    return key_of(key.pid) == key


def cmdline(pid: int) -> list[str]:
    """Its program and arguments; empty if it is gone or not to be looked at."""
    try:
        data = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode("utf-8", "replace") for part in data.rstrip(b"\0").split(b"\0") if part]


def is_what(key: ProcessKey, marks: Iterable[str]) -> bool:
    """Whether the process runs and has all of `marks` among its arguments."""
    return is_alive(key) and set(marks) <= set(cmdline(key.pid))


def send(key: ProcessKey, number: signal.Signals, marks: Iterable[str] = ()) -> bool:
    """Signals the process if it is still the one meant.

    Returns:
        Whether it was signalled; False if it is gone or another.

    Raises:
        PermissionError: If it belongs to somebody else.
    """
    try:
        descriptor = os.pidfd_open(key.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_what(key, marks):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def listens(pid: int, port: int) -> bool:
    """Whether the process is the one that listens on this TCP port."""
    inodes = {f"socket:[{inode}]" for inode in _sockets(port, _LISTEN)}
    return bool(inodes and inodes & _open_files(pid))


def has_clients(port: int) -> bool:
    """Whether anybody is connected to the server on this local TCP port."""
    return bool(_sockets(port, _ESTABLISHED))


def has_other_clients(port: int) -> bool:
    """Whether a process of this machine, other than this one, is connected to the server on this TCP port."""
    inodes = {f"socket:[{inode}]" for inode in _sockets(port, _ESTABLISHED, _REMOTE)}
    return bool(inodes - _open_files(os.getpid()))


def _open_files(pid: int) -> set[str]:
    """What the process has open, as /proc names it."""
    found = set()
    with contextlib.suppress(OSError), os.scandir(PROC / str(pid) / "fd") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                found.add(os.readlink(entry.path))
    return found


def _sockets(port: int, state: str, end: int = _LOCAL) -> set[str]:
    """The inodes of the sockets with `port` at this end, in this state, at any address."""
    found = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (PROC / "net" / name).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == state and int(fields[end].rpartition(":")[2], 16) == port:
                    found.add(fields[9])
    return found


def flock_holders(path: Path) -> list[int]:
    """Who holds an flock(2) on this file, by process id; 0 for one that cannot be seen from here."""
    try:
        status = path.stat()
        text = (PROC / "locks").read_text(encoding="ascii")
    except OSError:
        return []
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    rows = [line.split() for line in text.splitlines()]
    found = [
        (row[5].rpartition(":"), max(0, int(row[4]))) for row in rows if len(row) > 5 and row[1] == "FLOCK"
    ]
    return [
        pid
        for (on, _, inode), pid in found
        # Btrfs and overlays name another device here than stat does: what the holder has open tells.
        if inode == str(status.st_ino) and (on == device or _has_open(pid, status))
    ]


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    """Whether the process has this very file open, as far as this user may see."""
    with contextlib.suppress(OSError), os.scandir(PROC / str(pid) / "fd") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(entry.path), wanted):
                    return True
    return False
