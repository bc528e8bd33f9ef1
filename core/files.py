"""Files written whole or not at all, files of records, errors of a full disk, locks, and scratch folders.

    TMPDIR/distrl-KIND-xxxxxxxx/.held     a scratch folder, locked by its owner

Where the owner could not remove its folder (SIGKILL), the next process that makes one of the same kind does,
and so does `distrl cleanup`. A folder without a lock file is left alone.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError

from distrl.core.errors import DistrlError, RunDirectoryError

_Model = TypeVar("_Model", bound=BaseModel)
Buffer = bytes | bytearray | memoryview


@contextlib.contextmanager
def writing(path: Path, kind: type[DistrlError] = RunDirectoryError) -> Iterator[None]:
    """Turns the system's refusal to write `path`, such as a full disk, into an error for users."""
    try:
        yield
    except DistrlError:
        raise
    except Exception as error:
        reason = _refusal(error)
        if reason is None:
            raise
        raise kind(f"{path} cannot be written: {reason}.", _remedy(error)) from error


def _remedy(error: Exception) -> str:
    number = getattr(error, "errno", None)
    if number in (errno.ENOENT, errno.ENOTDIR):
        return "Choose a path in an existing folder."
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "Check its permissions, or choose another path."
    return "Free some disk space, or check its permissions."


def _refusal(error: Exception) -> str | None:
    """The system's reason; None without one: `error` may be caused by it (torch), or quote it (Rust)."""
    for one in (error, error.__cause__ or error.__context__):
        if isinstance(one, OSError):
            return one.strerror or str(one)
        if one is not None and "(os error " in str(one):
            return str(one)
    return None


def write_atomically(file: Path, text: str) -> None:
    """As `write_bytes_atomically`, in UTF-8."""
    write_bytes_atomically(file, text.encode("utf-8"))


def write_bytes_atomically(file: Path, data: Buffer, is_durable: bool = False, mode: int = 0o666) -> None:
    """Writes `data` so that readers see the old or the new file, never a part.

    A process that is killed meanwhile may leave a hidden file beside it.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with writing(file):
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
            with os.fdopen(descriptor, "wb") as out:
                out.write(data)
                if is_durable:
                    out.flush()
                    os.fsync(out.fileno())
            os.replace(temporary, file)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to report
            temporary.unlink()
        raise


def remove_files(directory: Path, names: Iterable[str]) -> None:
    """Removes these files, and their directory if nothing else is in it. What cannot be removed stays."""
    with contextlib.suppress(OSError):
        for name in names:
            (directory / name).unlink(missing_ok=True)
        directory.rmdir()


def read_records(file: Path, model: type[_Model], remedy: str) -> list[_Model]:
    """The records of a file of JSON lines, none without a file; a last line that a crash cut off is left out.

    Only a line feed ends a line: what a model or a user wrote may hold other signs that split text.

    Raises:
        RunDirectoryError: Another line is damaged; `remedy` is the error's.
    """
    if not file.is_file():
        return []
    lines = file.read_bytes().removesuffix(b"\n").split(b"\n")
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(model.model_validate_json(line))
        except ValidationError as error:
            if number == len(lines):
                break
            raise RunDirectoryError(f"line {number} of {file} is damaged.", remedy) from error
    return records


# Locks between processes, one file each. The kernel releases a lock when its holder ends, even by a kill.
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


PREFIX = "distrl-"
_HELD = ".held"
_log = logging.getLogger(__name__)


class Scratch:
    """A private folder, `path`, in the directory for temporary files; also a context manager.

    Abandoned folders of the same `kind`, one word, are removed. Raises OSError if it cannot be made.
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
    """This user's folders, of this kind or of all, whose owners are gone."""
    pattern = f"{PREFIX}{kind}-*" if kind else f"{PREFIX}*"
    found = []
    for path in sorted(Path(tempfile.gettempdir()).glob(pattern)):
        if (held := _take(path)) is not None:
            held.release()
            found.append(path)
    return found


def reclaim(path: Path) -> bool:
    """Removes a folder whose owner is gone. Returns whether there was one."""
    held = _take(path)
    if held is None:
        return False
    with held:
        shutil.rmtree(path)
    return True


def _take(path: Path) -> HeldLock | None:
    """The lock of an abandoned folder; None for any other."""
    try:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or not (path / _HELD).is_file():
            return None
        return try_lock(path / _HELD)
    except OSError:
        return None  # removed meanwhile, or not one of these folders
