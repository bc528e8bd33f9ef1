"""Weights on the wire: the learner's published buffers, and the receiver that fetches them chunk by chunk.

fetching thread: ChunkRequests (a window in flight) ──► Chunks copied into one buffer
                                                          └─ queue ──► hashing thread (SHA-256 of the prefix)
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import mmap
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Literal

from distrl.core.errors import NetworkError, ProtocolError
from distrl.core.messages import Chunk, ChunkRequest, Reject, RejectCode, WeightInfo
from distrl.core.sockets import Channel, Received, Wire

Buffer = bytes | bytearray | memoryview
Write = Callable[[int, memoryview], None]
CHUNK_BYTES = 4 * 2**20
WINDOW = 4
RESEND_S = 5.0
KEPT_BYTES = 64 * 2**20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def describe(
    version: int, data: Buffer, kind: Literal["full", "adapter"] = "full", chunk_bytes: int = CHUNK_BYTES
) -> WeightInfo:
    """The WeightInfo of `data`, hashed here once for all receivers."""
    view = memoryview(data).cast("B")
    return WeightInfo(
        version=version,
        digest=hashlib.sha256(view).hexdigest(),
        size_bytes=len(view),
        kind=kind,
        chunk_bytes=chunk_bytes,
    )


class WeightStore:
    """The newest published buffers. Any thread may call it.

    Args:
        keep: How many versions stay; a receiver that is still at an older one starts over with the newest.
    """

    def __init__(self, keep: int = 3) -> None:
        self._lock = threading.Lock()
        self._published: deque[tuple[WeightInfo, memoryview]] = deque(maxlen=keep)

    def publish(self, info: WeightInfo, data: Buffer) -> None:
        """Offers `data`, which must not change any more, under `info` (see `describe`)."""
        view = memoryview(data).cast("B").toreadonly()
        if len(view) != info.size_bytes:
            raise ValueError(f"{len(view)} bytes do not fit info.size_bytes = {info.size_bytes}")
        with self._lock:
            self._published.append((info, view))

    def chunk(self, digest: str, offset: int, length: int) -> memoryview:
        """Bytes [offset, offset + length) of a kept version, fewer at its end; not copied.

        Raises:
            ProtocolError: With code "not-found".
        """
        with self._lock:
            view = next((data for info, data in self._published if info.digest == digest), None)
        if view is None or offset >= len(view):
            raise ProtocolError(
                RejectCode.NOT_FOUND.value, f"no bytes at {offset} of the weights {digest:.16}…"
            )
        return view[offset : offset + length]


class _Gone(NetworkError):
    """The learner has only other weights by now."""


class _Partial:
    """What has arrived of one set of weights; hashed in order by a thread of its own while more arrives."""

    def __init__(self, info: WeightInfo, view: memoryview, write: Write) -> None:
        self.info, self.view, self._write = info, view, write
        self.missing = dict.fromkeys(range(0, info.size_bytes, info.chunk_bytes))
        self._arrived: set[int] = set()
        self._next_to_hash = 0
        self._hash = hashlib.sha256()

    def put(self, offset: int, data: memoryview) -> None:
        """Takes a chunk; duplicates and foreign sizes are ignored."""
        if offset in self.missing and len(data) == self.length(offset):
            self._write(offset, data)
            del self.missing[offset]
            self._arrived.add(offset)

    def length(self, offset: int) -> int:
        return min(self.info.chunk_bytes, self.info.size_bytes - offset)

    def take_hashable(self) -> list[memoryview]:
        """The chunks that continue the hashed prefix."""
        ready = []
        while self._next_to_hash in self._arrived:
            self._arrived.remove(self._next_to_hash)
            end = self._next_to_hash + self.length(self._next_to_hash)
            ready.append(self.view[self._next_to_hash : end])
            self._next_to_hash = end
        return ready

    def hash(self, chunks: list[memoryview]) -> None:
        for chunk in chunks:
            self._hash.update(chunk)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


class WeightFetcher:
    """Fetches weights by version description. Used by one thread.

    What has arrived is kept when a fetch ends early; the next fetch of the same digest goes on from there.

    Args:
        wire: Makes the connection.
        endpoint: The weights socket of the learner.
    """

    def __init__(self, wire: Wire, endpoint: str, window: int = WINDOW) -> None:
        _keep_freed_chunks()
        self._channel: Channel = wire.connect_dealer(endpoint)
        self._window = window
        self._partial: _Partial | None = None
        self._memory: mmap.mmap | None = None

    def fetch(
        self, info: WeightInfo, timeout_s: float, is_stopping: Callable[[], bool] = lambda: False
    ) -> memoryview:
        """The bytes of `info`, verified by their SHA-256.

        Args:
            info: What to fetch, from the learner's Status.
            timeout_s: Longest time without a new chunk.
            is_stopping: Polled; ends the fetch early.

        Raises:
            NetworkError: Not complete in time, stopped, or the learner does not keep this version any more.
            ProtocolError: The bytes are not those that were announced (code "digest"); they are forgotten.
        """
        if self._partial is None or self._partial.info.digest != info.digest:
            self._partial = None
            view = memoryview(self._take_memory(max(1, info.size_bytes)))[: info.size_bytes]

            def write(offset: int, data: memoryview) -> None:
                view[offset : offset + len(data)] = data

            self._partial = _Partial(info, view, write)
        partial = self._partial
        try:
            self._complete(partial, timeout_s, is_stopping)
        except _Gone:
            self._partial = None
            raise
        self._partial = None
        _check(partial)
        return partial.view

    def fetch_into(
        self,
        view: memoryview,
        write: Write,
        info: WeightInfo,
        timeout_s: float,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """As `fetch`, to somewhere else; a fetch that ends early is not continued.

        Args:
            view: Shows what was written, `info.size_bytes` bytes.
            write: Writes bytes at an offset; what it raises ends the fetch.
            info: As in `fetch`, and so are the others.
        """
        partial = _Partial(info, view, write)
        self._complete(partial, timeout_s, is_stopping)
        _check(partial)

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def _take_memory(self, num_bytes: int) -> mmap.mmap:
        """Memory for a set of weights: that of the last one if nobody looks at it any more.

        Fresh memory costs more than the whole transfer, page fault by page fault.
        """
        try:
            if self._memory is not None and len(self._memory) == num_bytes:
                self._memory.resize(num_bytes)  # raises while any view of it is alive
                return self._memory
        except (BufferError, SystemError):  # still in use, or a system that cannot tell
            pass
        self._memory = mmap.mmap(-1, num_bytes)
        return self._memory

    def _complete(self, partial: _Partial, timeout_s: float, is_stopping: Callable[[], bool]) -> None:
        hasher = _Hasher(partial)
        try:
            self._receive(partial, hasher, timeout_s, is_stopping)
        finally:
            hasher.join()

    def _receive(
        self, partial: _Partial, hasher: _Hasher, timeout_s: float, is_stopping: Callable[[], bool]
    ) -> None:
        to_ask = deque(partial.missing)
        num_in_flight, num_missing = 0, len(partial.missing)
        last_arrival = time.monotonic()
        deadline = last_arrival + timeout_s
        while partial.missing:
            now = time.monotonic()
            if len(partial.missing) < num_missing:
                num_missing, deadline = len(partial.missing), now + timeout_s
            if now >= deadline or is_stopping():
                raise NetworkError(
                    f"Weights {partial.info.version}: {len(partial.missing)} chunks did not arrive in time."
                )
            if now - last_arrival > RESEND_S:
                to_ask, num_in_flight, last_arrival = deque(partial.missing), 0, now
            while to_ask and num_in_flight < self._window and self._channel.is_connected:
                offset = to_ask.popleft()
                self._ask(partial, offset, deadline)
                num_in_flight += 1
            received = self._channel.recv(min(0.2, deadline - now))
            if received is not None and self._take(partial, received):
                num_in_flight = max(0, num_in_flight - 1)
                last_arrival = time.monotonic()
                hasher.offer(partial.take_hashable())

    def _ask(self, partial: _Partial, offset: int, deadline: float) -> None:
        request = ChunkRequest(digest=partial.info.digest, offset=offset, length=partial.length(offset))
        self._channel.send(request, timeout_s=max(0.0, deadline - time.monotonic()))

    def _take(self, partial: _Partial, received: Received) -> bool:
        message = received.message
        if isinstance(message, Reject) and message.code is RejectCode.NOT_FOUND:
            if partial.info.digest[:16] in message.reason:
                raise _Gone(f"The learner no longer keeps the weights {partial.info.version}.")
            return False
        if not isinstance(message, Chunk) or message.digest != partial.info.digest or not received.blobs:
            return False
        partial.put(message.offset, received.blobs[0])
        return True


def _check(partial: _Partial) -> None:
    if partial.hexdigest() != partial.info.digest:
        raise ProtocolError(
            RejectCode.DIGEST.value,
            f"weights {partial.info.version} arrived with another SHA-256 than announced",
        )


def _keep_freed_chunks() -> None:
    """Lets glibc reuse the memory of received chunks instead of returning it to the kernel after each one.

    The page faults of fresh memory would cost as much as a third of the transfer.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library has no such setting
            libc = ctypes.CDLL(None)
            libc.mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES // 2)
            libc.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


class _Hasher:
    """Hashes chunks in a thread of its own (hashlib releases the GIL); ended and drained by `join`."""

    def __init__(self, partial: _Partial) -> None:
        self._partial = partial
        self._queue: queue.SimpleQueue[list[memoryview] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="weights-hash", daemon=True)
        self._thread.start()

    def offer(self, chunks: list[memoryview]) -> None:
        if chunks:
            self._queue.put(chunks)

    def join(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (chunks := self._queue.get()) is not None:
            self._partial.hash(chunks)
