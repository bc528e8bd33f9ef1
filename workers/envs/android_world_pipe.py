"""Messages between an AndroidWorld environment and its child process: msgpack maps, with deadlines.

    environment (a slot's thread)            child (one thread)
    {op: "step", …}          ──────────────► the package does it
                             ◄────────────── {ok: {…}}   or   {error: kind, message, detail}

One socket pair, one call at a time: 4 bytes of length, then the message. Only plain data travels.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

import msgpack

MAX_BYTES = 256 * 2**20
"""Largest message; a raw screenshot of 1440x3200 has 14 MiB."""

_LENGTH = struct.Struct(">I")


class PipeClosed(Exception):
    """The other side is gone."""


class PipeTimeout(Exception):
    """The other side did not answer in time."""


class Pipe:
    """One end. Used by one thread.

    Args:
        stream: A connected stream socket; the pipe owns it.
    """

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream

    def send(self, message: Mapping[str, Any], seconds: float | None = None) -> None:
        """Sends a message.

        Args:
            message: Plain data.
            seconds: The deadline; None waits as long as the other side lives.

        Raises:
            PipeTimeout: It could not be handed over in time.
            PipeClosed: Nobody is there to take it.
        """
        data = msgpack.packb(dict(message), use_bin_type=True)
        if len(data) > MAX_BYTES:
            raise ValueError(f"a message of {len(data)} bytes is longer than {MAX_BYTES}")
        self._stream.settimeout(seconds)
        try:
            self._stream.sendall(_LENGTH.pack(len(data)) + data)
        except TimeoutError as error:
            raise PipeTimeout from error
        except OSError as error:
            raise PipeClosed from error

    def receive(self, seconds: float | None = None) -> dict[str, Any]:
        """The next message, all of it within `seconds`; None waits as long as the other side lives.

        Raises:
            PipeTimeout: It did not come in time.
            PipeClosed: The other side is gone, or sent what is no message.
        """
        end = None if seconds is None else time.monotonic() + seconds
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, end))
        if length > MAX_BYTES:
            raise PipeClosed
        try:
            message = msgpack.unpackb(self._read(length, end), raw=False)
        except (ValueError, msgpack.UnpackException) as error:
            raise PipeClosed from error
        if not isinstance(message, dict):
            raise PipeClosed
        return message

    def _read(self, size: int, end: float | None) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0.0:
                raise PipeTimeout
            self._stream.settimeout(left)
            try:
                count = self._stream.recv_into(view)
            except TimeoutError as error:
                raise PipeTimeout from error
            except OSError as error:
                raise PipeClosed from error
            if count == 0:
                raise PipeClosed
            view = view[count:]
        return bytes(data)

    def close(self) -> None:
        """Ends the conversation. May be called twice."""
        self._stream.close()
