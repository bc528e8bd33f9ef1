"""Snapshots of a virtual device: listed from its directory; saved, loaded and deleted by the console.

An emulator keeps each snapshot in AVD/snapshots/NAME/; our manifest lies in there too, so that it is copied
and deleted with it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from distrl.workers.devices.emulator import manifest as manifests
from distrl.workers.devices.emulator.avd import Avd
from distrl.workers.devices.emulator.file_copy import disk_usage
from distrl.workers.devices.emulator.manifest import Hardware, Manifest, ManifestClient
from distrl.workers.devices.errors import (
    SnapshotFailed,
    SnapshotMismatch,
    SnapshotMissing,
)

READY_S = 30.0
"""Longest time until a device answers again after a snapshot was loaded."""
MAX_LOOKS = 10
"""How often the screen is looked at until it stands still."""
SCREENSHOT = "distrl-screenshot.png"
"""The screenshot that the manifest describes, for people."""


class SnapshotConsole(Protocol):
    """What is needed of a `Console`."""

    def avd_snapshot_save(self, name: str) -> None:
        """Saves a snapshot."""
        ...

    def avd_snapshot_load(self, name: str) -> None:
        """Loads a snapshot."""
        ...

    def avd_snapshot_delete(self, name: str) -> None:
        """Deletes a snapshot."""
        ...

    def require_running(self) -> None:
        """Raises EmulatorExited if the emulator has ended."""
        ...


class SnapshotClient(ManifestClient, Protocol):
    """What is needed of an `AdbClient`."""

    def wait_ready(self, timeout_s: float, check: Callable[[], object] = ...) -> None:
        """Waits until the device answers its shell."""
        ...


@dataclass(frozen=True)
class SnapshotInfo:
    """One snapshot on disk.

    Attributes:
        name: Its name.
        size_bytes: What it takes on disk.
        saved_at: When it was saved, in seconds since 1970.
        manifest: Its manifest; None for one that was saved by other means.
        problem: Why its manifest cannot be read; "" if it can.
    """

    name: str
    size_bytes: int
    saved_at: float
    manifest: Manifest | None
    problem: str = ""


def snapshots_of(avd: Avd) -> list[SnapshotInfo]:
    """All snapshots of an AVD, by name; no emulator need run."""
    if not avd.snapshots.is_dir():
        return []
    return [_info(path) for path in sorted(avd.snapshots.iterdir()) if path.is_dir()]


def get_snapshot(avd: Avd, name: str, remedy: str | None = None) -> SnapshotInfo:
    """One snapshot.

    Args:
        avd: Whose.
        name: Its name.
        remedy: What to do if it is missing; None: make it.

    Raises:
        SnapshotMissing: If there is none of this name.
    """
    known = snapshots_of(avd)
    for info in known:
        if info.name == name:
            return info
    names = ", ".join(info.name for info in known) or "none"
    raise SnapshotMissing(
        f"the AVD {avd.name!r} has no snapshot {name!r}; it has: {names}.",
        f"Make it with `distrl snapshot-avd create {avd.name} {name}`." if remedy is None else remedy,
    )


def _info(path: Path) -> SnapshotInfo:
    files = [file for file in path.rglob("*") if file.is_file()]
    size = sum(disk_usage(file) for file in files)
    problem, manifest = "", None
    try:
        manifest = manifests.read(path)
    except SnapshotFailed as error:
        problem = error.message
    saved_at = manifest.created if manifest else max((file.stat().st_mtime for file in files), default=0.0)
    return SnapshotInfo(path.name, size, saved_at, manifest, problem)


def require_same_hardware(avd: Avd, name: str, options: Sequence[str]) -> None:
    """Returns unless an emulator of this AVD would refuse its snapshot `name` for other hardware.

    Args:
        avd: Whose.
        name: The snapshot; one that is missing, or has no manifest, passes.
        options: The emulator's further options.

    Raises:
        SnapshotFailed: With what differs.
    """
    try:
        saved = manifests.read(avd.snapshots / name)
    except SnapshotFailed:
        return  # only `verify` needs it
    if saved is None or saved.hardware is None:
        return
    differences = saved.hardware.differences(Hardware.of(avd.config(), options))
    if differences:
        raise SnapshotFailed(
            f"the snapshot {name!r} of the AVD {avd.name!r} does not load: {'; '.join(differences)}.",
            f"Undo that (hw.cpu.ncore and hw.ramSize in {avd.directory / 'config.ini'}; -cores, -memory and "
            "-feature among the options), or save it again with "
            f"`distrl snapshot-avd create {avd.name} {name}`.",
        )


class Snapshotter:
    """Snapshots of a running emulator.

    Args:
        avd: Its virtual device.
        console: Its console.
        client: The way to Android on it.
        gpu: The GPU mode it runs with.
        emulator: The emulator's version.
        options: The emulator's command line, or what of it says what its hardware is.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        avd: Avd,
        console: SnapshotConsole,
        client: SnapshotClient,
        gpu: str,
        emulator: str,
        options: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.avd = avd
        self._console = console
        self._client = client
        self._gpu, self._emulator = gpu, emulator
        self._options = options
        self._clock = clock

    def save(self, name: str) -> Manifest:
        """Saves the device as snapshot `name`, in place of an older one, with a manifest.

        Raises:
            SnapshotPending, LowDisk, SnapshotFailed: By what goes wrong.
        """
        found, png = self._still(name)
        self._console.avd_snapshot_save(name)
        directory = self.avd.snapshots / name
        manifests.write(found, directory)
        (directory / SCREENSHOT).write_bytes(png)
        return found

    def _still(self, name: str) -> tuple[Manifest, bytes]:
        """Looks until two looks in a row see the same screen, but not for ever."""
        found, png = self._look(name)
        for _ in range(MAX_LOOKS - 1):
            before, (found, png) = found, self._look(name)
            if not before.screen.changed(found.screen):
                break
        return found, png

    def load(self, name: str) -> None:
        """Brings the device back to snapshot `name` and waits until it answers.

        Raises:
            SnapshotMissing, SnapshotPending, SnapshotFailed: By what goes wrong.
            DeviceTimeout: If it does not answer afterwards.
            EmulatorExited: If the emulator ends meanwhile.
        """
        require_same_hardware(self.avd, name, self._options)
        self._console.avd_snapshot_load(name)
        self._client.wait_ready(READY_S, self._console.require_running)

    def verify(self, name: str) -> Manifest:
        """Compares the device, on which the snapshot `name` has just been loaded, with the manifest.

        Returns:
            What is on the device.

        Raises:
            SnapshotMismatch: With all that differs, or because there is no manifest.
        """
        info = get_snapshot(self.avd, name)
        again = f"make it again with `distrl snapshot-avd create {self.avd.name} {name}`."
        if info.manifest is None:
            why = info.problem or f"the snapshot {name!r} has no manifest: it was not saved by this tool."
            raise SnapshotMismatch(why, f"There is nothing to compare the device with; {again}")
        found, _ = self._look(name)
        # A clone says the name of its own AVD; what the snapshot holds is the same.
        differences = replace(info.manifest, avd=found.avd).differences(found)
        if differences:
            raise SnapshotMismatch(
                f"the snapshot {name!r} loads, but {'; '.join(differences)}.",
                f"Use the emulator and the image it was made with, or {again}",
            )
        return found

    def delete(self, name: str) -> None:
        """Deletes the snapshot `name`.

        Raises:
            SnapshotMissing, SnapshotPending, SnapshotFailed: By what goes wrong.
        """
        self._console.avd_snapshot_delete(name)

    def _look(self, name: str) -> tuple[Manifest, bytes]:
        return manifests.look(
            self._client,
            snapshot=name,
            avd=self.avd.name,
            created=self._clock(),
            gpu=self._gpu,
            emulator=self._emulator,
            hardware=Hardware.of(self.avd.config(), self._options),
        )


def get_deletable(avd: Avd, name: str) -> SnapshotInfo:
    """A snapshot that is to be deleted.

    Raises:
        SnapshotMissing: If there is none of this name.
    """
    return get_snapshot(avd, name, "Name one of these, or leave it: nothing is there to be deleted.")


def delete_files(avd: Avd, name: str) -> None:
    """Deletes a snapshot of an AVD that no emulator runs.

    Raises:
        SnapshotMissing: If there is none of this name.
        AvdLocked, SnapshotPending: If the AVD is in use.
        SnapshotFailed: If it cannot be removed.
    """
    info = get_deletable(avd, name)
    avd.require_unused()
    try:
        shutil.rmtree(avd.snapshots / info.name)
    except OSError as error:
        raise SnapshotFailed(
            f"the snapshot {name!r} cannot be removed: {error}.", f"Remove {avd.snapshots / name} by hand."
        ) from error
