"""Android virtual devices on disk: list, inspect, clone and delete them; their ini files and locks.

    HOME/NAME.ini        path=…  target=…            (HOME: see `avd_home`)
    HOME/NAME.avd/       config.ini, the images, the locks, snapshots/SNAPSHOT/…

    hardware-qemu.ini.lock   the number of the emulator that may write the AVD
    snapshot.lock            the number of the emulator that saves or loads at this moment
    multiinstance.lock       an empty file that stays; only an flock on it means something: shared by
                             emulators with -read-only, exclusive by one without

Emulators remove or take over locks of dead processes by themselves. A clone is a copy under another name with
every path in it rewritten, snapshots included. It grows in a folder of another name and is renamed when it is
complete; its ini file comes last.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import fcntl
import os
import re
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from distrl.workers.devices import processes
from distrl.workers.devices.errors import AvdLocked, EmulatorError, LowDisk, SnapshotPending
from distrl.workers.devices.processes import flock_holders

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_API = re.compile(r"android-(\d+)")


def avd_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Where virtual devices are: the first of `avd_homes` that exists.

    If none does, it is the first that a variable of Android's names, else `~/.android/avd`.
    """
    named, usual, emulators = _places(environ)
    places = [*named, *usual, *emulators]
    return next((path for path in places if path.is_dir()), [*named, *emulators, usual[-1]][0])


def avd_homes(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Where virtual devices may be, in the order in which they are looked for.

    avdmanager and the emulator differ. Both take ANDROID_AVD_HOME first, if that is a directory. After that
    avdmanager (cmdline-tools 12 and later) and Android Studio look below ANDROID_USER_HOME, or
    ANDROID_PREFS_ROOT, or ANDROID_SDK_HOME, then XDG_CONFIG_HOME, then HOME; the emulator below
    ANDROID_PREFS_ROOT, ANDROID_SDK_HOME, HOME, and last ANDROID_EMULATOR_HOME. This is the union of both
    orders; emulators that are started here get the directory that was found as ANDROID_AVD_HOME.
    """
    named, usual, emulators = _places(environ)
    return [*named, *usual, *emulators]


def _places(environ: Mapping[str, str]) -> tuple[list[Path], list[Path], list[Path]]:
    """Directories that variables of Android's name; the usual ones; and the emulator's last one."""

    def below(variable: str, *inside: str) -> list[Path]:
        value = environ.get(variable)
        return [Path(value).expanduser() / part for part in inside] if value else []

    named = below("ANDROID_AVD_HOME", "") + below("ANDROID_USER_HOME", "avd")
    for variable in ("ANDROID_PREFS_ROOT", "ANDROID_SDK_HOME"):
        named += below(variable, ".android/avd", "avd")
    home = Path(environ.get("HOME") or Path.home()) / ".android" / "avd"
    usual = [*below("XDG_CONFIG_HOME", ".android/avd"), home]
    return named, usual, below("ANDROID_EMULATOR_HOME", "avd")


def require_name(name: str) -> None:
    """Refuses what is not a name for an AVD.

    Raises:
        EmulatorError: With the rule.
    """
    if not NAME.fullmatch(name):
        raise EmulatorError(
            f"{name!r} is not a valid AVD name.",
            "Use letters, digits, dots, hyphens and underscores, with a letter or a digit first.",
        )


@dataclass(frozen=True)
class Avd:
    """One virtual device.

    Attributes:
        name: Its name.
        ini: Its `NAME.ini`.
        directory: Where its files are.
    """

    name: str
    ini: Path
    directory: Path

    @property
    def home(self) -> Path:
        """The directory that emulators know as ANDROID_AVD_HOME."""
        return self.ini.parent

    @property
    def snapshots(self) -> Path:
        """The directory of its snapshots, which need not exist."""
        return self.directory / "snapshots"

    def config(self) -> dict[str, str]:
        """Its config.ini.

        Raises:
            EmulatorError: If that cannot be read.
        """
        return read_ini(self.directory / "config.ini")

    def api_level(self) -> int | None:
        """The API level of its system image, by the image's path or its target; None where neither says."""
        for text in (self.config().get("image.sysdir.1", ""), read_ini(self.ini).get("target", "")):
            match = _API.search(text)
            if match is not None:
                return int(match[1])
        return None

    def require_unused(self, *, shared: bool = False) -> None:
        """As `require_unused`."""
        require_unused(self.name, self.directory, shared=shared)


class AvdStore:
    """The virtual devices in one directory.

    Args:
        home: The directory; where the environment says when None.
    """

    def __init__(self, home: Path | None = None) -> None:
        self.home = home or avd_home()

    def list(self) -> list[Avd]:
        """All that can be used, by name."""
        return [found for found in self._all().values() if isinstance(found, Avd)]

    def broken(self) -> dict[str, EmulatorError]:
        """Why each of the others cannot be used, by name."""
        return {name: found for name, found in self._all().items() if isinstance(found, EmulatorError)}

    def get(self, name: str) -> Avd:
        """The virtual device of this name.

        Raises:
            EmulatorError: If there is none, or it cannot be used.
        """
        require_name(name)
        if not os.path.lexists(self.ini(name)):
            raise EmulatorError(f"there is no AVD {name!r} in {self.home}.", self._hint(name))
        avd = self._read(self.ini(name))
        if not avd.directory.is_dir():
            raise EmulatorError(
                f"the AVD {name!r} lacks its directory {avd.directory}.", f"Correct `path` in {avd.ini}."
            )
        return avd

    def _all(self) -> dict[str, Avd | EmulatorError]:
        found: dict[str, Avd | EmulatorError] = {}
        for ini in sorted(self.home.glob("*.ini")):
            try:
                found[ini.stem] = self.get(ini.stem)
            except EmulatorError as error:
                found[ini.stem] = error
        return found

    def _hint(self, missing: str) -> str:
        for home in avd_homes():
            if (home / f"{missing}.ini").is_file():
                return f"It is in {home}: set ANDROID_AVD_HOME to that directory."
        known = [one.name for one in self.list()]
        near = difflib.get_close_matches(missing, known, n=1)
        return f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known) or 'none'}."

    def exists(self, name: str) -> bool:
        """Whether there is anything of this name, complete or not."""
        return self.ini(name).exists() or self.directory(name).exists()

    def ini(self, name: str) -> Path:
        """Where the pointer to an AVD of this name is, or goes."""
        return self.home / f"{name}.ini"

    def directory(self, name: str) -> Path:
        """Where the files of a new AVD of this name go."""
        return self.home / f"{name}.avd"

    def delete(self, name: str) -> None:
        """Deletes an AVD with all its snapshots, also one that is half made or half removed.

        Raises:
            AvdLocked, SnapshotPending: If it is in use.
            EmulatorError: If there is none, or it cannot be removed.
        """
        require_name(name)
        directory = self.directory(name)
        if self.ini(name).exists():
            with contextlib.suppress(EmulatorError):  # what its ini file cannot tell is where such files go
                directory = self._read(self.ini(name)).directory
        elif not directory.is_dir():
            self.get(name)  # says which there are
        require_unused(name, directory)
        try:
            self.ini(name).unlink(missing_ok=True)  # first: what is half removed is no AVD
            if directory.exists():
                shutil.rmtree(directory)
        except OSError as error:
            raise EmulatorError(
                f"the AVD {name!r} cannot be removed: {error}.", f"Remove {directory} by hand."
            ) from error

    def _read(self, ini: Path) -> Avd:
        fields = read_ini(ini)
        absolute, relative = fields.get("path"), fields.get("path.rel")
        candidates = [Path(absolute)] if absolute else []
        if relative:
            candidates.append(self.home.parent / relative)
        if not candidates:
            raise EmulatorError(
                f"the AVD {ini.stem!r} cannot be used: {ini} names no directory.",
                f"Put `path={self.directory(ini.stem)}` into it, or remove it.",
            )
        directory = next((path for path in candidates if path.is_dir()), candidates[0])
        return Avd(ini.stem, ini, directory)


def read_ini(path: Path) -> dict[str, str]:
    """The keys and values, in the file's order; of a key that comes twice the last value.

    Raises:
        EmulatorError: If the file cannot be read.
    """
    pairs = (_split(line) for line in _text(path).splitlines())
    return {pair[0]: pair[1] for pair in pairs if pair is not None}


def rewrite_ini(path: Path, change: Callable[[str, str], str | None], target: Path | None = None) -> None:
    """Writes the file anew with changed values.

    Args:
        path: The file to read.
        change: Gives the new value of a key and its value, None to leave the line out.
        target: Where to write; `path` itself when None. The old file stays whole until the new one is.

    Raises:
        EmulatorError: If a file cannot be read or written.
    """
    lines = []
    for line in _text(path).splitlines():
        pair = _split(line)
        if pair is None:
            lines.append(line)
            continue
        value = change(*pair)
        if value == pair[1]:
            lines.append(line)
        elif value is not None:
            left, sign, right = line.partition("=")
            lines.append(f"{left}{sign}{' ' if right.startswith(' ') else ''}{value}")
    _write(target or path, "".join(f"{line}\n" for line in lines))


def write_ini(path: Path, values: Mapping[str, str]) -> None:
    """Writes a file with these keys and values.

    Raises:
        EmulatorError: If it cannot be written.
    """
    _write(path, "".join(f"{key}={value}\n" for key, value in values.items()))


def _split(line: str) -> tuple[str, str] | None:
    key, sign, value = line.partition("=")
    key = key.strip()
    if not sign or not key or key.startswith(("#", ";", "[")):
        return None
    return key, value.strip()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise EmulatorError(f"{path} cannot be read: {error.strerror}.", "Is the AVD complete?") from error


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        fresh.write_text(text, encoding="utf-8", errors="surrogateescape")
        os.replace(fresh, path)
    except OSError as error:
        raise EmulatorError(f"{path} cannot be written: {error.strerror}.", "Is the disk full?") from error


WRITER, SNAPSHOT, INSTANCES = "hardware-qemu.ini.lock", "snapshot.lock", "multiinstance.lock"


@dataclass(frozen=True)
class Lock:
    """One lock that is held.

    Attributes:
        path: Its file.
        pid: The process that holds it, 0 when that cannot be seen.
        program: That process's program, for people.
    """

    path: Path
    pid: int
    program: str

    @property
    def is_emulator(self) -> bool:
        """Whether an emulator holds it; else the number has become another process's."""
        return not self.pid or any(word in self.program for word in ("emulator", "qemu"))

    @property
    def holder(self) -> str:
        """Who holds it, in words."""
        return f"process {self.pid} ({self.program})" if self.pid else "a process of another container"


def held_locks(directory: Path) -> list[Lock]:
    """The locks in an AVD's directory that living processes hold."""
    found = []
    for name in (SNAPSHOT, WRITER):
        pid = _holder(directory / name)
        if pid is not None and processes.key_of(pid) is not None:
            found.append(_lock(directory / name, pid))
    instances = directory / INSTANCES
    found += [_lock(instances, pid) for pid in processes.flock_holders(instances)]
    return found


def _lock(path: Path, pid: int) -> Lock:
    words = processes.cmdline(pid) if pid else []
    # Of an interpreter the program that it runs says more.
    shown = [Path(word).name for word in words[:3] if not word.startswith("-")]
    return Lock(path, pid, " ".join(shown))


def _holder(path: Path) -> int | None:
    """The number in a lock file; on some systems the lock is a directory that holds it in `pid`."""
    source = path / "pid" if path.is_dir() else path
    try:
        text = source.read_text(encoding="ascii", errors="replace").strip("\0 \n")
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def require_unused(name: str, directory: Path, *, shared: bool = False) -> None:
    """Returns if no living process holds a lock of the AVD.

    Args:
        name: The AVD's name, for the message.
        directory: Its directory.
        shared: Emulators with -read-only do not matter.

    Raises:
        SnapshotPending: If a snapshot is being saved or loaded.
        AvdLocked: If an emulator runs from it.
    """
    for lock in held_locks(directory):
        if not lock.is_emulator and lock.path.name != INSTANCES:
            raise AvdLocked(
                f"the AVD {name!r} is locked in the name of {lock.holder}, which is no emulator: an emulator "
                "died, and its number was used again.",
                f"Remove {lock.path}.",
                evidence=str(lock.path),
            )
        if lock.path.name == SNAPSHOT:
            raise SnapshotPending(
                f"{lock.holder} is saving or loading a snapshot of the AVD {name!r}.",
                "Wait until it is done.",
                evidence=str(lock.path),
            )
        if lock.path.name == WRITER or not shared:
            raise AvdLocked(
                f"the AVD {name!r} is in use by {lock.holder}.",
                "Stop that emulator; or work on a clone, made before (`distrl snapshot-avd clone`), or start "
                "all of its emulators read-only.",
                evidence=str(lock.path),
            )


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
            copy_file(source / file, target / file, told)


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
        base = base_of(image)
        if base is not None and _moved(base, old.directory, new.directory) != base:
            set_base(image, _moved(base, old.directory, new.directory))


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


_MAGIC = b"QFI\xfb"
_MAX_NAME = 1023


def base_of(image: Path) -> str | None:
    """The path of the image beneath; None if this is no QCOW2 image or has none.

    Raises:
        EmulatorError: If the file cannot be read.
    """
    try:
        with image.open("rb") as file:
            header = file.read(24)
            place = _name_place(header)
            if place is None:
                return None
            file.seek(place[0])
            return file.read(place[1]).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise EmulatorError(f"{image} cannot be read: {error.strerror}.", "Is the AVD complete?") from error


def set_base(image: Path, base: str) -> None:
    """Names another image beneath, of the same content.

    Raises:
        EmulatorError: If the name does not fit into the header.
    """
    name = base.encode("utf-8", "surrogateescape")
    with image.open("r+b") as file:
        header = file.read(24)
        place = _name_place(header)
        assert place is not None, f"{image} has no base"
        offset, old_length = place
        cluster = 1 << struct.unpack_from(">I", header, 20)[0]
        if len(name) > old_length:
            file.seek(offset + old_length)
            behind = file.read(len(name) - old_length)
            if len(name) > _MAX_NAME or offset + len(name) > cluster or behind.strip(b"\0"):
                raise EmulatorError(
                    f"the path {base!r} does not fit into the header of {image.name}.",
                    f"Choose a name at most {len(name) - old_length} characters shorter.",
                )
        file.seek(offset)
        file.write(name.ljust(old_length, b"\0"))
        file.seek(16)
        file.write(struct.pack(">I", len(name)))


def _name_place(header: bytes) -> tuple[int, int] | None:
    """Offset and length of the base's name."""
    if len(header) < 24 or header[:4] != _MAGIC:
        return None
    offset, length = struct.unpack_from(">QI", header, 8)
    return (offset, length) if offset and 0 < length <= _MAX_NAME else None


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


def copy_file(source: Path, target: Path, progress: Callable[[int], object]) -> None:
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
