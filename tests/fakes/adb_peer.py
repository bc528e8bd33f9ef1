"""The adb server's end of a connection to a phone, packet by packet, written down from the protocol alone."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass

DEADLINE_S = 30.0
HOST_BANNER = b"host::features=shell_v2,cmd,stat_v2,ls_v2,fixed_push_mkdir,abb_exec,sendrecv_v2"


@dataclass(frozen=True)
class Seen:
    """One packet."""

    command: str
    arg0: int
    arg1: int
    payload: bytes = b""


def pack(
    command: str, arg0: int, arg1: int, payload: bytes = b"", crc: int | None = None, magic: int | None = None
) -> bytes:
    """A packet's bytes; checksum and magic are right unless given."""
    number = int.from_bytes(command.encode(), "little")
    crc = sum(payload) & 0xFFFFFFFF if crc is None else crc
    magic = number ^ 0xFFFFFFFF if magic is None else magic
    return struct.pack("<6I", number, arg0, arg1, len(payload), crc, magic) + payload


class AdbPeer:
    """A connection to a phone's adbd."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> AdbPeer:
        """Connects, and says nothing yet."""
        return cls(*await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), DEADLINE_S))

    @classmethod
    async def online(cls, port: int, version: int = 0x01000001, limit: int = 1 << 20) -> AdbPeer:
        """Connects and shakes hands."""
        peer = await cls.connect(port)
        peer.send("CNXN", version, limit, HOST_BANNER)
        assert (await peer.next()).command == "CNXN"
        return peer

    def send(self, command: str, arg0: int, arg1: int, payload: bytes = b"") -> None:
        """Sends a packet."""
        self.writer.write(pack(command, arg0, arg1, payload))

    async def next(self) -> Seen:
        """The next packet from the phone."""
        header = await asyncio.wait_for(self.reader.readexactly(24), DEADLINE_S)
        number, arg0, arg1, size, _, magic = struct.unpack("<6I", header)
        assert magic == number ^ 0xFFFFFFFF
        payload = await asyncio.wait_for(self.reader.readexactly(size), DEADLINE_S)
        return Seen(number.to_bytes(4, "little").decode(), arg0, arg1, payload)

    async def is_silent(self, during_s: float = 0.2) -> bool:
        """Whether nothing comes for a moment."""
        try:
            await asyncio.wait_for(self.reader.readexactly(1), during_s)
        except asyncio.TimeoutError:
            return True
        return False

    async def ended(self) -> bool:
        """Waits for the end of the connection; whether nothing came before it."""
        try:
            return await asyncio.wait_for(self.reader.read(1), DEADLINE_S) == b""
        except ConnectionError:
            return True

    async def open(self, service: bytes, local: int) -> int:
        """Opens a service. Returns the phone's id of the stream."""
        self.send("OPEN", local, 0, service + b"\0")
        seen = await self.next()
        assert (seen.command, seen.arg1) == ("OKAY", local), seen
        return seen.arg0

    async def run(self, service: bytes, local: int, stdin: bytes = b"") -> bytes:
        """Opens a service, confirms all its data, and gives it when the stream ends."""
        remote = await self.open(service, local)
        if stdin:
            self.send("WRTE", local, remote, stdin)
        data = b""
        while True:
            seen = await self.next()
            if seen.command == "WRTE":
                data += seen.payload
                self.send("OKAY", local, remote)
            elif seen.command == "CLSE":
                self.send("CLSE", local, remote)
                return data

    async def until(self, command: str) -> list[Seen]:
        """All packets up to the first of this kind."""
        found = [await self.next()]
        while found[-1].command != command:
            found.append(await self.next())
        return found

    async def close(self) -> None:
        """Ends the connection."""
        self.writer.close()
