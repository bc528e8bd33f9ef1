"""A device's file service for tests, in both versions of the protocol, with the refusals of adbd."""

from __future__ import annotations

import struct
from collections.abc import Callable

from adb_server_fake import Peer

REGULAR, DIRECTORY = 0o100644, 0o040755
_ENOENT = 2


class FakeFiles:
    """Files by path: (mode, mtime, bytes). A path in `forbidden` is refused with its text."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[int, int, bytes]] = {}
        self.forbidden: dict[str, str] = {}
        self.calls: list[bytes] = []
        self.hurdle: Callable[[Peer], None] | None = None
        """Happens in the middle of a file that is read."""

    def serve(self, service: str, peer: Peer) -> None:
        assert service == "sync:"
        peer.okay()
        while True:
            kind, size = peer.read(4), struct.unpack("<I", peer.read(4))[0]
            self.calls.append(kind)
            if kind == b"QUIT":
                return
            path = peer.read(size).decode()
            if not self._call(kind, path, peer):
                return

    def _call(self, kind: bytes, path: str, peer: Peer) -> bool:
        if kind in (b"STAT", b"STA2"):
            self._stat(kind, path, peer)
        elif kind in (b"LIST", b"LIS2"):
            self._list(kind, path, peer)
        elif kind in (b"SEND", b"SND2"):
            return self._send(kind, path, peer)
        else:
            if kind == b"RCV2":
                assert peer.read(8) == b"RCV2\0\0\0\0"
            self._receive(path, peer)
        return True

    def _facts(self, kind: bytes, path: str) -> bytes:
        mode, mtime, data = self.files.get(path, (0, 0, b""))
        if kind in (b"STAT", b"LIST"):
            return struct.pack("<III", mode, len(data), mtime)
        error = 0 if mode else _ENOENT
        return struct.pack("<IQQIIIIQqqq", error, 1, 2, mode, 1, 0, 0, len(data), mtime, mtime, mtime)

    def _stat(self, kind: bytes, path: str, peer: Peer) -> None:
        peer.send(kind + self._facts(kind, path))

    def _list(self, kind: bytes, path: str, peer: Peer) -> None:
        entry = b"DENT" if kind == b"LIST" else b"DNT2"
        for found in [path + "/.", *self.files]:
            folder, _, name = found.rpartition("/")
            if folder == path:
                data = name.encode()
                peer.send(entry + self._facts(kind, found) + struct.pack("<I", len(data)) + data)
        peer.send(b"DONE" + bytes(len(self._facts(kind, "")) + 4))

    def _send(self, kind: bytes, path: str, peer: Peer) -> bool:
        if kind == b"SND2":
            again, mode, flags = struct.unpack("<4sII", peer.read(12))
            assert (again, flags) == (b"SND2", 0)
        else:
            path, _, text = path.rpartition(",")
            mode = int(text)
        if path in self.forbidden:
            self._fail(self.forbidden[path], peer)
            return False
        data = b""
        while True:
            piece, number = peer.read(4), struct.unpack("<I", peer.read(4))[0]
            if piece == b"DONE":
                self.files[path] = (mode, number, data)
                peer.send(b"OKAY\0\0\0\0")
                return True
            assert piece == b"DATA"
            assert number <= 64 * 1024
            data += peer.read(number)

    def _receive(self, path: str, peer: Peer) -> None:
        if path not in self.files:
            self._fail(f"open failed: No such file or directory ({path})", peer)
            return
        data = self.files[path][2]
        for at in range(0, len(data), 60_000):
            piece = data[at : at + 60_000]
            peer.send(b"DATA" + struct.pack("<I", len(piece)) + piece)
            if self.hurdle is not None:
                self.hurdle(peer)
        peer.send(b"DONE\0\0\0\0")

    @staticmethod
    def _fail(text: str, peer: Peer) -> None:
        peer.send(b"FAIL" + struct.pack("<I", len(text)) + text.encode())
