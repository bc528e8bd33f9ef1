"""Weights on the wire: the learner serves each version in chunks, receivers fetch and check it.

    learner          publish ──► ChunkServer (a thread): ChunkRequest → Chunk | Reject
    inference server WeightFetcher: a window of ChunkRequests in flight ──► one buffer ──► a thread: SHA-256
                     HostFetcher: the servers of one user on one host fetch and check each version once

A fetch that ends early continues where it stopped. Bytes are used only if their SHA-256 is the announced one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import mmap
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np

from distrl.core.errors import NetworkError, ProtocolError
from distrl.core.files import try_lock
from distrl.core.messages import Chunk, ChunkRequest, Reject, RejectCode, WeightInfo
from distrl.core.service import WEIGHTS, Permits, Service
from distrl.core.sockets import Channel, Poller, Received, Waker, Wire

Buffer = bytes | bytearray | memoryview
CHUNK_BYTES = 4 * 2**20
WINDOW = 4
RESEND_S = 5.0  # without a chunk; then the missing ones are requested again
IN_USE_S = 2 * RESEND_S  # without a request; then a version is not being fetched any more
POLL_S, CONNECT_S = 0.2, 0.02
STALE_S = 3600.0  # a killed process left what is older than this
MIN_PAUSE_S, MAX_PAUSE_S = 0.001, 0.05  # between two looks for a file that another server fetches
_PART = ".part"
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_SHA256 = re.compile(r"[0-9a-f]{64}")  # it becomes a file name
_log = logging.getLogger(__name__)


def describe(
    version: int,
    data: Buffer,
    kind: Literal["full", "adapter"] = "full",
    chunk_bytes: int = CHUNK_BYTES,
    digest: str | None = None,
) -> WeightInfo:
    """The WeightInfo of `data`, hashed here once for all receivers, unless its SHA-256 is given."""
    view = memoryview(data).cast("B")
    digest = hashlib.sha256(view).hexdigest() if digest is None else digest
    return WeightInfo(
        version=version, digest=digest, size_bytes=len(view), kind=kind, chunk_bytes=chunk_bytes
    )


# ---- learner ----


class ChunkServer:
    """Answers ChunkRequests with the newest published bytes, in a thread of its own; nothing is copied.

    Args:
        permits: Which roles may fetch, where the channel has keys.
        keep: How many versions stay, besides the oldest one that is being fetched, so that slow receivers end
            too. A receiver of another one starts over with the newest.
    """

    def __init__(self, channel: Channel, permits: Permits = WEIGHTS, keep: int = 3) -> None:
        self._channel, self._service = channel, Service(channel, self._handle, permits)
        self._lock = threading.Lock()
        self._published: dict[str, memoryview] = {}  # by digest, oldest first
        self._asked_at: dict[str, float] = {}
        self._keep = keep
        self._waker, self._stopping = Waker(), threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="weights", daemon=True)
        self.num_bytes = 0  # sent

    def publish(self, info: WeightInfo, data: Buffer) -> None:
        """Offers `data`, which must not change any more, under `info` (see `describe`). Any thread."""
        view = memoryview(data).cast("B").toreadonly()
        if len(view) != info.size_bytes:
            raise ValueError(f"{len(view)} bytes do not fit info.size_bytes = {info.size_bytes}")
        with self._lock:
            self._published.pop(info.digest, None)
            self._published[info.digest] = view
            old, since = list(self._published)[: -self._keep], time.monotonic() - IN_USE_S
            in_use = [digest for digest in old if self._asked_at.get(digest, since) > since]
            for digest in set(old).difference(in_use[:1]):
                del self._published[digest]
                self._asked_at.pop(digest, None)

    def chunk(self, digest: str, offset: int, length: int) -> memoryview:
        """Bytes of a kept version, fewer at its end, not copied; or ProtocolError "not-found"."""
        with self._lock:
            view = self._published.get(digest)
            if view is not None:
                self._asked_at[digest] = time.monotonic()
        if view is None or offset >= len(view):
            said = f"no bytes at {offset} of the weights {digest:.16}…"
            raise ProtocolError(RejectCode.NOT_FOUND.value, said)
        return view[offset : offset + length]

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def check(self) -> None:
        """Raises the error that ended the thread, if any."""
        if self._error is not None:
            raise self._error

    def close(self, timeout_s: float = 5.0) -> None:
        """Ends the thread and closes the channel."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._waker.wake()
            self._thread.join(timeout_s)
        self._channel.close()
        self._waker.close()

    def _run(self) -> None:
        poller = Poller([self._channel], self._waker)
        try:
            while not self._stopping.is_set():
                if poller.wait(1.0):
                    self._service.pump()
        except BaseException as error:  # noqa: BLE001 - raised again by `check`
            self._error = error
            _log.exception("the weights thread ended")

    def _handle(self, received: Received) -> None:
        asked = received.message
        if not isinstance(asked, ChunkRequest):
            said = f"a {type(asked).__name__} is not a request for weights"
            raise ProtocolError(RejectCode.UNEXPECTED.value, said)
        data = self.chunk(asked.digest, asked.offset, asked.length)
        self.num_bytes += len(data)
        self._service.reply(received.peer, Chunk(digest=asked.digest, offset=asked.offset), [data])


# ---- receivers ----


class _Assembly:
    """What has arrived of one version, put together in a buffer of `info.size_bytes` bytes."""

    def __init__(self, info: WeightInfo, buffer: memoryview) -> None:
        self.info, self.buffer = info, buffer
        # The offsets of the chunks that have not arrived, in order.
        self.missing = dict.fromkeys(range(0, info.size_bytes, info.chunk_bytes))
        self._sha256, self._num_hashed = hashlib.sha256(), 0
        self._hasher = ThreadPoolExecutor(1, "weights-hash")

    def length(self, offset: int) -> int:
        """Bytes of the chunk at `offset`."""
        return min(self.info.chunk_bytes, self.info.size_bytes - offset)

    def put(self, offset: int, data: memoryview) -> bool:
        """Takes a chunk. Returns False for duplicates and wrong sizes, which are ignored."""
        if offset not in self.missing or len(data) != self.length(offset):
            return False
        self.buffer[offset : offset + len(data)] = data
        del self.missing[offset]
        prefix = next(iter(self.missing), self.info.size_bytes)
        self._hasher.submit(self._sha256.update, self.buffer[self._num_hashed : prefix])
        self._num_hashed = prefix
        return True

    def check(self) -> None:
        """Raises ProtocolError "digest" if the SHA-256 of the whole is not the announced one."""
        self._hasher.shutdown()  # waits until everything is hashed
        if self._sha256.hexdigest() != self.info.digest:
            said = f"the SHA-256 of weights {self.info.version} is not the announced one"
            raise ProtocolError(RejectCode.DIGEST.value, said)


class WeightFetcher:
    """Fetches weights from the learner's weights socket. Used by one thread."""

    def __init__(self, wire: Wire, endpoint: str) -> None:
        self._channel = wire.connect_dealer(endpoint)
        self._unfinished: _Assembly | None = None
        self._last: Any = np.empty(0, np.uint8)

    def fetch(
        self,
        info: WeightInfo,
        timeout_s: float,
        is_stopping: Callable[[], bool] = lambda: False,
        into: memoryview | None = None,
    ) -> memoryview:
        """The bytes of `info`, checked. After an early end, the next fetch of the same version continues.

        Args:
            timeout_s: Longest time without a new chunk.
            is_stopping: Polled; ends the fetch early.
            into: Where to put the bytes, `info.size_bytes` of them; such a fetch is not continued.

        Raises:
            NetworkError: Not complete in time, stopped, or the learner no longer has this version.
            ProtocolError: The bytes are not those that were announced (code "digest"); they are discarded.
        """
        if into is not None:
            assembly = _Assembly(info, into)
        elif self._unfinished is not None and self._unfinished.info.digest == info.digest:
            assembly = self._unfinished
        else:
            assembly = self._unfinished = _Assembly(info, self._memory(info.size_bytes))
        self._complete(assembly, timeout_s, is_stopping)
        self._unfinished = None
        assembly.check()
        return assembly.buffer.toreadonly()

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def _memory(self, num_bytes: int) -> memoryview:
        """The last memory if no view of it is left, because fresh pages cost a third of a transfer."""
        is_free = sys.getrefcount(self._last) == 2  # the attribute and the argument
        if not is_free or len(self._last) != num_bytes:
            self._last = np.empty(num_bytes, np.uint8)
        return memoryview(self._last)

    def _complete(self, assembly: _Assembly, timeout_s: float, is_stopping: Callable[[], bool]) -> None:
        channel, to_request, in_flight = self._channel, deque(assembly.missing), set[int]()
        arrived_at = requested_at = time.monotonic()
        while assembly.missing:
            now = time.monotonic()
            if now - arrived_at >= timeout_s or is_stopping():
                raise NetworkError(
                    f"Weights {assembly.info.version}: {len(assembly.missing)} chunks did not arrive in time."
                )
            if now - max(requested_at, arrived_at) > RESEND_S:
                to_request, in_flight = deque(assembly.missing), set()
            is_connected = channel.is_connected
            while is_connected and to_request and len(in_flight) < WINDOW:
                offset = to_request.popleft()
                if offset not in assembly.missing:
                    continue
                in_flight.add(offset)
                length, requested_at = assembly.length(offset), now
                request = ChunkRequest(digest=assembly.info.digest, offset=offset, length=length)
                channel.send(request, timeout_s=POLL_S)
            received = channel.recv(min(POLL_S if is_connected else CONNECT_S, timeout_s))
            if received is not None:
                if self._take(assembly, received):
                    arrived_at = time.monotonic()
                in_flight.intersection_update(assembly.missing)

    def _take(self, assembly: _Assembly, received: Received) -> bool:
        """Puts an answer in its place. Returns whether it is a new chunk."""
        message, info = received.message, assembly.info
        if isinstance(message, Chunk) and message.digest == info.digest and received.blobs:
            return assembly.put(message.offset, received.blobs[0])
        if not isinstance(message, Reject) or message.code is not RejectCode.NOT_FOUND:
            return False
        if info.digest[:16] not in message.reason:
            return False
        self._unfinished = None
        raise NetworkError(f"The learner no longer has the weights {info.version}.")


class HostFetcher:
    """A `WeightFetcher` that shares what it fetches with the other servers of this user on this host.

        ROOT/distrl-weights-UID/    mode 0700, of this user, not a link; in shared memory
          GROUP/                    for one address of a learner
            lock                    held by the server that fetches
            DIGEST.part             being fetched
            DIGEST                  checked, and mapped read-only by all; locked (shared) by its readers

    Where the folder cannot be used (no shared memory, no room), each server fetches on its own and logs a
    warning. Used by one thread.

    Args:
        root: The folder of this user; None: `default_root`.
    """

    def __init__(self, fetcher: WeightFetcher, endpoint: str, root: Path | None = None) -> None:
        self._fetcher = fetcher
        self._root = default_root() if root is None else root
        self._folder = self._root / hashlib.sha256(endpoint.encode()).hexdigest()[:16]
        self._maps: dict[int, mmap.mmap] = {}  # by inode; mapping again costs as much as the transfer
        self.is_sharing = hasattr(os, "posix_fallocate")
        try:
            self._remove_stale()
        except OSError as error:
            self._stop_sharing(error)

    def fetch(
        self,
        info: WeightInfo,
        timeout_s: float,
        is_stopping: Callable[[], bool] = lambda: False,
        is_superseded: Callable[[], bool] = lambda: False,
    ) -> memoryview | None:
        """The bytes of `info`, checked by the server that fetched them.

        Arguments and errors as of `WeightFetcher.fetch`; a server that fetches is waited for as long as it
        gives a sign of life within `timeout_s`.

        Args:
            is_superseded: Polled while another server fetches: whether there are newer weights.

        Returns:
            None: `info` is superseded and is not being fetched.
        """
        started_at = heard_at = time.monotonic()
        heard: int | None = None
        while self.is_sharing and _SHA256.fullmatch(info.digest):
            try:
                view = self._open(info)
                if view is not None:
                    return view
                with self._locked() as is_ours:
                    if is_ours:
                        view = self._open(info)  # another server may have finished meanwhile
                        if view is None and not is_superseded():
                            view = self._fetch_for_all(info, timeout_s, is_stopping)
                        return view
                last = self._sign_of_life(info)
                if is_superseded() and last is None:
                    return None
            except OSError as error:
                self._stop_sharing(error)
                break
            if is_stopping():
                raise NetworkError(f"Weights {info.version}: stopped while another server fetched them.")
            now = time.monotonic()
            if last != heard:
                heard, heard_at = last, now
            if now - heard_at > timeout_s:
                _log.warning("weights %d: the server that fetches them has stalled", info.version)
                break
            time.sleep(min(MAX_PAUSE_S, max(MIN_PAUSE_S, (now - started_at) / 20)))
        return self._fetcher.fetch(info, timeout_s, is_stopping)

    def close(self) -> None:
        """Closes the connection and removes the files; servers that are still there fetch what they lack."""
        self._fetcher.close()
        if self._folder.exists():
            with contextlib.suppress(OSError), self._locked() as is_ours:
                if is_ours:
                    shutil.rmtree(self._folder, ignore_errors=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Whether this server may fetch, now."""
        _make_private(self._root)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        held = try_lock(self._folder / "lock")
        with held or contextlib.nullcontext():
            yield held is not None

    def _open(self, info: WeightInfo) -> memoryview | None:
        """The checked bytes of `info`, or None. They are not overwritten while they are referenced."""
        path = self._folder / info.digest
        try:
            descriptor = os.open(path, _OPEN)
        except FileNotFoundError:
            return None
        with contextlib.ExitStack() as unlocked:
            unlocked.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if os.stat(path).st_ino != os.fstat(descriptor).st_ino:
                    return None
                array: Any = np.frombuffer(self._map(path, info.size_bytes), np.uint8)
            except (BlockingIOError, FileNotFoundError):
                return None  # being removed, or used for another version, at this moment
            weakref.finalize(array, unlocked.pop_all().close)  # the lock ends with the last view
        return memoryview(array)[: info.size_bytes].toreadonly()

    def _sign_of_life(self, info: WeightInfo) -> int | None:
        """Changes while another server fetches `info`; None while none does."""
        with contextlib.suppress(FileNotFoundError):
            return (self._folder / f"{info.digest}{_PART}").stat().st_mtime_ns
        return None

    def _fetch_for_all(
        self, info: WeightInfo, timeout_s: float, is_stopping: Callable[[], bool]
    ) -> memoryview | None:
        """Fetches into a file that gets its name when it is complete. The lock is held."""
        part = self._folder / f"{info.digest}{_PART}"
        descriptor, room = self._recycle(part), max(1, info.size_bytes)

        def is_over() -> bool:
            os.utime(descriptor)  # for `_sign_of_life` and `_recycle`: writes to mapped memory do not set it
            return is_stopping()

        try:
            # Reserved first: without room, writing to mapped memory would kill the process.
            os.ftruncate(descriptor, room)
            os.posix_fallocate(descriptor, 0, room)
            buffer = memoryview(self._map(part, info.size_bytes))[: info.size_bytes]
            self._fetcher.fetch(info, timeout_s, is_over, into=buffer)
            part.rename(self._folder / info.digest)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        return self._open(info)

    def _recycle(self, part: Path) -> int:
        """Opens a file to fetch into: one of an older version without readers, if any. Removes the others.

        The newest version stays: a server may be about to open it.
        """
        files = [path for path in self._folder.iterdir() if path.name != "lock"]
        files.sort(key=lambda path: path.stat().st_mtime_ns)
        found = None
        for path in files[:-1] if files and not files[-1].name.endswith(_PART) else files:
            descriptor = os.open(path, _OPEN)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                path.unlink()  # its readers keep the memory
                continue
            if found is not None:
                os.close(found)
            path.rename(part)
            found = descriptor
        if found is None:
            found = os.open(part, _OPEN | os.O_CREAT | os.O_EXCL, 0o600)
        return found

    def _map(self, path: Path, num_bytes: int) -> mmap.mmap:
        """The mapping of a file, kept for the next version in it."""
        inodes = {path.stat().st_ino for path in self._folder.iterdir()}
        self._maps = {inode: kept for inode, kept in self._maps.items() if inode in inodes}
        # A descriptor of its own: mmap duplicates it, and would thus share the lock of the caller's.
        descriptor = os.open(path, _OPEN)
        try:
            inode = os.fstat(descriptor).st_ino
            kept = self._maps.get(inode)
            if kept is None or len(kept) != max(1, num_bytes):
                kept = self._maps[inode] = mmap.mmap(descriptor, max(1, num_bytes))
        finally:
            os.close(descriptor)
        return kept

    def _remove_stale(self) -> None:
        """Removes the groups that killed servers left."""
        _make_private(self._root)
        for group in self._root.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another server has removed it
                if group != self._folder and time.time() - group.stat().st_mtime > STALE_S:
                    shutil.rmtree(group, ignore_errors=True)

    def _stop_sharing(self, error: OSError) -> None:
        self.is_sharing = False
        _log.warning("weights are not shared with the other servers on this host: %s", error)


def default_root() -> Path:
    """The folder of this user where servers share weights: in memory where possible, else temporary files."""
    memory = Path("/dev/shm")
    is_usable = memory.is_dir() and os.access(memory, os.W_OK | os.X_OK)
    base = memory if is_usable else Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    return base / f"distrl-weights-{os.geteuid()}"


def _make_private(folder: Path) -> None:
    """Makes a folder for this user only. Raises OSError if others can use it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a private folder of this user")
