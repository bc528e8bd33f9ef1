"""`--on ssh`: a keeper on each host of a list, with the files that its processes need.

A host gets FOLDER/RUN, with the layout of a run directory, over ssh's standard input. Its keeper is a systemd
unit of the user where that outlives the session (`loginctl enable-linger`), and starts again when the host
does; elsewhere it is a process of its own. The run's results are on the learner's host.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

from distrl.cli.backends.backend import (
    Backend,
    LaunchError,
    ProcessState,
    call,
    default_addresses,
    dump_roles,
    one_or_all,
    read_files,
    read_notes,
    read_roles,
    show,
    tail,
    write_notes,
)
from distrl.cli.backends.keeper import START_S, command
from distrl.cli.backends.roles import CHECKPOINT_S, Role
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError
from distrl.core.rendezvous import HOST
from distrl.core.rundir import RunDir

START = """cd {folder} && umask 077
rm -rf launch/over launch/state && mkdir -p logs checkpoints weights spool launch/state || exit 1
if [ "$(loginctl show-user "$(id -un)" -p Linger --value 2>/dev/null)" = yes ] &&
    systemctl --user show-environment >/dev/null 2>&1; then
  mkdir -p ~/.config/systemd/user
  sed "s|@PWD@|$PWD|g" > ~/.config/systemd/user/{unit} <<'END'
[Unit]
Description=distrl run {name}

[Service]
WorkingDirectory=@PWD@
Environment={host}
ExecStart=/usr/bin/env {keeper}
Restart=on-abnormal
RestartSec=5
KillMode=mixed
TimeoutStopSec={patience}
StandardOutput=append:@PWD@/logs/keeper.log
StandardError=inherit

[Install]
WantedBy=default.target
END
  systemctl --user daemon-reload && systemctl --user enable --now {unit}
else
  {host} setsid nohup {keeper} >>logs/keeper.log 2>&1 </dev/null &
fi
"""


SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15")


class SshBackend(Backend):
    """Keepers on hosts."""

    def __init__(self, config: Config, run: RunDir) -> None:
        super().__init__(config, run)
        self.folder = Path()  # commands change into the directory
        self._placed = config.placement
        self._there = shlex.quote(f"{self._placed.folder.rstrip('/')}/{config.name}")
        self._unit = f"distrl-{config.name}.service"
        # Named after the run, because servers of one rendezvous share weights on a host.
        self._variable = f"DISTRL_LEARNER_{re.sub(r'[^A-Za-z0-9]', '_', config.name)}"

    def settings(self) -> dict[str, str]:
        # The learner's ports are known beforehand.
        bound = {
            f"network.{name}": address.replace("127.0.0.1", self.interface)
            for name, address in default_addresses(self.config).items()
        }
        return {**bound, "network.rendezvous": f"env:{self._variable}"}

    def submit(self, roles: Sequence[Role], dry_run: bool) -> list[str]:
        hosts = self._hosts(roles)
        started = [role.model_copy(update={"env": self._env(hosts["learner"])}) for role in roles]
        lines = []
        if not dry_run:
            write_notes(self.run, hosts=hosts)
        for host in dict.fromkeys(hosts.values()):
            mine = [role for role in started if hosts[role.name] == host]
            files = sorted({file for role in mine for file in role.files})
            script = self._start(host, [role.name for role in mine])
            if dry_run:
                lines += [f"# {host}: {' '.join(files)} to {self._there}", shlex.join(["ssh", host, script])]
                continue
            try:
                packed = _packed({**read_files(self.run, files), "launch/roles.json": dump_roles(started)})
                self._ssh(host, f"umask 077 && mkdir -p {self._there} && tar -xf - -C {self._there}", packed)
                self._states(host)  # fails unless distrl is installed there
                self._ssh(host, script)
                deadline = time.monotonic() + START_S  # until then a process without a keeper looks lost
                while time.monotonic() < deadline and any(
                    one["state"] == "lost" for one in self._states(host, *(role.name for role in mine))
                ):
                    time.sleep(0.5)
            except LaunchError:
                with contextlib.suppress(LaunchError):  # the other hosts may have nothing to stop yet
                    self.stop()
                raise
            lines.append(f"Started {', '.join(role.name for role in mine)} on {host}.")
        return lines

    def status(self) -> list[ProcessState]:
        hosts, found = self._noted(), dict[str, ProcessState]()
        for host in dict.fromkeys(hosts.values()):
            names = [name for name, one in hosts.items() if one == host]
            try:
                noted = self._states(host, *names)
            except LaunchError as error:
                noted = [{"name": name, "state": "lost", "detail": error.message} for name in names]
            found |= {one["name"]: ProcessState.model_validate({**one, "where": host}) for one in noted}
        return [found[role.name] for role in read_roles(self.run.path)]

    def stop(self) -> None:
        failed = None
        end = f"cd {self._there} && printf stopped > launch/over"
        for host in dict.fromkeys(self._noted().values()):
            try:
                self._ssh(host, f"{end} && (systemctl --user disable {self._unit} >/dev/null 2>&1; true)")
            except LaunchError as error:
                failed = error
        if failed is not None:
            raise failed

    def logs(self, name: str | None, lines: int, follow: bool) -> None:
        hosts, files = self._noted(), dict[str, list[Path]]()
        for one in one_or_all(name, list(hosts)):
            files.setdefault(hosts[one], []).append(Path("logs", f"{one}.log"))
        tails = {host: shlex.join(tail(mine, lines, follow)) for host, mine in files.items()}
        show([[*SSH, host, f"cd {self._there} && {line}"] for host, line in tails.items()], at_once=follow)

    def _hosts(self, roles: Sequence[Role]) -> dict[str, str]:
        """The host of each role: the learner's first one, and those of other kinds in turn."""
        found: dict[str, str] = {}
        for kind in dict.fromkeys(role.kind for role in roles):
            among = [role for role in roles if role.kind == kind]
            hosts = among[0].needs.hosts or self._placed.hosts
            if not hosts:
                raise ConfigError(f"--on ssh has no host for {among[0].name}.", "Set placement.hosts.")
            found |= {role.name: hosts[index % len(hosts)] for index, role in enumerate(among)}
        return found

    def _env(self, learner: str) -> dict[str, str]:
        """Where the learner will be, for all processes."""
        host = learner.rpartition("@")[2]
        ports = {
            name: getattr(self.config.network, name).rpartition(":")[2]
            for name in ("control", "broadcast", "weights")
        }
        return {self._variable: self.meeting({name: f"tcp://{host}:{port}" for name, port in ports.items()})}

    def _start(self, host: str, names: Sequence[str]) -> str:
        return START.format(
            folder=self._there,
            unit=self._unit,
            name=self.config.name,
            host=f"{HOST}={host.rpartition('@')[2]}",
            keeper=shlex.join([*command(self._placed.python, "keep", self.folder), *names, "--alone"]),
            patience=f"{CHECKPOINT_S + 10.0:.0f}",
        )

    def _states(self, host: str, *names: str) -> list[dict[str, str]]:
        """What the keeper of a host noted of its processes."""
        line = shlex.join([*command(self._placed.python, "status", self.folder), *names])
        printed = self._ssh(host, f"cd {self._there} && {line}")
        found: list[dict[str, str]] = json.loads(printed.splitlines()[-1])  # a login script may print before
        return found

    def _noted(self) -> dict[str, str]:
        """The host of each process of the launched run."""
        hosts: dict[str, str] = read_notes(self.run).get("hosts", {})
        return hosts

    def _ssh(self, host: str, script: str, given: bytes | None = None) -> str:
        try:
            return call([*SSH, host, script], given)
        except LaunchError as error:
            remedy = "Check that `ssh HOST` works without a password, and placement.python."
            raise LaunchError(f"{host}: {error.message}", remedy) from error


def _packed(files: dict[str, bytes]) -> bytes:
    """Files as a tar archive; their owner alone may read them."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()
