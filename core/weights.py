"""Weights on the wire: the learner's published buffers, and the receiver that fetches them chunk by chunk.

Larger weights have a list of their chunks' SHA-256, announced by its own: a receiver that has an earlier
version fetches only the chunks that differ.

fetching thread: `core.weight_transfer`: ChunkRequests (a window in flight) ──► Chunks
                 `core.weight_assembly`: copied into one buffer, hashed meanwhile
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple

from distrl.core.errors import ProtocolError
from distrl.core.messages import RejectCode, WeightInfo
from distrl.core.sockets import Wire
from distrl.core.weight_assembly import Assembly, Digests, WeightMemories, Write
from distrl.core.weight_transfer import Connections, FindHolders, Gone, Transfer

Buffer = bytes | bytearray | memoryview
CHUNK_BYTES = 4 * 2**20
DIGEST_BYTES = 32
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

    def is_list(self, digest: str) -> bool:
        """Whether `digest` is that of a list of chunks."""
        with self._lock:
            return any(digest == published.info.chunk_list for published in self._published)

    def _find(self, digest: str) -> memoryview | None:
        with self._lock:
            for info, data, chunk_list in self._published:
                if digest == info.digest:
                    return data
                if digest == info.chunk_list:
                    return chunk_list
        return None


class WeightFetcher:
    """Fetches weights by version description. Used by one thread.

    What has arrived is kept when a fetch ends early: the next fetch of the same digest goes on from there.
    What is the same in the version before is not fetched.

    Args:
        wire: Makes the connections.
        endpoint: The weights socket of the learner.
        holders: Who else has weights now, by their digest.
    """

    def __init__(self, wire: Wire, endpoint: str, holders: FindHolders = lambda digest: ()) -> None:
        _keep_freed_chunks()
        self._connections, self._holders = Connections(wire, endpoint), holders
        self._digests_of: Digests = {}  # of the chunks of `_assembly`
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
            self._digests_of = self._digests(info, timeout_s, is_stopping)
            self._assembly = self._memories.assemble(info, self._digests_of)
        assembly = self._assembly
        try:
            self._complete(assembly, self._digests_of, timeout_s, is_stopping)
        except Gone:
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
        digests = self._digests(info, timeout_s, is_stopping)
        if previous is not None and digests:
            old_info, old = previous
            try:
                old_digests = self._digests(old_info, timeout_s, is_stopping)
            except Gone:
                old_digests = {}
            for offset, digest in digests.items():
                if old_digests.get(offset) == digest:
                    write(offset, old[offset : offset + info.chunk_bytes])
                    present.append(offset)
        assembly = Assembly(info, view, write, present)
        self._complete(assembly, digests, timeout_s, is_stopping)
        assembly.check()

    def close(self) -> None:
        """Closes the connections."""
        self._connections.close()

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
            self._complete(assembly, {}, timeout_s, is_stopping)
            assembly.check()
            self._lists[info.chunk_list] = {
                offset: bytes(listed[DIGEST_BYTES * number : DIGEST_BYTES * (number + 1)])
                for number, offset in enumerate(offsets)
            }
            while len(self._lists) > KEPT_LISTS:
                del self._lists[next(iter(self._lists))]
        return self._lists[info.chunk_list]

    def _complete(
        self, assembly: Assembly, digests: Digests, timeout_s: float, is_stopping: Callable[[], bool]
    ) -> None:
        assembly.sha256.start()
        try:
            assembly.sha256.offer(assembly.take_hashable())
            Transfer(self._connections, assembly, digests, self._holders).run(timeout_s, is_stopping)
        finally:
            assembly.sha256.join()


def _keep_freed_chunks() -> None:
    """Lets glibc reuse the memory of received chunks instead of returning it to the kernel after each one.

    The page faults of fresh memory would cost as much as a third of the transfer.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library has no such setting
            libc = ctypes.CDLL(None)
            libc.mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES // 2)
            libc.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
