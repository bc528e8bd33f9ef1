"""Weights on the wire: the learner's published buffers, and the receiver that fetches them chunk by chunk.

Larger weights have a list of their chunks' SHA-256, announced by its own: a receiver that has an earlier
version fetches only the chunks that differ.

fetching thread: ChunkRequests (a window in flight) ──► Chunks copied into one buffer, hashed meanwhile
                                                        (`core.weight_assembly`)
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple

from distrl.core.errors import NetworkError, ProtocolError
from distrl.core.messages import Chunk, ChunkRequest, Reject, RejectCode, WeightInfo
from distrl.core.sockets import Channel, Received, Wire
from distrl.core.weight_assembly import Assembly, Digests, WeightMemories, Write

Buffer = bytes | bytearray | memoryview
CHUNK_BYTES = 4 * 2**20
DIGEST_BYTES = 32
WINDOW = 4
RESEND_S = 5.0
HASHERS = 4  # threads that hash the chunks while another one hashes the whole
KEPT_LISTS = 4
KEPT_BYTES = 64 * 2**20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def describe(
    version: int, data: Buffer, kind: Literal["full", "adapter"] = "full", chunk_bytes: int = CHUNK_BYTES
) -> WeightInfo:
    """The WeightInfo of `data`, hashed here once for all receivers; without a list of chunks."""
    view = memoryview(data).cast("B")
    return WeightInfo(
        version=version,
        digest=hashlib.sha256(view).hexdigest(),
        size_bytes=len(view),
        kind=kind,
        chunk_bytes=chunk_bytes,
    )


def describe_chunks(
    version: int, data: Buffer, kind: Literal["full", "adapter"] = "full", chunk_bytes: int = CHUNK_BYTES
) -> tuple[WeightInfo, bytes]:
    """The WeightInfo of `data`, and the SHA-256 of all chunks, one after the other.

    The list is empty for a single chunk, whose SHA-256 is that of the whole.
    """
    view = memoryview(data).cast("B")
    if len(view) <= chunk_bytes:
        return describe(version, view, kind, chunk_bytes), b""
    with ThreadPoolExecutor(HASHERS) as pool:
        chunks = [view[offset : offset + chunk_bytes] for offset in range(0, len(view), chunk_bytes)]
        digests = pool.map(lambda chunk: hashlib.sha256(chunk).digest(), chunks)
        info = describe(version, view, kind, chunk_bytes)
        listed = b"".join(digests)
    return info.model_copy(update={"chunk_list": hashlib.sha256(listed).hexdigest()}), listed


class _Published(NamedTuple):
    info: WeightInfo
    data: memoryview
    chunk_list: memoryview


class WeightStore:
    """The newest published buffers. Any thread may call it.

    Args:
        keep: How many versions stay; a receiver that is still at an older one starts over with the newest.
    """

    def __init__(self, keep: int = 3) -> None:
        self._lock = threading.Lock()
        self._published: deque[_Published] = deque(maxlen=keep)

    def publish(self, info: WeightInfo, data: Buffer, chunk_list: bytes = b"") -> None:
        """Offers `data`, which must not change any more, under `info` (see `describe`, `describe_chunks`)."""
        view = memoryview(data).cast("B").toreadonly()
        if len(view) != info.size_bytes:
            raise ValueError(f"{len(view)} bytes do not fit info.size_bytes = {info.size_bytes}")
        if bool(chunk_list) != bool(info.chunk_list):
            raise ValueError(f"a list of {len(chunk_list)} bytes is not what info.chunk_list says")
        with self._lock:
            self._published.append(_Published(info, view, memoryview(chunk_list)))

    def chunk(self, digest: str, offset: int, length: int) -> memoryview:
        """Bytes [offset, offset + length) of a kept version or list, fewer at its end; not copied.

        Raises:
            ProtocolError: With code "not-found".
        """
        view = self._find(digest)
        if view is None or offset >= len(view):
            raise ProtocolError(
                RejectCode.NOT_FOUND.value, f"no bytes at {offset} of the weights {digest:.16}…"
            )
        return view[offset : offset + length]

    def _find(self, digest: str) -> memoryview | None:
        with self._lock:
            for info, data, chunk_list in self._published:
                if digest == info.digest:
                    return data
                if digest == info.chunk_list:
                    return chunk_list
        return None


class _Gone(NetworkError):
    """The learner has only other weights by now."""


class WeightFetcher:
    """Fetches weights by version description. Used by one thread.

    What has arrived is kept when a fetch ends early: the next fetch of the same digest goes on from there.
    What is the same in the version before is not fetched.

    Args:
        wire: Makes the connection.
        endpoint: The weights socket of the learner.
    """

    def __init__(self, wire: Wire, endpoint: str, window: int = WINDOW) -> None:
        _keep_freed_chunks()
        self._channel: Channel = wire.connect_dealer(endpoint)
        self._window = window
        self._assembly: Assembly | None = None
        self._memories = WeightMemories()
        self._lists: dict[str, Digests] = {}  # by their own digest, the newest last

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
        if self._assembly is None or self._assembly.info.digest != info.digest:
            self._assembly = None  # its memory is free now
            digests = self._digests(info, timeout_s, is_stopping)
            self._assembly = self._memories.assemble(info, digests)
        assembly = self._assembly
        try:
            self._complete(assembly, timeout_s, is_stopping)
        except _Gone:
            self._assembly = None
            raise
        self._assembly = None
        try:
            assembly.check()
        except ProtocolError:
            self._memories.distrust()
            raise
        return assembly.view

    def fetch_into(
        self,
        view: memoryview,
        write: Write,
        info: WeightInfo,
        timeout_s: float,
        is_stopping: Callable[[], bool] = lambda: False,
        previous: tuple[WeightInfo, memoryview] | None = None,
    ) -> None:
        """As `fetch`, to somewhere else; a fetch that ends early is not continued.

        Args:
            view: Shows what was written, `info.size_bytes` bytes.
            write: Writes bytes at an offset; what it raises ends the fetch.
            info: As in `fetch`, and so are the others.
            previous: Another version, whose bytes are there and checked.
        """
        present = []
        if previous is not None:
            old_info, old = previous
            digests = self._digests(info, timeout_s, is_stopping)
            try:
                old_digests = self._digests(old_info, timeout_s, is_stopping) if digests else {}
            except _Gone:
                old_digests = {}
            for offset, digest in digests.items():
                if old_digests.get(offset) == digest:
                    write(offset, old[offset : offset + info.chunk_bytes])
                    present.append(offset)
        assembly = Assembly(info, view, write, present)
        self._complete(assembly, timeout_s, is_stopping)
        assembly.check()

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def _digests(self, info: WeightInfo, timeout_s: float, is_stopping: Callable[[], bool]) -> Digests:
        """The SHA-256 of the chunks of `info`, fetched unless it is known; {} if it has no such list."""
        if not info.chunk_list:
            with contextlib.suppress(ValueError):  # no digest at all
                return {0: bytes.fromhex(info.digest)} if info.size_bytes <= info.chunk_bytes else {}
            return {}
        if info.chunk_list not in self._lists:
            offsets = range(0, info.size_bytes, info.chunk_bytes)
            listed = bytearray(DIGEST_BYTES * len(offsets))

            def write(offset: int, data: memoryview) -> None:
                listed[offset : offset + len(data)] = data

            about = WeightInfo(version=info.version, digest=info.chunk_list, size_bytes=len(listed))
            assembly = Assembly(about, memoryview(listed).toreadonly(), write)
            self._complete(assembly, timeout_s, is_stopping)
            assembly.check()
            self._lists[info.chunk_list] = {
                offset: bytes(listed[DIGEST_BYTES * number : DIGEST_BYTES * (number + 1)])
                for number, offset in enumerate(offsets)
            }
            while len(self._lists) > KEPT_LISTS:
                del self._lists[next(iter(self._lists))]
        return self._lists[info.chunk_list]

    def _complete(self, assembly: Assembly, timeout_s: float, is_stopping: Callable[[], bool]) -> None:
        assembly.sha256.start()
        try:
            assembly.sha256.offer(assembly.take_hashable())
            self._receive(assembly, timeout_s, is_stopping)
        finally:
            assembly.sha256.join()

    def _receive(self, assembly: Assembly, timeout_s: float, is_stopping: Callable[[], bool]) -> None:
        to_ask = deque(assembly.missing)
        num_in_flight, num_missing = 0, len(assembly.missing)
        last_arrival = time.monotonic()
        deadline = last_arrival + timeout_s
        while assembly.missing:
            now = time.monotonic()
            if len(assembly.missing) < num_missing:
                num_missing, deadline = len(assembly.missing), now + timeout_s
            if now >= deadline or is_stopping():
                raise NetworkError(
                    f"Weights {assembly.info.version}: {len(assembly.missing)} chunks did not arrive in time."
                )
            if now - last_arrival > RESEND_S:
                to_ask, num_in_flight, last_arrival = deque(assembly.missing), 0, now
            while to_ask and num_in_flight < self._window and self._channel.is_connected:
                offset = to_ask.popleft()
                self._ask(assembly, offset, deadline)
                num_in_flight += 1
            received = self._channel.recv(min(0.2, deadline - now))
            if received is not None and self._take(assembly, received):
                num_in_flight = max(0, num_in_flight - 1)
                last_arrival = time.monotonic()
                assembly.sha256.offer(assembly.take_hashable())

    def _ask(self, assembly: Assembly, offset: int, deadline: float) -> None:
        request = ChunkRequest(digest=assembly.info.digest, offset=offset, length=assembly.length(offset))
        self._channel.send(request, timeout_s=max(0.0, deadline - time.monotonic()))

    def _take(self, assembly: Assembly, received: Received) -> bool:
        message = received.message
        if isinstance(message, Reject) and message.code is RejectCode.NOT_FOUND:
            if assembly.info.digest[:16] in message.reason:
                raise _Gone(f"The learner no longer keeps the weights {assembly.info.version}.")
            return False
        if not isinstance(message, Chunk) or message.digest != assembly.info.digest or not received.blobs:
            return False
        assembly.put(message.offset, received.blobs[0])
        return True


def _keep_freed_chunks() -> None:
    """Lets glibc reuse the memory of received chunks instead of returning it to the kernel after each one.

    The page faults of fresh memory would cost as much as a third of the transfer.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library has no such setting
            libc = ctypes.CDLL(None)
            libc.mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES // 2)
            libc.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
