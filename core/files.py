"""Files that are written whole or not at all, files of records, errors of a full disk, and scratch folders.

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

from pydantic import BaseModel, ValidationError

from distrl.core.errors import DistrlError, RunDirectoryError
from distrl.core.locks import HeldLock, try_lock

_Model = TypeVar("_Model", bound=BaseModel)
Buffer = bytes | bytearray | memoryview


@contextlib.contextmanager
def writing(path: Path, kind: type[DistrlError] = RunDirectoryError) -> Iterator[None]:
    """Turns what the system says against writing `path`, a full disk for one, into an error for users.

    Args:
        path: What is written; the error names it.
        kind: Of error.
    """
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
    """What the system said, None if it said nothing: `error` may come of it (torch), or quote it (Rust)."""
    for one in (error, error.__cause__ or error.__context__):
        if isinstance(one, OSError):
            return one.strerror or str(one)
        if one is not None and "(os error " in str(one):
            return str(one)
    return None


def write_atomically(file: Path, text: str) -> None:
    """As `write_bytes_atomically`, in UTF-8."""
    write_bytes_atomically(file, text.encode("utf-8"))


def write_bytes_atomically(file: Path, data: Buffer, is_durable: bool = False) -> None:
    """Writes `data` so that readers see the old or the new file, never a part.

    A process that is killed meanwhile may leave a hidden file beside it.

    Args:
        is_durable: Whether the data has to be on disk on return.

    Raises:
        RunDirectoryError: It cannot be written.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with writing(file):
            with temporary.open("wb") as out:
                out.write(data)
                if is_durable:
                    out.flush()
                    os.fsync(out.fileno())
            os.replace(temporary, file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_files(directory: Path, names: Iterable[str]) -> None:
    """Removes these files, and their directory if nothing else is in it. What cannot be removed stays."""
    with contextlib.suppress(OSError):
        for name in names:
            (directory / name).unlink(missing_ok=True)
        directory.rmdir()


def read_records(file: Path, model: type[_Model], remedy: str) -> list[_Model]:
    """The records of a file of JSON lines; a last line that a crash tore off, anywhere, is left out.

    Only a line feed ends a line: what a model or a user wrote may hold other signs that split text.

    Args:
        file: One that is not there has no records.
        model: What each line is.
        remedy: What to do about a damaged file.

    Raises:
        RunDirectoryError: Another line is damaged.
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
