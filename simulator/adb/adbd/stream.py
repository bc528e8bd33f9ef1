"""adb's packets, and one stream of a connection: bytes in both directions, one packet of each on the way.

The layout of packets is that of AOSP's `adb/protocol.txt`: command, two arguments, payload length, checksum,
and the command's complement, all little endian.

What is written to a stream is kept until the connection's `flush` at the end of the event loop's present
round, so that a service's answer, its exit status and the end of the stream leave together. A peer's packet
is confirmed when there is room for another.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distrl.simulator.adb.adbd.connection import Connection

_HEADER = struct.Struct("<6I")
CNXN = int.from_bytes(b"CNXN", "little")
AUTH = int.from_bytes(b"AUTH", "little")
OPEN = int.from_bytes(b"OPEN", "little")
OKAY = int.from_bytes(b"OKAY", "little")
CLSE = int.from_bytes(b"CLSE", "little")
WRTE = int.from_bytes(b"WRTE", "little")
_KNOWN = {CNXN, AUTH, OPEN, OKAY, CLSE, WRTE}
VERSION = 0x01000001
"""The newest protocol version: checksums are neither sent nor looked at."""
CHECKSUM_VERSION = 0x01000000
"""The version before: every packet carries the sum of its payload's bytes."""
MAX_PAYLOAD = 1 << 20
"""Most bytes of one payload."""
MIN_PAYLOAD = 4096
"""What the first version allowed, and every peer takes."""
AUTH_TOKEN, AUTH_SIGNATURE = 1, 2


class PacketError(ValueError):
    """The peer does not speak adb, or stopped doing so: the connection cannot continue."""


@dataclass(frozen=True)
class Packet:
    """One packet.

    Attributes:
        command: `CNXN`, `AUTH`, `OPEN`, `OKAY`, `CLSE` or `WRTE`.
        arg0, arg1: What they mean depends on the command; for streams the sender's id and the receiver's.
        payload: The data.
    """

    command: int
    arg0: int
    arg1: int
    payload: bytes = b""


def checksum(payload: bytes) -> int:
    """adb's "CRC": the sum of all bytes."""
    return sum(payload) & 0xFFFFFFFF


def encode(packet: Packet, checksums: bool) -> bytes:
    """A packet as bytes; its checksum is 0 for a peer that does not look at it."""
    crc = checksum(packet.payload) if checksums else 0
    magic = packet.command ^ 0xFFFFFFFF
    header = _HEADER.pack(packet.command, packet.arg0, packet.arg1, len(packet.payload), crc, magic)
    return header + packet.payload


class Reader:
    """Cuts what a peer sends into packets.

    Attributes:
        checksums: Whether payloads are checked; set to False once both sides speak `VERSION`.
    """

    def __init__(self) -> None:
        self.checksums = True
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Packet]:
        """Takes bytes in and gives the packets that are complete. Raises PacketError at anything else."""
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            command, arg0, arg1, size, crc, magic = _HEADER.unpack_from(self._buffer)
            if command not in _KNOWN or magic != command ^ 0xFFFFFFFF:
                raise PacketError(f"not an adb packet: command {command:#x}, magic {magic:#x}")
            if size > MAX_PAYLOAD:
                raise PacketError(f"a payload of {size} bytes, the most is {MAX_PAYLOAD}")
            end = _HEADER.size + size
            if len(self._buffer) < end:
                return
            payload = bytes(memoryview(self._buffer)[_HEADER.size : end])
            del self._buffer[:end]
            if self.checksums and checksum(payload) != crc:
                raise PacketError(f"checksum {crc:#x} of a payload whose sum is {checksum(payload):#x}")
            yield Packet(command, arg0, arg1, payload)


READ_AHEAD = 256 * 1024
"""More than this many unread bytes are not confirmed, so that the peer waits."""
WRITE_AHEAD = 1 << 20
"""`write` waits while more than this many bytes wait to be sent."""
LINGER_S = 1.0
"""How long a command continues at most when its client has closed, e.g. to write what was piped into it."""


class Stream:
    """A stream.

    Args:
        remote: The peer's id; 0 while it has not accepted yet.

    Attributes:
        task: The service that runs on it, if any.
        lingers: Whether the service may finish when the peer has closed, as a command does.
    """

    def __init__(self, link: Connection, local: int, remote: int = 0) -> None:
        self.local, self.remote = local, remote
        self.task: asyncio.Task[None] | None = None
        self.lingers = False
        self._link = link
        self._in = bytearray()
        self._owes_okay = False
        self._out: deque[bytes | memoryview] = deque()
        self._waiting = 0
        self._may_send = remote != 0
        self._ends = False  # no more is written by us
        self._ended = False  # by either side
        self._changed = asyncio.Event()
        self._busy_since = time.monotonic()

    # Called by the connection.

    def accepted(self, remote: int) -> None:
        """The peer confirms: the stream is open, or there is room for the next packet."""
        self.remote = self.remote or remote
        self._may_send = True
        self.pump()
        self._changed.set()

    def received(self, data: bytes) -> None:
        """The peer's data. Raises PacketError if nothing was confirmed before it."""
        if self._owes_okay:
            raise PacketError("data before the last was confirmed")
        self._in += data
        self._owes_okay = True
        self._confirm()
        self._changed.set()

    def ended_by_peer(self, is_gone: bool = False) -> None:
        """The peer has closed: what was not sent is dropped, and the service stops.

        A service that lingers sees the end of its input after what has come, and has `LINGER_S` to finish.

        Args:
            is_gone: The connection is lost too: nothing lingers.
        """
        self._ended = True
        self._out.clear()
        self._waiting = 0
        self._changed.set()
        if self.task is not None and self.lingers and not is_gone:
            asyncio.get_running_loop().call_later(LINGER_S, self.task.cancel)
        elif self.task is not None:
            self.task.cancel()

    def pump(self) -> None:
        """Sends the next packet, if the peer has room, and the end after the last."""
        if self._ended:
            return
        if self._may_send and self._out:
            self._may_send = False
            self._link.send(Packet(WRTE, self.local, self.remote, self._take()))
            self._changed.set()
        if self._ends and not self._out and self.remote:
            self._ended = True
            self._link.send(Packet(CLSE, self.local, self.remote))
            self._link.forget(self)

    # Called by services.

    async def opened(self) -> bool:
        """Waits until the peer has accepted or refused the stream. Returns whether it has accepted."""
        while not self._ended and not self.remote:
            await self._change()
        return not self._ended

    async def read(self, size: int) -> bytes:
        """At most `size` bytes; b"" when the peer has closed."""
        while not self._in and not self._ended:
            await self._change()
        data = bytes(self._in[:size])
        del self._in[:size]
        self._confirm()
        self._busy_since = time.monotonic()
        return data

    async def read_exactly(self, size: int) -> bytes:
        """Exactly `size` bytes. Raises ConnectionError if the peer closes before."""
        while len(self._in) < size:
            if self._ended:
                raise ConnectionResetError("the stream was closed")
            self._confirm(wanted=size)
            if len(self._in) < size:
                await self._change()
        return await self.read(size) if size else b""

    async def write(self, data: bytes) -> None:
        """Sends `data`; returns when there is room for more. Raises ConnectionError after the end."""
        delay_s = self._link.faults.delay_s(time.monotonic() - self._busy_since)
        if delay_s:
            await asyncio.sleep(delay_s)
            self._busy_since = time.monotonic()
        if self._ended or self._ends:
            raise BrokenPipeError("the stream was closed")
        if data:
            self._out.append(data)
            self._waiting += len(data)
            self._link.wants_flush(self)
        while self._waiting > WRITE_AHEAD:
            await self._change()
            if self._ended:
                raise BrokenPipeError("the stream was closed")

    def close(self) -> None:
        """Ends the stream after what was written; the peer may continue to send until it notices."""
        if not self._ends:
            self._ends = True
            self._link.wants_flush(self)

    def _confirm(self, wanted: int = 0) -> None:
        if self._owes_okay and not self._ended and len(self._in) <= max(READ_AHEAD, wanted):
            self._owes_okay = False
            self._link.send(Packet(OKAY, self.local, self.remote))

    def _take(self) -> bytes:
        limit = self._link.max_payload
        taken, size = [], 0
        while self._out and size < limit:
            chunk = self._out.popleft()
            if size + len(chunk) > limit:
                rest = memoryview(chunk)
                self._out.appendleft(rest[limit - size :])
                chunk = rest[: limit - size]
            taken.append(chunk)
            size += len(chunk)
        self._waiting -= size
        return b"".join(taken)

    async def _change(self) -> None:
        """Waits for anything to happen; the connection's end is something, so this ends."""
        self._changed.clear()
        await self._changed.wait()
