"""Android virtual devices on disk: which there are, what they are, and taking one away.

HOME/NAME.ini        path=…  target=…            (HOME: see `avd_home`)
HOME/NAME.avd/       config.ini, the images, the locks, snapshots/SNAPSHOT/…
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from distrl.workers.devices.emulator import locks
from distrl.workers.devices.emulator.ini import read_ini
from distrl.workers.devices.errors import EmulatorError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_API = re.compile(r"android-(\d+)")


def avd_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Where virtual devices are.

    `$ANDROID_AVD_HOME`, else `avd` in `$ANDROID_USER_HOME`, `$ANDROID_EMULATOR_HOME` or
    `$ANDROID_SDK_HOME/.android`, else `~/.android/avd`.
    """
    named = environ.get("ANDROID_AVD_HOME")
    if named:
        return Path(named).expanduser()
    for variable, inside in (
        ("ANDROID_USER_HOME", "avd"),
        ("ANDROID_EMULATOR_HOME", "avd"),
        ("ANDROID_SDK_HOME", ".android/avd"),
    ):
        value = environ.get(variable)
        if value:
            return Path(value).expanduser() / inside
    return Path(environ.get("HOME") or Path.home()) / ".android" / "avd"


@dataclass(frozen=True)
class Avd:
    """One virtual device.

    Attributes:
        name: Its name.
        ini: Its `NAME.ini`.
        directory: Where its files are.
    """

    name: str
    ini: Path
    directory: Path

    @property
    def home(self) -> Path:
        """The directory that emulators know as ANDROID_AVD_HOME."""
        return self.ini.parent

    @property
    def snapshots(self) -> Path:
        """The directory of its snapshots, which need not exist."""
        return self.directory / "snapshots"

    def config(self) -> dict[str, str]:
        """Its config.ini.

        Raises:
            EmulatorError: If that cannot be read.
        """
        return read_ini(self.directory / "config.ini")

    def api_level(self) -> int | None:
        """The API level of its system image, by the image's path or its target; None where neither says."""
        for text in (self.config().get("image.sysdir.1", ""), read_ini(self.ini).get("target", "")):
            match = _API.search(text)
            if match is not None:
                return int(match[1])
        return None

    def require_unused(self, *, shared: bool = False) -> None:
        """As `locks.require_unused`."""
        locks.require_unused(self.name, self.directory, shared=shared)


class AvdStore:
    """The virtual devices in one directory.

    Args:
        home: The directory; where the environment says when None.
    """

    def __init__(self, home: Path | None = None) -> None:
        self.home = home or avd_home()

    def list(self) -> list[Avd]:
        """All that have an ini file and a directory, by name."""
        found = (self._read(path) for path in sorted(self.home.glob("*.ini")))
        return [avd for avd in found if avd is not None and avd.directory.is_dir()]

    def get(self, name: str) -> Avd:
        """The virtual device of this name.

        Raises:
            EmulatorError: If there is none, or it lacks its directory.
        """
        avd = self._read(self.ini(name)) if NAME.fullmatch(name) else None
        if avd is None:
            known = [one.name for one in self.list()]
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known) or 'none'}."
            raise EmulatorError(f"there is no AVD {name!r} in {self.home}.", hint)
        if not avd.directory.is_dir():
            raise EmulatorError(
                f"the AVD {name!r} lacks its directory {avd.directory}.", f"Correct `path` in {avd.ini}."
            )
        return avd

    def exists(self, name: str) -> bool:
        """Whether there is anything of this name, complete or not."""
        return self.ini(name).exists() or self.directory(name).exists()

    def ini(self, name: str) -> Path:
        """Where the pointer to an AVD of this name is, or goes."""
        return self.home / f"{name}.ini"

    def directory(self, name: str) -> Path:
        """Where the files of a new AVD of this name go."""
        return self.home / f"{name}.avd"

    def delete(self, name: str) -> None:
        """Deletes an AVD with all its snapshots, also one that is half made or half removed.

        Raises:
            AvdLocked, SnapshotPending: If it is in use.
            EmulatorError: If there is none, or it cannot be removed.
        """
        found = self._read(self.ini(name)) if NAME.fullmatch(name) else None
        directory = found.directory if found is not None else self.directory(name)
        if found is None and not (NAME.fullmatch(name) and directory.is_dir()):
            self.get(name)  # says which there are
        locks.require_unused(name, directory)
        try:
            self.ini(name).unlink(missing_ok=True)  # first: what is half removed is no AVD
            if directory.exists():
                shutil.rmtree(directory)
        except OSError as error:
            raise EmulatorError(
                f"the AVD {name!r} cannot be removed: {error}.", f"Remove {directory} by hand."
            ) from error

    def _read(self, ini: Path) -> Avd | None:
        try:
            fields = read_ini(ini)
        except EmulatorError:
            return None
        absolute, relative = fields.get("path"), fields.get("path.rel")
        candidates = [Path(absolute)] if absolute else []
        if relative:
            candidates.append(self.home.parent / relative)
        if not candidates:
            return None
        directory = next((path for path in candidates if path.is_dir()), candidates[0])
        return Avd(ini.stem, ini, directory)
