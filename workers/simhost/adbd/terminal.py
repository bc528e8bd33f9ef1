"""A terminal as `adb shell` expects one: it echoes what is typed, line by line, and writes CR LF for LF.

One task types: it reads the client's keys and fills the line; the shell reads finished lines. Ctrl-D at the
start of a line ends the input, Ctrl-C drops the line.
"""

from __future__ import annotations

import asyncio

from distrl.workers.simhost.shell import Io

_CTRL_C, _CTRL_D, _BACKSPACES = 3, 4, (8, 127)
_MAX_LINE = 65536
"""Longest line; what is typed beyond it is dropped."""


class Terminal:
    """Standard streams on a terminal.

    Args:
        keys: Where keys come from and where output goes.
    """

    def __init__(self, keys: Io) -> None:
        self._keys = keys
        self._line = bytearray()
        self._typed = bytearray()
        self._ended = False
        self._changed = asyncio.Event()

    async def type(self) -> None:
        """Takes keys until the client closes; echoes them."""
        while data := await self._keys.read(4096):
            echo = bytearray()
            for key in data:
                self._press(key, echo)
            if echo:
                await self._keys.out(bytes(echo))
        self._end()

    def _press(self, key: int, echo: bytearray) -> None:
        if key in (10, 13):
            self._typed += self._line + b"\n"
            self._line.clear()
            echo += b"\r\n"
            self._changed.set()
        elif key in _BACKSPACES:
            if self._line:
                self._line.pop()
                echo += b"\b \b"
        elif key == _CTRL_C:
            self._line.clear()
            self._typed += b"\n"
            echo += b"^C\r\n"
            self._changed.set()
        elif key == _CTRL_D:
            if not self._line:
                self._end()
        elif len(self._line) < _MAX_LINE:
            self._line.append(key)
            echo.append(key)

    def _end(self) -> None:
        self._ended = True
        self._changed.set()

    async def read(self, size: int) -> bytes:
        """At most `size` bytes of finished lines; b"" after Ctrl-D."""
        while not self._typed and not self._ended:
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._typed[:size])
        del self._typed[:size]
        return data

    async def out(self, data: bytes) -> None:
        """Standard output."""
        await self._keys.out(data.replace(b"\n", b"\r\n"))

    async def err(self, data: bytes) -> None:
        """Standard error; on a terminal there is no difference."""
        await self.out(data)
