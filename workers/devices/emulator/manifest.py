"""A snapshot's manifest: what the device was when it was saved, beside the snapshot's own files, as JSON."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from distrl.workers.devices.adb.frame import picture_in
from distrl.workers.devices.emulator.screen_mark import MAX_CHANGED, ScreenMark, mark_of
from distrl.workers.devices.errors import OutputInvalid, SnapshotFailed

FILE = "distrl-manifest.json"
FORMAT = 1
_CALL_S, _PACKAGES_S = 5.0, 30.0
_PACKAGE = re.compile(r"^package:(\S+)\s+versionCode:(\d+)", re.MULTILINE)
_RAM = re.compile(r"(\d+)\s*([MGmg]?)[Bb]?")
_DENSITY = re.compile(r"density: (\d+)")


class Text(Protocol):
    """What a shell command left, e.g. an `adb.shell.ShellResult`."""

    @property
    def text(self) -> str:
        """Its standard output."""
        ...


class ManifestClient(Protocol):
    """What is needed of an `AdbClient`."""

    serial: str

    def shell(self, command: str, timeout_s: float, *, reads: bool = False) -> Text:
        """Runs a command."""
        ...

    def exec_out(self, command: str, timeout_s: float, *, reads: bool = False) -> bytes:
        """What a command prints."""
        ...


@dataclass(frozen=True)
class Hardware:
    """What an emulator compares before it loads a snapshot, as far as the AVD and the command line say it.

    Attributes:
        cores: The processor's cores; None for the emulator's own choice.
        ram_mb: The memory; None for the emulator's own choice.
        features: The feature flags on the command line, sorted; one with a hyphen is switched off.
    """

    cores: int | None = None
    ram_mb: int | None = None
    features: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: Mapping[str, str], options: Sequence[str]) -> Hardware:
        """What an AVD's config.ini and the emulator's options ask for; the options count more."""
        given = list(itertools.pairwise(options))
        last = {word: value for word, value in given if word in ("-cores", "-memory")}
        flags = {flag for word, value in given if word == "-feature" for flag in value.split(",") if flag}
        cores = last.get("-cores", config.get("hw.cpu.ncore", ""))
        size = _RAM.fullmatch(last.get("-memory", config.get("hw.ramSize", "")))
        return cls(
            int(cores) if cores.isdecimal() else None,
            int(size[1]) * (1024 if size[2] in ("G", "g") else 1) if size else None,
            tuple(sorted(flags)),
        )

    def differences(self, now: Hardware) -> list[str]:
        """What has changed, each as a phrase. What was left to the emulator is not compared."""
        said = [
            f"it was saved with {was} {unit}, the AVD has {is_now} now"
            for unit, was, is_now in (
                ("cores", self.cores, now.cores),
                ("MB of RAM", self.ram_mb, now.ram_mb),
            )
            if None not in (was, is_now) and was != is_now
        ]
        if self.features != now.features:
            was, is_now = (",".join(flags) or "none" for flags in (self.features, now.features))
            said.append(f"it was saved with the feature flags {was}, the emulator is given {is_now} now")
        return said


@dataclass(frozen=True)
class Manifest:
    """What was on the device.

    Attributes:
        snapshot, avd: The names of both.
        created: When, in seconds since 1970.
        api_level: Android's API level.
        image: The build fingerprint of the system image.
        gpu: The emulator's GPU mode.
        emulator: The emulator's version; "" when it was not asked.
        apps: Version code by package, of the apps that are not part of the image.
        density: Dots per inch.
        screen: The screen that was in front.
        hardware: What the emulator was asked for; None in manifests of earlier versions.
    """

    snapshot: str
    avd: str
    created: float
    api_level: int
    image: str
    gpu: str
    emulator: str
    apps: dict[str, int]
    density: int
    screen: ScreenMark
    hardware: Hardware | None = None

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
            was, is_now = self.apps.get(package), found.apps.get(package)
            if was is not None and is_now is not None and was != is_now:
                said.append(f"{package} has version {is_now}, the manifest says {was}")
            elif was != is_now:
                said.append(f"{package} is {'missing' if is_now is None else 'there, not in the manifest'}")
        changed = self.screen.changed(found.screen)
        if self._size() == found._size() and changed > MAX_CHANGED:
            said.append(f"{changed:.0%} of the screen looks different")
        return said

    def _size(self) -> str:
        return f"{self.screen.width}x{self.screen.height} at {self.density} dpi"


def look(
    client: ManifestClient,
    *,
    snapshot: str,
    avd: str,
    created: float,
    gpu: str,
    emulator: str,
    hardware: Hardware,
) -> tuple[Manifest, bytes]:
    """What is on the device now.

    Args:
        client: The way to it.
        snapshot, avd, created, gpu, emulator, hardware: As in `Manifest`.

    Returns:
        The manifest, and the screenshot it describes, as PNG bytes.

    Raises:
        DeviceError: If the device does not answer, or not as Android does.
    """
    level = _property(client, "ro.build.version.sdk")
    if not level.isdecimal():
        raise OutputInvalid(
            f"ro.build.version.sdk is {level!r}, no number.", "Is it Android?", serial=client.serial
        )
    image = _property(client, "ro.build.fingerprint")
    listed = client.shell("pm list packages -3 --show-versioncode", _PACKAGES_S, reads=True).text
    density = _DENSITY.search(client.shell("wm density", _CALL_S, reads=True).text)
    png = picture_in(client.exec_out("screencap -p", 10.0, reads=True))
    apps = {name: int(version) for name, version in _PACKAGE.findall(listed)}
    manifest = Manifest(
        snapshot=snapshot,
        avd=avd,
        created=created,
        api_level=int(level),
        image=image,
        gpu=gpu,
        emulator=emulator,
        apps=apps,
        density=int(density[1]) if density else 0,
        screen=mark_of(png, client.serial),
        hardware=hardware,
    )
    return manifest, png


def _property(client: ManifestClient, name: str) -> str:
    return client.shell(f"getprop {name}", _CALL_S, reads=True).text.strip()


def write(manifest: Manifest, directory: Path) -> None:
    """Writes the manifest into a snapshot's directory.

    Raises:
        SnapshotFailed: If that is not there or cannot be written.
    """
    path = directory / FILE
    fresh = path.with_name(f".{FILE}.{os.getpid()}.new")
    try:
        fresh.write_text(json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1) + "\n", "utf-8")
        os.replace(fresh, path)
    except OSError as error:
        raise SnapshotFailed(
            f"the manifest {path} cannot be written: {error.strerror}.",
            "Does the emulator use the AVD that this tool looks at? Compare ANDROID_AVD_HOME.",
        ) from error


def read(directory: Path) -> Manifest | None:
    """The manifest in a snapshot's directory; None if there is none.

    Raises:
        SnapshotFailed: If it cannot be read.
    """
    path = directory / FILE
    try:
        fields: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if fields.pop("format") != FORMAT:
            raise ValueError(f"it is not of format {FORMAT}")
        fields["screen"] = ScreenMark(**fields["screen"])
        if asked := fields.get("hardware"):
            fields["hardware"] = Hardware(**{**asked, "features": tuple(asked["features"])})
        return Manifest(**fields)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise SnapshotFailed(
            f"the manifest {path} cannot be used: {error}.", "Make the snapshot anew with `create`."
        ) from error
