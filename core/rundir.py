"""The run directory: where a run keeps everything it makes, and the lock that gives it one owner.

    runs/<name>/config.yaml  logs/  metrics.jsonl  tensorboard/  store.sqlite3  checkpoints/step_N/  weights/
                spool/  evaluations/  report.html  report.json

It is made once and never overwritten: `--resume` continues it, starting again takes another name. It can be
moved and copied. Beside the runs, `latest` is a link to the one that `distrl train` started or resumed last.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from distrl.core.errors import RunDirectoryError
from distrl.core.files import HeldLock, try_lock, write_atomically, write_bytes_atomically, writing

WARM_UP = "warm_up"


class RunOptions(Protocol):
    """What a run directory needs of a `distrl.configs.schema.Config`; core does not depend on configs."""

    name: str
    runs_dir: str

    def to_yaml(self) -> str:
        """The whole configuration."""


class DirectoryInUse(RunDirectoryError):
    """Another process holds the lock of a directory."""


class RunDir:
    """The paths of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.logs = path / "logs"
        self.metrics = path / "metrics.jsonl"
        self.tensorboard = path / "tensorboard"
        self.store = path / "store.sqlite3"
        self.checkpoints = path / "checkpoints"
        self.warm_up = path / WARM_UP  # the checkpoint of a warm-up that was stopped
        self.weights = path / "weights"
        self.spool = path / "spool"
        self.evaluations = path / "evaluations"
        self.report = path / "report.html"
        self.address = path / ".learner"  # where a running learner answers: `network.control`

    @classmethod
    def of(cls, config: RunOptions) -> RunDir:
        """The directory of `config`'s run, whether it exists or not."""
        return cls(Path(config.runs_dir).expanduser() / config.name)

    @classmethod
    def create(cls, config: RunOptions, replacing: str = "Continue it with --resume") -> RunDir:
        """Makes a new run's directory and writes its config.yaml; RunDirectoryError if that cannot be.

        `replacing` is what to do instead if the directory exists.
        """
        run = cls.of(config)
        if run.path.exists():
            raise RunDirectoryError(
                f"The run directory {run.path} exists already.",
                f"{replacing}, or start another with --set name=NAME.",
            )
        try:
            run.path.parent.mkdir(parents=True, exist_ok=True)
            run.path.mkdir()  # fails if another process has made it since
            try:
                for folder in (run.logs, run.checkpoints, run.weights):
                    folder.mkdir()
                write_atomically(run.config, config.to_yaml())
            except (OSError, RunDirectoryError):
                run.discard()
                raise
        except OSError as error:
            raise RunDirectoryError(
                f"The run directory {run.path} cannot be made: {error.strerror or error}.",
                "Choose another place with --set runs_dir=DIR.",
            ) from error
        return run

    def discard(self) -> None:
        """Deletes the directory of a run that this process has made and that has not begun."""
        # What cannot be deleted stays: the error that led here is the one to report.
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            if os.readlink(self._latest) == self.path.name:
                self._latest.unlink()

    def link_as_latest(self) -> None:
        """Makes `latest`, beside the run, a link to it, where links exist and no run has that name."""
        new = self._latest.with_name(f".latest.{os.getpid()}")
        with contextlib.suppress(OSError):
            if self._latest.is_symlink() or not self._latest.exists():
                new.symlink_to(self.path.name)
                new.replace(self._latest)

    @property
    def _latest(self) -> Path:
        return self.path.with_name("latest")

    @classmethod
    def open(cls, path: Path | str) -> RunDir:
        """An existing run's directory; RunDirectoryError if there is none."""
        run = cls(Path(path).expanduser())
        if not run.config.is_file():
            raise RunDirectoryError(
                f"{run.path} is not a run directory: it has no config.yaml.", "Check the run's name."
            )
        return run

    @classmethod
    def create_or_open(cls, config: RunOptions, resume: bool) -> RunDir:
        """The directory of `config`'s run: an existing one if `resume`, else a new one."""
        return cls.open(cls.of(config).path) if resume else cls.create(config)

    def write_config(self, config: RunOptions) -> Path | None:
        """Makes `config` the run's configuration.

        Returns:
            Where a different one before it is kept, config.N.yaml; None if there was none.
        """
        text, before = config.to_yaml(), self.config.read_bytes()
        if before == text.encode("utf-8"):
            return None
        number = 1
        while (kept := self.path / f"config.{number}.yaml").exists():
            number += 1
        write_bytes_atomically(kept, before)
        write_atomically(self.config, text)
        return kept

    def run_id(self) -> str:
        """The same for every process that ever runs this run directory."""
        # Durable: what workers have spooled for this id, no learner with another one may take.
        return self._kept(".run_id", lambda: f"{self.path.name}-{uuid.uuid4().hex[:12]}")

    @contextlib.contextmanager
    def announced(self, control: str) -> Iterator[None]:
        """Writes down where the learner answers, as long as the block lasts."""
        write_atomically(self.address, f"{control}\n")
        try:
            yield
        finally:
            self.address.unlink(missing_ok=True)

    def lease_secret(self) -> bytes:
        """The key with which every learner of this run directory signs leases."""
        # Durable: trajectories of leases that were signed with another one would be rejected.
        return bytes.fromhex(self._kept(".lease_secret", secrets.token_hex, "[0-9a-f]{64}"))

    def tracker_id(self, tracker: str, make: Callable[[], str]) -> str:
        """The run's id at a tracker that chooses ids itself; `make` creates the run there."""
        return self._kept(f".{tracker}_run", make)

    def _kept(self, name: str, make: Callable[[], str], pattern: str = ".+") -> str:
        """A private file's line; a file that is missing, or that a power cut emptied or damaged, is made."""
        path = self.path / name
        found = path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else ""
        if not re.fullmatch(pattern, found):
            found = make()
            write_bytes_atomically(path, f"{found}\n".encode(), is_durable=True, mode=0o600)
        return found

    def lock(self, role: str = "learner") -> HeldLock:
        """Takes the run for `role`; errors as for `lock_directory`."""
        return lock_directory(self.path / f".{role}.lock", role)


def is_free(path: Path, resume: bool, lock_file: str = "", resuming: str = "continue it") -> bool:
    """Whether nothing is in `path` yet, which was named with --output. Changes nothing.

    Args:
        lock_file: The name of a file that counts for nothing.
        resuming: What --resume does with what is there.

    Raises:
        RunDirectoryError: Something is there, and `resume` is off.
    """
    if not path.exists() or (path.is_dir() and all(entry.name == lock_file for entry in path.iterdir())):
        return True
    if not resume:
        raise RunDirectoryError(
            f"The output directory {path} exists already.",
            f"Name another with --output, or {resuming} with --resume.",
        )
    return False


def lock_directory(path: Path, role: str, otherwise: str = "use another run name") -> HeldLock:
    """Locks a directory by the file `path` in it, which names the holder; or RunDirectoryError.

    Args:
        otherwise: What to do other than to wait for the holder or to stop it.

    Raises:
        DirectoryInUse: Another process holds it.
    """
    try:
        held = try_lock(path, mode=0o644)
    except OSError as error:
        raise RunDirectoryError(
            f"{path} cannot be locked: {error.strerror}.",
            "Check its permissions, and that its file system supports locks (NFS: mount it with locks).",
        ) from error
    if held is None:
        holder = "unknown"
        with contextlib.suppress(OSError):
            holder = path.read_text(errors="replace").strip() or holder
        raise DirectoryInUse(
            f"Another {role} (process {holder}) is using {path.parent}.",
            f"Wait for it, stop it, or {otherwise}.",
        )
    try:
        with writing(path):
            path.write_text(f"{os.getpid()}\n")
    except RunDirectoryError:
        held.release()
        raise
    return held
