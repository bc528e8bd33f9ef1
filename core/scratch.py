"""Folders that live as long as their process.

    TMPDIR/distrl-KIND-xxxxxxxx/.held     locked by the owner

Where the owner could not remove its folder (SIGKILL), the next process that makes one of the same kind does,
and so does `distrl cleanup`. A folder without a lock file is left alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from distrl.core.locks import HeldLock, try_lock

PREFIX = "distrl-"
_HELD = ".held"
_log = logging.getLogger(__name__)


class Scratch:
    """A private folder in the directory for temporary files; also a context manager.

    Args:
        kind: What it is for, one word. Abandoned folders of the same kind are removed.

    Attributes:
        path: The folder.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, kind: str) -> None:
        for left in abandoned(kind):
            try:
                reclaim(left)
            except OSError as error:  # this process can do without
                _log.warning("cannot remove %s, left by a killed process: %s", left, error)
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-"))
        fresh = self.path / f"{_HELD}.new"
        # Locked before it gets its name: other processes may try the lock as soon as they see the file.
        self._held = try_lock(fresh)
        fresh.rename(self.path / _HELD)

    def remove(self) -> None:
        """Removes it with everything in it. May be called twice."""
        if self._held is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            self._held.release()
            self._held = None

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def abandoned(kind: str = "") -> list[Path]:
    """This user's folders whose owners are gone.

    Args:
        kind: Only of this kind; "": all.
    """
    pattern = f"{PREFIX}{kind}-*" if kind else f"{PREFIX}*"
    found = []
    for path in sorted(Path(tempfile.gettempdir()).glob(pattern)):
        with _taken(path) as is_ours:
            if is_ours:
                found.append(path)
    return found


def reclaim(path: Path) -> bool:
    """Removes a folder whose owner is gone. Returns whether there was one.

    Raises:
        OSError: It cannot be removed.
    """
    with _taken(path) as is_ours:
        if is_ours:
            shutil.rmtree(path)
    return is_ours


@contextlib.contextmanager
def _taken(path: Path) -> Iterator[bool]:
    """Holds the lock of an abandoned folder; False for any other."""
    held = _try_lock(path)
    try:
        yield held is not None
    finally:
        if held is not None:
            held.release()


def _try_lock(path: Path) -> HeldLock | None:
    try:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or not (path / _HELD).is_file():
            return None
        return try_lock(path / _HELD)
    except OSError:
        return None  # removed meanwhile, or not one of these folders
