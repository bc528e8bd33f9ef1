"""Claims: no two processes of this machine use one device at a time.

Each claim is a lock on a file in a private folder; the kernel releases it when the process ends, however it
ends. Processes that share a configuration (the workers of a run, an evaluation) thus share its devices: each
takes those that are free, as many as it has slots.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path

from distrl.core.errors import RunDirectoryError
from distrl.core.rundir import DirectoryInUse, RunLock
from distrl.workers.devices.emulator.state_dir import state_dir


class Claims:
    """The claims of one pool. Not thread-safe: the pool holds its lock. No call waits.

    Args:
        folder: Where the locks are, by default in the state directory; made, private to this user, when the
            first one is taken.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._locks: dict[str, RunLock] = {}

    def take(self, name: str) -> bool:
        """Takes a claim. False if another process has it; what is held already, or has no name, is granted.

        Raises:
            RunDirectoryError: The folder cannot be used, or belongs to somebody else.
        """
        if not name or name in self._locks:
            return True
        if self._folder is None:
            self._folder = state_dir() / "claims"
        make_private(self._folder)
        file = self._folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}.lock"
        if file.is_symlink():
            raise RunDirectoryError(f"{file} is a link.", "Remove it.")
        try:
            self._locks[name] = RunLock(file, "process")
        except DirectoryInUse:
            return False
        return True

    def release(self, name: str) -> None:
        """Gives a claim back; one that is not held is ignored."""
        with contextlib.suppress(KeyError):
            self._locks.pop(name).release()

    def release_all(self) -> None:
        """Gives all back."""
        for name in list(self._locks):
            self.release(name)


def make_private(folder: Path) -> None:
    """Makes `folder`, for this user only, if it is not there.

    Raises:
        RunDirectoryError: It cannot be made, or others may write it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise RunDirectoryError(
            f"{folder} cannot be made: {error.strerror or error}.", "Set DISTRL_STATE_DIR."
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise RunDirectoryError(
            f"{folder} is not a private folder of this user.", "Remove it, or set DISTRL_STATE_DIR."
        )
