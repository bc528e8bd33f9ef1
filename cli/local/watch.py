"""Listening to the learner's broadcasts: where the run stands, and that it is over."""

from __future__ import annotations

import contextlib
from types import TracebackType

from distrl.configs.schema import NetworkConfig
from distrl.core.errors import ProtocolError
from distrl.core.messages import Shutdown, Status
from distrl.core.security import load_security
from distrl.core.sockets import Wire


class LearnerWatch:
    """Receives broadcasts; the learner repeats its status every second, so a missed one does not matter.

    Attributes:
        status: The newest status, None before the first.
        is_over: The learner said that the run is over.
    """

    def __init__(self, network: NetworkConfig) -> None:
        self.status: Status | None = None
        self.is_over = False
        self._wire = Wire(load_security(network.keys_path, network.key_name))
        self._channel = self._wire.connect_sub(network.broadcast)

    def poll(self, timeout_s: float) -> None:
        """Takes what has arrived; waits up to `timeout_s` for the first message."""
        while True:
            with contextlib.suppress(ProtocolError):  # not a message: somebody else's process at that port
                received = self._channel.recv(timeout_s)
                if received is None:
                    return
                if isinstance(received.message, Status):
                    self.status = received.message
                    self.is_over |= received.message.phase == "done"
                self.is_over |= isinstance(received.message, Shutdown)
            timeout_s = 0.0

    def __enter__(self) -> LearnerWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()
        self._wire.close()
