"""Android virtual devices on disk: list, inspect, clone and delete them; their ini files and locks.

    HOME/NAME.ini        path=…  target=…            (HOME: see `avd_home`)
    HOME/NAME.avd/       config.ini, the images, the locks, snapshots/SNAPSHOT/…

    hardware-qemu.ini.lock   the number of the emulator that may write the AVD
    snapshot.lock            the number of the emulator that saves or loads at this moment
    multiinstance.lock       an empty file that stays; only an flock on it means something: shared by
                             emulators with -read-only, exclusive by one without

Emulators remove or take over locks of dead processes by themselves. A clone is a copy under another name with
every path in it rewritten, snapshots included. It grows in a folder of another name and is moved when it is
complete; its ini file comes last.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from distrl.core.files import try_lock
from distrl.workers.devices.claims import Claims
from distrl.workers.devices.console import require_name
from distrl.workers.devices.errors import AvdLocked, EmulatorError, LowDisk, SnapshotPending
from distrl.workers.devices.processes import cmdline, key_of, state_dir, write_whole

WRITER, SNAPSHOT, INSTANCES = "hardware-qemu.ini.lock", "snapshot.lock", "multiinstance.lock"


def avd_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Where virtual devices are: the first of `avd_homes` that exists, else the first that emulators find."""
    usual = avd_homes({**environ, "XDG_CONFIG_HOME": ""})[0]
    return next((path for path in avd_homes(environ) if path.is_dir()), usual)


def avd_homes(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Where virtual devices may be, in the order in which they are looked for.

    avdmanager and the emulator differ. Both take ANDROID_AVD_HOME first, if that is a directory. After that
    avdmanager (cmdline-tools 12 and later) and Android Studio look below ANDROID_USER_HOME, or
    ANDROID_PREFS_ROOT, or ANDROID_SDK_HOME, then XDG_CONFIG_HOME, then HOME; the emulator below
    ANDROID_PREFS_ROOT, ANDROID_SDK_HOME, HOME, and last ANDROID_EMULATOR_HOME. This is the union of both
    orders; emulators that are started here get the directory that was found as ANDROID_AVD_HOME.
    """
    places = (
        ("ANDROID_AVD_HOME", ""),
        ("ANDROID_USER_HOME", "avd"),
        ("ANDROID_PREFS_ROOT", ".android/avd"),
        ("ANDROID_PREFS_ROOT", "avd"),
        ("ANDROID_SDK_HOME", ".android/avd"),
        ("ANDROID_SDK_HOME", "avd"),
        ("XDG_CONFIG_HOME", ".android/avd"),
        ("HOME", ".android/avd"),
        ("ANDROID_EMULATOR_HOME", "avd"),
    )
    given = {"HOME": str(Path.home()), **environ}
    return [Path(given[name]).expanduser() / inside for name, inside in places if given.get(name)]


@dataclass(frozen=True)
class Avd:
    """One virtual device: its name, its `NAME.ini`, and where its files are."""

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
        """Its config.ini. Raises EmulatorError if that cannot be read."""
        return read_ini(self.directory / "config.ini")

    def require_unused(self, *, shared: bool = False) -> None:
        """Raises SnapshotPending or AvdLocked if a living process holds a lock of the AVD.

        With `shared`, emulators with -read-only do not matter.
        """
        for path in (self.directory / SNAPSHOT, self.directory / WRITER):
            pid = _holder(path)
            if pid is None or key_of(pid) is None:
                continue
            # Of an interpreter the program that it runs says more.
            words = [Path(word).name for word in cmdline(pid)[:3] if not word.startswith("-")]
            holder = f"process {pid} ({' '.join(words)})"
            if path.name == SNAPSHOT:
                message = f"{holder} is saving or loading a snapshot of the AVD {self.name!r}."
                remedy = f"Wait until it is done. If that process is not an emulator, remove {path}."
                raise SnapshotPending(message, remedy)
            raise self._in_use(holder)
        if not shared and _is_flocked(self.directory / INSTANCES):
            raise self._in_use("an emulator")

    def _in_use(self, holder: str) -> AvdLocked:
        return AvdLocked(
            f"the AVD {self.name!r} is in use by {holder}.",
            "Stop that emulator, or work on a clone, made before (`distrl snapshot-avd clone`). If that "
            f"process is not an emulator, remove {self.directory / WRITER}.",
        )


class AvdStore:
    """The virtual devices in one directory; None: where the environment says."""

    def __init__(self, home: Path | None = None) -> None:
        self.home = home or avd_home()

    def list(self) -> list[Avd]:
        """All that can be used, by name."""
        return [found for found in self._all().values() if isinstance(found, Avd)]

    def broken(self) -> dict[str, EmulatorError]:
        """Why each of the others cannot be used, by name."""
        return {name: found for name, found in self._all().items() if isinstance(found, EmulatorError)}

    def get(self, name: str) -> Avd:
        """The virtual device of this name. Raises EmulatorError if there is none, or it cannot be used."""
        require_name(name, "AVD")
        if not os.path.lexists(self.ini(name)):
            raise EmulatorError(f"there is no AVD {name!r} in {self.home}.", self._hint(name))
        avd = self._read(self.ini(name))
        if not avd.directory.is_dir():
            raise EmulatorError(
                f"the AVD {name!r} has no directory {avd.directory}.", f"Correct `path` in {avd.ini}."
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
        if not known:
            return f"Create it with `distrl snapshot-avd create {missing} NAME --image PACKAGE`."
        return f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}."

    def exists(self, name: str) -> bool:
        """Whether there is an AVD of this name, complete or not."""
        return self.ini(name).exists() or self.directory(name).exists()

    def ini(self, name: str) -> Path:
        """Where the pointer to an AVD of this name is, or goes."""
        return self.home / f"{name}.ini"

    def directory(self, name: str) -> Path:
        """Where the files of a new AVD of this name go."""
        return self.home / f"{name}.avd"

    def delete(self, name: str) -> None:
        """Deletes an AVD with all its snapshots, also an incomplete one. Raises AvdLocked if it is in use."""
        require_name(name, "AVD")
        directory = self.directory(name)
        if self.ini(name).exists():
            with contextlib.suppress(EmulatorError):  # a damaged ini file: the usual place
                directory = self._read(self.ini(name)).directory
        elif not directory.is_dir():
            self.get(name)  # raises, and lists those that exist
        Avd(name, self.ini(name), directory).require_unused()
        try:
            self.ini(name).unlink(missing_ok=True)  # first: without it the rest is not an AVD
            if directory.suffix == ".avd" and directory.exists():  # an ini file may name anything
                shutil.rmtree(directory)
        except OSError as error:
            raise EmulatorError(
                f"the AVD {name!r} cannot be removed: {error}.", f"Remove {directory} by hand."
            ) from error

    def _read(self, ini: Path) -> Avd:
        fields = read_ini(ini)
        candidates = [Path(fields["path"])] if fields.get("path") else []
        if fields.get("path.rel"):
            candidates.append(self.home.parent / fields["path.rel"])
        if not candidates:
            raise EmulatorError(
                f"the AVD {ini.stem!r} cannot be used: {ini} names no directory.",
                f"Put `path={self.directory(ini.stem)}` into it, or remove it.",
            )
        directory = next((path for path in candidates if path.is_dir()), candidates[0])
        return Avd(ini.stem, ini, directory)


def read_ini(path: Path) -> dict[str, str]:
    """The keys and values of a `key=value` file, in its order; of a key that comes twice the last value."""
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise EmulatorError(f"{path} cannot be read: {error.strerror}.", "Is the AVD complete?") from error
    pairs = (line.partition("=") for line in text.splitlines())
    return {
        key.strip(): value.strip()
        for key, sign, value in pairs
        if sign and key.strip() and not key.strip().startswith(("#", ";", "["))
    }


def write_ini(path: Path, values: Mapping[str, str]) -> None:
    """Writes a file with these keys and values. Raises EmulatorError if it cannot be written."""
    text = "".join(f"{key}={value}\n" for key, value in values.items())
    write_whole(path, text.encode("utf-8", "surrogateescape"))


def _holder(path: Path) -> int | None:
    """The number in a lock file."""
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip("\0 \n")
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _is_flocked(path: Path) -> bool:
    try:
        lock = try_lock(path) if path.is_file() else None
    except OSError:
        return False  # another user's AVD
    if lock is not None:
        lock.release()
    return path.is_file() and lock is None


SKIPPED = ("*.lock", "emu-launch-params.txt", "tmpAdbCmds", "*.new", "*.tmp")
"""What belongs to a run of the emulator, not to the device."""
RESERVE_BYTES = 2 * 2**30
"""What must be left free on the disk: below it the emulator refuses to start."""
PARTIAL = ".distrl-partial"
"""How the folder of an unfinished clone ends."""
_NAME_KEYS = frozenset({"AvdId", "avd.ini.displayname", "avd.name", "avd.id"})


def clone(store: AvdStore, source: str, name: str) -> Avd:
    """Copies the AVD `source`, which no emulator may write meanwhile, to a new one called `name`."""
    avd = store.get(source)
    require_name(name, "AVD")
    if store.exists(name):
        raise EmulatorError(
            f"there is an AVD {name!r} already.", f"Choose another name, or delete {store.directory(name)}."
        )
    avd.require_unused(shared=True)
    final = store.directory(name)
    new = Avd(name, store.ini(name), final)
    try:
        with _partial_folder(final.with_name(final.name + PARTIAL)) as partial:
            _copy_files(avd.directory, partial / "avd")
            _rewrite(avd, new, partial / "avd")
            os.rename(partial / "avd", final)
            pointer = {**read_ini(avd.ini), "path": str(final)}
            if "path.rel" in pointer:
                pointer["path.rel"] = f"{new.home.name}/{final.name}"  # as seen from the home's parent
            write_ini(new.ini, pointer)  # from now on the clone is an AVD
    except OSError as error:
        raise EmulatorError(f"the AVD {source!r} cannot be copied: {error}.", "Is the disk full?") from error
    return new


def partial_clones(home: Path) -> list[Path]:
    """Folders of clones that were never finished, and that no process is working on."""
    claims = _clone_claims()
    found = [path for path in sorted(home.glob(f"*{PARTIAL}")) if claims.take(path.name)]
    claims.release_all()
    return found


def _clone_claims() -> Claims:
    return Claims(state_dir() / "clones")


@contextmanager
def _partial_folder(partial: Path) -> Iterator[Path]:
    """An empty folder, claimed by this process, and removed at the end."""
    claims = _clone_claims()
    if not claims.take(partial.name):
        raise EmulatorError(
            f"another process is making {partial.name.removesuffix(PARTIAL)} at this moment.",
            "Wait for it, or choose another name.",
        )
    try:
        if partial.exists():  # an earlier attempt was killed
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        claims.release_all()


def _copy_files(source: Path, target: Path) -> None:
    """Copies a folder to a new one. Whether its file system shares blocks shows at the largest file."""
    files = [path for path in source.rglob("*") if path.is_file() and not path.is_symlink()]
    largest = str(max(files, key=disk_usage, default=source))
    if _cp("--reflink=always", largest, str(target.with_name("trial"))):
        need, free = sum(map(disk_usage, files)), shutil.disk_usage(target.parent).free
        if free < need + RESERVE_BYTES:
            raise LowDisk(
                f"a copy of {source} needs {need / 2**30:.1f} GB, and {RESERVE_BYTES / 2**30:.0f} more. "
                f"{free / 2**30:.1f} GB are free on its disk, which cannot share blocks between files.",
                "Free some space, or keep AVDs on Btrfs or XFS, where a clone takes none.",
            )
    target.mkdir()
    if problem := _cp("--archive", "--reflink=auto", "--sparse=auto", f"{source}/.", str(target)):
        raise OSError(problem)
    for path in [path for pattern in SKIPPED for path in target.rglob(pattern)]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _cp(*words: str) -> str:
    """Copies by `cp`, which shares blocks where the file system can, and keeps holes. Returns its error."""
    done = subprocess.run(["cp", *words], capture_output=True, text=True, errors="replace", check=False)
    return (done.stderr.strip() or "cp failed") if done.returncode else ""


def disk_usage(path: Path) -> int:
    """The bytes that a file takes on disk: less than its size if it has holes."""
    return path.stat().st_blocks * 512


def _rewrite(old: Avd, new: Avd, directory: Path) -> None:
    """Puts the new name and path in place of the old ones, everywhere in `directory`."""

    def changed(key: str, value: str) -> str:
        if key in _NAME_KEYS:
            return new.name if value == old.name or key in ("AvdId", "avd.ini.displayname") else value
        return _moved(value, old.directory, new.directory)

    for path in [*directory.glob("*.ini"), *directory.glob("snapshots/*/*.ini")]:
        write_ini(path, {key: changed(key, value) for key, value in read_ini(path).items()})
    for image in directory.rglob("*.qcow2"):
        rebase(image, lambda base: _moved(base, old.directory, new.directory))


def _moved(value: str, old: Path, new: Path) -> str:
    """`value` with the old directory replaced by the new one, if it is a path in there."""
    for prefix in dict.fromkeys((str(old), str(old.resolve()))):
        if value == prefix or value.startswith(f"{prefix}/"):
            return str(new) + value[len(prefix) :]
    return value


# An AVD's changes lie in QCOW2 overlays that name the image beneath by its path. The header (QEMU's
# docs/interop/qcow2.txt) has, big-endian: magic `QFI\xfb` at 0, the offset of the base's name at 8 (8 bytes),
# its length at 16 (4 bytes), and log2 of the cluster size at 20 (4 bytes). Name and header lie in
# the first cluster.
_MAGIC = b"QFI\xfb"
_MAX_NAME = 1023


def rebase(image: Path, moved: Callable[[str], str]) -> None:
    """Names another image, of the same content, beneath a QCOW2 image; other files stay as they are.

    Raises EmulatorError if the name that `moved` makes of the present one does not fit.
    """
    with image.open("r+b") as file:
        header = file.read(24)
        if len(header) < 24 or header[:4] != _MAGIC:
            return
        offset, length, cluster_bits = struct.unpack_from(">QII", header, 8)
        if not offset or not 0 < length <= _MAX_NAME:
            return
        file.seek(offset)
        old = file.read(length)
        new = moved(old.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        behind = file.read(max(0, len(new) - length))
        if len(new) > _MAX_NAME or offset + len(new) > 1 << cluster_bits or behind.strip(b"\0"):
            raise EmulatorError(
                f"the path {new.decode(errors='replace')!r} does not fit into the header of {image.name}.",
                f"Choose a name at most {len(new) - length} characters shorter.",
            )
        file.seek(offset)
        file.write(new.ljust(length, b"\0"))
        file.seek(16)
        file.write(struct.pack(">I", len(new)))
