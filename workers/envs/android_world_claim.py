"""Which process uses which emulator for AndroidWorld: a lock file each, which says what still runs.

The lock is the kernel's (`flock`), so it goes with its processes, however they end: the environment's and its
child's, which inherits it. The file's text stays: the task that was not torn down. Whoever claims the
emulator next tears it down first.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distrl.core.errors import EnvError
from distrl.workers.envs.android_world_options import Ports


class Claim:
    """One emulator, held until `release`. Use `take`.

    Attributes:
        ports: The emulator's.
    """

    def __init__(self, ports: Ports, descriptor: int) -> None:
        self.ports = ports
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, devices: Sequence[Ports], directory: Path | None = None) -> Claim:
        """The first of `devices` that no other process or slot of this user holds.

        Args:
            devices: Which there are.
            directory: Where the lock files are; a private one of this user by default.

        Raises:
            EnvError: All are held, or the directory cannot be used.
        """
        folder = _folder() if directory is None else directory
        for ports in devices:
            path = folder / f"emulator-{ports.console}.json"
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise EnvError(
                    f"{path} cannot be opened: {error.strerror}.", "Check the directory."
                ) from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            return cls(ports, descriptor)
        raise EnvError(
            f"all {len(devices)} AndroidWorld emulators are in use by other slots or processes.",
            "Name as many in env.options.devices as there are slots on this machine.",
            fault="device",
        )

    @property
    def descriptor(self) -> int:
        """The lock file's; a child that inherits it holds the claim too."""
        assert self._descriptor is not None, "a released claim"
        return self._descriptor

    @property
    def left(self) -> dict[str, Any] | None:
        """The task that an earlier holder did not tear down, as it noted it; None if there is none."""
        text = os.pread(self.descriptor, 64 * 1024, 0)
        try:
            noted = json.loads(text) if text.strip() else None
        except ValueError:
            return None  # cut short by the machine's end: nobody knows what it was
        return noted if isinstance(noted, dict) else None

    def note(self, task: dict[str, Any] | None) -> None:
        """Notes the task that is about to run, or None when it has been torn down."""
        os.ftruncate(self.descriptor, 0)
        if task is not None:
            os.pwrite(self.descriptor, json.dumps(task).encode(), 0)

    def release(self) -> None:
        """Lets go. May be called twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _folder() -> Path:
    """A directory of this user that nobody else can write to."""
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    folder = base / f"distrl-androidworld-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        info = folder.lstat()
    except OSError as error:
        raise EnvError(f"{folder} cannot be made: {error.strerror}.", "Check the directory.") from error
    if info.st_uid != os.getuid() or info.st_mode & 0o022:
        raise EnvError(f"{folder} belongs to somebody else or can be written by others.", "Remove it.")
    return folder
