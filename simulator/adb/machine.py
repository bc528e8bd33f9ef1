"""A simulated phone as an emulator's controls see it: snapshots, faults, the end."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from distrl import __version__
from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.faults import Fault, Faults, Kind
from distrl.simulator.emulator.startup import PidLock
from distrl.workers.devices.avd import read_ini, write_ini
from distrl.workers.devices.errors import EmulatorError, SnapshotFailed, SnapshotMissing

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Snapshot:
    """What a list says about one: bytes, seconds since 1970, and how long the phone had been running."""

    name: str
    size: int
    saved_at: float
    clock_s: float


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise SnapshotFailed(f"{name!r} is not a valid snapshot name.", "Use letters, digits and dashes.")


def _missing(name: str) -> SnapshotMissing:
    return SnapshotMissing(f"the snapshot {name!r} does not exist.", "Save it first.")


class Snapshots:
    """The snapshots of a phone, in memory."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Snapshot, bytes]] = {}

    def list(self) -> list[Snapshot]:
        """All, by name."""
        return [self._kept[name][0] for name in sorted(self._kept)]

    def save(self, name: str, data: bytes, clock_s: float = 0.0) -> None:
        """Keeps `data` under `name`, in place of an older one. Raises SnapshotFailed."""
        _check_name(name)
        self._kept[name] = (Snapshot(name, len(data), time.time(), clock_s), data)

    def load(self, name: str) -> bytes:
        """What was saved as `name`. Raises SnapshotMissing or SnapshotFailed."""
        if name not in self._kept:
            raise _missing(name)
        return self._kept[name][1]

    def delete(self, name: str) -> None:
        """Forgets `name`. Raises SnapshotMissing."""
        if self._kept.pop(name, None) is None:
            raise _missing(name)


_LOCK_S = 10.0
_COMPARED = ("hw.cpu.ncore", "hw.ramSize", "hw.gpu.mode", "hw.lcd.width", "hw.lcd.height", "image.sysdir.1")
"""Hardware that must be the same for a snapshot to load."""


class AvdSnapshots(Snapshots):
    """Snapshots in `folder`/snapshots, with the files that those of an emulator's AVD have.

    ram.bin (the phone), snapshot.pb (checksum and times, as JSON), hardware.ini, screenshot.png.

    Args:
        hardware: The present hardware, as hardware-qemu.ini says it.
        screenshot: Gives the present screen as PNG bytes.
        is_corrupt: A fault: nothing loads.
    """

    def __init__(
        self,
        folder: Path,
        hardware: Mapping[str, str] | None = None,
        screenshot: Callable[[], bytes] = lambda: b"",
        is_corrupt: bool = False,
    ) -> None:
        super().__init__()
        self.folder = folder / "snapshots"
        self.screenshot = screenshot
        self._hardware = dict(hardware or {})
        self._is_corrupt = is_corrupt
        self._lock = PidLock(folder / "snapshot.lock")

    def list(self) -> list[Snapshot]:
        """All, by name."""
        found = []
        for path in sorted(self.folder.glob("*/ram.bin")):
            if _NAME.fullmatch(path.parent.name):  # else what a save that was killed has left
                facts = _facts(path.parent)
                found.append(Snapshot(path.parent.name, path.stat().st_size, facts.saved_at, facts.clock_s))
        return found

    def save(self, name: str, data: bytes, clock_s: float = 0.0) -> None:
        """Keeps `data` under `name`, in place of an older one. Raises SnapshotFailed."""
        _check_name(name)
        fresh = self.folder / f".{name}.new"
        facts = _Facts(hashlib.sha256(data).hexdigest(), time.time(), clock_s)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not self._lock.acquire(_LOCK_S):
                raise SnapshotFailed("a snapshot operation is pending.", "Wait until it is done.")
            fresh.mkdir(exist_ok=True)
            (fresh / "ram.bin").write_bytes(data)
            (fresh / "screenshot.png").write_bytes(self.screenshot())
            write_ini(fresh / "hardware.ini", self._hardware)
            (fresh / "snapshot.pb").write_text(json.dumps(asdict(facts)), encoding="ascii")
            if (self.folder / name).exists():
                shutil.rmtree(self.folder / name)
            os.replace(fresh, self.folder / name)
        except OSError as error:
            raise SnapshotFailed(f"{self.folder} cannot be written: {error}.", "Is the disk full?") from error
        finally:
            self._lock.release()

    def load(self, name: str) -> bytes:
        """What was saved as `name`. Raises SnapshotMissing, or SnapshotFailed at other hardware."""
        path = self.folder / name
        if not _NAME.fullmatch(name) or not (path / "snapshot.pb").is_file():
            raise _missing(name)
        try:
            data = (path / "ram.bin").read_bytes()
            made_with = read_ini(path / "hardware.ini")
        except (OSError, EmulatorError) as error:
            raise SnapshotFailed(f"Failed to load snapshot '{name}': {error}", "Save it again.") from error
        if self._is_corrupt or _facts(path).sha256 != hashlib.sha256(data).hexdigest():
            raise SnapshotFailed(f"Failed to load snapshot '{name}': it is damaged", "Save it again.")
        for key in _COMPARED:
            if made_with.get(key) != self._hardware.get(key):
                raise SnapshotFailed(f"Failed to load snapshot '{name}': {key} differs", "Save it again.")
        return data

    def delete(self, name: str) -> None:
        """Forgets `name`. Raises SnapshotMissing."""
        if not _NAME.fullmatch(name) or not (self.folder / name).is_dir():
            raise _missing(name)
        shutil.rmtree(self.folder / name)


@dataclass(frozen=True)
class _Facts:
    """What snapshot.pb says; see `Snapshot`."""

    sha256: str
    saved_at: float
    clock_s: float


def _facts(path: Path) -> _Facts:
    try:
        return _Facts(**json.loads((path / "snapshot.pb").read_text(encoding="ascii")))
    except (OSError, TypeError, ValueError) as error:
        raise SnapshotFailed(f"the snapshot '{path.name}' is damaged: {error}.", "Save it again.") from error


@dataclass
class Machine:
    """What a console or a gRPC client controls.

    Attributes:
        kill: Ends the emulator.
        is_read_only: Whether snapshots are refused, as by an emulator with -read-only.
        booted_at: When the phone started, by the monotonic clock.
    """

    system: AndroidSystem
    faults: Faults
    snapshots: Snapshots
    kill: Callable[[], None]
    avd_name: str = "distrl"
    avd_path: str = ""
    is_read_only: bool = False
    booted_at: float = field(default_factory=time.monotonic)
    version: str = f"{__version__} (simulated phone)"

    def __post_init__(self) -> None:
        self.faults.on_change(self._fault_changed)

    def _fault_changed(self, fault: Fault) -> None:
        self.system.blank = fault.kind is Kind.BLANK

    def save(self, name: str) -> None:
        """Keeps the present state as the snapshot `name`, in place of an older one."""
        self._check_writable()
        self.snapshots.save(name, self.system.dump(), time.monotonic() - self.booted_at)

    def load(self, name: str) -> None:
        """Brings back the snapshot `name`."""
        self._check_writable()
        self.system.load(self.snapshots.load(name))

    def delete(self, name: str) -> None:
        """Forgets the snapshot `name`."""
        self._check_writable()
        self.snapshots.delete(name)

    def _check_writable(self) -> None:
        if self.is_read_only:
            raise SnapshotFailed(
                "Snapshot operations are not allowed: the emulator runs with -read-only.", "Start it without."
            )
