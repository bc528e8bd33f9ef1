"""One call of a command: its arguments and streams, and the phone it runs on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distrl.simulator.adb.files import Files, normal
from distrl.simulator.adb.shell.streams import Stream

if TYPE_CHECKING:
    from distrl.simulator.adb.android import AndroidSystem
    from distrl.simulator.adb.shell.interpreter import Interpreter

CHUNK = 1 << 16
"""Bytes read at once."""
MAX_INPUT = 1 << 28
"""Most bytes of standard input that a command takes at once."""


class Failure(Exception):
    """A command ends.

    Args:
        message: What it prints on standard error; empty for nothing.
        status: Its exit status.
        prefixed: Whether the command's name and a colon come before the message.
    """

    def __init__(self, message: str = "", status: int = 1, prefixed: bool = True) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.prefixed = prefixed


def encode(text: str) -> bytes:
    """Text as the phone's bytes; surrogates stand for bytes that are no UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def decode(data: bytes) -> str:
    """The phone's bytes as text."""
    return data.decode("utf-8", "surrogateescape")


@dataclass
class Call:
    """One call of a command.

    Attributes:
        shell: The shell that calls; its variables, directory and phone.
        name: The command's name as it was called.
        args: Its arguments.
        stdin, stdout, stderr: Its streams.
    """

    shell: Interpreter
    name: str
    args: list[str]
    stdin: Stream
    stdout: Stream
    stderr: Stream

    @property
    def system(self) -> AndroidSystem:
        """The phone."""
        return self.shell.system

    @property
    def files(self) -> Files:
        """The phone's files."""
        return self.shell.system.files

    def path(self, path: str) -> str:
        """`path` seen from the shell's directory."""
        return normal(path, self.shell.cwd) if path else ""

    async def write(self, data: str | bytes) -> None:
        """Writes to standard output."""
        await self.stdout.write(encode(data) if isinstance(data, str) else data)

    async def line(self, text: str = "") -> None:
        """Writes a line to standard output."""
        await self.stdout.write(encode(text + "\n"))

    async def error(self, text: str) -> None:
        """Writes a line to standard error."""
        await self.stderr.write(encode(text + "\n"))

    async def complain(self, path: str, error: OSError) -> None:
        """Says on standard error that something about `path` failed."""
        await self.error(f"{self.name}: {path}: {error.strerror or error}")

    async def chunks(self) -> AsyncIterator[bytes]:
        """Standard input, piece by piece."""
        while True:
            data = await self.stdin.read(CHUNK)
            if not data:
                return
            yield data

    async def read_all(self, limit: int = MAX_INPUT) -> bytes:
        """All of standard input. Raises Failure beyond `limit` bytes."""
        data = bytearray()
        async for chunk in self.chunks():
            data += chunk
            if len(data) > limit:
                raise Failure(f"more than {limit} bytes of input")
        return bytes(data)

    async def lines(self) -> AsyncIterator[bytes]:
        """Standard input, line by line without line ends, as soon as each is there."""
        rest = b""
        async for chunk in self.chunks():
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line
            if len(rest) > MAX_INPUT:
                raise Failure(f"a line of more than {MAX_INPUT} bytes")
        if rest:
            yield rest

    def integer(self, text: str) -> int:
        """`text` as a number. Raises Failure when it is none."""
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdecimal()) or len(digits) > 18:
            raise Failure(f"not integer: {text}")
        return int(text)


Command = Callable[[Call], Awaitable[int]]
"""What a command is: called with its call, it returns its exit status, or raises `Failure` or OSError."""
