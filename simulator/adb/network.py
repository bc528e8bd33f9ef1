"""Ports inside a simulated phone: which of its programs answers when somebody connects to tcp:PORT there.

Nothing of it is a socket of this machine: connections come through adb (`tcp:PORT`), and a phone's ports are
its own. Used from the event loop of the phone's host only.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable
from typing import Protocol


class Pipe(Protocol):
    """One connection, seen by who answers it."""

    async def read(self, size: int) -> bytes:
        """At most `size` bytes; b"" when the other side has closed."""
        ...

    async def write(self, data: bytes) -> None:
        """Sends; returns when there is room for more. Raises ConnectionError when nobody is there."""
        ...


Answer = Callable[[Pipe], Awaitable[None]]
"""Answers one connection; it is closed when the call returns."""


class Network:
    """The ports of one phone."""

    def __init__(self) -> None:
        self._answers: dict[int, Answer] = {}

    def listen(self, port: int, answer: Answer) -> None:
        """Lets `answer` handle the connections to `port` from now on.

        Raises:
            OSError: If the port is taken or no port number (EADDRINUSE, EINVAL).
        """
        if not 0 < port < 65536:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if port in self._answers:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._answers[port] = answer

    def free_port(self) -> int:
        """A port where nobody listens."""
        return next(port for port in range(40000, 65536) if port not in self._answers)

    def close(self, port: int) -> None:
        """Stops listening at `port`; connections that are open go on."""
        self._answers.pop(port, None)

    def answer(self, port: int) -> Answer | None:
        """Who answers at `port`; None when the connection is refused."""
        return self._answers.get(port)

    def clear(self) -> None:
        """Closes all ports, as a reboot does."""
        self._answers.clear()
