"""The simulated phone's packages: one per app on the phone, those of the system, and what adb installed.

Which apps are on the phone, its state says; its store installs and removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from distrl.simulator.apps import APPS, BUILT_IN, store_catalog
from distrl.workers.devices.apps import SIMPHONE

LAUNCHER = SIMPHONE + "launcher"
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
_ASKED = {
    "location": "ACCESS_FINE_LOCATION",
    "contacts": "READ_CONTACTS",
    "camera": "CAMERA",
    "photos": "READ_MEDIA_IMAGES",
    "microphone": "RECORD_AUDIO",
    "notifications": "POST_NOTIFICATIONS",
}
"""Android's names of what the store's apps ask for."""
_FIRST_STORE_UID, _LAST_UID = 10151, 20000
_FIXED = (
    Package("android", "Android System", "/system/framework/framework-res.apk", 1000, system=True),
    Package("com.android.shell", "Shell", "/system/priv-app/Shell/Shell.apk", 2000, system=True),
    Package(
        "com.android.systemui", "System UI", "/system_ext/priv-app/SystemUI/SystemUI.apk", 10090, system=True
    ),
    Package(
        SIMPHONE + "keyboard",
        "Keyboard",
        "/product/app/Keyboard/Keyboard.apk",
        10091,
        system=True,
        ime=".SoftKeyboard",
    ),
    Package(ADB_KEYBOARD, "ADB Keyboard", f"/data/app/{ADB_KEYBOARD}/base.apk", 10150, ime=".AdbIME"),
)


def _own(name: str, label: str, uid: int, permissions: Iterable[str] = ()) -> Package:
    asked = tuple(_P + permission for permission in permissions)
    return Package(
        SIMPHONE + name,
        label,
        f"/product/app/{label.replace(' ', '')}/{label.replace(' ', '')}.apk",
        uid,
        f"{SIMPHONE}{name}.MainActivity",
        True,
        requested=asked,
        granted=frozenset(asked),
        home=name == "launcher",
    )


def _from_store(name: str, asks: str, uid: int) -> Package:
    """The package of an app that the phone's store has installed."""
    package = SIMPHONE + name
    return Package(
        package,
        APPS[name].label,
        f"/data/app/{package}/base.apk",
        uid,
        f"{package}.MainActivity",
        installer=SIMPHONE + "store",
        requested=(_P + "INTERNET", _P + _ASKED[asks]),
        granted=frozenset((_P + "INTERNET",)),
    )


class Packages:
    """What is installed.

    Args:
        apps: Gives the apps that are on the phone now.
    """

    def __init__(self, apps: Callable[[], Sequence[str]] = lambda: BUILT_IN) -> None:
        self._apps = apps
        self._followed: tuple[str, ...] = ()
        launcher = _own("launcher", "Launcher", FIRST_UID)
        self._packages = {package.name: package for package in (*_FIXED, launcher)}
        self._follow()

    def _follow(self) -> None:
        """Adds the packages of apps that are new on the phone, removes those of apps that are gone."""
        apps = tuple(self._apps())
        if apps == self._followed:
            return
        self._followed = apps
        present = {name.removeprefix(SIMPHONE) for name in self._packages if name.startswith(SIMPHONE)}
        for name in (present & set(APPS)) - set(apps):
            del self._packages[SIMPHONE + name]
        for name in apps:
            if name not in present:
                self._packages[SIMPHONE + name] = self._made(name)

    def _made(self, name: str) -> Package:
        entry = store_catalog.ENTRIES.get(name)
        if entry is not None:
            return _from_store(name, entry.asks, self._free_uid())
        known = [*BUILT_IN, *(app for app in APPS if app not in BUILT_IN)]
        app = APPS[name]
        return _own(name, app.label, FIRST_UID + 1 + known.index(name), app.permissions)

    def _free_uid(self) -> int:
        used = {each.uid for each in self._packages.values()}
        return next(uid for uid in range(_FIRST_STORE_UID, _LAST_UID) if uid not in used)

    def get(self, name: str) -> Package | None:
        """The package with this name."""
        self._follow()
        return self._packages.get(name)

    def all(self) -> list[Package]:
        """Every package, by name."""
        self._follow()
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
        old = self.get(package.name)
        if old is None and sum(not each.system for each in self._packages.values()) >= MAX_INSTALLED:
            raise ValueError("INSTALL_FAILED_INSUFFICIENT_STORAGE")
        uid = self._free_uid() if old is None else old.uid
        first = package.installed_ms if old is None else old.installed_ms
        self._packages[package.name] = replace(package, uid=uid, installed_ms=first)
        return self._packages[package.name]

    def uninstall(self, name: str) -> bool:
        """Removes a package that adb installed; False when there is none, or it is the system's."""
        package = self.get(name)
        if package is None or package.system:
            return False
        del self._packages[name]
        return True

    def app(self, name: str) -> str | None:
        """The phone's app (or "launcher") that package `name` is, None when it is another package."""
        short = name.removeprefix(SIMPHONE) if name.startswith(SIMPHONE) else ""
        return short if short in self._apps() or short == "launcher" else None

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
        self._followed = ()
