"""APKs made for tests: a zip with a binary AndroidManifest.xml, written by hand."""

from __future__ import annotations

import io
import struct
import zipfile

Element = tuple[str, dict[str, "str | int"], list["Element"]]


def manifest(root: Element, utf8: bool) -> bytes:
    """A binary AndroidManifest.xml with `root`, its strings in UTF-8 or UTF-16."""
    strings: list[str] = []

    def index(text: str) -> int:
        if text not in strings:
            strings.append(text)
        return strings.index(text)

    chunks: list[bytes] = []

    def write(element: Element) -> None:
        tag, attributes, children = element
        body = b""
        for name, value in attributes.items():
            if isinstance(value, str):
                body += struct.pack("<IIIHBBI", 0xFFFFFFFF, index(name), index(value), 8, 0, 3, index(value))
            else:
                body += struct.pack("<IIIHBBI", 0xFFFFFFFF, index(name), 0xFFFFFFFF, 8, 0, 0x10, value)
        start = struct.pack("<IIHHHHHH", 0xFFFFFFFF, index(tag), 20, 20, len(attributes), 0, 0, 0)
        chunks.append(struct.pack("<HHIII", 0x102, 16, 36 + len(body), 1, 0xFFFFFFFF) + start + body)
        for child in children:
            write(child)
        chunks.append(struct.pack("<HHIIIII", 0x103, 16, 24, 1, 0xFFFFFFFF, 0xFFFFFFFF, index(tag)))

    write(root)
    encoded, offsets = b"", []
    for text in strings:
        offsets.append(len(encoded))
        if utf8:
            raw = text.encode()
            encoded += bytes([len(text), len(raw)]) + raw + b"\0"
        else:
            encoded += struct.pack("<H", len(text)) + text.encode("utf-16-le") + b"\0\0"
    encoded += b"\0" * (-len(encoded) % 4)
    start = 28 + 4 * len(offsets)
    pool = struct.pack("<5I", len(offsets), 0, 256 if utf8 else 0, start, 0)
    pool += struct.pack(f"<{len(offsets)}I", *offsets) + encoded
    pool = struct.pack("<HHI", 1, 28, 8 + len(pool)) + pool
    body = pool + b"".join(chunks)
    return struct.pack("<HHI", 3, 8, 8 + len(body)) + body


def apk(version: int = 3, utf8: bool = True, package: str = "com.example.app") -> bytes:
    """An APK with a launcher activity, an input method and two permissions."""
    intent: Element = (
        "intent-filter",
        {},
        [
            ("action", {"name": "android.intent.action.MAIN"}, []),
            ("category", {"name": "android.intent.category.LAUNCHER"}, []),
        ],
    )
    root: Element = (
        "manifest",
        {"package": package, "versionCode": version, "versionName": f"{version}.0"},
        [
            ("uses-sdk", {"targetSdkVersion": 30}, []),
            ("uses-permission", {"name": "android.permission.CAMERA"}, []),
            ("uses-permission", {"name": "android.permission.INTERNET"}, []),
            (
                "application",
                {"label": "Example"},
                [
                    ("activity", {"name": ".Other"}, []),
                    ("activity", {"name": f"{package}.Main"}, [intent]),
                    ("service", {"name": ".Ime", "permission": "android.permission.BIND_INPUT_METHOD"}, []),
                ],
            ),
        ],
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("AndroidManifest.xml", manifest(root, utf8))
        archive.writestr("classes.dex", b"dex")
    return out.getvalue()
