"""A training worker's requests to the master: each is sent again until it is answered.

    main thread: request ──► control DEALER ──► master ──► reply        (weights: a WeightFetcher of its own)

Requests carry ids, so that a resend changes nothing. Presence and news are `LearnerLink`'s, in its thread.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence

from distrl.core.errors import NetworkError, ProtocolError
from distrl.core.messages import (
    TRANSIENT,
    Gradient,
    Measured,
    Reject,
    Shutdown,
    WeightInfo,
    WorkAck,
    WorkGrant,
    WorkRequest,
    WorkUnit,
)
from distrl.core.sockets import Blob, PeerError, Wire
from distrl.core.types import Record
from distrl.core.weights import WeightFetcher
from distrl.workers.control.worker import Stopped

POLL_S = 0.2
RESEND_S = 5.0
"""An answer takes milliseconds; after this long the message, or the answer, is lost."""

FETCH_S = 10.0
"""Without a new chunk. Weights that are gone by then are asked for anew, with another unit."""

_log = logging.getLogger(__name__)


class MasterClient:
    """Used by one thread.

    Args:
        wire: Makes the connections.
        control, weights: The learner's endpoints.
        name: The worker's.
        is_stopping: Polled while waiting; ends a request by `Stopped`.
    """

    def __init__(
        self, wire: Wire, control: str, weights: str, name: str, is_stopping: Callable[[], bool]
    ) -> None:
        self._channel = wire.connect_dealer(control)
        self._fetcher = WeightFetcher(wire, weights)
        self._name, self._is_stopping = name, is_stopping

    def work(self, collected: str | None = None) -> WorkUnit:
        """What to do next; waits until there is something.

        Args:
            collected: A round whose transitions are there: the same with the newest weights.

        Raises:
            Stopped: The run is over, or the worker stops.
            ProtocolError: The learner is of another kind.
        """
        while True:
            self._forget_late_answers()
            grant = self._ask(WorkRequest(worker=self._name, collected=collected), (), "")
            assert isinstance(grant, WorkGrant)
            if grant.unit is not None:
                return grant.unit
            self._pause(grant.retry_after_s)

    def send(self, message: Gradient | Measured, blobs: Sequence[Blob] = ()) -> Reject | None:
        """Delivers a result. Returns why it was refused, None if it was taken.

        Raises:
            Stopped: The run is over, or the worker stops, and it is not known to be delivered.
        """
        reply = self._ask(message, blobs, message.unit_id)
        return reply if isinstance(reply, Reject) else None

    def fetch(self, info: WeightInfo) -> memoryview | None:
        """The bytes of weights; None if the learner does not keep them any more, or was restarted.

        Raises:
            Stopped: The worker stops.
        """
        try:
            return self._fetcher.fetch(info, FETCH_S, self._is_stopping)
        except NetworkError as error:
            if self._is_stopping():
                raise Stopped from error
            _log.warning("weights %d: %s", info.version, error)
            return None

    def close(self) -> None:
        """Closes the connections."""
        self._channel.close()
        self._fetcher.close()

    def _ask(self, message: Record, blobs: Sequence[Blob], ref: str) -> Record:
        """The answer to `message`, whose unit is `ref`; answers to earlier ones are passed over."""
        while True:
            self._send(message, blobs)
            deadline = time.monotonic() + RESEND_S
            while time.monotonic() < deadline:
                reply = self._receive()
                if isinstance(reply, Reject) and reply.code in TRANSIENT:
                    self._pause(RESEND_S)
                    break
                if isinstance(reply, Reject) and not reply.ref:
                    raise self._not_understood(reply)
                if _answers(reply, message, ref):
                    assert reply is not None
                    return reply

    def _not_understood(self, reject: Reject) -> ProtocolError:
        """A request as such was refused, not what it is about: the learner is of another kind or version."""
        return ProtocolError(
            reject.code.value,
            f"The learner at {self._channel.endpoint} has no work for training workers: {reject.reason}.",
            "Use the same distrl version and configuration everywhere.",
        )

    def _send(self, message: Record, blobs: Sequence[Blob]) -> None:
        try:
            self._channel.send(message, blobs, timeout_s=POLL_S)
        except ProtocolError:
            raise  # larger than any message may be: it will not get smaller
        except NetworkError:
            _log.debug("no room for a %s now; it is sent again in time", type(message).__name__)

    def _receive(self) -> Record | None:
        """The next message, None if none came.

        Raises:
            Stopped: It says that the run is over; or the worker stops.
        """
        if self._is_stopping():
            raise Stopped
        try:
            received = self._channel.recv(POLL_S)
        except PeerError as error:
            _log.error("the learner sent what is no message: %s", error)
            return None
        if received is not None and isinstance(received.message, Shutdown):
            raise Stopped
        return received.message if received is not None else None

    def _forget_late_answers(self) -> None:
        """After a resend two answers may come; the second one is not that to the next request."""
        with contextlib.suppress(PeerError):
            while self._channel.recv(0.0) is not None:
                pass

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._is_stopping():
                raise Stopped
            time.sleep(min(POLL_S, seconds))


def _answers(reply: Record | None, message: Record, ref: str) -> bool:
    if isinstance(message, WorkRequest):
        return isinstance(reply, WorkGrant)
    return (isinstance(reply, WorkAck) and reply.unit_id == ref) or (
        isinstance(reply, Reject) and reply.ref == ref
    )
