"""What an adb client can open on the phone: from a service's name to the coroutine that runs it.

    shell:, exec:    a command's streams: plain, in packets (shell v2), or on a terminal
    sync:            files (sync.py)
    framebuffer:     the screen
    tcp:, reverse:   ports of the phone, and those that lead to the adb server's machine
    root:, reboot:   and other controls

Absent on purpose, and not among the features: `abb_exec:` and `track-app:`, so that clients install through
`exec:cmd package install`.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from distrl.simulator.adb import shell as phone_shell
from distrl.simulator.adb.adbd import sync
from distrl.simulator.adb.adbd.stream import Stream
from distrl.simulator.adb.android import RESTART_S, AndroidSystem
from distrl.simulator.adb.call import encode
from distrl.simulator.adb.files import ROOT, SHELL
from distrl.simulator.adb.runtime import Network, Pipe
from distrl.simulator.adb.shell import Io

if TYPE_CHECKING:
    from distrl.simulator.adb.adbd.connection import Connection


Handler = Callable[[Stream], Awaitable[None]]
"""Serves one stream; it is closed when the call returns."""


def find(service: str, connection: Connection) -> Handler | None:
    """The handler of `service`, e.g. "shell:ls"; None when the phone has no such service."""
    system = connection.server.system
    name, _, argument = service.partition(":")
    kind, *options = name.split(",")
    if kind == "shell":
        return lambda stream: shell(system, options, argument, stream)
    if kind == "exec":
        return lambda stream: execute(system, argument, stream)
    if service == "sync:":
        return lambda stream: sync.serve(system.files, stream)
    if service == "framebuffer:":
        return lambda stream: _framebuffer(system, stream)
    if kind == "tcp":
        port = re.fullmatch(r"(\d{1,5})(?::(?:localhost|127\.0\.0\.1))?", argument)
        return system.network.answer(int(port[1])) if port else None
    if kind == "reverse":
        return lambda stream: stream.write(connection.reverse.request(argument))
    control = _CONTROLS.get(kind)
    return control(connection, argument) if control is not None else None


def _reboot(connection: Connection, argument: str) -> Handler:
    async def serve(stream: Stream) -> None:
        asyncio.get_running_loop().call_later(RESTART_S, connection.server.system.reboot)

    return serve


def _become(connection: Connection, uid: int, already: str, changing: str) -> Handler:
    async def serve(stream: Stream) -> None:
        system = connection.server.system
        if system.files.uid == uid:
            await stream.write(already.encode())
            return
        system.files.uid = uid
        await stream.write(changing.encode())
        connection.restart()

    return serve


def _says(text: str) -> Callable[[Connection, str], Handler]:
    return lambda connection, argument: lambda stream: stream.write(encode(text.format(argument)))


_CONTROLS: dict[str, Callable[[Connection, str], Handler]] = {
    "reboot": _reboot,
    "root": lambda connection, _: _become(
        connection, ROOT, "adbd is already running as root\n", "restarting adbd as root\n"
    ),
    "unroot": lambda connection, _: _become(
        connection, SHELL, "adbd not running as root\n", "restarting adbd as non root\n"
    ),
    "remount": _says("remount succeeded\n"),
    "tcpip": _says("restarting in TCP mode port: {}\n"),
    "usb": _says("restarting in USB mode\n"),
}
# shell: and exec:
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
        """Standard output, and errors in between."""
        await self._stream.write(data)

    err = out


class PacketIo:
    """Shell v2: every piece has a header that names its stream."""

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
        """Reads one packet; a closed stream is the end of the input. Window sizes are ignored."""
        try:
            kind, size = _HEADER.unpack(await self._stream.read_exactly(_HEADER.size))
            if size > _MAX_FRAME:
                raise ConnectionAbortedError(f"a shell packet of {size} bytes")
            data = await self._stream.read_exactly(size)
        except ConnectionResetError:
            kind, data = _CLOSE_STDIN, b""
        if kind == _STDIN:
            self._input += data
        elif kind == _CLOSE_STDIN:
            self._ended = True


async def shell(system: AndroidSystem, options: Sequence[str], command: str, stream: Stream) -> None:
    """`shell:COMMAND`, and `shell,v2,TERM=…,raw|pty:COMMAND`; without a command on a terminal."""
    stream.lingers = True
    is_tty = "raw" not in options if "pty" in options or not command else False
    if "v2" not in options:
        await _run(system, command, PlainIo(stream), is_tty)
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


# framebuffer:

_FRAME_VERSION = 1
_BITS = 32
_RED, _GREEN, _BLUE, _ALPHA = (0, 8), (8, 8), (16, 8), (24, 8)
"""Offset and length of each channel, in bits: bytes in the order red, green, blue, alpha."""


async def _framebuffer(system: AndroidSystem, stream: Stream) -> None:
    """`framebuffer:`: the screen as raw pixels after a header of 13 words (its first version)."""
    image = system.screenshot().convert("RGBA")
    width, height = image.size
    size = width * height * _BITS // 8
    header = struct.pack("<13I", _FRAME_VERSION, _BITS, size, width, height, *_RED, *_BLUE, *_GREEN, *_ALPHA)
    await stream.write(header)
    await stream.write(image.tobytes())


# reverse:, whose requests are answered with OKAY or FAIL and a text, its length before it in four hex digits.

_OPEN_S = 10.0
"""How long the adb server may take to connect; then the phone's connection is closed."""
_RELAY_BYTES = 64 * 1024
_SERIAL = "host-1"
"""What adbd calls the transport in its list."""


class Reverse:
    """The forwards of one connection; they end with it.

    Args:
        open_stream: Opens a stream to a service of the adb server.
    """

    def __init__(self, network: Network, open_stream: Callable[[str], Stream]) -> None:
        self._network = network
        self._open_stream = open_stream
        self._forwards: dict[int, str] = {}

    def request(self, text: str) -> bytes:
        """Carries out a request (what follows "reverse:") and gives the answer."""
        verb, _, rest = text.partition(":")
        if verb == "forward":
            return self._forward(rest)
        if verb == "list-forward":
            lines = (f"{_SERIAL} tcp:{port} {remote}\n" for port, remote in self._forwards.items())
            return _text("".join(lines))
        if verb == "killforward-all":
            self.clear()
            return b"OKAY"
        if verb == "killforward":
            port = _port(rest)
            if port is None or port not in self._forwards:
                return _fail(f"listener '{rest}' not found")
            self._remove(port)
            return b"OKAY"
        return _fail(f"unknown request 'reverse:{text}'")

    def clear(self) -> None:
        """Removes all forwards."""
        for port in list(self._forwards):
            self._remove(port)

    def _remove(self, port: int) -> None:
        del self._forwards[port]
        self._network.close(port)

    def _forward(self, text: str) -> bytes:
        rebinds = not text.startswith("norebind:")
        local, _, remote = text.removeprefix("norebind:").partition(";")
        port = _port(local)
        if port is None or _port(remote) is None:
            return _fail("only tcp ports can be forwarded")
        wants_any = port == 0
        if wants_any:
            port = self._network.free_port()
        if port in self._forwards:
            if not rebinds:
                return _fail("cannot rebind existing socket")
        else:
            try:
                self._network.listen(port, lambda pipe: self._answer(pipe, port))
            except OSError as error:
                return _fail(f"cannot bind listener: {error.strerror}")
        self._forwards[port] = remote
        return b"OKAY" + (_text(str(port)) if wants_any else b"")

    async def _answer(self, pipe: Pipe, port: int) -> None:
        stream = self._open_stream(self._forwards[port])
        try:
            if await asyncio.wait_for(stream.opened(), _OPEN_S):
                await relay(pipe, stream)
        except asyncio.TimeoutError:
            return
        finally:
            stream.close()


async def relay(left: Pipe, right: Pipe) -> None:
    """Passes bytes on in both directions until one side ends."""
    tasks = [asyncio.ensure_future(_copy(left, right)), asyncio.ensure_future(_copy(right, left))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(source: Pipe, target: Pipe) -> None:
    while data := await source.read(_RELAY_BYTES):
        await target.write(data)


def _port(spec: str) -> int | None:
    """The number of "tcp:N", None if it is something else."""
    found = re.fullmatch(r"tcp:(\d{1,5})", spec)
    return int(found[1]) if found and int(found[1]) < 65536 else None


def _text(text: str) -> bytes:
    data = encode(text)[:0xFFFF]
    return f"{len(data):04x}".encode() + data


def _fail(text: str) -> bytes:
    return b"FAIL" + _text(text)


# Terminals: they echo what is typed, line by line, and write CR LF for LF.

_CTRL_C, _CTRL_D, _CTRL_U, _BACKSPACES = 3, 4, 21, (8, 127)
_MAX_LINE = 65536
"""Longest line; what is typed beyond it is dropped."""
_MAX_TYPED = 1024
"""The terminal takes no more keys, Ctrl-C among them, while more lines than this wait for a reader."""


class Terminal:
    """Standard streams on a terminal.

    One task types: it reads the client's keys and fills the line; the shell reads finished lines. Ctrl-C
    drops what was typed and interrupts the command in the foreground. Ctrl-D gives what was typed to the
    reader; at the start of a line that is nothing, which ends the reader's input.

    Attributes:
        interrupts: Set at each Ctrl-C; the shell clears it.
    """

    def __init__(self, keys: Io) -> None:
        self._keys = keys
        self._line = bytearray()
        self._typed: deque[bytearray] = deque()
        self.interrupts = asyncio.Event()
        self._ended = False
        self._changed = asyncio.Event()

    async def type(self) -> None:
        """Takes keys until the client closes; echoes them."""
        while data := await self._keys.read(4096):
            while len(self._typed) > _MAX_TYPED:
                await self._change()
            echo = bytearray()
            for key in data:
                self._press(key, echo)
            if echo:
                await self._keys.out(bytes(echo))
        self._ended = True
        self._changed.set()

    def _press(self, key: int, echo: bytearray) -> None:
        if key in (10, 13):
            self._line.append(10)
            self._give()
            echo += b"\r\n"
        elif key in _BACKSPACES:
            if self._line:
                self._line.pop()
                echo += b"\b \b"
        elif key == _CTRL_U:
            echo += b"\b \b" * len(self._line)
            self._line.clear()
        elif key == _CTRL_C:
            self._line.clear()
            self._typed.clear()
            echo += b"^C\r\n"
            self.interrupts.set()
        elif key == _CTRL_D:
            self._give()
        elif len(self._line) < _MAX_LINE:
            self._line.append(key)
            echo.append(key)

    def _give(self) -> None:
        self._typed.append(self._line)
        self._line = bytearray()
        self._changed.set()

    async def read(self, size: int) -> bytes:
        """At most `size` bytes of one line; b"" once for a Ctrl-D, and always after the client has closed."""
        while not self._typed and not self._ended:
            await self._change()
        if not self._typed:
            return b""
        line = self._typed[0]
        data = bytes(line[:size])
        del line[:size]
        if not line:
            self._typed.popleft()
            self._changed.set()
        return data

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def out(self, data: bytes) -> None:
        """Standard output and errors; on a terminal there is no difference."""
        await self._keys.out(data.replace(b"\n", b"\r\n"))

    err = out
