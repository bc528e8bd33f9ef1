"""The services `shell:` and `exec:`: a command's streams, plain, in packets (shell v2) or on a terminal."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

from distrl.simulator.adb import shell as phone_shell
from distrl.simulator.adb.adbd.stream import Stream
from distrl.simulator.adb.adbd.terminal import Terminal
from distrl.simulator.adb.android import AndroidSystem

_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = 0, 1, 2, 3, 4
_HEADER = struct.Struct("<BI")
_MAX_FRAME = 1 << 20
"""Most bytes in one shell packet that the phone takes."""


class PlainIo:
    """Standard input is the stream; output and errors go to it as they are."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def read(self, size: int) -> bytes:
        """At most `size` bytes; b"" at the end."""
        return await self._stream.read(size)

    async def out(self, data: bytes) -> None:
        """Standard output."""
        await self._stream.write(data)

    async def err(self, data: bytes) -> None:
        """Standard error, in between."""
        await self._stream.write(data)


class PacketIo:
    """Shell v2: every piece has a header that tells which stream it belongs to."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._input = bytearray()
        self._ended = False

    async def read(self, size: int) -> bytes:
        """At most `size` bytes of standard input; b"" at its end."""
        while not self._input and not self._ended:
            await self._next()
        data = bytes(self._input[:size])
        del self._input[:size]
        return data

    async def out(self, data: bytes) -> None:
        """Standard output."""
        await self._send(_STDOUT, data)

    async def err(self, data: bytes) -> None:
        """Standard error."""
        await self._send(_STDERR, data)

    async def exit(self, status: int) -> None:
        """The last packet: the exit status."""
        await self._send(_EXIT, bytes([status & 0xFF]))

    async def _send(self, kind: int, data: bytes) -> None:
        if data:
            await self._stream.write(_HEADER.pack(kind, len(data)) + data)

    async def _next(self) -> None:
        """Reads one packet. Window sizes are of no interest here."""
        kind, size = _HEADER.unpack(await self._stream.read_exactly(_HEADER.size))
        if size > _MAX_FRAME:
            raise ConnectionAbortedError(f"a shell packet of {size} bytes")
        data = await self._stream.read_exactly(size)
        if kind == _STDIN:
            self._input += data
        elif kind == _CLOSE_STDIN:
            self._ended = True


async def shell(system: AndroidSystem, options: Sequence[str], command: str, stream: Stream) -> None:
    """`shell:COMMAND`, and `shell,v2,TERM=…,raw|pty:COMMAND`; without a command on a terminal.

    Args:
        system: The phone.
        options: What follows "shell," in the service's name.
        command: The command line; empty for an interactive shell.
        stream: The client.
    """
    stream.lingers = True
    is_tty = "raw" not in options if "pty" in options or not command else False
    if "v2" not in options:
        plain = PlainIo(stream)
        await _run(system, command, plain, is_tty)
        return
    packets = PacketIo(stream)
    await packets.exit(await _run(system, command, packets, is_tty))


async def execute(system: AndroidSystem, command: str, stream: Stream) -> None:
    """`exec:COMMAND`: bytes in and out as they are, errors among them."""
    stream.lingers = True
    await phone_shell.run(system, command, PlainIo(stream))


async def _run(system: AndroidSystem, command: str, io: PlainIo | PacketIo, is_tty: bool) -> int:
    if not is_tty:
        return await phone_shell.run(system, command, io)
    terminal = Terminal(io)
    typing = asyncio.ensure_future(terminal.type())
    try:
        return await phone_shell.run(system, command, terminal, interrupts=terminal.interrupts)
    finally:
        typing.cancel()
        await asyncio.gather(typing, return_exceptions=True)
