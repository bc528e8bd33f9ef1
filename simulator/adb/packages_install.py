"""Installing and removing packages: APKs at once or in sessions, as `pm` does it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from distrl.simulator.adb import packages_apk
from distrl.simulator.adb.files import ROOT
from distrl.simulator.adb.packages import Package
from distrl.simulator.apps import store_catalog

if TYPE_CHECKING:
    from distrl.simulator.adb.android import AndroidSystem

MAX_SESSIONS = 16
"""Most sessions that are open at once; the oldest is abandoned."""


class InstallFailure(Exception):
    """An installation failed; the message is what stands between the brackets of `Failure [...]`."""


@dataclass
class Session:
    """An installation in parts: the APKs that were written, by name."""

    parts: dict[str, bytes] = field(default_factory=dict)


class Installer:
    """Installs packages on one phone.

    Args:
        system: The phone.
    """

    def __init__(self, system: AndroidSystem) -> None:
        self._system = system
        self._sessions: dict[int, Session] = {}
        self._last = 1_000_000

    def create(self) -> int:
        """Opens a session; returns its number."""
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[min(self._sessions)]
        self._last += 1
        self._sessions[self._last] = Session()
        return self._last

    def session(self, number: int) -> Session:
        """An open session. Raises InstallFailure when there is none of this number."""
        if number not in self._sessions:
            raise InstallFailure(f"INSTALL_FAILED_INVALID_APK: no session {number}")
        return self._sessions[number]

    def commit(self, number: int, grant: bool = False) -> Package:
        """Installs what was written in a session."""
        parts = self.session(number).parts
        del self._sessions[number]
        if not parts:
            raise InstallFailure("INSTALL_FAILED_INVALID_APK: no package was written")
        return self.install(next(iter(parts.values())), grant)

    def abandon(self, number: int) -> None:
        """Closes a session without installing."""
        self._sessions.pop(number, None)

    def install(self, data: bytes, grant: bool = False, downgrade: bool = False) -> Package:
        """Installs an APK.

        Args:
            data: Its bytes.
            grant: Whether it gets all permissions that it asks for.
            downgrade: Whether an older version may replace a newer one.

        Raises:
            InstallFailure: As Android names it.
        """
        try:
            manifest = packages_apk.read(data)
        except packages_apk.NotAnApk as error:
            raise InstallFailure(
                f"INSTALL_PARSE_FAILED_NOT_APK: Failed to parse base.apk: {error}"
            ) from error
        old = self._system.packages.get(manifest.package)
        if old is not None and old.system:
            raise InstallFailure(
                f"INSTALL_FAILED_UPDATE_INCOMPATIBLE: Existing package {old.name} signatures do not "
                "match newer version"
            )
        if old is not None and manifest.version_code < old.version_code and not downgrade:
            raise InstallFailure(
                "INSTALL_FAILED_VERSION_DOWNGRADE: Downgrade detected: Update version code "
                f"{manifest.version_code} is older than current {old.version_code}"
            )
        path = f"/data/app/{manifest.package}/base.apk"
        self._write(path, data)
        now = int(self._system.clock() * 1000)
        asked = tuple(dict.fromkeys(manifest.permissions))
        kept = old.granted if old is not None else frozenset()
        package = Package(
            manifest.package,
            manifest.label or manifest.package,
            path,
            0,
            _written_out(manifest.package, manifest.activity),
            version_name=manifest.version_name or "1.0",
            version_code=manifest.version_code,
            target_sdk=manifest.target_sdk or self._system.api_level,
            installed_ms=now,
            updated_ms=now,
            requested=asked,
            granted=frozenset(asked) if grant else kept & frozenset(asked),
            ime=_shortened(manifest.package, manifest.ime),
        )
        try:
            return self._system.packages.install(package)
        except ValueError as error:
            raise InstallFailure(str(error)) from error

    def uninstall(self, name: str) -> None:
        """Removes a package with its files. Raises InstallFailure when that cannot be."""
        package = self._system.packages.get(name)
        if package is None:
            raise InstallFailure(f"DELETE_FAILED_INTERNAL_ERROR: not installed for 0: {name}")
        if package.system:
            raise InstallFailure("DELETE_FAILED_INTERNAL_ERROR: a system package")
        if package.ime:
            self._system.ime.enable(f"{name}/{package.ime}", on=False)
        self._system.activities.stop(name)
        app = self._system.packages.app(name)
        if app is not None:
            store_catalog.uninstall(self._system.state, app)
            self._system.device.load(self._system.state)
        else:
            self._system.packages.uninstall(name)
        for path in (f"/data/app/{name}", f"/data/data/{name}", f"/sdcard/Android/data/{name}"):
            self._remove(path)

    def clear(self, name: str) -> None:
        """Removes what a package has stored."""
        self._system.activities.clear(name)
        for folder in (f"/data/data/{name}", f"/sdcard/Android/data/{name}"):
            self._remove(folder, keep=True)

    def _write(self, path: str, data: bytes) -> None:
        files, before = self._system.files, self._system.files.uid
        files.uid = ROOT
        try:
            files.mkdir(path.rpartition("/")[0], parents=True)
            files.write(path, data)
        except OSError as error:
            raise InstallFailure(f"INSTALL_FAILED_INSUFFICIENT_STORAGE: {error.strerror}") from error
        finally:
            files.uid = before

    def _remove(self, path: str, keep: bool = False) -> None:
        """Removes a directory, or with `keep` only what is in it, with the rights of the system."""
        files, before = self._system.files, self._system.files.uid
        files.uid = ROOT
        try:
            if not files.exists(path):
                return
            if not keep:
                files.remove_tree(path)
                return
            for name, _ in files.list(path):
                files.remove_tree(f"{path}/{name}")
        finally:
            files.uid = before


def _written_out(package: str, name: str) -> str:
    return package + name if name.startswith(".") else name


def _shortened(package: str, name: str) -> str:
    return name[len(package) :] if name.startswith(package + ".") else name
