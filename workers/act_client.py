"""Requests completions from inference servers, and switches to another server when one fails.

A slot stays with one server, which has its prompts in its prefix cache. `assigned` gives every server equally
many slots, of all workers that the learner lists; few change their server when one joins or leaves.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from distrl.core.errors import ContextFull, InferenceUnavailable, NetworkError, ProtocolError
from distrl.core.messages import ActReply, ActRequest, Reject, RejectCode
from distrl.core.sockets import Channel, PeerError, Wire
from distrl.core.types import NO_PREFIX, ChatMessage, Completion, Prefix, Sampling, shown_images

POLL_S = 0.1  # how often a waiting call checks the stop flag and the connection
CONNECT_S = 2.0  # a server that cannot be reached for this long is skipped
AVOID_S = {RejectCode.BUSY: 0.5, RejectCode.NOT_READY: 1.0}
AVOID_FAILED_S = 5.0
# The request is invalid; with any other code the server has failed.
_REFUSALS = frozenset(
    {RejectCode.MALFORMED, RejectCode.TOO_LARGE, RejectCode.LIMIT, RejectCode.DIGEST}
    | {RejectCode.UNEXPECTED, RejectCode.FORBIDDEN}
)
MAX_HELD = 256  # digests of images that a server has received; beyond, images are sent again
_log = logging.getLogger(__name__)
_ASSIGNING = threading.Lock()


class ActClient:
    """A slot's client of the policy. Used by one thread.

    A server receives an image once: later requests only name it, and are repeated with all images if the
    server has dropped it.

    Args:
        endpoints: Returns the act endpoints that are alive now.
        is_stopping: Polled while waiting; ends a call early.
        name: The slot, e.g. "worker-0/3".
        timeout_s: The deadline of one completion, over all servers.
        slots: Returns the number of slots of each worker, by its name, that share the servers. A slot that is
            not among them takes the server that it prefers.
    """

    def __init__(
        self,
        wire: Wire,
        endpoints: Callable[[], Sequence[str]],
        is_stopping: Callable[[], bool] = lambda: False,
        name: str = "",
        timeout_s: float = 30.0,
        slots: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._wire, self._endpoints, self._is_stopping = wire, endpoints, is_stopping
        self._name, self._timeout_s, self._slots = name, timeout_s, slots
        self._links: dict[str, _Link] = {}
        self._avoid_until: dict[str, float] = {}
        # Unique without a system call per request, which would release the GIL and wait for it again.
        self._prefix, self._numbers = uuid.uuid4().hex, itertools.count()

    def act(
        self,
        messages: Sequence[ChatMessage],
        images: Mapping[str, bytes],
        sampling: Sampling,
        prefix: Prefix = NO_PREFIX,
    ) -> Completion:
        """Completes a chat, or its new part where it continues the token sequence `prefix`.

        `images` has the bytes of at least the images that it and the prefix show, by digest.

        Raises:
            ContextFull: The sequence is too long, or leaves no room for an answer.
            InferenceUnavailable: No server answered in time, or the process is stopping.
            ProtocolError: A server rejected the request itself; other servers would too.
        """
        digests = dict.fromkeys((*prefix.images, *shown_images(messages)))
        request = ActRequest(
            id=f"{self._prefix}-{next(self._numbers):x}",
            messages=tuple(messages),
            images=tuple(digests),
            sampling=sampling,
            prefix=prefix.token_ids,
            prefix_images=prefix.images,
        )
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline and not self._is_stopping():
            endpoint = self._choose()
            if endpoint is None:
                time.sleep(min(POLL_S, max(0.0, deadline - time.monotonic())))
                continue
            completion = self._try(endpoint, request, images, deadline)
            if completion is not None:
                return completion
        why = "the process is stopping" if self._is_stopping() else f"none answered in {self._timeout_s:g} s"
        servers = ", ".join(self._endpoints()) or "none known"
        raise InferenceUnavailable(
            f"No completion from the inference servers ({servers}): {why}.",
            "Is `distrl serve-inference` running and connected to the learner?",
        )

    def close(self) -> None:
        for link in self._links.values():
            link.channel.close()
        self._links.clear()

    def _choose(self) -> str | None:
        """The slot's server; if it has failed recently, the most preferred of the others that are alive."""
        alive = list(self._endpoints())
        for gone in self._links.keys() - set(alive):
            self._links.pop(gone).channel.close()
        now = time.monotonic()
        good = [endpoint for endpoint in alive if self._avoid_until.get(endpoint, 0.0) <= now]
        with _ASSIGNING:  # one slot computes what the others need, too
            own = assigned(tuple(self._slots().items()), tuple(alive)).get(self._name)
        return own if own in good else min(good, key=lambda one: _rank(self._name, one), default=None)

    def _try(
        self, endpoint: str, request: ActRequest, images: Mapping[str, bytes], deadline: float
    ) -> Completion | None:
        """One server's answer; None when it failed, which is remembered."""
        try:
            if endpoint not in self._links:
                self._links[endpoint] = _Link(self._wire.connect_dealer(endpoint))
            link = self._links[endpoint]
            held = tuple(digest for digest in request.images if digest in link.held)
            try:
                completion = self._ask(link, request.model_copy(update={"held": held}), images, deadline)
            except _NotHeld:
                link.held.clear()
                completion = self._ask(link, request, images, deadline)
            if len(link.held) > MAX_HELD:
                link.held.clear()
            link.held.update(request.images)
            return completion and completion.model_copy(update={"server": endpoint})
        except _ServerFailed as error:
            self._avoid(endpoint, error.avoid_s, error.message)
        except ProtocolError:
            raise
        except NetworkError as error:
            self._avoid(endpoint, AVOID_FAILED_S, error.message)
        return None

    def _ask(
        self, link: _Link, request: ActRequest, images: Mapping[str, bytes], deadline: float
    ) -> Completion | None:
        """Sends the request with the images that the server lacks, and waits for the answer."""
        channel = link.channel
        blobs = [images[digest] for digest in request.images if digest not in request.held]
        channel.send(request, blobs, timeout_s=max(0.0, min(CONNECT_S, deadline - time.monotonic())))
        # If there are other servers, this one gets half of the remaining time.
        now = time.monotonic()
        patience = now + (deadline - now) / 2 if len(self._endpoints()) > 1 else deadline
        while time.monotonic() < patience and not self._is_stopping():
            try:
                received = channel.recv(POLL_S)
            except PeerError as error:
                raise _ServerFailed(f"sent an invalid message: {error}") from error
            if received is None:
                if not channel.is_connected:
                    raise _ServerFailed("closed the connection")
                alive = self._endpoints()
                if alive and channel.endpoint not in alive:
                    raise _ServerFailed("left the run")
                continue
            message = received.message
            if isinstance(message, ActReply) and message.id == request.id:
                return message.completion
            if isinstance(message, Reject) and message.ref in ("", request.id):
                raise _failure(message, request, channel.endpoint)
        if self._is_stopping():
            return None
        raise _ServerFailed("did not answer in time")

    def _avoid(self, endpoint: str, seconds: float, reason: str) -> None:
        _log.warning("%s skips %s for %g s: %s", self._name or "a slot", endpoint, seconds, reason)
        self._avoid_until[endpoint] = time.monotonic() + seconds
        if endpoint in self._links:
            self._links.pop(endpoint).channel.close()  # a late answer must not meet the next request


@lru_cache(maxsize=8)
def assigned(slots: tuple[tuple[str, int], ...], servers: tuple[str, ...]) -> dict[str, str]:
    """The server of each slot: one that it prefers, of those with room.

    Consistent hashing with bounded loads (Mirrokni et al. 2018, arXiv 1608.01350) with the least bound,
    slots / servers rounded up, and rendezvous hashing in place of a ring.

    Args:
        slots: Workers and how many slots each has; slot 3 of `w` is called "w/3".
    """
    names = [f"{worker}/{slot}" for worker, count in slots for slot in range(count)]
    room = dict.fromkeys(servers, math.ceil(len(names) / max(1, len(servers))))
    found: dict[str, str] = {}
    for _, name, server in sorted((_rank(name, one), name, one) for name in names for one in room):
        if name not in found and room[server]:
            found[name] = server
            room[server] -= 1
    return found


def _rank(slot: str, server: str) -> bytes:
    """How much a slot prefers a server: the lower, the more."""
    return hashlib.blake2b(f"{slot} {server}".encode(), digest_size=8).digest()


class _ServerFailed(NetworkError):
    """One server failed; another may work."""

    def __init__(self, message: str, avoid_s: float = AVOID_FAILED_S) -> None:
        super().__init__(message)
        self.avoid_s = avoid_s


class _NotHeld(NetworkError):
    """The server has dropped an image; the request must be sent with all images."""


def _failure(reject: Reject, request: ActRequest, endpoint: str) -> NetworkError | ContextFull:
    if reject.code is RejectCode.CONTEXT_FULL:
        return ContextFull(reject.reason)
    if reject.code is RejectCode.NOT_FOUND and request.held:
        return _NotHeld(reject.reason)
    if reject.code in _REFUSALS:
        return ProtocolError(reject.code.value, f"{endpoint}: {reject.reason}")
    return _ServerFailed(reject.reason, AVOID_S.get(reject.code, AVOID_FAILED_S))


@dataclass
class _Link:
    """The connection to a server, and the digests of the images that were sent over it."""

    channel: Channel
    held: set[str] = field(default_factory=set)
