"""Copying large files: by reflink where the file system can (no time, no space), else with holes kept."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

_FICLONE = 0x40049409
_CHUNK = 16 * 2**20
_CANNOT = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM}


def reflink(source: Path, target: Path) -> bool:
    """Makes `target` share the blocks of `source` until one of them changes.

    Returns:
        Whether the file system can do that between these two; if not, `target` is empty.

    Raises:
        OSError: If a file cannot be read or written.
    """
    with source.open("rb") as old, target.open("wb") as new:
        try:
            fcntl.ioctl(new, _FICLONE, old.fileno())
        except OSError as error:
            if error.errno in _CANNOT:
                return False
            raise
    shutil.copystat(source, target)
    return True


def copy(source: Path, target: Path, progress: Callable[[int], object]) -> None:
    """Copies byte by byte; holes stay holes.

    Args:
        source, target: The files.
        progress: Told how many more bytes of the file are done.

    Raises:
        OSError: If a file cannot be read or written.
    """
    size = source.stat().st_size
    with source.open("rb") as old, target.open("wb") as new:
        new.truncate(size)
        position = 0
        while position < size:
            start, end = _data(old.fileno(), position, size)
            progress(start - position)
            new.seek(start)
            old.seek(start)
            while start < end:
                part = old.read(min(_CHUNK, end - start))
                if not part:  # it became shorter
                    new.truncate(start)
                    return
                new.write(part)
                start += len(part)
                progress(len(part))
            position = end
    shutil.copystat(source, target)


def _data(descriptor: int, position: int, size: int) -> tuple[int, int]:
    """Where the next data begins and ends."""
    try:
        start = os.lseek(descriptor, position, os.SEEK_DATA)
        return start, os.lseek(descriptor, start, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing but a hole up to the end
            return size, size
        return position, size  # a file system without holes


def disk_usage(path: Path) -> int:
    """The bytes that a file takes on disk: less than its size if it has holes."""
    return path.stat().st_blocks * 512
