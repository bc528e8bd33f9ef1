"""A terminal as `adb shell` expects one: it echoes what is typed, line by line, and writes CR LF for LF.

One task types: it reads the client's keys and fills the line; the shell reads finished lines. Ctrl-C drops
what was typed and interrupts the command in the foreground. Ctrl-D gives what was typed to the reader; at the
start of a line that is nothing, which ends the reader's input.
"""

from __future__ import annotations

import asyncio
from collections import deque

from distrl.simulator.adb.shell import Io

_CTRL_C, _CTRL_D, _BACKSPACES = 3, 4, (8, 127)
_MAX_LINE = 65536
"""Longest line; what is typed beyond it is dropped."""


class Terminal:
    """Standard streams on a terminal.

    Args:
        keys: Where keys come from and where output goes.

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
            self._changed.clear()
            await self._changed.wait()
        if not self._typed:
            return b""
        line = self._typed[0]
        data = bytes(line[:size])
        del line[:size]
        if not line:
            self._typed.popleft()
        return data

    async def out(self, data: bytes) -> None:
        """Standard output."""
        await self._keys.out(data.replace(b"\n", b"\r\n"))

    async def err(self, data: bytes) -> None:
        """Standard error; on a terminal there is no difference."""
        await self.out(data)
