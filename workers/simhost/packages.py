"""The simulated phone's packages: one per app of the phone, those of the system, and what was installed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from distrl.workers.simphone.apps import APPS, BUILT_IN

PREFIX = "org.simphone."
"""Packages of the phone's own apps are this and the app's name."""
LAUNCHER = PREFIX + "launcher"
ADB_KEYBOARD = "com.android.adbkeyboard"
FIRST_UID = 10001
MAX_INSTALLED = 256
"""Most packages that can be installed besides the system's."""
INSTALLED_MS = 1748908800000
"""When the system's packages were installed, in milliseconds since 1970."""


@dataclass(frozen=True)
class Package:
    """One package.

    Attributes:
        name, label: Its name, and what the launcher would call it.
        path: Its APK on the phone.
        uid: Its user id.
        activity: Its main activity, "" when it has none.
        system: Whether it belongs to the system image.
        version_name, version_code, target_sdk: From its manifest.
        installed_ms, updated_ms: Milliseconds since 1970.
        installer: Who installed it, "" for the system or adb.
        enabled: False after `pm disable`.
        requested, granted: Its permissions.
        home: Whether its main activity is a home screen.
        ime: The class of the input method that it brings, "" for none.
    """

    name: str
    label: str
    path: str
    uid: int
    activity: str = ""
    system: bool = False
    version_name: str = "1.0"
    version_code: int = 1
    target_sdk: int = 34
    installed_ms: int = INSTALLED_MS
    updated_ms: int = INSTALLED_MS
    installer: str = ""
    enabled: bool = True
    requested: tuple[str, ...] = ()
    granted: frozenset[str] = field(default_factory=frozenset)
    home: bool = False
    ime: str = ""

    @property
    def component(self) -> str:
        """Its main activity in short form, e.g. "org.simphone.notes/.MainActivity"."""
        activity = self.activity
        if activity.startswith(self.name + "."):
            activity = activity[len(self.name) :]
        return f"{self.name}/{activity}"


_P = "android.permission."
_PERMISSIONS: dict[str, tuple[str, ...]] = {
    "settings": (_P + "WRITE_SETTINGS", _P + "WRITE_SECURE_SETTINGS"),
    "contacts": (_P + "READ_CONTACTS", _P + "WRITE_CONTACTS"),
    "messages": (_P + "SEND_SMS", _P + "READ_SMS", _P + "READ_CONTACTS", _P + "POST_NOTIFICATIONS"),
    "browser": (_P + "INTERNET", _P + "ACCESS_FINE_LOCATION", _P + "POST_NOTIFICATIONS"),
    "weather": (_P + "INTERNET", _P + "ACCESS_COARSE_LOCATION"),
    "clock": (_P + "POST_NOTIFICATIONS",),
}
_FIXED = (
    Package("android", "Android System", "/system/framework/framework-res.apk", 1000, system=True),
    Package("com.android.shell", "Shell", "/system/priv-app/Shell/Shell.apk", 2000, system=True),
    Package(
        "com.android.systemui", "System UI", "/system_ext/priv-app/SystemUI/SystemUI.apk", 10090, system=True
    ),
    Package(
        PREFIX + "keyboard",
        "Keyboard",
        "/product/app/Keyboard/Keyboard.apk",
        10091,
        system=True,
        ime=".SoftKeyboard",
    ),
    Package(ADB_KEYBOARD, "ADB Keyboard", f"/data/app/{ADB_KEYBOARD}/base.apk", 10150, ime=".AdbIME"),
)


def _own(name: str, label: str, uid: int) -> Package:
    return Package(
        PREFIX + name,
        label,
        f"/product/app/{label.replace(' ', '')}/{label.replace(' ', '')}.apk",
        uid,
        f"{PREFIX}{name}.MainActivity",
        True,
        requested=_PERMISSIONS.get(name, ()),
        granted=frozenset(_PERMISSIONS.get(name, ())),
        home=name == "launcher",
    )


class Packages:
    """What is installed."""

    def __init__(self) -> None:
        own = [_own("launcher", "Launcher", FIRST_UID)]
        own += [_own(name, APPS[name].label, FIRST_UID + 1 + place) for place, name in enumerate(BUILT_IN)]
        self._packages = {package.name: package for package in (*_FIXED, *own)}

    def get(self, name: str) -> Package | None:
        """The package with this name."""
        return self._packages.get(name)

    def all(self) -> list[Package]:
        """Every package, by name."""
        return [self._packages[name] for name in sorted(self._packages)]

    def update(self, name: str, **changes: Any) -> Package:
        """Replaces fields of a package; returns it."""
        self._packages[name] = replace(self._packages[name], **changes)
        return self._packages[name]

    def install(self, package: Package) -> Package:
        """Adds a package, or brings one of the same name to a new version; it keeps its user id.

        Raises:
            ValueError: If too many are installed.
        """
        old = self._packages.get(package.name)
        if old is None and sum(not each.system for each in self._packages.values()) >= MAX_INSTALLED:
            raise ValueError("INSTALL_FAILED_INSUFFICIENT_STORAGE")
        used = {each.uid for each in self._packages.values()}
        uid = next(uid for uid in range(10151, 20000) if uid not in used) if old is None else old.uid
        first = package.installed_ms if old is None else old.installed_ms
        self._packages[package.name] = replace(package, uid=uid, installed_ms=first)
        return self._packages[package.name]

    def uninstall(self, name: str) -> bool:
        """Removes a package; False when there is none, or it is the system's."""
        package = self._packages.get(name)
        if package is None or package.system:
            return False
        del self._packages[name]
        return True

    def app(self, name: str) -> str | None:
        """The phone's app (or "launcher") that package `name` is, None when it is another package."""
        short = name.removeprefix(PREFIX) if name.startswith(PREFIX) else ""
        return short if short in BUILT_IN or short == "launcher" else None

    def dump(self) -> list[dict[str, Any]]:
        """All packages as plain data."""
        return [asdict(each) | {"granted": sorted(each.granted)} for each in self.all()]

    def load(self, packages: Iterable[dict[str, Any]]) -> None:
        """Replaces all packages by what `dump` gave."""
        loaded = (
            Package(**{**each, "requested": tuple(each["requested"]), "granted": frozenset(each["granted"])})
            for each in packages
        )
        self._packages = {package.name: package for package in loaded}
