"""A folder in memory where the inference servers of one user on one host share the weights of one learner.

    ROOT/distrl-weights-UID/     mode 0700, ours, never reached through a link
      GROUP/                     of one learner's address; users hold a shared lock on it, the last removes it
        lock                     held by the one that fetches; its time says that this one is alive
        DIGEST.part              being fetched
        DIGEST                   checked; whoever looks at it holds a shared lock on it, so that nobody writes

All locks are flock()s: the kernel releases those of a process that dies, however it dies. Files are named
relative to open folders, so that nobody can exchange a folder under way.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
import stat
import tempfile
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

JOIN_S = 5.0  # how long somebody else may take to remove what killed servers left in our group
POLL_S = 0.01
_LOCK = "lock"
_PART = ".part"
_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC
_MADV_POPULATE_READ = 22  # linux/mman.h


def default_root() -> Path:
    """The private folder of this user: in shared memory where there is any, else among temporary files."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK | os.X_OK):
        base = memory
    else:
        base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    return base / f"distrl-weights-{os.geteuid()}"


class Slot(NamedTuple):
    """A file that is being filled. `view` shows what was written."""

    descriptor: int
    view: memoryview

    def write(self, offset: int, data: memoryview) -> None:
        """Writes `data` at `offset`. Raises OSError when there is no room."""
        while data:
            count = os.pwrite(self.descriptor, data, offset)
            offset, data = offset + count, data[count:]


class WeightShare:
    """One user's membership in a group. Used by one thread.

    Args:
        endpoint: The learner's weights socket; those who name the same one are a group.
        root: The private folder, made if missing.

    Raises:
        OSError: The folder is not private to this user, or cannot be used.
    """

    def __init__(self, endpoint: str, root: Path | None = None) -> None:
        self._maps: dict[tuple[int, int], mmap.mmap] = {}
        self._name = hashlib.sha256(endpoint.encode()).hexdigest()[:16]
        with contextlib.ExitStack() as opened:
            self._root = _open_private(str(root or default_root()))
            opened.callback(os.close, self._root)
            self._sweep()
            self._folder = self._join()
            opened.callback(os.close, self._folder)
            self._lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | _OPEN, 0o600, dir_fd=self._folder)
            opened.callback(os.close, self._lock)
            self._opened = opened.pop_all()

    def open(self, digest: str, num_bytes: int) -> memoryview | None:
        """The checked bytes of `digest`, or None if they are not here.

        They are read-only, and stay valid while they are referenced, also when the file is removed meanwhile.
        """
        with contextlib.ExitStack() as unmapped, contextlib.ExitStack() as unlocked:
            try:
                mapped = os.open(digest, os.O_RDONLY | _OPEN, dir_fd=self._folder)
                unmapped.callback(os.close, mapped)
                locked = os.open(digest, os.O_RDONLY | _OPEN, dir_fd=self._folder)
                unlocked.callback(os.close, locked)
            except FileNotFoundError:
                return None
            # A file that was renamed before the lock was ours may be on its way to be other weights.
            if not (
                _lock(locked, fcntl.LOCK_SH)
                and _is_named(locked, digest, self._folder)
                and _identity(os.fstat(mapped)) == _identity(os.fstat(locked))
                and os.fstat(mapped).st_size == max(1, num_bytes)
            ):
                return None
            array = np.frombuffer(self._map(mapped, num_bytes, populate=True), np.uint8)
            # The lock, which keeps others from writing to the file, goes when nobody looks at it any more.
            weakref.finalize(array, unlocked.pop_all().close)
        return array.data[:num_bytes]

    def try_lock(self) -> bool:
        """Takes the right to fetch, unless somebody has it."""
        if not _lock(self._lock, fcntl.LOCK_EX):
            return False
        self.beat()
        return True

    def unlock(self) -> None:
        """Gives the right to fetch back."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def beat(self) -> None:
        """Says that the holder of the lock is alive."""
        os.utime(self._lock)

    def last_beat(self) -> int:
        """When the holder last said so, ns; only to be compared with other such times."""
        return os.fstat(self._lock).st_mtime_ns

    def is_fetching(self, digest: str) -> bool:
        """Whether there is an unfinished `digest`."""
        try:
            os.stat(digest + _PART, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    @contextlib.contextmanager
    def reserve(self, digest: str, num_bytes: int) -> Iterator[Slot]:
        """A place to fetch `digest` into; offered to all at the end of the block, unless that raises.

        It needs the lock. All versions but the newest leave; the memory of one that nobody looks at is taken
        again, because fresh memory costs as much as the transfer.

        Raises:
            OSError: There is not enough room; writing raises it too.
        """
        part = digest + _PART
        descriptor = self._recycle(part)
        if descriptor is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN
            descriptor = os.open(part, flags, 0o600, dir_fd=self._folder)
        try:
            os.ftruncate(descriptor, max(1, num_bytes))
            yield Slot(descriptor, memoryview(self._map(descriptor, num_bytes))[:num_bytes])
            now = time.time_ns()  # file systems' own times may be the same for versions some ms apart
            os.utime(descriptor, ns=(now, now))  # the newest, for `_recycle`
            os.rename(part, digest, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except BaseException:
            with contextlib.suppress(OSError):  # the next who fetches removes it
                os.unlink(part, dir_fd=self._folder)
            raise
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Leaves the group; the last one removes its files."""
        self._remove_if_unused(self._folder, self._name)
        self._opened.close()

    def _map(self, descriptor: int, num_bytes: int, populate: bool = False) -> mmap.mmap:
        """The mapping of a file, the one that this process has already if it has: page faults are slow."""
        for gone in self._maps.keys() - self._present():
            del self._maps[gone]
        key = _identity(os.fstat(descriptor))
        memory = self._maps.get(key)
        if memory is None or len(memory) != max(1, num_bytes):
            memory = mmap.mmap(descriptor, max(1, num_bytes), prot=mmap.PROT_READ)
            if populate:
                with contextlib.suppress(OSError):  # a system without it maps page by page
                    memory.madvise(_MADV_POPULATE_READ)
            self._maps[key] = memory  # it keeps the file, so that the key stays its own
        return memory

    def _present(self) -> set[tuple[int, int]]:
        found = set()
        for name in os.listdir(self._folder):
            with contextlib.suppress(FileNotFoundError):  # removed by another meanwhile
                found.add(_identity(os.stat(name, dir_fd=self._folder, follow_symlinks=False)))
        return found

    def _recycle(self, part: str) -> int | None:
        """Removes all versions but the newest. One that nobody looks at is renamed to `part` and opened."""
        done = []
        for name in os.listdir(self._folder):
            if name.endswith(_PART):
                os.unlink(name, dir_fd=self._folder)  # of a server that was killed
            elif name != _LOCK:
                status = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
                done.append((status.st_mtime_ns, name))
        reused: int | None = None
        for _, name in sorted(done)[:-1]:
            if reused is None:
                descriptor = os.open(name, os.O_RDWR | _OPEN, dir_fd=self._folder)
                if _lock(descriptor, fcntl.LOCK_EX):
                    os.rename(name, part, src_dir_fd=self._folder, dst_dir_fd=self._folder)
                    # Under its new name nobody opens it before it is published.
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
                    reused = descriptor
                    continue
                os.close(descriptor)
            os.unlink(name, dir_fd=self._folder)
        return reused

    def _join(self) -> int:
        """The open, locked folder of the group."""
        deadline = time.monotonic() + JOIN_S
        while time.monotonic() < deadline:
            with contextlib.suppress(FileNotFoundError):  # removed by another between making and opening
                descriptor = _open_private(self._name, self._root)
                if _lock(descriptor, fcntl.LOCK_SH) and _is_named(descriptor, self._name, self._root):
                    return descriptor
                os.close(descriptor)
            time.sleep(POLL_S)
        raise TimeoutError(errno.ETIMEDOUT, f"somebody has held the folder {self._name} for {JOIN_S:g} s")

    def _sweep(self) -> None:
        """Removes the groups of servers that were killed."""
        for name in os.listdir(self._root):
            if name == self._name:
                continue
            with contextlib.suppress(OSError):  # not a folder, or removed by another
                descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _OPEN, dir_fd=self._root)
                try:
                    self._remove_if_unused(descriptor, name)
                finally:
                    os.close(descriptor)

    def _remove_if_unused(self, folder: int, name: str) -> None:
        if not _lock(folder, fcntl.LOCK_EX) or not _is_named(folder, name, self._root):
            return
        with contextlib.suppress(OSError):  # whoever comes next removes what is left
            for entry in os.listdir(folder):
                os.unlink(entry, dir_fd=folder)
            os.rmdir(name, dir_fd=self._root)


def _open_private(path: str, parent: int | None = None) -> int:
    """The folder `path`, made if missing.

    Raises:
        OSError: It is a link, somebody else's, or open to others.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700, dir_fd=parent)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _OPEN, dir_fd=parent)
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        os.close(descriptor)
        mode = stat.S_IMODE(status.st_mode)
        raise PermissionError(
            errno.EPERM, f"{path} has mode {mode:04o} and owner {status.st_uid}, but must be private"
        )
    return descriptor


def _lock(descriptor: int, kind: int) -> bool:
    """Takes a lock of `kind`, unless somebody else's is in the way."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_named(descriptor: int, name: str, folder: int) -> bool:
    """Whether `name` in `folder` is still what was opened as `descriptor`."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return _identity(found) == _identity(os.fstat(descriptor))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
