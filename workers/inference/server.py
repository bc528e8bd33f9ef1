"""The inference server: act requests in, completions out, in dynamic batches, with ever newer weights.

    ROUTER ──► router thread: check, tokenise, decode ──► BatchQueue ──► engine thread: swap weights, run
       ▲                                                                      │
       └────────── replies ◄── outbox + waker ◄───────────────────────────────┘
    learner link thread ──► WeightFeed thread ──► ready slot ──► engine thread

The queue is bounded by `inference.max_queue`: what does not fit is refused as busy, and the client asks
another server. The outbox holds at most the replies to requests that were queued.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from distrl.configs.schema import InferenceConfig
from distrl.core.errors import DistrlError, PolicyError, ProtocolError
from distrl.core.messages import ActReply, ActRequest, Info, InfoRequest, Reject, RejectCode
from distrl.core.service import Service
from distrl.core.sockets import Channel, Poller, Received, Waker, Wire
from distrl.core.types import ImagePart, Record, image_digest
from distrl.workers.inference.batch_queue import BatchQueue
from distrl.workers.inference.batcher import Batcher, Queued
from distrl.workers.inference.engine_hf import NO_WEIGHTS, HFEngine, Prepared
from distrl.workers.inference.stats import ServerStats
from distrl.workers.inference.weight_feed import WeightFeed

POLL_S = 0.2
PUMP = 8  # requests taken in before replies leave again
JOIN_S = 10.0
_log = logging.getLogger(__name__)


class Pending(NamedTuple):
    """A request on its way through the server."""

    peer: bytes
    request_id: str
    prepared: Prepared


class InferenceServer:
    """Answers act and info requests at one endpoint.

    Args:
        wire: Makes the socket.
        endpoint: Where to listen; a port of * picks a free one.
        engine: Runs the batches; from `start` on it belongs to this server's threads.
        config: Batch size, waits, bounds.
        name: For logs and Info.
    """

    def __init__(
        self, wire: Wire, endpoint: str, engine: HFEngine, config: InferenceConfig, name: str
    ) -> None:
        self._channel: Channel = wire.bind_router(endpoint)
        self._engine, self._name = engine, name
        self.endpoint = self._channel.endpoint
        self.stats = ServerStats()
        self._queue: BatchQueue[Pending] = BatchQueue(
            Batcher(config.max_batch, config.max_wait_ms / 1000.0, config.max_queue)
        )
        self._outbox: deque[tuple[bytes, Record]] = deque()
        self._waker = Waker()
        self._feed: WeightFeed | None = None
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._service = Service(self._channel, self._handle)
        self._threads = [
            threading.Thread(target=self._guard(loop), name=f"inference-{what}", daemon=True)
            for what, loop in (("router", self._route), ("engine", self._run_batches))
        ]

    @property
    def weight_version(self) -> int:
        """The version that acts now, −1 before the first."""
        return self._engine.version

    @property
    def published_kind(self) -> str:
        """What weights the policy takes, "full" or "adapter"."""
        return self._engine.policy.published_kind()

    def follow(self, feed: WeightFeed) -> None:
        """Takes weights from `feed` between batches. Call it before `start`."""
        self._feed = feed

    def weights_ready(self) -> None:
        """Tells the engine's thread to look at the feed. Any thread."""
        self._queue.poke()

    def start(self) -> None:
        """Starts to answer."""
        for thread in self._threads:
            thread.start()

    def check(self) -> None:
        """Raises what ended one of the server's threads or its feed, if anything did."""
        if self._error is not None:
            raise self._error
        if self._feed is not None and self._feed.error is not None:
            raise self._feed.error

    def close(self) -> None:
        """Stops; a running batch ends first, and the replies that are ready leave. May be called twice."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._queue.poke()
        self._waker.wake()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(JOIN_S)
        self._channel.close()
        self._waker.close()

    def snapshot(self) -> dict[str, float]:
        """The numbers for heartbeats and Info."""
        return {
            **self.stats.snapshot(),
            "queue": float(len(self._queue)),
            "weight_version": float(self._engine.version),
        }

    def _guard(self, loop: Callable[[], None]) -> Callable[[], None]:
        """`loop`, with what ends it kept for `check`."""

        def run() -> None:
            try:
                loop()
            except BaseException as error:  # noqa: BLE001 - raised again by `check`
                self._error = error
                if not isinstance(error, DistrlError):
                    _log.exception("a thread of inference server %s ended", self._name)

        return run

    # ---- router thread ----

    def _route(self) -> None:
        poller = Poller([self._channel], self._waker)
        while not self._stopping.is_set():
            poller.wait(POLL_S)
            self._service.pump(PUMP)
            self._send_replies()
        self._threads[1].join(JOIN_S)
        self._send_replies()

    def _send_replies(self) -> None:
        while self._outbox:
            peer, message = self._outbox.popleft()
            self._service.reply(peer, message)

    def _handle(self, received: Received) -> None:
        message = received.message
        if isinstance(message, InfoRequest):
            info = Info(
                name=self._name,
                policy=self._engine.policy.name,
                weight_version=self._engine.version,
                stats=self.snapshot(),
            )
            self._service.reply(received.peer, info)
        elif isinstance(message, ActRequest):
            try:
                self._accept(received, message)
            except ProtocolError as error:
                self.stats.rejected()
                self._service.reject(received.peer, error, message.id)
        else:
            raise ProtocolError(
                RejectCode.UNEXPECTED.value, f"{type(message).__name__} is nothing for an inference server"
            )

    def _accept(self, received: Received, request: ActRequest) -> None:
        if self._engine.version == NO_WEIGHTS:
            raise ProtocolError(RejectCode.NOT_READY.value, "no weights have arrived yet")
        if self._queue.is_full:
            raise ProtocolError(RejectCode.BUSY.value, "the queue is full")
        if len(received.blobs) != len(request.images):
            raise ProtocolError(
                RejectCode.MALFORMED.value,
                f"{len(request.images)} images are named but {len(received.blobs)} frames came",
            )
        images = dict(zip(request.images, received.blobs, strict=True))
        for digest, data in images.items():
            if image_digest(bytes(data)) != digest:
                raise ProtocolError(RejectCode.DIGEST.value, f"image {digest:.40} has another digest")
        shown = {p.digest for message in request.messages for p in message.parts if isinstance(p, ImagePart)}
        if shown - images.keys():
            raise ProtocolError(RejectCode.MALFORMED.value, "the chat shows an image that was not sent")
        try:
            prepared = self._engine.prepare(request.messages, images, request.sampling)
        except PolicyError as error:
            raise ProtocolError(RejectCode.MALFORMED.value, str(error)) from error
        if not self._queue.offer(Pending(received.peer, request.id, prepared)):
            raise ProtocolError(RejectCode.BUSY.value, "the queue is full")

    # ---- engine thread ----

    def _run_batches(self) -> None:
        while not self._stopping.is_set():
            self._swap_weights()
            batch = self._queue.take(POLL_S)
            if batch:
                self._swap_weights()
                self._run(batch)

    def _swap_weights(self) -> None:
        fresh = self._feed.take() if self._feed is not None else None
        if fresh is None:
            return
        started = time.perf_counter()
        self._engine.load(fresh.version, fresh.state)
        pause_s = time.perf_counter() - started
        self.stats.swapped(pause_s)
        _log.info("weights %d are in use (pause %.1f ms)", fresh.version, 1000 * pause_s)

    def _run(self, batch: list[Queued[Pending]]) -> bool:
        """Answers a batch. If it fails each request is tried alone, so that only the guilty are refused.

        Returns:
            Whether all were answered.
        """
        is_answered = True
        try:
            self._answer(batch)
        except Exception as error:  # noqa: BLE001 - what fails must not end the service for everybody
            if len(batch) == 1:
                self._refuse(batch[0].item, error)
                is_answered = False
            else:
                _log.warning("a batch of %d failed (%s), each is tried alone", len(batch), error)
                alone = [self._run([queued]) for queued in batch]
                is_answered = all(alone)
                if is_answered:  # else the guilty have been logged
                    _log.exception("a batch failed of which every request succeeds alone")
        self._waker.wake()
        return is_answered

    def _answer(self, batch: list[Queued[Pending]]) -> None:
        started, started_clock = time.perf_counter(), time.monotonic()
        completions = self._engine.act([queued.item.prepared for queued in batch])
        replies = [
            (queued.item.peer, ActReply(id=queued.item.request_id, completion=completion))
            for queued, completion in zip(batch, completions, strict=True)
        ]
        waits_s = [started_clock - queued.arrived_at for queued in batch]
        num_tokens = sum(len(completion.token_ids) for completion in completions)
        self.stats.batch(waits_s, time.perf_counter() - started, num_tokens)
        self._outbox.extend(replies)  # last: whoever is answered must not be tried again

    def _refuse(self, one: Pending, error: Exception) -> None:
        """Rejects one request: as malformed if the policy refused it, so that no other server is asked."""
        is_refused = isinstance(error, PolicyError)
        if is_refused:
            self.stats.rejected()
            code, reason = RejectCode.MALFORMED, str(error)[:500]
        else:
            self.stats.failed(1)
            code, reason = RejectCode.INTERNAL, "the policy failed at it, see the server's log"
        _log.error("request %s failed: %s", one.request_id, error, exc_info=None if is_refused else error)
        self._outbox.append((one.peer, Reject(code=code, reason=reason, ref=one.request_id)))
