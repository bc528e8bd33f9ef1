"""A request service: answers what arrives at a router, and bad input with a typed `Reject`.

Here, too, is what each role of a key may send, by socket. Every role may listen to the broadcast.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from distrl.core.errors import DistrlError, NetworkError, ProtocolError
from distrl.core.messages import (
    ActRequest,
    ChunkRequest,
    Command,
    Gradient,
    Heartbeat,
    Hello,
    InfoRequest,
    LeaseRelease,
    LeaseRenew,
    LeaseRequest,
    Measured,
    Reject,
    RejectCode,
    SlotReport,
    StatusRequest,
    Submit,
    Watch,
    WorkRequest,
)
from distrl.core.security import Client
from distrl.core.sockets import Blob, Channel, PeerError, Received
from distrl.core.types import Record

Permits = Mapping[str, tuple[type[Record], ...]]
"""Role → the messages that it may send."""

_PRESENCE = (Hello, Heartbeat, StatusRequest)
_WORK = (LeaseRequest, LeaseRenew, LeaseRelease, Submit, WorkRequest, Gradient, Measured, SlotReport)
_CHUNKS = (ChunkRequest,)
CONTROL: Permits = {
    "worker": (*_PRESENCE, *_WORK),
    "inference": _PRESENCE,
    "evaluate": _PRESENCE,
    "observer": (Watch, StatusRequest),
    "owner": (Watch, StatusRequest, Command),
}
WEIGHTS: Permits = {"inference": _CHUNKS, "evaluate": _CHUNKS}
WEIGHTS_OF_TRAINING_WORKERS: Permits = {"worker": _CHUNKS}
ACT: Permits = {"worker": (ActRequest, InfoRequest), "evaluate": (ActRequest, InfoRequest)}

_MAX_LOGGED = 4096
_log = logging.getLogger(__name__)


class Service:
    """Answers the requests that arrive at a router: each by the handler, bad ones by a typed `Reject`.

    Args:
        handle: Called with each good message. A `ProtocolError` it raises becomes the Reject that the peer
            gets; anything else is logged with its traceback and answered with "internal".
        permits: What clients may send, where the channel has keys. Other messages are refused as "forbidden".

    Attributes:
        on_reject: Called with each: the peer, the error, and what the message was about.
    """

    def __init__(
        self, channel: Channel, handle: Callable[[Received], None], permits: Permits | None = None
    ) -> None:
        self.channel = channel
        self._handle = handle
        self._permits = permits
        self._logged: set[tuple[bytes, str]] = set()
        self.num_rejected = {code.value: 0 for code in RejectCode}
        self.on_reject: Callable[[bytes, ProtocolError, str], None] = lambda peer, error, ref: None

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
        """Sends to a peer without waiting: a peer that does not read loses it, and must request it again.

        A reply that cannot be encoded becomes a Reject.
        """
        try:
            self.channel.send(message, blobs, peer, timeout_s=0.0)
        except ProtocolError as error:
            if isinstance(message, Reject):
                raise
            self.reject(peer, error, getattr(message, "id", ""))
        except NetworkError as error:
            self._log_once(peer, "unread", error.message)

    def reject(self, peer: bytes, error: ProtocolError, ref: str = "") -> None:
        """Sends a peer the reason why its message was refused; logged once per peer and code."""
        self._log_once(peer, error.code, error.message)
        self.num_rejected[error.code] += 1
        self.on_reject(peer, error, ref)
        self.reply(peer, Reject(code=RejectCode(error.code), reason=error.message[:500], ref=ref[:500]))

    def _handle_one(self, received: Received) -> None:
        message = received.message
        # The id of what the message is about, as its sender knows it.
        subject = message.trajectory.id if isinstance(message, Submit) else getattr(message, "unit_id", "")
        try:
            if received.client is not None and self._permits is not None:
                _check_sender(received.client, message, self._permits)
            self._handle(received)
        except ProtocolError as error:
            self.reject(received.peer, error, subject)
        except Exception as error:  # noqa: BLE001 - a request must not end the service for the other peers
            known = error.message if isinstance(error, DistrlError) else ""
            kind, endpoint = type(message).__name__, self.channel.endpoint
            _log.error("%s: a %s failed: %s", endpoint, kind, error, exc_info=not known)
            internal = ProtocolError(RejectCode.INTERNAL.value, known or "see the log")
            self.reject(received.peer, internal, subject)

    def _log_once(self, peer: bytes, code: str, reason: str) -> None:
        if (peer, code) not in self._logged:
            if len(self._logged) >= _MAX_LOGGED:
                self._logged.clear()
            self._logged.add((peer, code))
            _log.warning("%s: %s from peer %s: %s", self.channel.endpoint, code, peer.hex(), reason)


def _check_sender(client: Client, message: Record, permits: Permits) -> None:
    """ProtocolError "forbidden" for what a client's roles do not include, and for names of others."""
    permitting = {role for role, kinds in permits.items() if isinstance(message, kinds)}
    if isinstance(message, (Hello, Heartbeat)):
        permitting = {message.role}
    if permitting and permitting.isdisjoint(client.roles):
        raise ProtocolError(
            RejectCode.FORBIDDEN.value,
            f"the key {client.name!r} has the role {' and '.join(client.roles)}, and "
            f"this {type(message).__name__} needs {' or '.join(sorted(permitting))}",
        )
    named = message.trajectory if isinstance(message, Submit) else message
    name = getattr(named, "worker", getattr(named, "name", client.name))
    if not client.owns(name):
        raise ProtocolError(
            RejectCode.FORBIDDEN.value,
            f"with the key {client.name!r} the name {name:.200} must be {client.name} or {client.name}/…",
        )
