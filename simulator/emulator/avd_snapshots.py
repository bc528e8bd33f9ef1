"""The stand-in's snapshots: a folder each in the AVD, with the files that the emulator's have.

snapshots/NAME/   ram.bin (the phone), snapshot.pb (checksum and times, as JSON), hardware.ini, screenshot.png
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from distrl.simulator.adb.console_snapshots import Snapshot, Snapshots
from distrl.simulator.emulator.pid_locks import PidLock
from distrl.workers.devices.avd import read_ini, write_ini
from distrl.workers.devices.errors import EmulatorError, SnapshotFailed, SnapshotMissing

_LOCK_S = 10.0
_COMPARED = ("hw.cpu.ncore", "hw.ramSize", "hw.gpu.mode", "hw.lcd.width", "hw.lcd.height", "image.sysdir.1")
"""Hardware that must be the same for a snapshot to load."""


class AvdSnapshots(Snapshots):
    """The snapshots of one AVD.

    Args:
        folder: The AVD's folder.
        hardware: The present hardware, as hardware-qemu.ini says it.
        screenshot: Gives the present screen as PNG bytes.
        is_corrupt: A fault: nothing loads.
    """

    def __init__(
        self,
        folder: Path,
        hardware: Mapping[str, str],
        screenshot: Callable[[], bytes] = lambda: b"",
        is_corrupt: bool = False,
    ) -> None:
        super().__init__(folder / "snapshots")
        self.folder = folder / "snapshots"
        self.screenshot = screenshot
        self._hardware = dict(hardware)
        self._is_corrupt = is_corrupt
        self._lock = PidLock(folder / "snapshot.lock")

    def list(self) -> list[Snapshot]:
        """All, by name."""
        found = []
        for path in sorted(self.folder.glob("*/snapshot.pb")):
            facts = _facts(path)
            size = (path.parent / "ram.bin").stat().st_size
            found.append(Snapshot(path.parent.name, size, float(facts["saved_at"]), float(facts["clock_s"])))
        return found

    def save(self, name: str, data: bytes, clock_s: float = 0.0) -> None:
        """Keeps `data` under `name`, in place of an older one.

        Raises:
            SnapshotFailed: If another process holds snapshot.lock, or the folder cannot be written.
        """
        if "/" in name or name.startswith("."):
            raise SnapshotFailed(f"{name!r} is no snapshot name.", "Use letters, digits, dots and dashes.")
        if not self._lock.acquire(_LOCK_S):
            raise SnapshotFailed("a snapshot operation is pending.", "Wait until it is done.")
        fresh = self.folder / f".{name}.new"
        facts = {"sha256": hashlib.sha256(data).hexdigest(), "saved_at": time.time(), "clock_s": clock_s}
        try:
            fresh.mkdir(parents=True, exist_ok=True)
            (fresh / "ram.bin").write_bytes(data)
            (fresh / "screenshot.png").write_bytes(self.screenshot())
            write_ini(fresh / "hardware.ini", self._hardware)
            (fresh / "snapshot.pb").write_text(json.dumps(facts), encoding="ascii")
            if (self.folder / name).exists():
                shutil.rmtree(self.folder / name)
            os.replace(fresh, self.folder / name)
        except OSError as error:
            raise SnapshotFailed(f"{self.folder} cannot be written: {error}.", "Is the disk full?") from error
        finally:
            self._lock.release()

    def load(self, name: str) -> bytes:
        """What was saved as `name`.

        Raises:
            SnapshotMissing: If there is none.
            SnapshotFailed: If it is damaged, or was made with other hardware.
        """
        path = self.folder / name
        if not (path / "snapshot.pb").is_file():
            raise SnapshotMissing(f"there is no snapshot {name!r}.", "Save it first.")
        try:
            data = (path / "ram.bin").read_bytes()
            made_with = read_ini(path / "hardware.ini")
        except (OSError, EmulatorError) as error:
            raise SnapshotFailed(f"Failed to load snapshot '{name}': {error}", "Save it again.") from error
        if self._is_corrupt or _facts(path / "snapshot.pb")["sha256"] != hashlib.sha256(data).hexdigest():
            raise SnapshotFailed(f"Failed to load snapshot '{name}': it is damaged", "Save it again.")
        for key in self._differing(made_with):
            raise SnapshotFailed(f"Failed to load snapshot '{name}': {key} differs", "Save it again.")
        return data

    def fits(self, name: str) -> bool:
        """Whether `name` was made with the present hardware: else it does not load."""
        try:
            return not self._differing(read_ini(self.folder / name / "hardware.ini"))
        except (OSError, EmulatorError):
            return False

    def _differing(self, made_with: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(key for key in _COMPARED if made_with.get(key) != self._hardware.get(key))

    def delete(self, name: str) -> None:
        """Forgets `name`.

        Raises:
            SnapshotMissing: If there is none.
        """
        if "/" in name or name.startswith(".") or not (self.folder / name).is_dir():
            raise SnapshotMissing(f"there is no snapshot {name!r}.", "Save it first.")
        shutil.rmtree(self.folder / name)


def _facts(path: Path) -> dict[str, float | str]:
    facts: dict[str, float | str] = json.loads(path.read_text(encoding="ascii"))
    return facts
