"""The adb server that the threads of a pool share: one of them starts it if need be, the others wait."""

from __future__ import annotations

import threading

from distrl.workers.devices.adb.server import START_S, AdbServer
from distrl.workers.devices.errors import ServerUnavailable


class PoolServer(AdbServer):
    """As `AdbServer`, for many threads. Once ended, it is not started again.

    Args:
        host, port: Where it listens.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 5037) -> None:
        super().__init__(host, port)
        self._starting = threading.Lock()
        self._is_over = False

    def ensure_running(self, timeout_s: float = START_S) -> None:
        """See `AdbServer`; waits up to `timeout_s` for the thread that is starting one."""
        if not self._starting.acquire(timeout=timeout_s):
            raise ServerUnavailable(f"the start of an adb server at port {self.port} takes too long.")
        try:
            if self._is_over:
                raise ServerUnavailable("the pool of devices is closed.")
            super().ensure_running(timeout_s)
        finally:
            self._starting.release()

    def end(self) -> None:
        """Ends the server if it was started here, and lets nobody start another."""
        self._is_over = True
        with self._starting:
            self.stop()
