"""Android virtual devices on disk: which there are, what they are, and taking one away.

HOME/NAME.ini        path=…  target=…            (HOME: see `avd_home`)
HOME/NAME.avd/       config.ini, the images, the locks, snapshots/SNAPSHOT/…
"""

from __future__ import annotations

import contextlib
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
    """Where virtual devices are: the first of `avd_homes` that exists.

    If none does, it is the first that a variable of Android's names, else `~/.android/avd`.
    """
    named, usual, emulators = _places(environ)
    places = [*named, *usual, *emulators]
    return next((path for path in places if path.is_dir()), [*named, *emulators, usual[-1]][0])


def avd_homes(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Where virtual devices may be, in the order in which they are looked for.

    avdmanager and the emulator differ. Both take ANDROID_AVD_HOME first, if that is a directory. After that
    avdmanager (cmdline-tools 12 and later) and Android Studio look below ANDROID_USER_HOME, or
    ANDROID_PREFS_ROOT, or ANDROID_SDK_HOME, then XDG_CONFIG_HOME, then HOME; the emulator below
    ANDROID_PREFS_ROOT, ANDROID_SDK_HOME, HOME, and last ANDROID_EMULATOR_HOME. This is the union of both
    orders; emulators that are started here get the directory that was found as ANDROID_AVD_HOME.
    """
    named, usual, emulators = _places(environ)
    return [*named, *usual, *emulators]


def _places(environ: Mapping[str, str]) -> tuple[list[Path], list[Path], list[Path]]:
    """Directories that variables of Android's name; the usual ones; and the emulator's last one."""

    def below(variable: str, *inside: str) -> list[Path]:
        value = environ.get(variable)
        return [Path(value).expanduser() / part for part in inside] if value else []

    named = below("ANDROID_AVD_HOME", "") + below("ANDROID_USER_HOME", "avd")
    for variable in ("ANDROID_PREFS_ROOT", "ANDROID_SDK_HOME"):
        named += below(variable, ".android/avd", "avd")
    home = Path(environ.get("HOME") or Path.home()) / ".android" / "avd"
    usual = [*below("XDG_CONFIG_HOME", ".android/avd"), home]
    return named, usual, below("ANDROID_EMULATOR_HOME", "avd")


def require_name(name: str) -> None:
    """Refuses what is not a name for an AVD.

    Raises:
        EmulatorError: With the rule.
    """
    if not NAME.fullmatch(name):
        raise EmulatorError(
            f"{name!r} is not a valid AVD name.",
            "Use letters, digits, dots, hyphens and underscores, with a letter or a digit first.",
        )


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
        """All that can be used, by name."""
        return [found for found in self._all().values() if isinstance(found, Avd)]

    def broken(self) -> dict[str, EmulatorError]:
        """Why each of the others cannot be used, by name."""
        return {name: found for name, found in self._all().items() if isinstance(found, EmulatorError)}

    def get(self, name: str) -> Avd:
        """The virtual device of this name.

        Raises:
            EmulatorError: If there is none, or it cannot be used.
        """
        require_name(name)
        if not os.path.lexists(self.ini(name)):
            raise EmulatorError(f"there is no AVD {name!r} in {self.home}.", self._hint(name))
        avd = self._read(self.ini(name))
        if not avd.directory.is_dir():
            raise EmulatorError(
                f"the AVD {name!r} lacks its directory {avd.directory}.", f"Correct `path` in {avd.ini}."
            )
        return avd

    def _all(self) -> dict[str, Avd | EmulatorError]:
        found: dict[str, Avd | EmulatorError] = {}
        for ini in sorted(self.home.glob("*.ini")):
            try:
                found[ini.stem] = self.get(ini.stem)
            except EmulatorError as error:
                found[ini.stem] = error
        return found

    def _hint(self, missing: str) -> str:
        for home in avd_homes():
            if (home / f"{missing}.ini").is_file():
                return f"It is in {home}: set ANDROID_AVD_HOME to that directory."
        known = [one.name for one in self.list()]
        near = difflib.get_close_matches(missing, known, n=1)
        return f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known) or 'none'}."

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
        require_name(name)
        directory = self.directory(name)
        if self.ini(name).exists():
            with contextlib.suppress(EmulatorError):  # what its ini file cannot tell is where such files go
                directory = self._read(self.ini(name)).directory
        elif not directory.is_dir():
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

    def _read(self, ini: Path) -> Avd:
        fields = read_ini(ini)
        absolute, relative = fields.get("path"), fields.get("path.rel")
        candidates = [Path(absolute)] if absolute else []
        if relative:
            candidates.append(self.home.parent / relative)
        if not candidates:
            raise EmulatorError(
                f"the AVD {ini.stem!r} cannot be used: {ini} names no directory.",
                f"Put `path={self.directory(ini.stem)}` into it, or remove it.",
            )
        directory = next((path for path in candidates if path.is_dir()), candidates[0])
        return Avd(ini.stem, ini, directory)
