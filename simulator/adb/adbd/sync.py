"""The service `sync:`: files to and from the phone, and what stat and list say about them.

Requests are an id of four letters, a length and a path; see AOSP's `adb/SYNC.TXT` and `file_sync_protocol.h`.
stat and list are there in both versions. A failed request is answered with FAIL and the reason; the
session goes on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat as modes
import struct
from collections.abc import Awaitable, Callable

from distrl.simulator.adb.adbd.stream import Stream
from distrl.simulator.adb.files import MAX_BYTES, Files, Stat, fail

MAX_DATA = 64 * 1024
"""Most bytes in one DATA chunk."""
_MAX_PATH = 1024
_REQUEST = struct.Struct("<4sI")
_STAT1 = struct.Struct("<4sIII")
_STAT2 = struct.Struct("<4sIQQIIIIQqqq")
_DENT1 = struct.Struct("<4sIIII")
_DENT2 = struct.Struct("<4sIQQIIIIQqqqI")
_DEVICE = 0xFE02
"""The number of the phone's one disk."""


async def serve(files: Files, stream: Stream) -> None:
    """Answers requests until QUIT or the end of the stream."""
    session = _Session(files, stream)
    while True:
        name, size = _REQUEST.unpack(await stream.read_exactly(_REQUEST.size))
        request = session.requests.get(name)
        if request is None:
            if name != b"QUIT":
                await session.fail(f"unknown command {name.decode('ascii', 'replace')}")
            return
        if size > _MAX_PATH:
            await session.fail("path too long")
            return
        path = (await stream.read_exactly(size)).decode("utf-8", "surrogateescape")
        await request(path)


class _Session:
    """One open stream."""

    def __init__(self, files: Files, stream: Stream) -> None:
        self._files = files
        self._stream = stream
        self.requests: dict[bytes, Callable[[str], Awaitable[None]]] = {
            b"STAT": self._stat1,
            b"STA2": lambda path: self._stat2(b"STA2", path, files.stat),
            b"LST2": lambda path: self._stat2(b"LST2", path, files.lstat),
            b"LIST": self._list1,
            b"LIS2": self._list2,
            b"SEND": self._send,
            b"RECV": self._receive,
        }

    async def fail(self, text: str) -> None:
        """Says why a request failed."""
        data = text.encode("utf-8", "surrogateescape")
        await self._stream.write(_REQUEST.pack(b"FAIL", len(data)) + data)

    async def _stat1(self, path: str) -> None:
        try:
            found = self._files.lstat(path)
            answer = (found.mode, found.size & 0xFFFFFFFF, found.mtime)
        except OSError:
            answer = (0, 0, 0)
        await self._stream.write(_STAT1.pack(b"STAT", *answer))

    async def _stat2(self, name: bytes, path: str, look: Callable[[str], Stat]) -> None:
        try:
            fields = _fields(look(path))
        except OSError as error:
            fields = (error.errno or errno.EIO, *[0] * 10)
        await self._stream.write(_STAT2.pack(name, *fields))

    async def _list1(self, path: str) -> None:
        for name, found in self._entries(path):
            head = _DENT1.pack(b"DENT", found.mode, found.size & 0xFFFFFFFF, found.mtime, len(name))
            await self._stream.write(head + name)
        await self._stream.write(_DENT1.pack(b"DONE", 0, 0, 0, 0))

    async def _list2(self, path: str) -> None:
        for name, found in self._entries(path):
            await self._stream.write(_DENT2.pack(b"DNT2", *_fields(found), len(name)) + name)
        await self._stream.write(_DENT2.pack(b"DONE", *[0] * 12))

    def _entries(self, path: str) -> list[tuple[bytes, Stat]]:
        """A directory's entries, "." and ".." first; none if it cannot be listed."""
        try:
            listed = self._files.list(path)
            dots = [(name, self._files.stat(f"{path}/{name}")) for name in (".", "..")]
        except OSError:
            return []
        return [(name.encode("utf-8", "surrogateescape"), found) for name, found in dots + listed]

    async def _receive(self, path: str) -> None:
        try:
            data = self._files.read(path)
        except OSError as error:
            await self.fail(f"open failed: {os.strerror(error.errno or errno.EIO)}")
            return
        for start in range(0, len(data), MAX_DATA):
            chunk = data[start : start + MAX_DATA]
            await self._stream.write(_REQUEST.pack(b"DATA", len(chunk)) + chunk)
        await self._stream.write(_REQUEST.pack(b"DONE", 0))

    async def _send(self, target: str) -> None:
        path, _, mode = target.rpartition(",")
        if not path or not mode.isdecimal():
            await self._drain()
            await self.fail(f"missing , in ID_SEND: {target}" if not path else "bad mode")
            return
        data, mtime = await self._drain()
        try:
            if data is None:
                raise fail(errno.ENOSPC, path)
            self._store(path, int(mode) & 0xFFFF, data, mtime)
        except OSError as error:
            await self.fail(f"couldn't create file: {os.strerror(error.errno or errno.EIO)}")
            return
        await self._stream.write(_REQUEST.pack(b"OKAY", 0))

    def _store(self, path: str, mode: int, data: bytes, mtime: int) -> None:
        folder = path.rpartition("/")[0]
        if folder and not self._files.exists(folder):
            self._files.mkdir(folder, 0o775, parents=True)
        with contextlib.suppress(FileNotFoundError):
            there = self._files.lstat(path)
            if there.is_link or modes.S_ISREG(there.mode):  # as adbd: replaced, not written through a link
                self._files.remove(path)
        if modes.S_ISLNK(mode):
            self._files.symlink(data.rstrip(b"\0").decode("utf-8", "surrogateescape"), path)
            return
        permissions = mode & 0o777  # as adbd: the group may what the owner may, and others what the group may
        permissions |= (permissions >> 3) & 0o070
        permissions |= (permissions >> 3) & 0o007
        self._files.write(path, data, permissions, mtime)

    async def _drain(self) -> tuple[bytes | None, int]:
        """All DATA of a file (None if it is more than the phone has room for), and the time of DONE."""
        chunks: list[bytes] = []
        room = MAX_BYTES - self._files.used()
        while True:
            name, size = _REQUEST.unpack(await self._stream.read_exactly(_REQUEST.size))
            if name == b"DONE":
                return b"".join(chunks) if room >= 0 else None, size
            if name != b"DATA" or size > MAX_DATA:
                raise ConnectionAbortedError(f"{name!r} of {size} bytes in the middle of a file")
            chunk = await self._stream.read_exactly(size)
            room -= size
            if room >= 0:
                chunks.append(chunk)


def _fields(found: Stat) -> tuple[int, ...]:
    """error, dev, ino, mode, nlink, uid, gid, size, atime, mtime, ctime."""
    owner, times = (found.nlink, found.uid, found.gid), (found.mtime,) * 3
    return (0, _DEVICE, found.ino, found.mode, *owner, found.size, *times)
