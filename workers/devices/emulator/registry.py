"""Processes that this tool started and that may outlive it, one small file each: what `distrl cleanup` ends.

An entry names its process so that no other can be meant (`ProcessKey`) and which arguments it must have; both
are compared before any signal. The process that started it is its owner: while that one runs, the entry is in
use; afterwards it is an orphan.
"""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from distrl.workers.devices.emulator import procfs
from distrl.workers.devices.emulator.procfs import ProcessKey
from distrl.workers.devices.emulator.state_dir import state_dir
from distrl.workers.devices.errors import EmulatorError

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
        return procfs.is_what(self.key, self.marks)

    @property
    def is_orphan(self) -> bool:
        """Whether it runs and nobody who started it does."""
        return self.is_running and (self.owner is None or not procfs.is_alive(self.owner))

    @property
    def has_clients(self) -> bool:
        """Whether others are connected to what it serves."""
        return self.shared_port is not None and procfs.has_clients(self.shared_port)


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
        key = procfs.key_of(pid)
        if key is None:
            raise EmulatorError(f"{what} ended at once.", "See its log.")
        owner = procfs.key_of(os.getpid())
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
            entry = _read(path)
            if entry is not None:
                found.append(entry)
        return sorted(found, key=lambda entry: entry.started_at)

    def _path(self, key: ProcessKey) -> Path:
        return self.directory / f"{key.pid}-{key.started}-{key.boot[:8]}.json"


def _read(path: Path) -> Entry | None:
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
