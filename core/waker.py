"""Wakes a thread that waits in a `distrl.core.sockets.Poller`."""

from __future__ import annotations

import socket


class Waker:
    """Lets any thread wake the thread that waits in a `Poller`."""

    def __init__(self) -> None:
        self.reader, self._writer = socket.socketpair()
        self.reader.setblocking(False)
        self._writer.setblocking(False)

    def wake(self) -> None:
        """Makes the poller return soon. Never blocks."""
        try:
            self._writer.send(b"!")
        except BlockingIOError:
            return  # full of unread wake-ups: the poller is about to return anyway

    def clear(self) -> None:
        """Forgets all wake-ups so far."""
        try:
            while self.reader.recv(4096):
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        """Closes both ends; nobody may wake afterwards."""
        self.reader.close()
        self._writer.close()
