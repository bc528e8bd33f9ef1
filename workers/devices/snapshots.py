"""Snapshots of a virtual device: listed from its directory; saved, loaded and deleted by the console.

An emulator keeps each snapshot in AVD/snapshots/NAME/. Our manifest, a JSON file that says what the device
was when it was saved, lies there too, so that it is copied and deleted with the snapshot.
"""

from __future__ import annotations

import itertools
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from distrl.core.user_errors import first_problem
from distrl.workers.devices.adb import AdbClient
from distrl.workers.devices.adb_device import AdbDevice
from distrl.workers.devices.avd import Avd, disk_usage
from distrl.workers.devices.console import Console
from distrl.workers.devices.errors import (
    OutputInvalid,
    SnapshotFailed,
    SnapshotMismatch,
    SnapshotMissing,
)
from distrl.workers.devices.processes import write_whole

FILE = "distrl-manifest.json"
_CALL_S, _PACKAGES_S = 5.0, 30.0
_PACKAGE = re.compile(r"^package:(\S+)\s+versionCode:(\d+)", re.MULTILINE)
_RAM = re.compile(r"(\d+)\s*([MGmg]?)[Bb]?")
_DENSITY = re.compile(r"density: (\d+)")


Hardware = dict[str, int | str | None]
"""What an emulator compares before it loads a snapshot, by name; None for its own choice."""


def hardware_of(config: Mapping[str, str], options: Sequence[str]) -> Hardware:
    """What an AVD's config.ini and the emulator's options ask for; the options count more."""
    given = list(itertools.pairwise(options))
    last = {word: value for word, value in given if word in ("-cores", "-memory")}
    flags = {flag for word, value in given if word == "-feature" for flag in value.split(",") if flag}
    cores = last.get("-cores", config.get("hw.cpu.ncore", ""))
    size = _RAM.fullmatch(last.get("-memory", config.get("hw.ramSize", "")))
    return {
        "cores": int(cores) if cores.isdecimal() else None,
        "MB of RAM": int(size[1]) * (1024 if size[2] in ("G", "g") else 1) if size else None,
        "feature flags": ",".join(sorted(flags)) or "none",
    }


@dataclass(frozen=True)
class Manifest:
    """What was on the device.

    Attributes:
        created: When, in seconds since 1970.
        image: The build fingerprint of the system image.
        gpu, emulator: The emulator's GPU mode and version.
        apps: Version code by package, of the apps that are not part of the image.
        density: Dots per inch.
        width, height: The screen's size in pixels.
        hardware: What the emulator was started with.
    """

    created: float
    api_level: int
    image: str
    gpu: str
    emulator: str
    apps: dict[str, int]
    density: int
    width: int
    height: int
    hardware: Hardware = field(default_factory=dict)

    def differences(self, found: Manifest) -> list[str]:
        """What is not as this manifest says, each as a phrase; empty when all is."""
        said = [
            f"{label} is {is_now}, the manifest says {was}"
            for label, was, is_now in (
                ("the API level", self.api_level, found.api_level),
                ("the system image", self.image, found.image),
                ("the GPU mode", self.gpu, found.gpu),
                ("the screen", self._size(), found._size()),
            )
            if was != is_now
        ]
        for package in sorted(self.apps.keys() | found.apps.keys()):
            was, is_now = (apps.get(package, "absent") for apps in (self.apps, found.apps))
            if was != is_now:
                said.append(f"the version of {package} is {is_now}, the manifest says {was}")
        return said

    def _size(self) -> str:
        return f"{self.width}x{self.height} at {self.density} dpi"


_MANIFEST = TypeAdapter(Manifest)


def write_manifest(manifest: Manifest, directory: Path) -> None:
    """Writes the manifest into a snapshot's directory. Raises EmulatorError if that is impossible."""
    if not directory.is_dir():
        raise SnapshotFailed(
            f"the emulator did not save into {directory}.",
            "Does it use the same AVD? Compare ANDROID_AVD_HOME.",
        )
    write_whole(directory / FILE, _MANIFEST.dump_json(manifest, indent=1))


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest in a snapshot's directory; None if there is none. Raises SnapshotFailed if damaged."""
    path = directory / FILE
    try:
        return _MANIFEST.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = first_problem(error, "it") if isinstance(error, ValidationError) else str(error)
        raise SnapshotFailed(
            f"the manifest {path} cannot be used: {reason}.", "Make the snapshot again with `create`."
        ) from error


READY_S = 30.0
"""Longest time until a device answers again after a snapshot was loaded."""
NOTHING_TO_DELETE = "Name one of these; nothing was deleted."
"""The remedy for a snapshot to delete that does not exist."""


@dataclass(frozen=True)
class SnapshotInfo:
    """One snapshot on disk.

    Attributes:
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


def get_snapshot(avd: Avd, name: str, remedy: str = "") -> SnapshotInfo:
    """One snapshot. Raises SnapshotMissing if there is none of this name; `remedy`: other than to make it."""
    known = {info.name: info for info in snapshots_of(avd)}
    if name in known:
        return known[name]
    raise SnapshotMissing(
        f"the AVD {avd.name!r} has no snapshot {name!r}; it has: {', '.join(known) or 'none'}.",
        remedy or f"Make it with `distrl snapshot-avd create {avd.name} {name}`.",
    )


def _info(path: Path) -> SnapshotInfo:
    files = [file for file in path.rglob("*") if file.is_file()]
    size = sum(disk_usage(file) for file in files)
    problem, manifest = "", None
    try:
        manifest = read_manifest(path)
    except SnapshotFailed as error:
        problem = error.message
    saved_at = manifest.created if manifest else max((file.stat().st_mtime for file in files), default=0.0)
    return SnapshotInfo(path.name, size, saved_at, manifest, problem)


def require_same_hardware(avd: Avd, name: str, options: Sequence[str]) -> None:
    """Raises SnapshotFailed if an emulator of this AVD would refuse its snapshot for other hardware.

    `options` are the emulator's. A snapshot that is missing, or has no manifest, passes.
    """
    try:
        saved = read_manifest(avd.snapshots / name)
    except SnapshotFailed:
        return  # only `verify` needs it
    if saved is None:
        return
    now = hardware_of(avd.config(), options)
    differences = []
    for label, was in saved.hardware.items():
        is_now = now.get(label)
        if None not in (was, is_now) and was != is_now:
            differences.append(f"{label}: {was} when it was saved, {is_now} now")
    if differences:
        raise SnapshotFailed(
            f"the snapshot {name!r} of the AVD {avd.name!r} does not load ({'; '.join(differences)}).",
            f"Undo that (hw.cpu.ncore and hw.ramSize in {avd.directory / 'config.ini'}; -cores, -memory and "
            "-feature among the options), or save it again with "
            f"`distrl snapshot-avd create {avd.name} {name}`.",
        )


@dataclass(frozen=True)
class Snapshotter:
    """Snapshots of a running emulator.

    Attributes:
        client: The way to Android on it.
        gpu, emulator: The GPU mode it runs with, and its version.
        options: Its command line, or what of it says what its hardware is.
        has_started: Whether it was started for this, from the command line's snapshot if it names one.
    """

    avd: Avd
    console: Console
    client: AdbClient
    gpu: str
    emulator: str
    options: Sequence[str] = ()
    has_started: bool = False

    def save(self, name: str) -> Manifest:
        """Saves the device as snapshot `name`, in place of an older one, with a manifest."""
        found = self._look()
        self.console.snapshot("save", name)
        write_manifest(found, self.avd.snapshots / name)
        return found

    def load(self, name: str) -> None:
        """Brings the device back to snapshot `name` and waits until it answers."""
        require_same_hardware(self.avd, name, self.options)
        self.console.snapshot("load", name)
        self.client.wait_ready(READY_S, self.console.require_running)

    def verify(self, name: str) -> Manifest:
        """Compares the device, on which the snapshot `name` has just been loaded, with the manifest.

        Returns what is on the device. Raises SnapshotMismatch with all that differs, or without a manifest.
        """
        info = get_snapshot(self.avd, name)
        again = f"make it again with `distrl snapshot-avd create {self.avd.name} {name}`."
        if info.manifest is None:
            why = info.problem or f"the snapshot {name!r} has no manifest: it was not saved by this tool."
            raise SnapshotMismatch(why, f"There is nothing to compare the device with; {again}")
        found = self._look()
        differences = info.manifest.differences(found)
        if differences:
            raise SnapshotMismatch(
                f"the snapshot {name!r} loads, but {'; '.join(differences)}.",
                f"Use the emulator and the image it was made with, or {again}",
            )
        return found

    def _look(self) -> Manifest:
        """What is on the device now."""
        client = self.client
        level = self._read("getprop ro.build.version.sdk")
        if not level.isdecimal():
            message = f"ro.build.version.sdk is {level!r}, not a number."
            raise OutputInvalid(message, "Is it Android?", serial=client.serial)
        listed = self._read("pm list packages -3 --show-versioncode", _PACKAGES_S)
        density = _DENSITY.search(self._read("wm density"))
        width, height = AdbDevice(client).screenshot().size
        return Manifest(
            created=time.time(),
            api_level=int(level),
            image=self._read("getprop ro.build.fingerprint"),
            gpu=self.gpu,
            emulator=self.emulator,
            apps={package: int(version) for package, version in _PACKAGE.findall(listed)},
            density=int(density[1]) if density else 0,
            width=width,
            height=height,
            hardware=hardware_of(self.avd.config(), self.options),
        )

    def _read(self, command: str, timeout_s: float = _CALL_S) -> str:
        return self.client.shell(command, timeout_s, reads=True).text.strip()


def delete_files(avd: Avd, name: str) -> None:
    """Deletes a snapshot of an AVD. Raises AvdLocked if an emulator runs from that."""
    info = get_snapshot(avd, name, NOTHING_TO_DELETE)
    avd.require_unused()
    try:
        shutil.rmtree(avd.snapshots / info.name)
    except OSError as error:
        raise SnapshotFailed(
            f"the snapshot {name!r} cannot be removed: {error}.", f"Remove {avd.snapshots / name} by hand."
        ) from error
