"""Serves weight chunks: a thread of its own, so that a transfer never delays leases and acks."""

from __future__ import annotations

import logging
import threading

from distrl.core.errors import ProtocolError
from distrl.core.messages import Chunk, ChunkRequest, RejectCode
from distrl.core.service import Service
from distrl.core.sockets import Channel, Poller, Received, Waker
from distrl.core.weights import WeightStore

POLL_S = 1.0
_log = logging.getLogger(__name__)


class ChunkServer:
    """Answers ChunkRequests from a `WeightStore`, zero-copy.

    Args:
        channel: A bound router; this owns it from now on.
        weights: Where the bytes are.
    """

    def __init__(self, channel: Channel, weights: WeightStore) -> None:
        self._channel = channel
        self._weights = weights
        self._service = Service(channel, self._handle)
        self._waker = Waker()
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="weights", daemon=True)

    def start(self) -> None:
        """Starts serving."""
        self._thread.start()

    def check(self) -> None:
        """Raises what ended the thread, if anything did."""
        if self._error is not None:
            raise self._error

    def close(self, timeout_s: float = 5.0) -> None:
        """Stops serving and closes the channel."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._waker.wake()
            self._thread.join(timeout_s)
        self._channel.close()
        self._waker.close()

    def _run(self) -> None:
        poller = Poller([self._channel], self._waker)
        try:
            while not self._stopping.is_set():
                if poller.wait(POLL_S):
                    self._service.pump()
        except BaseException as error:  # noqa: BLE001 - raised again by `check`
            self._error = error
            _log.exception("the weights thread ended")

    def _handle(self, received: Received) -> None:
        message = received.message
        if not isinstance(message, ChunkRequest):
            raise ProtocolError(
                RejectCode.UNEXPECTED.value, f"a {type(message).__name__} is no request for weights"
            )
        data = self._weights.chunk(message.digest, message.offset, message.length)
        self._service.reply(received.peer, Chunk(digest=message.digest, offset=message.offset), [data])
