"""Locks between processes: one file each. The kernel releases a lock when its holder ends, even by a kill."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout

# FileLock releases when it is garbage-collected; a lock of ours is held until `release` or the process ends.
_held: set[FileLock] = set()


class HeldLock:
    """A lock that this process holds until `release`; also a context manager. The file stays.

    A forked child does not inherit it. See `try_lock`.
    """

    def __init__(self, lock: FileLock) -> None:
        self._lock = lock

    def release(self) -> None:
        """Releases the lock. May be called twice."""
        self._lock.release(force=True)
        _held.discard(self._lock)

    def __enter__(self) -> HeldLock:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


def try_lock(path: Path, mode: int = 0o600) -> HeldLock | None:
    """Locks a file in an existing folder, created with `mode` if missing.

    Returns:
        None if another process, or another caller in this one, holds the lock.

    Raises:
        OSError: The file cannot be opened, or its file system has no locks.
    """
    lock = FileLock(path, timeout=0.0, mode=mode, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        return None
    _held.add(lock)
    return HeldLock(lock)
