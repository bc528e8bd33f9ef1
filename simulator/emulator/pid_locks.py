"""The stand-in's locks: files with a process id, which are taken over from the dead, as the emulator's."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from distrl.workers.devices.processes import key_of

_POLL_S = 0.05


class PidLock:
    """One lock file.

    Args:
        path: The file, which holds the holder's process id while it is held.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_held = False

    def acquire(self, patience_s: float) -> bool:
        """Takes the lock, from a dead process too. Returns whether it could within `patience_s`."""
        give_up_at = time.monotonic() + patience_s
        while not self._take():
            if time.monotonic() >= give_up_at:
                return False
            time.sleep(_POLL_S)
        self._is_held = True
        return True

    def _take(self) -> bool:
        fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        fresh.write_text(str(os.getpid()), encoding="ascii")
        try:
            os.link(fresh, self.path)
        except FileExistsError:
            self._remove_dead()
            return False
        finally:
            fresh.unlink()
        return True

    def _remove_dead(self) -> None:
        try:
            holder = self.path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return
        if not holder.isdecimal() or key_of(int(holder)) is None:
            self.path.unlink(missing_ok=True)

    def release(self) -> None:
        """Gives it back. May be called twice."""
        if self._is_held:
            self._is_held = False
            self.path.unlink(missing_ok=True)


class InstanceLock:
    """multiinstance.lock: an flock on an empty file, shared by read-only emulators; the file stays.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, *, shared: bool, patience_s: float) -> bool:
        """Takes the lock. Returns whether it could within `patience_s`."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        give_up_at = time.monotonic() + patience_s
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                self._descriptor = descriptor
                return True
            if time.monotonic() >= give_up_at:
                os.close(descriptor)
                return False
            time.sleep(_POLL_S)

    def release(self) -> None:
        """Gives it back. May be called twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
