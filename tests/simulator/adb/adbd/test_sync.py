"""The service `sync:` as clients use it: stat, list, send and receive, in both versions, and what fails."""

from __future__ import annotations

import errno
import stat
import struct
from collections.abc import Awaitable, Callable

import pytest
from adb_peer import AdbPeer, PeerStream
from adb_phone import AdbPhone

from distrl.simulator.adb.adbd import sync

PATH = "/data/local/tmp/a file"


class Session(PeerStream):
    """A sync stream."""

    def request(self, name: bytes, path: str) -> None:
        self.send(name + struct.pack("<I", len(path.encode())) + path.encode())

    async def status(self) -> tuple[bytes, str]:
        """OKAY or FAIL, and its text."""
        name, size = struct.unpack("<4sI", await self.read(8))
        return name, (await self.read(size)).decode() if name == b"FAIL" else ""

    def file(self, target: str, data: bytes, mtime: int, piece: int = 65536) -> None:
        self.request(b"SEND", target)
        for start in range(0, len(data), piece):
            part = data[start : start + piece]
            self.send(b"DATA" + struct.pack("<I", len(part)) + part)
        self.send(b"DONE" + struct.pack("<I", mtime))

    async def receive(self) -> bytes:
        found = b""
        while True:
            name, size = struct.unpack("<4sI", await self.read(8))
            if name == b"DONE":
                return found
            assert name == b"DATA"
            assert size <= sync.MAX_DATA
            found += await self.read(size)


@pytest.fixture
def session(phone: object) -> Callable[[AdbPhone], Awaitable[Session]]:
    async def opened(phone: AdbPhone) -> Session:
        peer = await AdbPeer.online(phone.port)
        return Session(peer, await peer.open(b"sync:", 1))

    return opened


@pytest.mark.parametrize("size", [0, 1, 65536, 300_001])
async def test_what_is_sent_is_received_again(session: Session, phone: AdbPhone, size: int) -> None:
    data = bytes(index * 7 % 251 for index in range(size))
    session.file(f"{PATH},{0o100640}", data, 1_234_567_890)
    assert await session.status() == (b"OKAY", "")
    session.request(b"RECV", PATH)
    assert await session.receive() == data
    found = phone.system.files.stat(PATH)
    assert (found.size, found.mtime) == (size, 1_234_567_890)


async def test_owners_permissions_spread_as_adbd_spreads_them(session: Session, phone: AdbPhone) -> None:
    session.file(f"{PATH},{0o100700}", b"", 1)
    assert await session.status() == (b"OKAY", "")
    assert stat.S_IMODE(phone.system.files.stat(PATH).mode) == 0o777


async def test_a_file_is_sent_into_folders_that_are_made(session: Session, phone: AdbPhone) -> None:
    session.file(f"/data/local/tmp/new/folder/file,{0o100644}", b"abc", 5)
    assert await session.status() == (b"OKAY", "")
    assert phone.system.files.read("/data/local/tmp/new/folder/file") == b"abc"


async def test_a_file_that_cannot_be_made_is_taken_and_refused_and_the_session_goes_on(
    session: Session, phone: AdbPhone
) -> None:
    session.file(f"/system/app/x,{0o100644}", bytes(100_000), 5)
    name, text = await session.status()
    assert name == b"FAIL"
    assert "Read-only file system" in text or "Permission denied" in text
    session.file(f"{PATH},{0o100644}", b"x", 5)
    assert await session.status() == (b"OKAY", "")


async def test_a_missing_file_cannot_be_received(session: Session, phone: AdbPhone) -> None:
    session.request(b"RECV", "/nowhere")
    assert await session.status() == (b"FAIL", "open failed: No such file or directory")


async def test_stat_tells_mode_size_and_time(session: Session, phone: AdbPhone) -> None:
    phone.system.files.write("/data/local/tmp/f", b"12345", 0o640, mtime=99)
    session.request(b"STAT", "/data/local/tmp/f")
    assert struct.unpack("<4sIII", await session.read(16)) == (b"STAT", 0o100640, 5, 99)
    session.request(b"STAT", "/nowhere")
    assert struct.unpack("<4sIII", await session.read(16)) == (b"STAT", 0, 0, 0)


@pytest.mark.parametrize(("name", "kind"), [(b"STA2", stat.S_IFREG), (b"LST2", stat.S_IFLNK)])
async def test_stat_follows_links_and_lstat_does_not(
    session: Session, phone: AdbPhone, name: bytes, kind: int
) -> None:
    phone.system.files.write("/data/local/tmp/f", b"12345", mtime=99)
    phone.system.files.symlink("f", "/data/local/tmp/l")
    session.request(name, "/data/local/tmp/l")
    fields = struct.unpack("<4sIQQIIIIQqqq", await session.read(72))
    assert (fields[0], fields[1], stat.S_IFMT(fields[4])) == (name, 0, kind)
    session.request(name, "/nowhere")
    assert struct.unpack("<4sIQQIIIIQqqq", await session.read(72)) == (name, errno.ENOENT, *[0] * 10)


@pytest.mark.parametrize(
    ("name", "entry", "layout"), [(b"LIST", b"DENT", "<4sIIII"), (b"LIS2", b"DNT2", "<4sIQQIIIIQqqqI")]
)
async def test_list_gives_every_entry_and_then_done(
    session: Session, phone: AdbPhone, name: bytes, entry: bytes, layout: str
) -> None:
    phone.system.files.mkdir("/data/local/tmp/d")
    for file in ("ä b", "c"):
        phone.system.files.write(f"/data/local/tmp/d/{file}", b"1")
    session.request(name, "/data/local/tmp/d")
    names = []
    while True:
        fields = struct.unpack(layout, await session.read(struct.calcsize(layout)))
        if fields[0] == b"DONE":
            break
        assert fields[0] == entry
        names.append((await session.read(fields[-1])).decode())
    assert names == [".", "..", "c", "ä b"]
    session.request(name, "/nowhere")
    assert struct.unpack_from("<4s", await session.read(struct.calcsize(layout))) == (b"DONE",)


async def test_an_unknown_request_is_refused_and_ends_the_stream(session: Session, phone: AdbPhone) -> None:
    session.request(b"WHAT", "/")
    assert await session.status() == (b"FAIL", "unknown command WHAT")
    while (command := await session.take()) == "OKAY":
        pass
    assert command == "CLSE"


async def test_a_file_larger_than_the_phone_is_refused(
    session: Session, phone: AdbPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "MAX_BYTES", phone.system.files.used() + 1000)
    session.file(f"{PATH},{0o100644}", bytes(1001), 5)
    assert await session.status() == (b"FAIL", "couldn't create file: No space left on device")
    session.file(f"{PATH},{0o100644}", bytes(1000), 5)
    assert await session.status() == (b"OKAY", "")
