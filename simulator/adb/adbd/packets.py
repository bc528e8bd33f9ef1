"""adb's packets: a header of six words and a payload, read from a byte stream and written to one.

The layout is that of AOSP's `adb/protocol.txt`: command, two arguments, payload length, checksum, and the
command's complement, all little endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = struct.Struct("<6I")
HEADER_BYTES = _HEADER.size

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

AUTH_TOKEN, AUTH_SIGNATURE, AUTH_RSAPUBLICKEY = 1, 2, 3


class PacketError(ValueError):
    """The peer does not speak adb, or not any more: the connection cannot go on."""


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
    """A packet as bytes.

    Args:
        packet: What to send.
        checksums: Whether the peer looks at the checksum; else it is 0.
    """
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
        """Takes bytes in and gives the packets that are complete.

        Raises:
            PacketError: At a header or a checksum that cannot be right.
        """
        self._buffer += data
        while len(self._buffer) >= HEADER_BYTES:
            command, arg0, arg1, size, crc, magic = _HEADER.unpack_from(self._buffer)
            if command not in _KNOWN or magic != command ^ 0xFFFFFFFF:
                raise PacketError(f"no adb packet: command {command:#x}, magic {magic:#x}")
            if size > MAX_PAYLOAD:
                raise PacketError(f"a payload of {size} bytes, the most is {MAX_PAYLOAD}")
            end = HEADER_BYTES + size
            if len(self._buffer) < end:
                return
            payload = bytes(memoryview(self._buffer)[HEADER_BYTES:end])
            del self._buffer[:end]
            if self.checksums and checksum(payload) != crc:
                raise PacketError(f"checksum {crc:#x} of a payload whose sum is {checksum(payload):#x}")
            yield Packet(command, arg0, arg1, payload)
