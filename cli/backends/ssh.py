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
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from distrl.cli.backends.backend import (
    LaunchError,
    ProcessState,
    call,
    check_process,
    dump_roles,
    read_notes,
    read_roles,
    write_notes,
)
from distrl.cli.backends.keeper import command
from distrl.cli.backends.roles import CHECKPOINT_S, KEYS, Role
from distrl.configs.schema import Config, NetworkConfig
from distrl.core.errors import ConfigError
from distrl.core.rendezvous import HOST, Meeting
from distrl.core.rundir import RunDir

START = """cd {folder} && umask 077
rm -f launch/over && mkdir -p logs checkpoints weights spool launch/state || exit 1
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


class SshBackend:
    """See `distrl.cli.backends.backend.Backend`."""

    folder = Path()  # commands change into the directory

    def __init__(self, config: Config, run: RunDir) -> None:
        self._config, self._run, self._placed = config, run, config.placement
        self._there = f"{self._placed.folder.rstrip('/')}/{config.name}"
        self._unit = f"distrl-{config.name}.service"
        # Named after the run, because servers of one rendezvous share weights on a host.
        self._variable = f"DISTRL_LEARNER_{re.sub(r'[^A-Za-z0-9]', '_', config.name)}"

    def settings(self) -> dict[str, str]:
        network, given = self._config.network, NetworkConfig.model_fields
        found = {"network.rendezvous": f"env:{self._variable}"}
        for name in ("control", "broadcast", "weights", "act"):
            address = getattr(network, name)
            if address == given[name].default:  # the learner's ports are known beforehand
                found[f"network.{name}"] = address.replace("127.0.0.1", "0.0.0.0")
        return found

    def submit(self, roles: Sequence[Role], dry_run: bool) -> list[str]:
        hosts = self._hosts(roles)
        started = [role.model_copy(update={"env": self._env(hosts["learner"])}) for role in roles]
        lines = []
        if not dry_run:
            write_notes(self._run, hosts=hosts)
        for host in dict.fromkeys(hosts.values()):
            mine = [role for role in started if hosts[role.name] == host]
            files = sorted({"launch/roles.json", *(file for role in mine for file in role.files)})
            script = self._start(host, [role.name for role in mine])
            if dry_run:
                lines += [
                    f"# {host}: {' '.join(files)} to {self._there}",
                    f"ssh {host} {shlex.quote(script)}",
                ]
                continue
            unpack = f"umask 077 && mkdir -p {self._quoted} && tar -xf - -C {self._quoted}"
            try:
                self._ssh(host, unpack, self._packed(files, started))
                self._ssh(host, script)
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
                told = json.loads(self._ssh(host, self._keeper("status", *names)))
            except LaunchError as error:
                told = [{"name": name, "state": "lost", "detail": error.message} for name in names]
            found |= {one["name"]: ProcessState(**{**one, "where": host}) for one in told}
        return [found[role.name] for role in read_roles(self._run.path)]

    def stop(self) -> None:
        disable = f"(systemctl --user disable {self._unit} >/dev/null 2>&1; true)"
        failed = None
        for host in dict.fromkeys(self._noted().values()):
            try:
                self._ssh(host, f"{self._keeper('stop')} && {disable}")
            except LaunchError as error:
                failed = error
        if failed is not None:
            raise failed

    def logs(self, name: str | None, lines: int, follow: bool) -> None:
        hosts = self._noted()
        check_process(self._run, name)
        tails = []
        for host in dict.fromkeys(hosts.values()):
            names = [one for one in hosts if hosts[one] == host and name in (None, one)]
            if names:
                files = " ".join(f"logs/{one}.log" for one in names)
                script = f"cd {self._quoted} && tail -n {lines} {'-F ' if follow else ''}{files}"
                tails.append(subprocess.Popen(["ssh", "-o", "BatchMode=yes", host, script]))
                if not follow:
                    tails[-1].wait()
        try:
            for tail in tails:
                tail.wait()
        except KeyboardInterrupt:
            return

    @property
    def _quoted(self) -> str:
        """The run's directory on a host, for its shell."""
        return shlex.quote(self._there)

    def _hosts(self, roles: Sequence[Role]) -> dict[str, str]:
        """The host of each role: the learner's first one, and those of other kinds in turn."""
        placed, found = self._placed, dict[str, str]()
        for kind, given in (
            ("learner", placed.learner), ("inference", placed.inference), ("worker", placed.workers)
        ):  # fmt: skip
            names = [role.name for role in roles if role.kind == kind]
            hosts = given.hosts or placed.hosts
            if names and not hosts:
                raise ConfigError(f"--on ssh has no host for {names[0]}.", "List some as placement.hosts.")
            found |= {name: hosts[index % len(hosts)] for index, name in enumerate(names)}
        return found

    def _env(self, learner: str) -> dict[str, str]:
        """Where the learner will be, for all processes."""
        network, host = self._config.network, learner.rpartition("@")[2]
        key = self._run.path / KEYS / "server.pub"
        meeting = Meeting(
            **{
                name: f"tcp://{host}:{getattr(network, name).rpartition(':')[2]}"
                for name in ("control", "broadcast", "weights")
            },
            public=key.read_text().strip() if key.exists() else "",
        )
        return {self._variable: meeting.model_dump_json()}

    def _packed(self, files: Sequence[str], roles: Sequence[Role]) -> bytes:
        """These files of the run directory as a tar archive; their owner alone may read them."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            for name in files:
                path = self._run.path / name
                for file in sorted(path.iterdir()) if path.is_dir() else [path]:
                    inside = file.relative_to(self._run.path).as_posix()
                    data = dump_roles(roles) if inside == "launch/roles.json" else file.read_bytes()
                    entry = tarfile.TarInfo(inside)
                    entry.size, entry.mode = len(data), 0o600
                    archive.addfile(entry, io.BytesIO(data))
        return out.getvalue()

    def _start(self, host: str, names: Sequence[str]) -> str:
        return START.format(
            folder=self._quoted,
            unit=self._unit,
            name=self._config.name,
            host=f"{HOST}={host.rpartition('@')[2]}",
            keeper=shlex.join([*command(self._placed.python, "keep", self.folder), *names, "--alone"]),
            patience=f"{CHECKPOINT_S + 10.0:.0f}",
        )

    def _keeper(self, verb: str, *names: str) -> str:
        line = shlex.join([*command(self._placed.python, verb, self.folder), *names])
        return f"cd {self._quoted} && {line}"

    def _noted(self) -> dict[str, str]:
        """The host of each process of the launched run."""
        hosts: dict[str, str] = read_notes(self._run).get("hosts", {})
        return hosts

    def _ssh(self, host: str, script: str, given: bytes | None = None) -> str:
        try:
            return call(["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", host, script], given)
        except LaunchError as error:
            remedy = "Check that `ssh HOST` works without a password, and placement.python."
            raise LaunchError(f"{host}: {error.message}", remedy) from error
