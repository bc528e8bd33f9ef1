"""`--on local`: all processes on this machine, kept by a process that outlives the shell."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Sequence

from distrl.cli.backends.backend import (
    LaunchError,
    ProcessState,
    addresses,
    log_files,
    read_roles,
    show_files,
)
from distrl.cli.backends.keeper import command, end_run, is_held, read_states
from distrl.cli.backends.roles import Role
from distrl.configs.schema import Config
from distrl.core.rundir import RunDir
from distrl.core.supervisor import last_error

START_S = 20.0
"""How long the keeper may take to start."""


class LocalBackend:
    """See `distrl.cli.backends.backend.Backend`."""

    def __init__(self, config: Config, run: RunDir) -> None:
        self._network, self._run = config.network, run
        self.folder = run.path.resolve()

    def settings(self) -> dict[str, str]:
        return addresses(self._network, "127.0.0.1", f"file:{self.folder / 'launch' / 'learner.json'}")

    def submit(self, roles: Sequence[Role], dry_run: bool) -> list[str]:
        line = [*command(sys.executable, "keep", self.folder), *(role.name for role in roles), "--alone"]
        if dry_run:
            return [
                shlex.join(line),
                *(f"# {role.name}: distrl {shlex.join(role.arguments)}" for role in roles),
            ]
        log = self._run.logs / "keeper.log"
        with log.open("ab") as out:
            keeper = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
        deadline = time.monotonic() + START_S
        while not is_held(self.folder) and time.monotonic() < deadline:
            if keeper.poll() is not None:
                break
            time.sleep(0.05)
        else:
            return [f"Started {len(roles)} processes on this machine, kept by process {keeper.pid}."]
        raise LaunchError(f"The processes could not be started: {last_error(log)}")

    def status(self) -> list[ProcessState]:
        return read_states(self.folder, [role.name for role in read_roles(self.folder)])

    def stop(self) -> None:
        end_run(self.folder, "stopped")

    def logs(self, name: str | None, lines: int, follow: bool) -> None:
        show_files(log_files(self._run, name), lines, follow)
