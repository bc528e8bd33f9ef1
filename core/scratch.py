"""Folders for what lives as long as a process, held by a lock that tells the dead's from the living's.

    TMPDIR/distrl-KIND-xxxxxxxx/.held     an flock of the owner's, and of those that inherit it

The kernel takes the lock away with its last holder, however that one ends. Where the owner could not remove
its folder (SIGKILL), the next one of the same kind does, and so does `distrl cleanup`. A folder without the
lock's file is nobody's business here.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "distrl-"
_HELD = ".held"
_log = logging.getLogger(__name__)


class Scratch:
    """A private folder in the directory for temporary files.

    Args:
        kind: What it is for, one word; folders of the same kind that their owners left are removed.

    Attributes:
        path: The folder.

    Raises:
        OSError: If it cannot be made.
    """

    def __init__(self, kind: str) -> None:
        for left in abandoned(kind):
            try:
                reclaim(left)
            except OSError as error:  # this one will do without
                _log.warning("%s, which a killed process left, cannot be removed: %s", left, error)
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-"))
        fresh = self.path / f"{_HELD}.new"
        # Locked before it has its name: whoever finds the file may try the lock.
        self._descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        fresh.rename(self.path / _HELD)

    def remove(self) -> None:
        """Removes it, with all that is in it. May be called twice."""
        if self._descriptor < 0:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def abandoned(kind: str = "") -> list[Path]:
    """The folders of this user whose holders are gone.

    Args:
        kind: Of this kind; "" for all.
    """
    pattern = f"{PREFIX}{kind}-*" if kind else f"{PREFIX}*"
    found = []
    for path in sorted(Path(tempfile.gettempdir()).glob(pattern)):
        with _taken(path) as is_ours:
            if is_ours:
                found.append(path)
    return found


def reclaim(path: Path) -> bool:
    """Removes a folder whose holders are gone. Returns whether it was there to be removed.

    Raises:
        OSError: If it cannot be removed.
    """
    with _taken(path) as is_ours:
        if is_ours:
            shutil.rmtree(path)
    return is_ours


@contextlib.contextmanager
def _taken(path: Path) -> Iterator[bool]:
    """Holds the lock of an abandoned folder; False for any other."""
    descriptor = _try_lock(path)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _try_lock(path: Path) -> int | None:
    try:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return None
        descriptor = os.open(path / _HELD, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None  # gone meanwhile, or none of these folders
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
