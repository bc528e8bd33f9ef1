"""`--on local`: all processes on this machine, kept by a process that outlives the shell."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Sequence

from distrl.cli.backends.backend import Backend, LaunchError, ProcessState, read_roles
from distrl.cli.backends.keeper import START_S, command, is_held, lock_file, read_states
from distrl.cli.backends.roles import Role
from distrl.core.supervisor import last_error


class LocalBackend(Backend):
    """A keeper, detached from the shell."""

    interface = "127.0.0.1"

    def submit(self, roles: Sequence[Role], dry_run: bool) -> list[str]:
        line = [*command(sys.executable, "keep", self.folder), *(role.name for role in roles), "--alone"]
        if dry_run:
            shown = [f"# {role.name}: distrl {shlex.join(role.arguments)}" for role in roles]
            return [shlex.join(line), *shown]
        log = self.run.logs / "keeper.log"
        with log.open("ab") as out:
            keeper = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
        deadline = time.monotonic() + START_S
        while not is_held(lock_file(self.folder)) and time.monotonic() < deadline:
            if keeper.poll() is not None:
                raise LaunchError(f"The processes could not be started: {last_error(log)}")
            time.sleep(0.05)
        return [f"Started {len(roles)} processes on this machine, kept by process {keeper.pid}."]

    def status(self) -> list[ProcessState]:
        return read_states(self.folder, [role.name for role in read_roles(self.folder)])
