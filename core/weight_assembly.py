"""Where fetched weights are put together: memory that is used again, and a SHA-256 that keeps pace.

fetching thread: chunks ──► Assembly.put ──► memory
                               └─ queue ──► hashing thread (SHA-256 of the prefix)
"""

from __future__ import annotations

import hashlib
import mmap
import queue
import threading
from collections.abc import Callable, Iterable, Mapping

from distrl.core.errors import ProtocolError
from distrl.core.messages import RejectCode, WeightInfo

Write = Callable[[int, memoryview], None]
Digests = Mapping[int, bytes]
"""The SHA-256 of each chunk, by its offset."""
KEPT_MEMORIES = 2  # one may be looked at (a server passes it on) while the next version is put together


class Assembly:
    """What has arrived of one set of weights.

    Args:
        info: The weights.
        view: Shows what was written, `info.size_bytes` bytes.
        write: Writes a chunk at its offset.
        present: Offsets of the chunks that are in place already.

    Attributes:
        missing: The offsets of the chunks that are not, in order.
    """

    def __init__(self, info: WeightInfo, view: memoryview, write: Write, present: Iterable[int] = ()) -> None:
        self.info, self.view, self._write = info, view, write
        self._arrived = set(present)
        self.missing = dict.fromkeys(
            offset for offset in range(0, info.size_bytes, info.chunk_bytes) if offset not in self._arrived
        )
        self._next_to_hash = 0
        self.sha256 = Sha256()

    def put(self, offset: int, data: memoryview) -> None:
        """Takes a chunk; duplicates and foreign sizes are ignored."""
        if offset in self.missing and len(data) == self.length(offset):
            self._write(offset, data)
            del self.missing[offset]
            self._arrived.add(offset)

    def length(self, offset: int) -> int:
        """Bytes of the chunk at `offset`."""
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

    def check(self) -> None:
        """Compares the SHA-256 of what was put together with the announced one.

        Raises:
            ProtocolError: With code "digest": it is another.
        """
        if self.sha256.hexdigest() != self.info.digest:
            raise ProtocolError(
                RejectCode.DIGEST.value,
                f"weights {self.info.version} arrived with another SHA-256 than announced",
            )


class WeightMemory:
    """Memory for one set of weights.

    Attributes:
        digests: What the chunks in it are, as far as they were announced by their SHA-256.
    """

    def __init__(self, num_bytes: int) -> None:
        self._map, self.num_bytes = mmap.mmap(-1, max(1, num_bytes)), num_bytes
        self.chunk_bytes = 0
        self.digests: dict[int, bytes] = {}

    @property
    def view(self) -> memoryview:
        """The bytes."""
        return memoryview(self._map)[: self.num_bytes]

    @property
    def is_free(self) -> bool:
        """Whether nobody looks at it any more."""
        try:
            self._map.resize(max(1, self.num_bytes))  # raises while any view of it is alive
        except (BufferError, SystemError):  # in use, or a system that cannot tell
            return False
        return True

    def writer(self, digests: Digests) -> Write:
        """Writes chunks and notes what they are, which is what was announced or is found out at the end."""
        view = self.view

        def write(offset: int, data: memoryview) -> None:
            self.digests.pop(offset, None)
            view[offset : offset + len(data)] = data
            if offset in digests:
                self.digests[offset] = digests[offset]

        return write


class WeightMemories:
    """The memory of the last sets of weights, for the next one. Used by one thread.

    Fresh memory costs more than the whole transfer, page fault by page fault; and what has not changed since
    need not be transferred.
    """

    def __init__(self) -> None:
        self._kept: list[WeightMemory] = []

    def assemble(self, info: WeightInfo, digests: Digests) -> Assembly:
        """Memory for `info`, in which the chunks that are here already are in place."""
        fitting = [memory for memory in self._kept if memory.num_bytes == info.size_bytes]
        free = [memory for memory in fitting if memory.is_free]
        target = max(free, key=lambda one: _num_equal(one, digests), default=None)
        if target is None:
            target = WeightMemory(info.size_bytes)
            self._kept = [*self._kept[1 - KEPT_MEMORIES :], target]
        if target.chunk_bytes != info.chunk_bytes:
            target.chunk_bytes, target.digests = info.chunk_bytes, {}
        view, write = target.view, target.writer(digests)
        present = set()
        for offset, digest in digests.items():
            if target.digests.get(offset) != digest:
                target.digests.pop(offset, None)
                source = next((one for one in fitting if one.digests.get(offset) == digest), None)
                if source is None:
                    continue
                write(offset, source.view[offset : offset + info.chunk_bytes])
            present.add(offset)
        target.digests = {offset: target.digests[offset] for offset in present}
        return Assembly(info, view, write, present)

    def distrust(self) -> None:
        """Forgets what is in the memories: some of it is not what was announced."""
        for memory in self._kept:
            memory.digests.clear()


def _num_equal(memory: WeightMemory, digests: Digests) -> int:
    return sum(memory.digests.get(offset) == digest for offset, digest in digests.items())


class Sha256:
    """A SHA-256 of chunks in order, taken by a thread of its own between `start` and `join`.

    hashlib lets other threads run meanwhile.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._queue: queue.SimpleQueue[list[memoryview] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._run, name="weights-hash", daemon=True)
        self._thread.start()

    def offer(self, chunks: list[memoryview]) -> None:
        """Goes on with these."""
        if chunks:
            self._queue.put(chunks)

    def join(self) -> None:
        """Waits until all that was offered is hashed, and ends the thread."""
        assert self._thread is not None
        self._queue.put(None)
        self._thread.join()
        self._thread = None

    def hexdigest(self) -> str:
        """Of all that was hashed."""
        return self._hash.hexdigest()

    def _run(self) -> None:
        while (chunks := self._queue.get()) is not None:
            for chunk in chunks:
                self._hash.update(chunk)
