"""Files to and from a device: the sync protocol's stat, list, send and receive, in both versions.

Every message is a four-letter id, a little-endian number and, mostly, that many bytes. One `Sync` is one
opened `sync:` service; it belongs to one thread.
"""

from __future__ import annotations

import os
import select
import stat as modes
import struct
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from distrl.workers.devices.adb.smart_socket import Connection
from distrl.workers.devices.errors import DeviceDisconnected, OutputInvalid, SyncFailed

BASE_S, BYTES_PER_S = 30.0, 5e6
"""A file may take this long, and as long again as its bytes take at this speed."""
MAX_DATA = 64 * 1024
"""Most bytes of a file in one message."""
_MAX_PATH = 1024
_MAX_NAME = 64 * 1024
_NUMBER = struct.Struct("<I")
_STAT_V1 = struct.Struct("<III")
_STAT_V2 = struct.Struct("<IQQIIIIQqqq")
_SEND_V2 = struct.Struct("<4sII")
_RECEIVE_V2 = struct.Struct("<4sI")
_ENOENT = 2


def timeout_s(size: int) -> float:
    """Seconds that a file of `size` bytes may take."""
    return BASE_S + size / BYTES_PER_S


@dataclass(frozen=True)
class FileStat:
    """What is at a path; symbolic links are followed where the device can (v2).

    Attributes:
        mode: POSIX type and permissions, 0 if there is nothing.
        size: In bytes.
        mtime: Seconds since 1970.
    """

    mode: int
    size: int
    mtime: int

    @property
    def exists(self) -> bool:
        """Whether there is anything."""
        return self.mode != 0

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return modes.S_ISDIR(self.mode)


class Sync:
    """The file service on an opened connection.

    Args:
        connection: On which the device has accepted `sync:`.
        features: What the device can do, as `adb features` names it.
    """

    def __init__(self, connection: Connection, features: Collection[str]) -> None:
        self._connection = connection
        self._features = features

    def stat(self, path: str) -> FileStat:
        """What is at `path`.

        Raises:
            SyncFailed: If the device may not look there.
        """
        if "stat_v2" not in self._features:
            self._ask(b"STAT", path)
            self._expect(b"STAT", path)
            return FileStat(*_STAT_V1.unpack(self._connection.read_exact(_STAT_V1.size)))
        self._ask(b"STA2", path)
        self._expect(b"STA2", path)
        error, _, _, mode, _, _, _, size, _, mtime, _ = self._stat_v2()
        if error and error != _ENOENT:
            raise self._failed(f"stat {path}", os.strerror(error))
        return FileStat(mode, size, mtime)

    def list(self, path: str) -> dict[str, FileStat]:
        """What is in the directory `path`, by name, without "." and ".."; empty if it cannot be read."""
        return {name: entry for name, entry in self._entries(path) if name not in (".", "..")}

    def _entries(self, path: str) -> Iterator[tuple[str, FileStat]]:
        second = "ls_v2" in self._features
        self._ask(b"LIS2" if second else b"LIST", path)
        while True:
            kind = self._connection.read_exact(4)
            if kind == b"FAIL":
                raise self._failed(f"list {path}", self._text())
            if kind not in (b"DONE", b"DNT2" if second else b"DENT"):
                raise self._unexpected(kind, "a directory entry")
            if second:
                _, _, _, mode, _, _, _, size, _, mtime, _ = self._stat_v2()
            else:
                mode, size, mtime = _STAT_V1.unpack(self._connection.read_exact(_STAT_V1.size))
            length = self._number()
            if kind == b"DONE":
                return
            if length > _MAX_NAME:
                raise self._unexpected(kind, f"a name, not {length} bytes of it")
            yield self._connection.read_exact(length).decode("utf-8", "replace"), FileStat(mode, size, mtime)

    def send(self, source: IO[bytes], path: str, mode: int, mtime: int) -> None:
        """Writes all of `source` to the file `path` with permissions `mode`.

        Raises:
            SyncFailed: With what the device said, if it refuses.
        """
        if "sendrecv_v2" in self._features:
            self._ask(b"SND2", path)
            self._connection.send(_SEND_V2.pack(b"SND2", modes.S_IFREG | mode, 0))
        else:
            self._ask(b"SEND", f"{path},{modes.S_IFREG | mode}")
        try:
            while (piece := source.read(MAX_DATA)) and not self._answered():
                self._connection.send(b"DATA" + _NUMBER.pack(len(piece)) + piece)
            self._connection.send(b"DONE" + _NUMBER.pack(mtime & 0xFFFFFFFF))
        except DeviceDisconnected as broken:
            self._last_words(path, broken)
        self._expect(b"OKAY", path, "write")
        self._number()

    def _answered(self) -> bool:
        """Whether the device speaks while it should listen: it refuses."""
        poll = select.poll()
        poll.register(self._connection.socket, select.POLLIN)
        return bool(poll.poll(0))

    def _last_words(self, path: str, broken: DeviceDisconnected) -> None:
        """A device that refuses a file may hang up at once: its reason may still be there to read."""
        try:
            self._expect(b"OKAY", path, "write")
        except DeviceDisconnected:
            raise broken from None
        raise broken

    def receive(self, path: str, target: IO[bytes]) -> int:
        """Copies the file `path` into `target`. Returns its size in bytes.

        Raises:
            SyncFailed: With what the device said, if it cannot be read.
        """
        if "sendrecv_v2" in self._features:
            self._ask(b"RCV2", path)
            self._connection.send(_RECEIVE_V2.pack(b"RCV2", 0))
        else:
            self._ask(b"RECV", path)
        total = 0
        while True:
            kind = self._connection.read_exact(4)
            if kind == b"FAIL":
                raise self._failed(f"read {path}", self._text())
            if kind not in (b"DATA", b"DONE"):
                raise self._unexpected(kind, "a piece of the file")
            size = self._number()
            if kind == b"DONE":
                return total
            if size > MAX_DATA:
                raise self._unexpected(kind, f"at most {MAX_DATA} bytes, not {size}")
            target.write(self._connection.read_exact(size))
            total += size

    def quit(self) -> None:
        """Says goodbye; the connection is of no use afterwards."""
        self._connection.send(b"QUIT" + _NUMBER.pack(0))

    def _ask(self, kind: bytes, path: str) -> None:
        data = path.encode("utf-8", "surrogateescape")
        if len(data) > _MAX_PATH:
            raise self._failed(f"use a path of {len(data)} bytes", f"at most {_MAX_PATH} are allowed")
        self._connection.send(kind + _NUMBER.pack(len(data)) + data)

    def _expect(self, kind: bytes, path: str, verb: str = "stat") -> None:
        got = self._connection.read_exact(4)
        if got == b"FAIL":
            raise self._failed(f"{verb} {path}", self._text())
        if got != kind:
            raise self._unexpected(got, kind.decode())

    def _number(self) -> int:
        number: int = _NUMBER.unpack(self._connection.read_exact(4))[0]
        return number

    def _stat_v2(self) -> tuple[int, ...]:
        return _STAT_V2.unpack(self._connection.read_exact(_STAT_V2.size))

    def _text(self) -> str:
        return self._connection.read_exact(min(self._number(), _MAX_NAME)).decode("utf-8", "replace")

    def _failed(self, doing: str, reason: str) -> SyncFailed:
        return SyncFailed(
            f"cannot {doing}: {reason}.",
            "Check the path, its permissions and the free space on the device.",
            serial=self._connection.serial,
            evidence=reason,
        )

    def _unexpected(self, got: bytes, due: str) -> OutputInvalid:
        return OutputInvalid(
            f"the file service should send {due}, got {got!r}.",
            serial=self._connection.serial,
            evidence=repr(got),
        )


def receive_to(sync: Sync, path: str, local: Path) -> int:
    """Copies the device's file `path` to `local`, which is replaced only when all of it came.

    Returns:
        Its size in bytes.
    """
    handle, name = tempfile.mkstemp(dir=local.parent, prefix=f".{local.name}.")
    try:
        with os.fdopen(handle, "wb") as target:
            size = sync.receive(path, target)
        Path(name).chmod(0o644)
        os.replace(name, local)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return size
