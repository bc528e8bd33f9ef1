"""The inference server: act requests in, completions out, in dynamic batches, with ever newer weights.

    ROUTER ──► router thread: check ──► preparers: decode, tokenise ──► BatchQueue ──► engine thread:
       ▲                                        │                                      swap weights, submit
       └────────── replies ◄── outbox + waker ◄─┴───────────────────────── (or a thread of the engine)
    learner link thread ──► WeightFeed thread ──► ready slot ──► engine thread

`MAX_QUEUE` bounds the requests that are prepared and queued: what does not fit is refused as busy,
and the client asks another server; what still waits when the server stops is refused, too. The outbox holds
at most the replies to these. An engine that runs whole batches gets one when it is due; a continuous one gets
requests as they come, while fewer than `inference.max_batch` run. The router thread holds the images of
requests, which later ones only name. `complete` is the way in for others of this process, past the sockets.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from distrl.configs.schema import HfConfig, InferenceConfig
from distrl.core.errors import ContextFull, DistrlError, PolicyError, ProtocolError
from distrl.core.messages import ActReply, ActRequest, Info, InfoRequest, Reject, RejectCode
from distrl.core.policies.images import Recent
from distrl.core.service import ACT, Service
from distrl.core.sockets import Channel, Poller, Received, Waker, Wire
from distrl.core.types import (
    NO_PREFIX,
    ChatMessage,
    Completion,
    Prefix,
    Record,
    Sampling,
    image_digest,
    shown_images,
)
from distrl.workers.inference.batcher import BatchQueue, Queued
from distrl.workers.inference.control import EngineControl
from distrl.workers.inference.engine import NO_WEIGHTS, Engine, Result
from distrl.workers.inference.weight_feed import WeightFeed

POLL_S = 0.2
PUMP = 8  # requests taken in before replies leave again
MAX_QUEUE = 1024  # requests that are prepared or wait
PREPARERS = 4  # so that large pictures of one client do not keep the others waiting
JOIN_S = 10.0
FLUSH_S = 0.2  # before the socket is closed: with the connection a client loses what it has not read yet
DRAIN_S = 2.0  # how long a server that closes waits for requests that run
STOPPED = ProtocolError(RejectCode.NOT_READY.value, "the server has stopped")
_log = logging.getLogger(__name__)
WINDOW = 1024  # newest requests, over which percentiles are taken
MAX_HELD_BYTES = 128 * 2**20
"""About a thousand screenshots of a phone: those of the running episodes of some sixty slots."""


class ServerStats:
    """Numbers that the engine's threads add and any thread reads.

    `batches` counts how often requests were handed to the engine, and `batch_size` is the mean number that
    ran just after; `batch_p50_ms` is the time from there to a completion.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        names = ("requests", "batches", "tokens", "rejected", "failed", "weight_swaps")
        self._counts = dict.fromkeys(names, 0.0)
        self._waits_s: deque[float] = deque(maxlen=WINDOW)
        self._runs_s: deque[float] = deque(maxlen=WINDOW)
        self._sizes: deque[int] = deque(maxlen=WINDOW)
        self.swap_pause_s = 0.0  # how long the newest weights held up the next batch

    def count(self, **more: int) -> None:
        with self._lock:
            for name, number in more.items():
                self._counts[name] += number

    def batch(self, num_running: int) -> int:
        """Requests were handed to the engine, where so many run now. Returns the number of the batch."""
        self.count(batches=1)
        self._sizes.append(num_running)
        return int(self._counts["batches"])

    def answered(self, wait_s: float, run_s: float, num_tokens: int) -> None:
        """A request was completed: how long it had queued, how long it ran, how many tokens it gave."""
        self.count(requests=1, tokens=num_tokens)
        self._waits_s.append(wait_s)
        self._runs_s.append(run_s)

    def snapshot(self) -> dict[str, float]:
        sizes = list(self._sizes)
        found = {**self._counts, "batch_size": sum(sizes) / len(sizes) if sizes else 0.0}
        for name, times in (("queue_wait", self._waits_s), ("batch", self._runs_s)):
            for percent in (50, 99):  # 0 without values
                at = np.percentile(list(times) or [0.0], percent, method="inverted_cdf")
                found[f"{name}_p{percent}_ms"] = 1000.0 * float(at)
        return {**found, "swap_pause_ms": 1000.0 * self.swap_pause_s}


class HeldImages:
    """Encoded images by digest, for later requests that only name them. Used by one thread."""

    def __init__(self, max_bytes: int = MAX_HELD_BYTES) -> None:
        self._images: Recent[bytes] = Recent(max_bytes, len)

    def of(self, request: ActRequest, blobs: Sequence[bytes | memoryview]) -> dict[str, bytes]:
        """The images of a request by digest, sent with it or held here. Raises ProtocolError."""
        named, held = set(request.images), set(request.held)
        sent = [digest for digest in request.images if digest not in held]
        problem = ""
        if not held <= named:
            problem = "an image is named as held, but not among the images"
        elif len(blobs) != len(sent):
            problem = f"{len(sent)} images are to be sent but {len(blobs)} frames came"
        elif request.prefix_images and not request.prefix:
            problem = "images of a prefix, but no prefix"
        elif {*request.prefix_images, *shown_images(request.messages)} - named:
            problem = "the chat shows an image that was not sent"
        if problem:
            raise ProtocolError(RejectCode.MALFORMED.value, problem)
        images = {digest: bytes(blob) for digest, blob in zip(sent, blobs, strict=True)}
        for digest, data in images.items():
            if image_digest(data) != digest:
                raise ProtocolError(RejectCode.DIGEST.value, f"image {digest:.40} has another digest")
        found = self._images.get(held)
        if missing := sorted(held - found.keys()):
            raise ProtocolError(RejectCode.NOT_FOUND.value, f"image {missing[0]:.40} is not held here")
        for digest, data in images.items():
            self._images.keep(digest, data)
        return images | {digest: found[digest] for digest in held}


class Pending(NamedTuple):
    """A request on its way through the server; `deliver` takes its reply or reject, from any thread."""

    deliver: Callable[[Record], None]
    request_id: str
    prepared: Any


class InferenceServer:
    """Answers act and info requests at one endpoint, where a port * is any free one; closes the engine."""

    def __init__(self, wire: Wire, endpoint: str, engine: Engine, config: InferenceConfig, name: str) -> None:
        self._channel: Channel = wire.bind_router(endpoint)
        self.engine, self._name = engine, name
        self.endpoint = self._channel.endpoint
        self.stats = ServerStats()
        own = config.engine
        wait_s = own.max_wait_ms / 1000.0 if isinstance(own, HfConfig) and not engine.is_continuous else 0.0
        self._queue: BatchQueue[Pending] = BatchQueue(config.num_rows, wait_s)
        self._max_running = config.num_rows
        self._num_running = 0
        self._num_waiting = 0  # being prepared, or queued
        self._counts_lock = threading.Lock()
        self._preparers = ThreadPoolExecutor(PREPARERS, "inference-prepare")
        self._outbox: deque[Callable[[], None]] = deque()  # what the router thread sends
        self._waker = Waker()
        self._feed: WeightFeed | None = None
        self._control: EngineControl | None = None
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._images = HeldImages()
        self._service = Service(self._channel, self._handle, ACT)
        self._threads = [
            threading.Thread(target=self._guard(loop), name=f"inference-{what}", daemon=True)
            for what, loop in (("router", self._route), ("engine", self._run_batches))
        ]

    def follow(self, feed: WeightFeed, control: EngineControl | None = None) -> None:
        """Takes weights from `feed`, and lets `control` act, between batches. Call it before `start`."""
        self._feed, self._control = feed, control

    def weights_ready(self) -> None:
        """Wakes the engine's thread, which looks at feed and control. Any thread."""
        self._queue.poke()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def check(self) -> None:
        """Raises what ended one of the server's threads, its engine or its feed, if anything did."""
        if self._error is not None:
            raise self._error
        self.engine.check()
        if self._feed is not None and self._feed.error is not None:
            raise self._feed.error

    def close(self) -> None:
        """Stops; what runs ends first, and the replies that are ready leave. May be called twice."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._queue.poke()
        self._waker.wake()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(JOIN_S)
        self._preparers.shutdown(wait=False)
        self.engine.close()
        self._channel.close()
        self._waker.close()

    def snapshot(self) -> dict[str, float]:
        return {
            **self.stats.snapshot(),
            **self.engine.stats(),
            **(self._control.stats() if self._control is not None else {}),
            "queue": float(len(self._queue)),
            "running": float(self._num_running),
            "weight_version": float(self.engine.version),
        }

    def _guard(self, loop: Callable[[], None]) -> Callable[[], None]:
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
        self._preparers.shutdown()  # those that still wait are refused
        self._threads[1].join(JOIN_S)
        self._send_replies()
        time.sleep(FLUSH_S)

    def _send_replies(self) -> None:
        while self._outbox:
            self._outbox.popleft()()

    def _handle(self, received: Received) -> None:
        message = received.message
        if isinstance(message, InfoRequest):
            info = Info(
                name=self._name,
                policy=self.engine.policy.name,
                weight_version=self.engine.version,
                stats=self.snapshot(),
            )
            self._service.reply(received.peer, info)
        elif isinstance(message, ActRequest):
            try:
                self._accept(received, message)
            except ProtocolError as error:
                if error.code != RejectCode.NOT_FOUND.value:  # which is asked again at once, and answered
                    self.stats.count(rejected=1)
                self._service.reject(received.peer, error, message.id)
        else:
            said = f"an inference server does not take a {type(message).__name__}"
            raise ProtocolError(RejectCode.UNEXPECTED.value, said)

    def _accept(self, received: Received, request: ActRequest) -> None:
        self._take_place()
        try:
            images = self._images.of(request, received.blobs)
        except ProtocolError:
            self._leave_places(1)
            raise
        self._preparers.submit(self._prepare, received.peer, request, images)

    # ---- a preparer ----

    def _prepare(self, peer: bytes, request: ActRequest, images: Mapping[str, bytes]) -> None:
        prefix = Prefix(token_ids=request.prefix, images=request.prefix_images)
        deliver = partial(self._send, self._service.reply, peer)
        self._admit(deliver, request.id, request.messages, images, request.sampling, prefix)

    def _send(self, how: Callable[..., None], *arguments: Any) -> None:
        self._outbox.append(partial(how, *arguments))
        self._waker.wake()

    # ---- any thread ----

    def complete(
        self,
        messages: Sequence[ChatMessage],
        images: Mapping[str, bytes],
        sampling: Sampling,
        timeout_s: float,
    ) -> Completion:
        """Completes a chat for a caller in this process, in one queue with all others.

        Raises:
            ProtocolError: The server refuses it; with the code that a client elsewhere would get.
            TimeoutError: It was not completed in time.
        """
        self._take_place()
        answer: Future[Record] = Future()
        self._admit(answer.set_result, uuid.uuid4().hex, messages, images, sampling, NO_PREFIX)
        try:
            found = answer.result(timeout_s)
        except FutureTimeout as error:
            raise TimeoutError(f"no completion within {timeout_s:g} s") from error
        if isinstance(found, Reject):
            raise ProtocolError(found.code.value, found.reason)
        assert isinstance(found, ActReply)
        return found.completion

    def _admit(
        self,
        deliver: Callable[[Record], None],
        request_id: str,
        messages: Sequence[ChatMessage],
        images: Mapping[str, bytes],
        sampling: Sampling,
        prefix: Prefix,
    ) -> None:
        """Prepares and queues a request that has a place, or refuses it."""
        refusal: Exception = STOPPED
        try:
            if not self._stopping.is_set():
                prepared = self.engine.prepare(messages, images, sampling, prefix)
                if self._queue.offer(Pending(deliver, request_id, prepared)):
                    return
        except Exception as error:  # noqa: BLE001 - a request must not end the service for the others
            refusal = error
        self._leave_places(1)
        self._refuse(deliver, request_id, refusal)

    def _take_place(self) -> None:
        """Counts one more request that waits; it leaves its place when it is refused or runs."""
        if self.engine.version == NO_WEIGHTS:
            raise ProtocolError(RejectCode.NOT_READY.value, "no weights have arrived yet")
        with self._counts_lock:
            if self._num_waiting >= MAX_QUEUE:
                raise ProtocolError(RejectCode.BUSY.value, "the queue is full")
            self._num_waiting += 1

    def _leave_places(self, count: int) -> None:
        with self._counts_lock:
            self._num_waiting -= count

    # ---- engine thread ----

    def _run_batches(self) -> None:
        try:
            while not self._stopping.is_set():
                self._swap_weights()
                batch = self._queue.take(POLL_S, self._room())
                if batch:
                    self._leave_places(len(batch))
                    self._swap_weights()
                    self._submit(batch)
            self._drain()
        finally:
            for queued in self._queue.close():
                self._refuse(queued.item.deliver, queued.item.request_id, STOPPED)
            self.engine.close()

    def _room(self) -> int | None:
        """How many requests the engine takes now; None: one batch."""
        return self._max_running - self._num_running if self.engine.is_continuous else None

    def _drain(self) -> None:
        """Waits for what runs; each end pokes the queue."""
        deadline = time.monotonic() + DRAIN_S
        while self._num_running and (left_s := deadline - time.monotonic()) > 0:
            self._queue.take(left_s, 0)

    def _swap_weights(self) -> None:
        if self._control is not None:
            self._control.act()
        fresh = self._feed.take() if self._feed is not None else None
        if fresh is None:
            return
        started = time.perf_counter()
        self.engine.load(*fresh)
        pause_s = time.perf_counter() - started
        self.stats.count(weight_swaps=1)
        self.stats.swap_pause_s = pause_s
        _log.info("weights %d are in use (pause %.1f ms)", fresh[0], 1000 * pause_s)

    def _submit(self, batch: list[Queued[Pending]]) -> None:
        started = time.monotonic()
        with self._counts_lock:
            self._num_running += len(batch)
            number = self.stats.batch(self._num_running)

        def on_done(index: int, result: Result) -> None:
            queued = batch[index]
            if isinstance(result, Exception):
                self._refuse(queued.item.deliver, queued.item.request_id, result)
            else:
                run_s, queue_s = time.monotonic() - started, started - queued.arrived_at
                self.stats.answered(queue_s, run_s, len(result.token_ids))
                timed = result.model_copy(update={"queue_s": queue_s, "run_s": run_s, "batch": number})
                queued.item.deliver(ActReply(id=queued.item.request_id, completion=timed))
            with self._counts_lock:
                self._num_running -= 1
            if self.engine.is_continuous:
                self._queue.poke()  # there is room for another

        self.engine.submit([queued.item.prepared for queued in batch], on_done)

    # ---- any thread ----

    def _refuse(self, deliver: Callable[[Record], None], request_id: str, error: Exception) -> None:
        """Rejects one request: as malformed if the policy refused it, so that no other server is asked."""
        code, reason = RejectCode.INTERNAL, "the policy failed on it; see the server's log"
        if isinstance(error, ProtocolError):
            code, reason = RejectCode(error.code), str(error)
        elif isinstance(error, PolicyError):
            code = RejectCode.CONTEXT_FULL if isinstance(error, ContextFull) else RejectCode.MALFORMED
            reason = str(error)[:500]
        else:
            _log.error("request %s failed", request_id, exc_info=error)
        self.stats.count(**{"failed" if code is RejectCode.INTERNAL else "rejected": 1})
        deliver(Reject(code=code, reason=reason, ref=request_id))
