"""What a command reads from and writes to: the session's streams, files, pipes and buffers.

A pipe belongs to the two tasks of a pipeline that it joins; all other streams are used by one task at a time.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from distrl.simulator.adb.files import Files

PIPE_BYTES = 1 << 16
"""Most bytes that a pipe holds; a writer waits until there is room."""
CAPTURE_BYTES = 1 << 26
"""Most bytes of output that a command substitution takes."""


class Io(Protocol):
    """The three standard streams of a session."""

    async def read(self, size: int) -> bytes:
        """At most `size` bytes from standard input; b"" at its end."""
        ...

    async def out(self, data: bytes) -> None:
        """Writes to standard output; returns when there is room for more."""
        ...

    async def err(self, data: bytes) -> None:
        """Writes to standard error; returns when there is room for more."""
        ...


class Stream:
    """One end of something that bytes come from or go to. This one has no bytes and takes none."""

    async def read(self, size: int) -> bytes:
        """At most `size` bytes, b"" at the end."""
        return b""

    async def write(self, data: bytes) -> None:
        """Takes `data`. Raises BrokenPipeError when nobody will read it."""

    def close(self) -> None:
        """No more will be read or written through this end. May be called twice."""


class SessionIn(Stream):
    """The session's standard input."""

    def __init__(self, io: Io) -> None:
        self._io = io

    async def read(self, size: int) -> bytes:
        return await self._io.read(size)


class SessionOut(Stream):
    """The session's standard output or error."""

    def __init__(self, io: Io, error: bool = False) -> None:
        self._write = io.err if error else io.out

    async def write(self, data: bytes) -> None:
        if data:
            await self._write(data)


class Terminal(Stream):
    """/dev/tty: reads from one stream, writes to another."""

    def __init__(self, source: Stream, sink: Stream) -> None:
        self._source = source
        self._sink = sink

    async def read(self, size: int) -> bytes:
        return await self._source.read(size)

    async def write(self, data: bytes) -> None:
        await self._sink.write(data)


class Source(Stream):
    """Reads given bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    async def read(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        self._at += len(found)
        return found


class Buffer(Stream):
    """Keeps what is written to it. Raises OverflowError beyond `CAPTURE_BYTES`."""

    def __init__(self) -> None:
        self.data = bytearray()

    async def write(self, data: bytes) -> None:
        if len(self.data) + len(data) > CAPTURE_BYTES:
            raise OverflowError(f"a command's output is larger than {CAPTURE_BYTES} bytes")
        self.data += data


class FileSink(Stream):
    """Writes to a file, created or emptied at once unless it is appended to."""

    def __init__(self, files: Files, path: str, append: bool) -> None:
        self._files = files
        self._path = path
        files.write(path, b"", mode=0o666 & ~0o022, append=append)

    async def write(self, data: bytes) -> None:
        self._files.write(self._path, data, append=True)


class Pipe:
    """A pipe of `PIPE_BYTES`, with a reading and a writing end."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._news = asyncio.Event()
        self._written = self._unread = False
        self.reader: Stream = _Reader(self)
        self.writer: Stream = _Writer(self)

    def _changed(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def read(self, size: int) -> bytes:
        """Waits for bytes or for the writer to be closed."""
        while not self._data and not self._written:
            await self._news.wait()
        found = bytes(self._data[:size])
        del self._data[:size]
        self._changed()
        return found

    async def write(self, data: bytes) -> None:
        """Waits for room; raises BrokenPipeError once the reader is closed."""
        at = 0
        while at < len(data):
            while len(self._data) >= PIPE_BYTES and not self._unread:
                await self._news.wait()
            if self._unread:
                raise BrokenPipeError("the reader is gone")
            room = PIPE_BYTES - len(self._data)
            self._data += data[at : at + room]
            at += room
            self._changed()

    def close(self, reading: bool) -> None:
        """Closes one end, and wakes up the other."""
        if reading:
            self._unread = True
        else:
            self._written = True
        self._changed()


class _Reader(Stream):
    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    async def read(self, size: int) -> bytes:
        return await self._pipe.read(size)

    def close(self) -> None:
        self._pipe.close(reading=True)


class _Writer(Stream):
    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    async def write(self, data: bytes) -> None:
        await self._pipe.write(data)

    def close(self) -> None:
        self._pipe.close(reading=False)
