"""Clones of virtual devices: a copy under another name, with every path in it rewritten, snapshots included.

Files are shared by reflink where the file system can; else they are copied, after a look at the free space.
The clone grows in a folder of another name and gets its own, and then its ini file, when it is whole.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from distrl.workers.devices.emulator import qcow2
from distrl.workers.devices.emulator.avd import Avd, AvdStore, require_name
from distrl.workers.devices.emulator.file_copy import copy, disk_usage, reflink
from distrl.workers.devices.emulator.ini import rewrite_ini
from distrl.workers.devices.emulator.procfs import flock_holders
from distrl.workers.devices.errors import EmulatorError, LowDisk

SKIPPED = ("*.lock", "emu-launch-params.txt", "tmpAdbCmds", "*.new", "*.tmp")
"""What belongs to a run of the emulator, not to the device."""
RESERVE_BYTES = 2 * 2**30
"""What must be left free on the disk: below it the emulator refuses to start."""
PARTIAL = ".distrl-partial"
"""How the folder of an unfinished clone ends."""
_NAME_KEYS = frozenset({"AvdId", "avd.ini.displayname", "avd.name", "avd.id"})

Progress = Callable[[int, int], object]
"""Told the bytes that are done and those there are in all."""


def clone(store: AvdStore, source: str, name: str, progress: Progress = lambda done, total: None) -> Avd:
    """Copies the AVD `source` to a new one.

    Args:
        store: Where both are.
        source: The AVD to copy; no emulator may write it meanwhile.
        name: The new AVD's name.
        progress: Told how far it is.

    Raises:
        AvdLocked, SnapshotPending: If an emulator uses the source.
        LowDisk: If a copy needs more than is free.
        EmulatorError: If the name is taken or not valid, or a file cannot be copied.
    """
    avd = store.get(source)
    require_name(name)
    if store.exists(name):
        raise EmulatorError(
            f"there is an AVD {name!r} already.", f"Choose another name, or delete {store.directory(name)}."
        )
    avd.require_unused(shared=True)
    final = store.directory(name)
    new = Avd(name, store.home / f"{name}.ini", final)
    try:
        with _room(final.with_name(final.name + PARTIAL)) as partial:
            _copy_files(avd.directory, partial, progress)
            _rewrite(avd, new, partial)
            os.rename(partial, final)
            _write_pointer(avd, new)
    except OSError as error:
        raise EmulatorError(f"the AVD {source!r} cannot be copied: {error}.", "Is the disk full?") from error
    return new


def partial_clones(home: Path) -> list[Path]:
    """Folders of clones that were never finished, and that no process is working on."""
    return [path for path in sorted(home.glob(f"*{PARTIAL}")) if not flock_holders(path)]


@contextmanager
def _room(partial: Path) -> Iterator[Path]:
    """An empty folder, which is ours while we hold a lock on it, and gone afterwards."""
    partial.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(partial, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise EmulatorError(
            f"another process is making {partial.name.removesuffix(PARTIAL)} at this moment.",
            "Wait for it, or choose another name.",
        ) from error
    try:
        _empty(partial)
        yield partial
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)


def _empty(folder: Path) -> None:
    """Removes what an earlier try that was killed has left."""
    for rest in folder.iterdir():
        if rest.is_dir() and not rest.is_symlink():
            shutil.rmtree(rest)
        else:
            rest.unlink()


def _files(directory: Path) -> list[Path]:
    """All files to copy, relative."""
    found = []
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(one for one in folders if not _is_skipped(one))
        found += [Path(folder, one).relative_to(directory) for one in sorted(names) if not _is_skipped(one)]
    return found


def _is_skipped(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in SKIPPED)


def _copy_files(source: Path, target: Path, progress: Progress) -> None:
    files = _files(source)
    total, done, is_shared = sum((source / file).lstat().st_size for file in files), 0, None

    def told(more: int) -> None:
        nonlocal done
        done += more
        progress(done, total)

    for file in files:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        if (source / file).is_symlink():
            os.symlink(os.readlink(source / file), target / file)
        elif is_shared is not False and reflink(source / file, target / file):
            is_shared = True
            told((source / file).stat().st_size)
        else:
            if is_shared is None:
                is_shared = False
                _require_space(source, files, target)
            copy(source / file, target / file, told)


def _require_space(source: Path, files: list[Path], target: Path) -> None:
    need = sum(disk_usage(source / file) for file in files if not (source / file).is_symlink())
    free = shutil.disk_usage(target).free
    if free < need + RESERVE_BYTES:
        raise LowDisk(
            f"a copy of {source} needs {need / 2**30:.1f} GB and {RESERVE_BYTES / 2**30:.0f} GB to spare, "
            f"but {free / 2**30:.1f} GB are free on its disk, which cannot share blocks between files.",
            "Free some space, or keep AVDs on Btrfs or XFS, where a clone takes none.",
        )


def _rewrite(old: Avd, new: Avd, directory: Path) -> None:
    """Puts the new name and path wherever the old ones stood."""

    def change(key: str, value: str) -> str:
        if key in _NAME_KEYS:
            return new.name if value == old.name or key in ("AvdId", "avd.ini.displayname") else value
        return _moved(value, old.directory, new.directory)

    inis = [*directory.glob("*.ini"), *directory.glob("snapshots/*/*.ini")]
    for path in inis:
        rewrite_ini(path, change)
    for image in directory.rglob("*.qcow2"):
        base = qcow2.base_of(image)
        if base is not None and _moved(base, old.directory, new.directory) != base:
            qcow2.set_base(image, _moved(base, old.directory, new.directory))


def _moved(value: str, old: Path, new: Path) -> str:
    """`value` with the old directory exchanged for the new one, if it is a path in there."""
    for prefix in dict.fromkeys((str(old), str(old.resolve()))):
        if value == prefix or value.startswith(f"{prefix}/"):
            return str(new) + value[len(prefix) :]
    return value


def _write_pointer(old: Avd, new: Avd) -> None:
    """Writes NAME.ini: from now on the clone is an AVD."""

    def change(key: str, value: str) -> str | None:
        if key == "path":
            return str(new.directory)
        if key == "path.rel":
            return f"{new.home.name}/{new.directory.name}"  # as seen from the home's parent
        return value

    rewrite_ini(old.ini, change, new.ini)
