"""The locks of an AVD: who holds them, and what that means for whoever wants to start or copy it.

    hardware-qemu.ini.lock   the number of the emulator that may write the AVD
    snapshot.lock            the number of the emulator that saves or loads at this moment
    multiinstance.lock       an empty file that stays for ever; only an flock on it means something, shared by
                             emulators with -read-only, exclusive by one without

Emulators remove or steal locks of dead processes by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from distrl.workers.devices.emulator import procfs
from distrl.workers.devices.errors import AvdLocked, SnapshotPending

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


def held(directory: Path) -> list[Lock]:
    """The locks in an AVD's directory that living processes hold."""
    found = []
    for name in (SNAPSHOT, WRITER):
        pid = _holder(directory / name)
        if pid is not None and procfs.key_of(pid) is not None:
            found.append(_lock(directory / name, pid))
    instances = directory / INSTANCES
    found += [_lock(instances, pid) for pid in procfs.flock_holders(instances)]
    return found


def _lock(path: Path, pid: int) -> Lock:
    words = procfs.cmdline(pid) if pid else []
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
    for lock in held(directory):
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
