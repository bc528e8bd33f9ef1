"""Serves weight chunks, of a learner or of an inference server that passes weights on.

A thread of its own, so that a transfer delays nothing else. A `Gate` keeps the first receivers few: the
others go to those that have the weights by then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from distrl.core.errors import ProtocolError
from distrl.core.messages import Chunk, ChunkDone, ChunkRequest, Reject, RejectCode
from distrl.core.service import WEIGHTS, Permits, Service
from distrl.core.sockets import Channel, Poller, Received, Waker
from distrl.core.weights import WeightStore

POLL_S = 1.0
PLACE_S = 5.0  # a receiver that asks for nothing for so long has no place any more
_log = logging.getLogger(__name__)


class Gate:
    """Who is served. Used by the server's thread, but for the attributes, which any thread may set.

    Args:
        limit: How many receivers of one set of weights have a place at a time; None: all are served.
        frees_at_once: Whether who is done gives its place to the next. A learner waits instead: who is done
            will soon be known as a holder, and the next one can go there.
        clock: Monotonic seconds.

    Attributes:
        limit: As above.
        held: The digest of weights that others are known to have: who has not tried them is not let in.
    """

    def __init__(
        self,
        limit: int | None = None,
        frees_at_once: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit, self.held = limit, ""
        self._frees_at_once, self._clock = frees_at_once, clock
        self._places: dict[bytes, tuple[str, float]] = {}

    def admits(self, peer: bytes, request: ChunkRequest) -> bool:
        """Whether `peer` is served; it has a place then."""
        limit, now = self.limit, self._clock()
        if limit is None:
            return True
        self._places = {
            one: (digest, at) for one, (digest, at) in self._places.items() if now - at <= PLACE_S
        }
        digest, _ = self._places.get(peer, ("", 0.0))
        if digest != request.digest:
            num_taken = sum(taken == request.digest for taken, _ in self._places.values())
            if num_taken >= limit or (self.held == request.digest and not request.others_failed):
                return False
        self._places[peer] = request.digest, now
        return True

    def done(self, peer: bytes) -> None:
        """`peer` has all that it wanted."""
        if self._frees_at_once:
            self._places.pop(peer, None)


class ChunkServer:
    """Answers ChunkRequests from a `WeightStore`, zero-copy.

    Args:
        channel: A bound router; this owns it from now on.
        weights: Where the bytes are.
        gate: Who is served; by default everybody.
        permits: Which roles may fetch, where the channel has keys.

    Attributes:
        num_bytes: How many have left.
    """

    def __init__(
        self, channel: Channel, weights: WeightStore, gate: Gate | None = None, permits: Permits = WEIGHTS
    ) -> None:
        self._channel = channel
        self._weights = weights
        self._gate = gate or Gate()
        self._service = Service(channel, self._handle, permits)
        self._waker = Waker()
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="weights", daemon=True)
        self.num_bytes = 0

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
        message, peer = received.message, received.peer
        if isinstance(message, ChunkDone):
            self._gate.done(peer)
            return
        if not isinstance(message, ChunkRequest):
            raise ProtocolError(
                RejectCode.UNEXPECTED.value, f"a {type(message).__name__} is no request for weights"
            )
        data = self._weights.chunk(message.digest, message.offset, message.length)
        if not self._weights.is_list(message.digest) and not self._gate.admits(peer, message):
            reason = f"others are served with the weights {message.digest:.16}… first"
            self._service.reply(peer, Reject(code=RejectCode.BUSY, reason=reason, ref=message.digest))
            return
        self.num_bytes += len(data)
        self._service.reply(peer, Chunk(digest=message.digest, offset=message.offset), [data])
