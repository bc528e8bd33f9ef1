"""Reads what the package manager needs from an APK: its binary AndroidManifest.xml.

The format is a chunk of strings followed by chunks for elements; attributes name their strings by index. Only
names and values that the simulated phone shows are kept.
"""

from __future__ import annotations

import io
import struct
import zipfile
from dataclasses import dataclass, field

_STRINGS, _START, _END = 0x0001, 0x0102, 0x0103
_UTF8 = 1 << 8
_TYPE_STRING, _TYPE_INT_MIN, _TYPE_INT_MAX = 3, 0x10, 0x1F
MAX_MANIFEST = 1 << 23
"""Most bytes of a manifest."""


class NotAnApk(ValueError):
    """The bytes are no APK that can be read."""


@dataclass
class Manifest:
    """What a manifest says.

    Attributes:
        package, version_name, version_code, target_sdk: As in the manifest.
        activity: The activity that the launcher starts, "" for none.
        ime: The service that is an input method, "" for none.
        label: The application's name if it is written out, "" for a resource.
        permissions: Those it asks for.
    """

    package: str = ""
    version_name: str = ""
    version_code: int = 0
    target_sdk: int = 0
    activity: str = ""
    ime: str = ""
    label: str = ""
    permissions: list[str] = field(default_factory=list)


Value = str | int
Attributes = dict[str, Value]


def read(data: bytes) -> Manifest:
    """The manifest of an APK.

    Raises:
        NotAnApk: If there is none that can be read.
    """
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
        elif tag == "application" and isinstance(attributes.get("label"), str):
            self.found.label = str(attributes["label"])
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
    if not reader.found.package:
        raise NotAnApk("the manifest names no package")
    return reader.found
