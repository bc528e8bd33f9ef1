"""Processes that this tool started and that may outlive it: identified, registered, and ended.

A process id alone says little, because the kernel reuses it. Together with the time of its start it names one
process (`ProcessKey`), which is compared before any signal.

`Registry` keeps one small file for each started process; `distrl cleanup` ends those. While the process that
started it runs, an entry is in use; afterwards it is an orphan. Ending an emulator takes

    console `kill` ── 30 s ──► SIGTERM ── 5 s ──► SIGKILL
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
from pydantic import TypeAdapter

from distrl.core.errors import ConfigError, RunDirectoryError
from distrl.core.files import write_bytes_atomically, writing
from distrl.workers.devices.console import Console
from distrl.workers.devices.errors import DeviceError, EmulatorError

STATE_VARIABLE = "DISTRL_STATE_DIR"
CONSOLE_S, TERM_S, KILL_S = 30.0, 5.0, 5.0
"""How long a process may take to end after the console's `kill`, SIGTERM and SIGKILL."""
_POLL_S = 0.05
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProcessKey:
    """One process, distinct from all others that had its number since the boot.

    `started` is in ticks since then, and so does not change when the clock is set.
    """

    pid: int
    started: int


def key_of(pid: int) -> ProcessKey | None:
    """The process that has this number now; None if there is none, or only a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = stat.rpartition(")")[2].split()  # behind the program's name: see proc(5)
    return None if state in "ZX" else ProcessKey(pid, int(fields[18]))


def is_alive(key: ProcessKey) -> bool:
    """Whether this very process runs."""
    return key_of(key.pid) == key


def cmdline(pid: int) -> list[str]:
    """Its program and arguments; empty if it is gone or not accessible."""
    try:
        return [part for part in psutil.Process(pid).cmdline() if part]
    except psutil.Error:
        return []


def listens(pid: int, port: int) -> bool:
    """Whether the process is the one that listens on this TCP port."""
    try:
        found = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return False
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in found)


def state_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Where this tool keeps claims, started processes and logs of one user; made, for its owner only.

    It is `$DISTRL_STATE_DIR`, else `$XDG_STATE_HOME/distrl`, else `~/.local/state/distrl`.
    """
    named, xdg = environ.get(STATE_VARIABLE), environ.get("XDG_STATE_HOME")
    home = Path(environ.get("HOME") or Path.home())
    path = Path(named) if named else (Path(xdg) if xdg else home / ".local" / "state") / "distrl"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the state directory {path} cannot be made: {error.strerror}.",
            f"Set {STATE_VARIABLE} to a directory of yours.",
        ) from error
    return path


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all, with its folder. Raises EmulatorError if it cannot be written."""
    try:
        with writing(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_bytes_atomically(path, data)
    except RunDirectoryError as error:
        raise EmulatorError(error.message, error.remedy) from error


@dataclass(frozen=True)
class Entry:
    """One started process.

    Attributes:
        what: What it is, for people, e.g. "emulator of AVD pixel at port 5554".
        owner: The process that started it.
        console_port: Its console, if it is an emulator.
    """

    key: ProcessKey
    what: str
    owner: ProcessKey | None
    started_at: float
    console_port: int | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return is_alive(self.key)

    @property
    def is_orphan(self) -> bool:
        """Whether it runs and the process that started it does not."""
        return self.is_running and (self.owner is None or not is_alive(self.owner))


_ENTRY = TypeAdapter(Entry)


class Registry:
    """The entries of one user, in the state directory."""

    def __init__(self) -> None:
        self.directory = state_dir() / "processes"

    def add(self, pid: int, what: str, console_port: int | None = None) -> Entry:
        """Registers a process that this one has just started. Raises EmulatorError if it has ended."""
        key = key_of(pid)
        if key is None:
            raise EmulatorError(f"{what} ended at once.", "See its log.")
        entry = Entry(key, what, key_of(os.getpid()), time.time(), console_port)
        write_whole(self._path(key), _ENTRY.dump_json(entry))
        return entry

    def remove(self, entry: Entry) -> None:
        """Removes the entry of a process that has ended; a missing one is ignored."""
        self._path(entry.key).unlink(missing_ok=True)

    def entries(self) -> list[Entry]:
        """All, oldest first; also of processes that are gone."""
        found = []
        for path in self.directory.glob("*.json"):
            try:
                found.append(_ENTRY.validate_json(path.read_bytes()))
            except FileNotFoundError:
                continue  # it ended in the meantime
            except (OSError, ValueError) as error:
                _log.warning("%s is not a valid entry of a started process and is ignored: %s", path, error)
        return sorted(found, key=lambda entry: entry.started_at)

    def _path(self, key: ProcessKey) -> Path:
        return self.directory / f"{key.pid}-{key.started}.json"


def end_process(key: ProcessKey, console_port: int | None = None, console_s: float = CONSOLE_S) -> str:
    """Ends a process, at first by its emulator console if it has one, which is given `console_s`.

    Returns:
        What ended it: "gone" (it had ended), "console", "SIGTERM", "SIGKILL"; "" if it still runs. Raises
        PermissionError if it belongs to another user.
    """
    if not is_alive(key):
        return "gone"
    if console_port is not None and _kill_by_console(key.pid, console_port) and _has_ended(key, console_s):
        return "console"
    for number, patience_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
        with contextlib.suppress(ProcessLookupError):
            if is_alive(key):
                os.kill(key.pid, number)
        if _has_ended(key, patience_s):
            return number.name
    return ""


def _kill_by_console(pid: int, port: int) -> bool:
    """Gives the console's `kill`, if it is this process that listens there."""
    if not listens(pid, port):
        return False
    try:
        Console(port).kill()
    except DeviceError:
        return False  # it hangs, or refuses us: signals are next
    return True


def _has_ended(key: ProcessKey, patience_s: float) -> bool:
    give_up_at = time.monotonic() + patience_s
    while is_alive(key):
        if time.monotonic() >= give_up_at:
            return False
        time.sleep(_POLL_S)
    return True
