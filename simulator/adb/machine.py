"""A simulated phone as an emulator's controls see it: snapshots, pause and resume, restart, the end."""

from __future__ import annotations

import os
import re
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from distrl import __version__
from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.faults import Fault, Faults, Kind
from distrl.workers.devices.errors import SnapshotFailed, SnapshotMissing

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_SUFFIX = ".snapshot"
_HEAD = struct.Struct(">dd")


@dataclass(frozen=True)
class Snapshot:
    """What a list says about one: bytes, seconds since 1970, and how long the phone had been running."""

    name: str
    size: int
    saved_at: float
    clock_s: float


class Snapshots:
    """The snapshots of a phone: one file each in `folder`, in memory when it is None."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._memory: dict[str, bytes] = {}

    def list(self) -> list[Snapshot]:
        """All, by name."""
        found = []
        for name in self._names():
            data = self._read(name)
            if data is not None and len(data) >= _HEAD.size:
                saved_at, clock_s = _HEAD.unpack_from(data)
                found.append(Snapshot(name, len(data) - _HEAD.size, saved_at, clock_s))
        return found

    def save(self, name: str, data: bytes, clock_s: float = 0.0) -> None:
        """Keeps `data` under `name`, in place of an older one. Raises SnapshotFailed."""
        if not _NAME.fullmatch(name):
            raise SnapshotFailed(f"{name!r} is not a valid snapshot name.", "Use letters, digits and dashes.")
        whole = _HEAD.pack(time.time(), clock_s) + data
        if self._folder is None:
            self._memory[name] = whole
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            fresh = self._folder / f".{name}.new"
            fresh.write_bytes(whole)
            os.replace(fresh, self._folder / (name + _SUFFIX))
        except OSError as error:
            raise SnapshotFailed(f"{self._folder} cannot be written: {error}.", "Choose another.") from error

    def load(self, name: str) -> bytes:
        """What was saved as `name`. Raises SnapshotMissing or SnapshotFailed."""
        data = self._read(name) if _NAME.fullmatch(name) else None
        if data is None:
            raise SnapshotMissing(f"the snapshot {name!r} does not exist.", "Save it first.")
        if len(data) < _HEAD.size:
            raise SnapshotFailed(f"the snapshot {name!r} is cut off.", "Save it again.")
        return data[_HEAD.size :]

    def delete(self, name: str) -> None:
        """Forgets `name`. Raises SnapshotMissing."""
        if name not in self._names():
            raise SnapshotMissing(f"the snapshot {name!r} does not exist.", "Save it first.")
        if self._folder is None:
            del self._memory[name]
        else:
            (self._folder / (name + _SUFFIX)).unlink(missing_ok=True)

    def _names(self) -> tuple[str, ...]:
        if self._folder is None:
            return tuple(sorted(self._memory))
        files = self._folder.glob(f"*{_SUFFIX}") if self._folder.is_dir() else iter(())
        names = (file.name.removesuffix(_SUFFIX) for file in files if not file.name.startswith("."))
        return tuple(sorted(names))

    def _read(self, name: str) -> bytes | None:
        if self._folder is None:
            return self._memory.get(name)
        try:
            return (self._folder / (name + _SUFFIX)).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SnapshotFailed(
                f"the snapshot {name!r} cannot be read: {error}.", "Save it again."
            ) from error


class Refused(Exception):
    """What was asked for cannot be done; the text is what the console says after "KO: "."""


@dataclass
class Machine:
    """What a console or a gRPC client controls.

    Attributes:
        kill: Ends the emulator.
        is_read_only: Whether snapshots are refused, as by an emulator with -read-only.
        booted_at: When the phone started, by the monotonic clock.
        is_stopped: Whether `avd stop` froze it.
        loaded: The snapshot that it was last brought to, "" for none.
    """

    system: AndroidSystem
    faults: Faults
    snapshots: Snapshots
    kill: Callable[[], None]
    avd_name: str = "distrl"
    avd_path: str = ""
    is_read_only: bool = False
    booted_at: float = field(default_factory=time.monotonic)
    is_stopped: bool = False
    loaded: str = ""
    version: str = f"{__version__} (simulated phone)"

    def pause(self) -> None:
        """Freezes the phone; does nothing if it is frozen."""
        if not self.is_stopped:
            self.is_stopped = True
            self.faults.set(Fault(Kind.HANG))

    def resume(self) -> None:
        """Lets the phone continue; does nothing if it runs."""
        if self.is_stopped:
            self.is_stopped = False
            self.faults.clear()

    def save(self, name: str) -> None:
        """Keeps the present state as the snapshot `name`, in place of an older one."""
        self._check_writable()
        self.snapshots.save(name, self.system.dump(), time.monotonic() - self.booted_at)

    def load(self, name: str) -> None:
        """Brings back the snapshot `name`."""
        self._check_writable()
        self.system.load(self.snapshots.load(name))
        self.loaded = name

    def delete(self, name: str) -> None:
        """Forgets the snapshot `name`."""
        self._check_writable()
        self.snapshots.delete(name)
        if self.loaded == name:
            self.loaded = ""

    def _check_writable(self) -> None:
        if self.is_read_only:
            raise Refused("Snapshot operations are not allowed: the emulator runs with -read-only")
