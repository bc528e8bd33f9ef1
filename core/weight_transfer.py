"""Brings the chunks of weights: from the learner, or from inference servers that have them (holders).

              ┌─ holder ─┐
    Transfer ─┼─ holder ─┼─► chunks, each checked by its SHA-256 ─► Assembly
              └─ learner ┘   (those of the learner by that of the whole)

Holders come first; the learner is asked while nobody is known to have the weights, and where holders do not
help. A holder that is silent, gone, or sends other bytes is passed over for a while, and harms nobody.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from distrl.core.errors import DistrlError, NetworkError, ProtocolError
from distrl.core.messages import Chunk, ChunkDone, ChunkRequest, Reject, RejectCode
from distrl.core.sockets import Channel, Poller, Received, Wire
from distrl.core.weight_assembly import Assembly, Digests

WINDOW = 4  # chunks in flight, per source
RESEND_S = 5.0  # without an answer of the learner's
HOLDER_S = 5.0  # without an answer of a holder's
AVOID_S, AVOID_FORGER_S = 30.0, 600.0
BUSY_S = 0.1  # before somebody who was busy is asked again, about
ALL_BUSY_S = 10.0  # then the learner is asked although there are holders
MAX_HOLDERS = 2  # at a time
POLL_S, CONNECT_S = 0.2, 0.02
_log = logging.getLogger(__name__)

FindHolders = Callable[[str], Sequence[str]]
"""Where weights can be had now, by their digest, besides at the learner."""


class Gone(NetworkError):
    """The learner has only other weights by now."""


class Connections:
    """The connections to the learner and to holders, and whom to avoid. Used by one thread.

    Args:
        wire: Makes them.
        endpoint: The weights socket of the learner.
    """

    def __init__(self, wire: Wire, endpoint: str) -> None:
        self._wire = wire
        self.learner = wire.connect_dealer(endpoint)
        self._holders: dict[str, Channel] = {}
        self._avoided: dict[str, float] = {}
        self.random = random.Random()  # who asks whom need not be repeatable, but must differ between servers

    def choose(self, endpoints: Sequence[str]) -> str | None:
        """One of `endpoints` by chance, none that is to be avoided."""
        usable = self.usable(endpoints)
        return self.random.choice(usable) if usable else None

    def usable(self, endpoints: Sequence[str]) -> list[str]:
        """Those of `endpoints` that are not to be avoided now."""
        now = time.monotonic()
        self._avoided = {name: until for name, until in self._avoided.items() if until > now}
        return [endpoint for endpoint in endpoints if endpoint not in self._avoided]

    def connect(self, endpoint: str) -> Channel:
        """The connection to a holder, made if missing. Raises as `Wire.connect_dealer`."""
        if endpoint not in self._holders:
            self._holders[endpoint] = self._wire.connect_dealer(endpoint)
        return self._holders[endpoint]

    def avoid(self, endpoint: str, seconds: float) -> None:
        """Closes the connection, and makes none for so long."""
        self._avoided[endpoint] = time.monotonic() + seconds
        channel = self._holders.pop(endpoint, None)
        if channel is not None:
            channel.close()

    def keep_only(self, endpoints: Sequence[str]) -> None:
        """Closes the connections to other holders."""
        for endpoint in self._holders.keys() - set(endpoints):
            self._holders.pop(endpoint).close()

    def close(self) -> None:
        """Closes all of them."""
        self.keep_only(())
        self.learner.close()


@dataclass
class _Source:
    """Somebody who is asked. `endpoint` is "" for the learner."""

    channel: Channel
    endpoint: str
    heard_at: float
    in_flight: set[int] = field(default_factory=set)
    pauses_until: float = 0.0
    has_served: bool = False
    has_refused: bool = False

    @property
    def window(self) -> int:
        """How many chunks may be in flight: who was refused, or knows nobody yet, only knocks."""
        is_sure = self.has_served or not (self.endpoint or self.has_refused)
        return WINDOW if is_sure else 1


class Transfer:
    """One run for the missing chunks of an assembly.

    Args:
        connections: To whom.
        assembly: Takes the chunks.
        digests: Of the chunks; without them holders are not asked.
        holders: Who has the weights now.
    """

    def __init__(
        self, connections: Connections, assembly: Assembly, digests: Digests, holders: FindHolders
    ) -> None:
        self._connections, self._assembly, self._digests = connections, assembly, digests
        self._endpoints = holders if digests else lambda digest: ()
        self._to_ask = deque(assembly.missing)
        now = time.monotonic()
        self._learner = _Source(connections.learner, "", now)
        self._holders: dict[str, _Source] = {}
        self._busy: dict[str, float] = {}  # until when a holder is busy
        self._busy_since: float | None = None  # since when none of them serves us
        self._has_tried_others = False

    def run(self, timeout_s: float, is_stopping: Callable[[], bool]) -> None:
        """Fetches until nothing is missing.

        Raises:
            NetworkError: No new chunk came for `timeout_s`, or `is_stopping`.
            Gone: The learner does not keep these weights any more.
        """
        assembly = self._assembly
        num_missing, deadline = len(assembly.missing), time.monotonic() + timeout_s
        try:
            while assembly.missing:
                now = time.monotonic()
                if len(assembly.missing) < num_missing:
                    num_missing, deadline = len(assembly.missing), now + timeout_s
                if now >= deadline or is_stopping():
                    raise NetworkError(
                        f"Weights {assembly.info.version}: {num_missing} chunks did not arrive in time."
                    )
                sources = self._choose(now)
                self._ask(sources, now)
                is_connecting = not all(source.channel.is_connected for source in sources)
                self._listen(max(0.0, min(CONNECT_S if is_connecting else POLL_S, deadline - now)))
                assembly.sha256.offer(assembly.take_hashable())
        finally:
            for source in self._holders.values():
                self._leave(source)
            self._connections.keep_only(list(self._holders))

    def _choose(self, now: float) -> list[_Source]:
        """Who is asked now."""
        for source in [self._learner, *self._holders.values()]:
            self._look_after(source, now)
        if self._learner.has_served:  # nobody else had them when this began
            return [self._learner]
        known = self._endpoints(self._assembly.info.digest)
        while len(self._holders) < MAX_HOLDERS:
            free = [name for name in known if name not in self._holders and self._busy.get(name, 0.0) <= now]
            endpoint = self._connections.choose(free)
            if endpoint is None or not self._add(endpoint, now):
                break
        sources = list(self._holders.values())
        if not sources and not self._connections.usable(known):
            self._has_tried_others |= bool(known)
            sources = [self._learner]
        elif self._busy_since is not None and now - self._busy_since > ALL_BUSY_S:
            self._has_tried_others = True
            sources.append(self._learner)
        return sources

    def _add(self, endpoint: str, now: float) -> bool:
        try:
            channel = self._connections.connect(endpoint)
        except NetworkError as error:
            self._pass_over(_Source(self._learner.channel, endpoint, now), str(error))
            return False
        self._holders[endpoint] = _Source(channel, endpoint, now)
        return True

    def _look_after(self, source: _Source, now: float) -> None:
        """What was not answered in time is asked for again: the learner, or somebody else."""
        if source is self._learner:
            if source.in_flight and now - source.heard_at > RESEND_S:
                self._take_back(source)
                source.has_served = False
        elif now - source.heard_at > HOLDER_S and (source.in_flight or not source.channel.is_connected):
            self._pass_over(source, f"it was silent for {HOLDER_S:g} s")

    def _ask(self, sources: list[_Source], now: float) -> None:
        for source in sources:
            try:
                self._ask_one(source, now)
            except NetworkError as error:
                if source is self._learner:
                    raise
                self._pass_over(source, str(error))

    def _ask_one(self, source: _Source, now: float) -> None:
        if source.pauses_until > now:
            return
        while self._to_ask and len(source.in_flight) < source.window and source.channel.is_connected:
            offset = self._to_ask.popleft()
            if offset not in self._assembly.missing:
                continue
            request = ChunkRequest(
                digest=self._assembly.info.digest,
                offset=offset,
                length=self._assembly.length(offset),
                others_failed=source is self._learner and self._has_tried_others,
            )
            if not source.in_flight:
                source.heard_at = now
            source.in_flight.add(offset)
            source.channel.send(request, timeout_s=POLL_S)

    def _listen(self, timeout_s: float) -> None:
        sources = {id(source.channel): source for source in [self._learner, *self._holders.values()]}
        pauses = [source.pauses_until for source in sources.values()] + list(self._busy.values())
        now = time.monotonic()
        timeout_s = min([timeout_s, *(until - now for until in pauses if until > now)])
        for channel in Poller([source.channel for source in sources.values()]).wait(timeout_s):
            source = sources[id(channel)]
            if source is self._learner:
                received = channel.recv(0.0)
                if received is not None:
                    self._take_from_learner(received)
            else:
                try:
                    received = channel.recv(0.0)
                    if received is not None:
                        self._take_from_holder(source, received)
                except DistrlError as error:
                    self._pass_over(source, str(error), AVOID_FORGER_S)

    def _take_from_learner(self, received: Received) -> None:
        message, info = received.message, self._assembly.info
        if isinstance(message, Reject) and info.digest[:16] in message.reason:
            if message.code is RejectCode.NOT_FOUND:
                raise Gone(f"The learner no longer keeps the weights {info.version}.")
            if message.code is RejectCode.BUSY:
                self._take_back(self._learner)
                self._learner.has_served, self._learner.has_refused = False, True
                self._learner.pauses_until = time.monotonic() + self._pause()
        elif isinstance(message, Chunk) and message.digest == info.digest and received.blobs:
            self._arrived(self._learner, message.offset, received.blobs[0])

    def _take_from_holder(self, source: _Source, received: Received) -> None:
        message, info = received.message, self._assembly.info
        if isinstance(message, Reject):
            if message.code is RejectCode.BUSY:
                self._take_back(source)
                now = time.monotonic()
                self._busy[source.endpoint] = now + self._pause()
                self._busy_since = now if self._busy_since is None else self._busy_since
                del self._holders[source.endpoint]
            elif info.digest[:16] in message.reason:
                self._pass_over(source, message.reason, BUSY_S)
        elif isinstance(message, Chunk) and message.digest == info.digest and received.blobs:
            data = received.blobs[0]
            if hashlib.sha256(data).digest() != self._digests.get(message.offset):
                raise ProtocolError(RejectCode.DIGEST.value, f"its chunk at {message.offset} is another")
            self._busy_since = None
            self._arrived(source, message.offset, data)

    def _arrived(self, source: _Source, offset: int, data: memoryview) -> None:
        source.heard_at, source.has_served = time.monotonic(), True
        source.in_flight.discard(offset)
        self._assembly.put(offset, data)

    def _pause(self) -> float:
        return BUSY_S * self._connections.random.uniform(0.5, 1.5)

    def _take_back(self, source: _Source) -> None:
        """What `source` was asked for will be asked for again."""
        self._to_ask.extendleft(sorted(source.in_flight & self._assembly.missing.keys(), reverse=True))
        source.in_flight.clear()

    def _pass_over(self, source: _Source, why: str, seconds: float = AVOID_S) -> None:
        _log.warning("weights %d: not from %s: %s", self._assembly.info.version, source.endpoint, why)
        self._has_tried_others = True
        self._take_back(source)
        self._holders.pop(source.endpoint, None)
        self._connections.avoid(source.endpoint, seconds)

    def _leave(self, source: _Source) -> None:
        """Tells a holder that somebody else may have our place."""
        with contextlib.suppress(NetworkError):
            if source.channel.is_connected:
                source.channel.send(ChunkDone(digest=self._assembly.info.digest), timeout_s=0.0)
