"""One call of a command: its arguments and streams, and the phone it runs on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distrl.simulator.adb.android import AndroidSystem
    from distrl.simulator.adb.files import Files

CHUNK = 1 << 16
"""Bytes read at once."""
MAX_LINE = 1 << 20
"""Most bytes of one line of standard input."""


class Stream:
    """One end of something that bytes come from or go to. This one has no bytes and takes none."""

    async def read(self, size: int) -> bytes:
        """At most `size` bytes, b"" at the end."""
        return b""

    async def write(self, data: bytes) -> None:
        """Takes `data`. Raises BrokenPipeError when it will not be read."""


class Failure(Exception):
    """A command ends with `status`, and `message` (behind its name if `prefixed`) on standard error."""

    def __init__(self, message: str = "", status: int = 1, prefixed: bool = True) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.prefixed = prefixed


def thrown(kind: str, message: str, verb: str) -> Failure:
    """A command of Android's ends with an exception of `java.lang`."""
    text = f"\nException occurred while executing '{verb}':\njava.lang.{kind}: {message}"
    return Failure(text, 255, prefixed=False)


def encode(text: str) -> bytes:
    """Text as the phone's bytes; surrogates stand for bytes that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def decode(data: bytes) -> str:
    """The phone's bytes as text."""
    return data.decode("utf-8", "surrogateescape")


@dataclass
class Call:
    """One call of a command."""

    system: AndroidSystem
    name: str
    args: list[str]
    stdin: Stream
    stdout: Stream
    stderr: Stream

    @property
    def files(self) -> Files:
        """The phone's files."""
        return self.system.files

    def path(self, path: str) -> str:
        """`path` as an absolute path; a shell's directory is always the root."""
        return path if path.startswith("/") or not path else f"/{path}"

    async def write(self, data: str | bytes) -> None:
        """Writes to standard output."""
        await self.stdout.write(encode(data) if isinstance(data, str) else data)

    async def line(self, text: str = "") -> None:
        """Writes a line to standard output."""
        await self.stdout.write(encode(text + "\n"))

    async def error(self, text: str) -> None:
        """Writes a line to standard error."""
        await self.stderr.write(encode(text + "\n"))

    async def chunks(self, limit: int | None = None) -> AsyncIterator[bytes]:
        """Standard input, piece by piece. Raises Failure beyond `limit` bytes."""
        size = 0
        while data := await self.stdin.read(CHUNK):
            size += len(data)
            if limit is not None and size > limit:
                raise Failure(f"more than {limit} bytes of input")
            yield data

    async def lines(self) -> AsyncIterator[str]:
        """Standard input, line by line without line ends, as soon as each arrives."""
        rest = b""
        async for chunk in self.chunks():
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield decode(line)
            if len(rest) > MAX_LINE:
                raise Failure(f"a line of more than {MAX_LINE} bytes")
        if rest:
            yield decode(rest)

    def integer(self, text: str) -> int:
        """`text` as a number. Raises Failure when it is not one."""
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdecimal()) or len(digits) > 18:
            raise Failure(f"not integer: {text}")
        return int(text)

    def options(self, flags: str, valued: str = "") -> tuple[dict[str, str], list[str]]:
        """Reads options as getopt does: the letters `flags` have no value, those of `valued` have one.

        Returns:
            The options by letter, and the other arguments.
        """
        found: dict[str, str] = {}
        rest: list[str] = []
        args = list(self.args)
        while args:
            arg = args.pop(0)
            if arg == "--":
                return found, rest + args
            if len(arg) < 2 or arg[0] != "-":
                rest.append(arg)
                continue
            for place, letter in enumerate(arg[1:], 1):
                if letter in valued:
                    if place + 1 == len(arg) and not args:
                        raise Failure(f"Missing argument to {letter}")
                    found[letter] = arg[place + 1 :] or args.pop(0)
                    break
                if letter not in flags:
                    raise Failure(f"Unknown option '{letter}' (not supported by the simulated phone)")
                found[letter] = ""
        return found, rest


Command = Callable[[Call], Awaitable[int]]
"""A command: a coroutine that gets its call and returns its exit status, or raises `Failure` or OSError."""
Verb = Callable[[Call, list[str]], Awaitable[int]]
"""A command's own command: gets the call, and its arguments behind the verb."""


async def run_verb(call: Call, verbs: Mapping[str, Verb]) -> int:
    """Does what the first argument says, as Android's shell commands (`cmd SERVICE VERB …`) do."""
    verb = call.args[0] if call.args else ""
    work = verbs.get(verb)
    if work is None:
        raise Failure(f"Unknown command: {verb} (supported: {', '.join(verbs)})", 255, prefixed=False)
    return await work(call, call.args[1:])
