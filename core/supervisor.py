"""Keeping programs alive: a set of child processes, each restarted when it dies, until it dies too often.

One thread calls `check`: Linux ties a child's life to the thread that spawned it, so let it be the main one.
Between two calls nothing happens: no timers, no signal handlers.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from distrl.core.errors import DistrlError
from distrl.core.process import Child, stop_all

# Exit codes of errors that a restart cannot fix: configuration, run directory, checkpoint, tasks, missing
# packages, policy, a run without episodes, servers with other weights (see distrl.core.errors).
HOPELESS = frozenset({2, 3, 4, 6, 7, 9, 12, 14})
# Of errors whose one line says everything: these except for a run without episodes, and network errors.
EXPLAINED = (HOPELESS - {12}) | {5}
MAX_DEATHS = 5
QUICK_S = 30.0
SAME_S = 600.0  # a model may load for minutes, only to fail as it did before
MAX_BACKOFF_S = 10.0
_TAIL_BYTES = 8192


class ProgramFailed(DistrlError):
    """A program that a run needs cannot be kept alive.

    Attributes:
        name: The program's.
        is_explained: It ended with an error that the user can fix; its message says all that the logs do.
    """

    exit_code = 11
    name = ""
    is_explained = False


@dataclass(frozen=True)
class Program:
    """What to run.

    Attributes:
        ends: An exit code of `done` means that its work is done; otherwise any exit code restarts it.
        patience_s: How long after SIGTERM it is killed.
    """

    name: str
    command: tuple[str, ...]
    ends: bool = False
    patience_s: float = 2.0
    env: Mapping[str, str] = field(default_factory=dict)
    done: frozenset[int] = frozenset({0})


@dataclass
class _Kept:
    program: Program
    child: Child
    is_running: bool = True
    quick_deaths: int = 0
    same_deaths: int = 0
    last_words: str = ""
    start_at: float = 0.0


@dataclass(frozen=True)
class Death:
    """A child that ended without being asked to, and when it is replaced."""

    name: str
    exit_code: int
    restart_in_s: float


class Supervisor:
    """Owns the children.

    Args:
        backoff_s: The pause before the first restart; it doubles with every quick death.

    Attributes:
        closing: Only programs that end by themselves are replaced any more: the others leave one by one.
    """

    def __init__(self, logs: Path, env: Mapping[str, str] | None = None, backoff_s: float = 0.5) -> None:
        self._logs, self._env, self._backoff_s = logs, env or {}, backoff_s
        self._kept: dict[str, _Kept] = {}
        self.closing, self.restarts = False, 0

    def start(self, program: Program) -> None:
        """Starts `program` now and keeps it alive from now on."""
        assert program.name not in self._kept, f"{program.name} is there already"
        self._kept[program.name] = _Kept(program, self._spawn(program))

    def check(self) -> list[Death]:
        """Finds the programs that died, and starts the replacements that are due.

        Raises:
            ProgramFailed: A program ended with an error that a restart cannot fix, or died more than
                `MAX_DEATHS` times in a row within `QUICK_S` of its start, or within `SAME_S` with one error.
        """
        deaths = []
        for kept in self._kept.values():
            exit_code = kept.child.poll()
            if kept.is_running and exit_code is not None and not self.is_done(kept.program.name):
                kept.is_running = False
                deaths.append(self._bury(kept, exit_code))
            is_wanted = kept.program.ends or not self.closing
            if not kept.is_running and is_wanted and time.monotonic() >= kept.start_at:
                self.restarts += 1
                kept.child, kept.is_running = self._spawn(kept.program), True
        return deaths

    def is_done(self, name: str) -> bool:
        """Whether a program that `ends` has ended well."""
        kept = self._kept[name]
        return kept.program.ends and kept.is_running and kept.child.poll() in kept.program.done

    def pids(self) -> dict[str, int]:
        """The process ids of those that run now."""
        return {name: kept.child.pid for name, kept in self._kept.items() if kept.child.poll() is None}

    def stop(self) -> None:
        """Stops all: SIGTERM to each, and SIGKILL to those whose patience is over. None is replaced."""
        stop_all([(kept.child, kept.program.patience_s) for kept in self._kept.values()])
        self._kept.clear()

    def _spawn(self, program: Program) -> Child:
        log_file = self._logs / f"{program.name}.log"
        return Child(program.name, program.command, log_file, {**self._env, **program.env})

    def _bury(self, kept: _Kept, exit_code: int) -> Death:
        name, lived_s = kept.program.name, time.monotonic() - kept.child.started_at
        words = last_error(kept.child.log_file, kept.child.log_start)
        if exit_code in HOPELESS:
            failed = self._failed(kept, exit_code, f"{name} stopped: {words}")
            failed.exit_code = exit_code
            raise failed
        kept.quick_deaths = kept.quick_deaths + 1 if lived_s < QUICK_S else 1
        is_same = exit_code > 0 and lived_s < SAME_S and words == kept.last_words
        kept.same_deaths = kept.same_deaths + 1 if is_same else 1
        kept.last_words = words
        for num_deaths, within_s in ((kept.quick_deaths, QUICK_S), (kept.same_deaths, SAME_S)):
            if num_deaths > MAX_DEATHS:
                raise self._failed(
                    kept,
                    exit_code,
                    f"{name} died {num_deaths} times in a row within {within_s:g} s of its start, "
                    f"the last time with exit code {exit_code}: {words}",
                )
        pause_s = min(self._backoff_s * 2.0 ** (kept.quick_deaths - 1), MAX_BACKOFF_S)
        kept.start_at = time.monotonic() + pause_s
        return Death(name, exit_code, pause_s)

    def _failed(self, kept: _Kept, exit_code: int, said: str) -> ProgramFailed:
        failed = ProgramFailed(said, f"See {kept.child.log_file}.")
        failed.name, failed.is_explained = kept.program.name, exit_code in EXPLAINED
        return failed


def last_error(log_file: Path, start: int = 0) -> str:
    """The last "error: " line of a log from byte `start` on; else its last line, or that its disk is full."""
    try:
        with log_file.open("rb") as log:
            log.seek(max(start, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
            tail = log.read().decode("utf-8", "replace")
    except OSError as error:  # the logs were deleted; that must not end the others
        return f"its log cannot be read: {error.strerror}"
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    if errors:
        return errors[-1].removeprefix("error: ")
    if shutil.disk_usage(log_file.parent).free < _TAIL_BYTES:
        return "the reason could not be written because the disk of its log is full. Free some disk space."
    return lines[-1] if lines else "it wrote nothing"
