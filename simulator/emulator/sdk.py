"""An Android SDK whose emulator is the stand-in: the files that tools look for, and AVDs.

DIR/emulator/emulator                    runs the stand-in
DIR/platform-tools/adb                   the adb program of this machine, if it has one
DIR/cmdline-tools/latest/bin/avdmanager  makes further AVDs
DIR/system-images/…                      what the AVDs name as their image
DIR/avd/NAME.ini, NAME.avd/              the AVDs

As a program (`python -m distrl.simulator.emulator.sdk`) it is the avdmanager: `create avd -n NAME -k IMAGE
[-d DEVICE]`, `list avd`, `delete avd -n NAME`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from distrl.core.errors import ConfigError, DistrlError
from distrl.simulator.emulator.startup import SYSDIR
from distrl.workers.devices.avd import Avd, AvdStore, write_ini
from distrl.workers.devices.console import NAME


@dataclass(frozen=True)
class SimSdk:
    """What was made: the SDK's directory, for ANDROID_HOME, and its AVDs, for ANDROID_AVD_HOME."""

    root: Path
    store: AvdStore

    @property
    def environ(self) -> dict[str, str]:
        """The variables that make programs use it."""
        return {"ANDROID_HOME": str(self.root), "ANDROID_AVD_HOME": str(self.store.home)}


def make_sdk(root: Path) -> SimSdk:
    """Makes an SDK without AVDs; files of an earlier one are overwritten. Raises ConfigError."""
    root = root.expanduser().absolute()
    emulator = root / "emulator" / "emulator"
    if emulator.exists() and b"distrl" not in emulator.read_bytes()[:4096]:
        raise ConfigError(f"{root} is a real Android SDK.", "Name another directory.")
    try:
        _script(emulator, "distrl.simulator.emulator")
        _script(root / "cmdline-tools" / "latest" / "bin" / "avdmanager", "distrl.simulator.emulator.sdk")
        image = root / SYSDIR
        image.mkdir(parents=True, exist_ok=True)
        (image / "build.prop").write_text("ro.build.version.sdk=34\n", encoding="ascii")
        (root / "avd").mkdir(exist_ok=True)
        adb, link = shutil.which("adb"), root / "platform-tools" / "adb"
        link.parent.mkdir(exist_ok=True)
        if adb is not None and not link.exists():
            link.symlink_to(adb)
    except OSError as error:
        raise ConfigError(
            f"{root} cannot be written: {error.strerror}.", "Name another directory."
        ) from error
    return SimSdk(root, AvdStore(root / "avd"))


def _script(path: Path, module: str) -> None:
    """A program that runs a module with this interpreter; `exec` keeps its process id."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {module} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


def make_avd(
    store: AvdStore,
    name: str,
    width: int = 540,
    height: int = 1200,
    image: str = SYSDIR,
    config: Mapping[str, str] | None = None,
) -> Avd:
    """Makes an AVD."""
    if not NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a valid AVD name.", "Use letters, digits, dots and hyphens.")
    if store.exists(name):
        raise ConfigError(f"the AVD {name!r} already exists.", "Choose another name.")
    directory = store.directory(name)
    directory.mkdir(parents=True)
    fields = {
        "AvdId": name,
        "avd.ini.displayname": name,
        "avd.ini.encoding": "UTF-8",
        "abi.type": "x86_64",
        "hw.cpu.arch": "x86_64",
        "hw.lcd.width": str(width),
        "hw.lcd.height": str(height),
        "hw.ramSize": "2048",
        "image.sysdir.1": image,
        "tag.id": "google_apis",
    }
    write_ini(directory / "config.ini", fields | dict(config or {}))
    pointer = {
        "avd.ini.encoding": "UTF-8",
        "path": str(directory),
        "path.rel": f"{store.home.name}/{name}.avd",
        "target": "android-34",
    }
    write_ini(store.home / f"{name}.ini", pointer)
    return store.get(name)


def main(arguments: Sequence[str]) -> int:
    """Runs the program. Returns its exit status."""
    parser = argparse.ArgumentParser(prog="avdmanager")
    parser.add_argument("verb", choices=("create", "list", "delete"))
    parser.add_argument("what", choices=("avd", "avds"))
    parser.add_argument("-n", "--name", default="")
    parser.add_argument("-k", "--package", default="")
    parser.add_argument("-d", "--device", default="")
    options = parser.parse_args(arguments)
    store = AvdStore()
    try:
        if options.verb == "list":
            for avd in store.list():
                print(f"    Name: {avd.name}\n    Path: {avd.directory}")
        elif options.verb == "delete":
            store.delete(options.name)
        else:
            _create(store, options.name, options.package)
    except DistrlError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


def _create(store: AvdStore, name: str, package: str) -> None:
    image = package.replace(";", "/")
    root = Path(os.environ.get("ANDROID_HOME", ""))
    if not image or not (root / image).is_dir():
        raise SystemExit(f"Error: Package path is not valid. Valid system image paths are:\n{_images(root)}")
    store.home.mkdir(parents=True, exist_ok=True)
    make_avd(store, name, image=f"{image}/")


def _images(root: Path) -> str:
    found = sorted((root / "system-images").glob("*/*/*"))
    return "\n".join(";".join(path.relative_to(root).parts) for path in found) or "null"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
