"""The simulated phone's packages: one per app on the phone, those of the system, and what adb installed.

The phone's state says which apps are on it; its store installs and removes them. Of an APK only the binary
AndroidManifest.xml is read: a chunk of strings, then chunks for elements, whose attributes name their strings
by index.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from distrl.simulator.apps import APPS, BUILT_IN, store_catalog
from distrl.workers.devices.apps import SIMPHONE

if TYPE_CHECKING:
    from distrl.simulator.adb.android import AndroidSystem

LAUNCHER = SIMPHONE + "launcher"
ADB_KEYBOARD = "com.android.adbkeyboard"
FIRST_UID = 10001
INSTALLED_MS = 1748908800000
"""When the system's packages were installed, in milliseconds since 1970."""


@dataclass(frozen=True)
class Package:
    """One package.

    Attributes:
        activity: Its main activity, "" when it has none.
        installed_ms, updated_ms: Milliseconds since 1970.
        installer: The package that installed it, "" for the system or adb.
        home: Whether its main activity is a home screen.
        ime: The class of the input method that it brings, "" for none.
    """

    name: str
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
    requested: tuple[str, ...] = ()
    granted: frozenset[str] = field(default_factory=frozenset)
    home: bool = False
    ime: str = ""

    @property
    def component(self) -> str:
        """Its main activity in short form, e.g. "org.simphone.notes/.MainActivity"."""
        return f"{self.name}/{_shortened(self.name, self.activity)}"


_P, _APPS = "android.permission.", "/product/app"
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
    Package("android", "/system/framework/framework-res.apk", 1000, system=True),
    Package("com.android.shell", "/system/priv-app/Shell/Shell.apk", 2000, system=True),
    Package("com.android.systemui", "/system_ext/priv-app/SystemUI/SystemUI.apk", 10090, system=True),
    Package(SIMPHONE + "keyboard", f"{_APPS}/Keyboard/Keyboard.apk", 10091, system=True, ime=".SoftKeyboard"),
    Package(ADB_KEYBOARD, f"/data/app/{ADB_KEYBOARD}/base.apk", 10150, ime=".AdbIME"),
)


def _own(name: str, label: str, uid: int, permissions: Iterable[str] = ()) -> Package:
    asked, file = tuple(_P + permission for permission in permissions), label.replace(" ", "")
    return Package(
        SIMPHONE + name,
        f"{_APPS}/{file}/{file}.apk",
        uid,
        f"{SIMPHONE}{name}.MainActivity",
        True,
        requested=asked,
        granted=frozenset(asked),
        home=name == "launcher",
    )


def _from_store(name: str, asks: str, uid: int) -> Package:
    package = SIMPHONE + name
    return Package(
        package,
        f"/data/app/{package}/base.apk",
        uid,
        f"{package}.MainActivity",
        installer=SIMPHONE + "store",
        requested=(_P + "INTERNET", _P + _ASKED[asks]),
        granted=frozenset((_P + "INTERNET",)),
    )


class Packages:
    """What is installed."""

    def __init__(self, apps: Callable[[], Sequence[str]]) -> None:
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
        """Adds a package, or brings one of the same name to a new version; it keeps its user id."""
        old = self.get(package.name)
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


class InstallFailure(Exception):
    """An installation failed; the message is what stands between the brackets of `Failure [...]`."""


class Installer:
    """Installs packages on one phone."""

    def __init__(self, system: AndroidSystem) -> None:
        self._system = system

    def install(self, data: bytes, grant: bool = False, downgrade: bool = False) -> Package:
        """Installs an APK; `grant` gives it all permissions that it asks for. Raises InstallFailure."""
        try:
            manifest = read_manifest(data)
        except NotAnApk as error:
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
        path, activity = f"/data/app/{manifest.package}/base.apk", manifest.activity
        if activity.startswith("."):
            activity = manifest.package + activity
        try:
            self._system.files.mkdir(path.rpartition("/")[0], parents=True)
            self._system.files.write(path, data)
        except OSError as error:
            raise InstallFailure(f"INSTALL_FAILED_INSUFFICIENT_STORAGE: {error.strerror}") from error
        now = int(self._system.clock() * 1000)
        asked = tuple(dict.fromkeys(manifest.permissions))
        kept = old.granted if old is not None else frozenset()
        package = Package(
            manifest.package,
            path,
            0,
            activity,
            version_name=manifest.version_name or "1.0",
            version_code=manifest.version_code,
            target_sdk=manifest.target_sdk or self._system.api_level,
            installed_ms=now,
            updated_ms=now,
            requested=asked,
            granted=frozenset(asked) if grant else kept & frozenset(asked),
            ime=_shortened(manifest.package, manifest.ime),
        )
        return self._system.packages.install(package)

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

    def _remove(self, path: str, keep: bool = False) -> None:
        """Removes a directory, or with `keep` only what is in it."""
        files = self._system.files
        if not files.exists(path):
            return
        for name, _ in files.list(path):
            files.remove_tree(f"{path}/{name}")
        if not keep:
            files.remove(path)


def _shortened(package: str, name: str) -> str:
    return name[len(package) :] if name.startswith(package + ".") else name


_STRINGS, _START, _END = 0x0001, 0x0102, 0x0103
_UTF8 = 1 << 8
_TYPE_STRING, _TYPE_INT_MIN, _TYPE_INT_MAX = 3, 0x10, 0x1F
_NAME = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)+", re.ASCII)
MAX_MANIFEST = 1 << 23
"""Most bytes of a manifest."""


class NotAnApk(ValueError):
    """The bytes are not a readable APK."""


@dataclass
class Manifest:
    """What a manifest says.

    Attributes:
        activity: The activity that the launcher starts, "" for none.
        ime: The service that is an input method, "" for none.
    """

    package: str = ""
    version_name: str = ""
    version_code: int = 0
    target_sdk: int = 0
    activity: str = ""
    ime: str = ""
    permissions: list[str] = field(default_factory=list)


Value = str | int
Attributes = dict[str, Value]


def read_manifest(data: bytes) -> Manifest:
    """The manifest of an APK. Raises NotAnApk if none can be read."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            info = archive.getinfo("AndroidManifest.xml")
            if info.file_size > MAX_MANIFEST:
                raise NotAnApk("the manifest is too large")
            return _manifest(archive.read(info))
    except (zipfile.BadZipFile, KeyError, NotImplementedError, RuntimeError, OSError, EOFError) as error:
        raise NotAnApk(f"no readable archive: {error}") from error
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise NotAnApk(f"no readable manifest: {error}") from error


def _strings(chunk: bytes) -> list[str]:
    count, _, flags, start = struct.unpack_from("<4I", chunk, 8)
    if count > len(chunk):
        raise NotAnApk("the string table is broken")
    found = []
    for offset in struct.unpack_from(f"<{count}I", chunk, 28):
        at = start + offset
        if flags & _UTF8:
            at += 2 if chunk[at] & 0x80 else 1
            size = chunk[at]
            at += 1
            if size & 0x80:
                size = (size & 0x7F) << 8 | chunk[at]
                at += 1
            found.append(chunk[at : at + size].decode("utf-8", "replace"))
        else:
            (size,) = struct.unpack_from("<H", chunk, at)
            at += 2
            if size & 0x8000:
                size = (size & 0x7FFF) << 16 | struct.unpack_from("<H", chunk, at)[0]
                at += 2
            found.append(chunk[at : at + 2 * size].decode("utf-16-le", "replace"))
    return found


def _element(chunk: bytes, strings: list[str]) -> tuple[str, Attributes]:
    header = struct.unpack_from("<H", chunk, 2)[0]
    name, start, size, count = struct.unpack_from("<IHHH", chunk, header + 4)
    attributes: Attributes = {}
    for place in range(count):
        at = header + start + place * size
        key, raw = struct.unpack_from("<II", chunk, at + 4)
        kind, value = struct.unpack_from("<xxxBI", chunk, at + 12)
        if raw != 0xFFFFFFFF:
            attributes[strings[key]] = strings[raw]
        elif kind == _TYPE_STRING:
            attributes[strings[key]] = strings[value]
        elif _TYPE_INT_MIN <= kind <= _TYPE_INT_MAX:
            attributes[strings[key]] = value
    return strings[name], attributes


class _Reader:
    """Follows the elements of a manifest."""

    def __init__(self) -> None:
        self.found = Manifest()
        self._component = ""
        self._kind = ""
        self._main = self._launcher = False

    def _name(self, attributes: Attributes) -> str:
        name = str(attributes.get("name", ""))
        return name if "." in name[1:] or name.startswith(".") else f".{name}"

    def start(self, tag: str, attributes: Attributes) -> None:
        name = str(attributes.get("name", ""))
        if tag == "manifest":
            self.found.package = str(attributes.get("package", ""))
            self.found.version_name = str(attributes.get("versionName", ""))
            self.found.version_code = int(attributes.get("versionCode", 0))
        elif tag == "uses-sdk":
            value = attributes.get("targetSdkVersion", 0)
            self.found.target_sdk = value if isinstance(value, int) else 0
        elif tag == "uses-permission":
            self.found.permissions.append(name)
        elif tag in ("activity", "activity-alias", "service"):
            self._component, self._kind = self._name(attributes), tag
            self._main = self._launcher = False
            if tag == "service" and attributes.get("permission") == "android.permission.BIND_INPUT_METHOD":
                self.found.ime = self.found.ime or self._component
        elif tag == "action":
            self._main = self._main or name == "android.intent.action.MAIN"
        elif tag == "category":
            self._launcher = self._launcher or name == "android.intent.category.LAUNCHER"

    def end(self, tag: str) -> None:
        if tag == "intent-filter":
            if self._main and self._launcher and self._kind.startswith("activity"):
                self.found.activity = self.found.activity or self._component
            self._main = self._launcher = False


def _manifest(data: bytes) -> Manifest:
    strings: list[str] = []
    reader = _Reader()
    at = struct.unpack_from("<H", data, 2)[0]
    while at + 8 <= len(data):
        kind, _, size = struct.unpack_from("<HHI", data, at)
        chunk = data[at : at + size]
        if size < 8:
            raise NotAnApk("the manifest is broken")
        if kind == _STRINGS:
            strings = _strings(chunk)
        elif kind == _START:
            reader.start(*_element(chunk, strings))
        elif kind == _END:
            reader.end(strings[struct.unpack_from("<I", chunk, 20)[0]])
        at += size
    if not _NAME.fullmatch(reader.found.package):
        raise NotAnApk("the manifest names no valid package")
    return reader.found
