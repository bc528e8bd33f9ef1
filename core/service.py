"""A request service: answers what arrives at a router, and bad input with a typed `Reject`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from distrl.core.errors import DistrlError, NetworkError, ProtocolError
from distrl.core.messages import Reject, RejectCode
from distrl.core.sockets import Blob, Channel, PeerError, Received
from distrl.core.types import Record

_MAX_LOGGED = 4096
_log = logging.getLogger(__name__)


class Service:
    """Answers the requests that arrive at a router: each by the handler, bad ones by a typed `Reject`.

    Args:
        channel: The router.
        handle: Called with each good message. A `ProtocolError` it raises becomes the Reject that the peer
            gets; anything else is logged with its traceback and answered with "internal".
    """

    def __init__(self, channel: Channel, handle: Callable[[Received], None]) -> None:
        self.channel = channel
        self._handle = handle
        self._logged: set[tuple[bytes, str]] = set()

    def pump(self, limit: int = 64) -> int:
        """Handles up to `limit` messages that are there already, without waiting. Returns how many."""
        for count in range(limit):
            try:
                received = self.channel.recv(0.0)
            except PeerError as error:
                self.reject(error.peer, error, error.ref)
                continue
            if received is None:
                return count
            self._handle_one(received)
        return limit

    def reply(self, peer: bytes, message: Record, blobs: Sequence[Blob] = ()) -> None:
        """Sends to a peer without waiting: who does not read loses the reply, and asks again."""
        try:
            self.channel.send(message, blobs, peer, timeout_s=0.0)
        except NetworkError as error:
            self._log_once(peer, "unread", error.message)

    def reject(self, peer: bytes, error: ProtocolError, ref: str = "") -> None:
        """Tells a peer why its message was refused; logged once per peer and code."""
        self._log_once(peer, error.code, error.message)
        self.reply(peer, Reject(code=RejectCode(error.code), reason=error.message[:500], ref=ref[:500]))

    def _handle_one(self, received: Received) -> None:
        try:
            self._handle(received)
        except ProtocolError as error:
            self.reject(received.peer, error)
        except DistrlError as error:
            _log.error("%s: %s", self.channel.endpoint, error)
            self.reject(received.peer, ProtocolError(RejectCode.INTERNAL.value, error.message))
        except Exception:  # noqa: BLE001 - a request must not end the service for everybody else
            _log.exception("%s: a %s failed", self.channel.endpoint, type(received.message).__name__)
            self.reject(received.peer, ProtocolError(RejectCode.INTERNAL.value, "see the log"))

    def _log_once(self, peer: bytes, code: str, reason: str) -> None:
        if (peer, code) not in self._logged:
            if len(self._logged) >= _MAX_LOGGED:
                self._logged.clear()
            self._logged.add((peer, code))
            _log.warning("%s: %s from peer %s: %s", self.channel.endpoint, code, peer.hex(), reason)
