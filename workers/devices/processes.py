"""Processes that this tool started, and emulators that run on this machine: identify, list and end them.

A process id alone says little, because the kernel reuses it. Together with the start time and the boot it
names one process for ever (`ProcessKey`). Signals go through a pidfd, which is opened first and compared
then: between the look and the signal the number cannot become another process.

`Registry` keeps one small file for each started process that may outlive this tool; `distrl cleanup` ends
those. While the process that started it runs, an entry is in use; afterwards it is an orphan. Ending an
emulator takes

    console `kill` ── 30 s ──► SIGTERM ── 5 s ──► SIGKILL

and before each step the process is compared with the one that was started, and the console's port with its
sockets.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from distrl.core.errors import ConfigError
from distrl.workers.devices.console import Console
from distrl.workers.devices.errors import DeviceError, EmulatorError

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


def send_signal(key: ProcessKey, number: signal.Signals, marks: Iterable[str] = ()) -> bool:
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


VARIABLE = "DISTRL_STATE_DIR"


def state_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The directory, made if it is not there, for its owner only.

    It is `$DISTRL_STATE_DIR`, else `$XDG_STATE_HOME/distrl`, else `~/.local/state/distrl`.

    Raises:
        ConfigError: If it cannot be made.
    """
    named, xdg = environ.get(VARIABLE), environ.get("XDG_STATE_HOME")
    home = Path(environ.get("HOME") or Path.home())
    path = Path(named) if named else (Path(xdg) if xdg else home / ".local" / "state") / "distrl"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the state directory {path} cannot be made: {error.strerror}.",
            f"Set {VARIABLE} to a directory of yours.",
        ) from error
    return path


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """One started process.

    Attributes:
        key: The process.
        what: What it is, for people, e.g. "emulator of AVD pixel at port 5554".
        marks: Arguments that its command line must have.
        owner: Who started it.
        started_at: When, in seconds since 1970.
        console_port: Its console, if it is an emulator; else None.
        shared_port: Where it serves whoever comes, if it is an adb server; else None.
    """

    key: ProcessKey
    what: str
    marks: tuple[str, ...]
    owner: ProcessKey | None
    started_at: float
    console_port: int | None = None
    shared_port: int | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process runs and is the one meant."""
        return is_what(self.key, self.marks)

    @property
    def is_orphan(self) -> bool:
        """Whether it runs and nobody who started it does."""
        return self.is_running and (self.owner is None or not is_alive(self.owner))

    @property
    def has_clients(self) -> bool:
        """Whether others are connected to what it serves."""
        return self.shared_port is not None and has_clients(self.shared_port)


class Registry:
    """The entries of one user.

    Args:
        directory: The state directory; the usual one when None.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = (directory or state_dir()) / "processes"

    def add(
        self,
        pid: int,
        what: str,
        marks: tuple[str, ...] = (),
        console_port: int | None = None,
        shared_port: int | None = None,
    ) -> Entry:
        """Enters a process that was just started by this one.

        Raises:
            EmulatorError: If it is gone already, or the entry cannot be written.
        """
        key = key_of(pid)
        if key is None:
            raise EmulatorError(f"{what} ended at once.", "See its log.")
        owner = key_of(os.getpid())
        entry = Entry(key, what, marks, owner, time.time(), console_port, shared_port)
        self._write(entry)
        return entry

    def disown(self, entry: Entry) -> Entry:
        """Leaves a process that goes on running to whoever finds it; returns its new entry.

        Raises:
            EmulatorError: If the entry cannot be written.
        """
        left = replace(entry, owner=None)
        self._write(left)
        return left

    def _write(self, entry: Entry) -> None:
        path = self._path(entry.key)
        fresh = path.with_suffix(f".{os.getpid()}.new")
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh.write_text(json.dumps(asdict(entry)), encoding="utf-8")
            os.replace(fresh, path)
        except OSError as error:
            raise EmulatorError(
                f"{path} cannot be written: {error.strerror}.", "Free disk space, or set DISTRL_STATE_DIR."
            ) from error

    def remove(self, entry: Entry) -> None:
        """Forgets a process that has ended. Nothing happens if it is not entered."""
        self._path(entry.key).unlink(missing_ok=True)

    def entries(self) -> list[Entry]:
        """All, oldest first; also of processes that are gone."""
        found = []
        for path in self.directory.glob("*.json"):
            entry = _read_entry(path)
            if entry is not None:
                found.append(entry)
        return sorted(found, key=lambda entry: entry.started_at)

    def _path(self, key: ProcessKey) -> Path:
        return self.directory / f"{key.pid}-{key.started}-{key.boot[:8]}.json"


def _read_entry(path: Path) -> Entry | None:
    try:
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        owner = fields["owner"]
        return Entry(
            ProcessKey(**fields["key"]),
            str(fields["what"]),
            tuple(fields["marks"]),
            ProcessKey(**owner) if owner else None,
            float(fields["started_at"]),
            fields["console_port"],
            fields["shared_port"],
        )
    except FileNotFoundError:
        return None  # ended while we looked
    except (OSError, ValueError, TypeError, KeyError) as error:
        _log.warning("%s is no entry of a started process and is left alone: %s", path, error)
        return None


CONSOLE_S = 30.0
TERM_S = 5.0
KILL_S = 5.0
_POLL_S = 0.05


def end_process(
    key: ProcessKey,
    marks: Iterable[str] = (),
    console_port: int | None = None,
    console_s: float = CONSOLE_S,
    is_gone: Callable[[], bool] | None = None,
) -> str:
    """Ends a process.

    Args:
        key, marks: Which one; if it is another, nothing happens.
        console_port: Its emulator console, if it has one.
        console_s: How long it may take after the console's `kill`.
        is_gone: Whether it has ended; a parent passes one that collects its child.

    Returns:
        What ended it: "gone" (it had ended), "console", "SIGTERM", "SIGKILL"; "" if it still runs.

    Raises:
        PermissionError: If it belongs to somebody else.
    """
    marks = tuple(marks)
    gone = is_gone or (lambda: not is_alive(key))
    if gone() or not is_what(key, marks):
        return "gone"
    if console_port is not None and _told(key.pid, console_port) and _wait(gone, console_s):
        return "console"
    for number, patience_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
        if not send_signal(key, number, marks) and gone():
            return "gone"
        if _wait(gone, patience_s):
            return number.name
    return ""


def _told(pid: int, port: int) -> bool:
    """Gives the console's `kill`, if it is this process that listens there."""
    if not listens(pid, port):
        return False
    try:
        Console(port).kill()
    except DeviceError:
        return False  # it hangs, or does not know us: signals are next
    return True


def _wait(gone: Callable[[], bool], patience_s: float) -> bool:
    give_up_at = time.monotonic() + patience_s
    while not gone():
        if time.monotonic() >= give_up_at:
            return False
        time.sleep(_POLL_S)
    return True
