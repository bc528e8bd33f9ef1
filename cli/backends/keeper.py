"""Keeps processes of a launched run alive on one machine: `python -m distrl.cli.backends.keeper`.

    keep RUN NAME …    starts these processes and restarts them, until their work is done (exit code 0), one
                       of them cannot be kept alive (its code), or SIGTERM (130)
    status RUN NAME …  prints their states as JSON

It notes the states in RUN/launch/state. RUN/launch/over says how the run ended: "done" or "failed", by the
keeper of the learner, or "stopped". All keepers follow. With --alone there is one keeper of the run on this
machine: it holds RUN/launch/.keeper.lock, by which `status` finds out whether it is alive.

One thread, which waits for at most `TICK_S`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from distrl.cli.backends.backend import (
    ProcessState,
    State,
    end_run,
    read_ending,
    read_roles,
    read_state,
    state_file,
)
from distrl.cli.backends.roles import Role, allocator, environment
from distrl.cli.local import gpus
from distrl.core.errors import DistrlError
from distrl.core.files import HeldLock, try_lock, write_atomically
from distrl.core.process import StopEvent, install_signals
from distrl.core.rendezvous import HOST
from distrl.core.rundir import DirectoryInUse, lock_directory
from distrl.core.supervisor import ProgramFailed, Supervisor

TICK_S = 0.2
START_S = 20.0  # how long a keeper may take to start
LOOK_S = 1.0  # between two looks at RUN/launch/over, which may be on another machine
LEAVE_S = 10.0
"""How long workers and servers have when the learner is done: a worker may be waiting for its last acks."""


class Keeper:
    """Runs `roles` of the run directory `folder` until `stop` is set; alone if no other keeper sees that."""

    def __init__(self, folder: Path, roles: Sequence[Role], stop: StopEvent, is_alone: bool) -> None:
        self._folder, self._stop, self._is_alone, self._roles = folder, stop, is_alone, roles
        self._states: dict[str, ProcessState] = {}
        self._host = os.environ.get(HOST) or socket.gethostname()
        self._supervisor = Supervisor(folder / "logs", environment())

    def ending(self) -> str | None:
        """How the run ended; nothing if it did not."""
        return read_ending(self._folder)

    def run(self) -> int:
        """The exit code of this process."""
        if any(role.name == "learner" for role in self._roles):
            self._wait_for_another_learner()
        if self.ending():  # a keeper that was queued, or whose host was down, until now
            return 0
        wanted, visible = {role.name: role.needs.gpus for role in self._roles}, gpus.visible()
        if 0 < len(visible) < sum(wanted.values()):
            print(
                f"warning: the processes on {self._host} need {sum(wanted.values())} GPUs, but it has "
                f"{len(visible)}, so some share one. Lower placement.inference.count or the gpus of a role.",
                flush=True,
            )
        seen = gpus.variables_by_role(wanted, visible)
        try:
            for role in self._roles:
                extra = allocator() if role.kind == "learner" and not visible else {}
                self._supervisor.start(role.program({HOST: self._host, **extra, **seen[role.name]}))
                self._note(role.name, "running")
            ending, leave_at, next_look = None, math.inf, 0.0
            while not self._stop.wait(TICK_S):
                self._check()
                if not ending and "learner" in self._states and self._states["learner"].state == "done":
                    end_run(self._folder, "done")
                if not ending and time.monotonic() >= next_look:
                    ending, next_look = self.ending(), time.monotonic() + LOOK_S
                    leave_at = time.monotonic() + LEAVE_S if ending else math.inf
                if ending == "stopped":
                    break
                if all(one.state == "done" for one in self._states.values()) or time.monotonic() > leave_at:
                    if self._is_alone and not ending:  # if the host starts again, there is nothing to do
                        end_run(self._folder, "done")
                    return self._end("stopped" if ending == "failed" else "done", 0)
            return self._end("stopped", 130)
        except ProgramFailed as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            self._note(error.name, "failed", str(error))
            if "learner" in self._states:
                end_run(self._folder, "failed")
            return self._end("stopped", error.exit_code)

    def _wait_for_another_learner(self) -> None:
        """Waits for one that a scheduler believes lost, while it runs on or writes its checkpoint."""
        while is_held(self._folder / ".learner.lock") and not self.ending():
            self._note("learner", "queued", "the learner before it is still using the run directory")
            if self._stop.wait(LOOK_S):
                return

    def _check(self) -> None:
        for death in self._supervisor.check():
            code = death.exit_code
            cause = f"signal {-code}" if code < 0 else f"exit code {code}"
            print(f"{death.name} died ({cause}), restarting in {death.restart_in_s:g} s", flush=True)
            self._note(death.name, "restarting", f"died: {cause}")
        alive = self._supervisor.pids()
        for role in self._roles:
            if self._supervisor.is_done(role.name):
                self._note(role.name, "done")
            elif role.name in alive and self._states[role.name].state == "restarting":
                self._note(role.name, "running", self._states[role.name].detail)

    def _end(self, state: State, code: int) -> int:
        self._supervisor.stop()
        for name, one in self._states.items():
            if one.state not in ("done", "failed"):
                self._note(name, state)
        return code

    def _note(self, name: str, state: State, detail: str = "") -> None:
        noted = ProcessState(name=name, state=state, where=self._host, detail=detail)
        if self._states.get(name) != noted:
            self._states[name] = noted
            write_atomically(state_file(self._folder, name), noted.model_dump_json())


def read_states(folder: Path, names: Sequence[str]) -> list[ProcessState]:
    """What the keeper of this machine noted of its processes; a process is lost if its keeper has died."""
    is_kept = is_held(lock_file(folder))
    found = []
    for name in names:
        state = read_state(folder, name) or ProcessState(name=name, state="queued")
        is_gone = not is_kept and state.state in ("queued", "running", "restarting")
        found.append(state.model_copy(update={"state": "lost"}) if is_gone else state)
    return found


def is_held(lock: Path) -> bool:
    """Whether a process holds this lock."""
    if not lock.exists():
        return False
    if (held := try_lock(lock, mode=0o644)) is not None:
        held.release()
    return held is None


def lock_file(folder: Path) -> Path:
    """What the only keeper of a run on this machine holds."""
    return folder / "launch" / ".keeper.lock"


def _alone(folder: Path) -> HeldLock:
    """Holds the lock of the only keeper here; DirectoryInUse if there is another."""
    with contextlib.suppress(DirectoryInUse):
        return lock_directory(lock_file(folder), "keeper", "stop the run")
    time.sleep(TICK_S)  # `is_held` may have had it: it takes the lock for a moment to see whether it is free
    return lock_directory(lock_file(folder), "keeper", "stop the run")


def command(python: str, verb: str, folder: Path, *names: str) -> list[str]:
    """The command line of this module."""
    return [python, "-m", "distrl.cli.backends.keeper", verb, str(folder), *names]


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code of `python -m distrl.cli.backends.keeper ARGUMENTS`."""
    parser = argparse.ArgumentParser(prog="distrl.cli.backends.keeper")
    parser.add_argument("verb", choices=("keep", "status"))
    parser.add_argument("run", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--alone", action="store_true")
    given = parser.parse_args(arguments)
    if given.verb == "status":
        states = read_states(given.run, given.names)
        print(json.dumps([state.model_dump() for state in states]))
        return 0
    (given.run / "launch" / "state").mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        if given.alone:
            stack.enter_context(_alone(given.run))
        known = {role.name: role for role in read_roles(given.run)}
        return Keeper(given.run, [known[name] for name in given.names], install_signals(), given.alone).run()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DistrlError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(problem.exit_code)
