"""What starts the roles of a run elsewhere: the interface, its implementations, and a launched run's files.

    RUN/launch/backend.json   the backend's name, and its own notes, such as job numbers
              roles.json      what was submitted
              keys/           one key for each process; see `distrl keys`
              learner.json    the rendezvous, if it is a file
              state/NAME.json what the keeper of a process last noted (distrl.cli.backends.keeper)
              over            how the run ended, for all keepers

A backend places, restarts and stops processes. It carries no data: that stays on the processes' own sockets.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import TypeAdapter, ValidationError

from distrl.cli.backends.roles import KEYS, Role, roles
from distrl.configs.schema import Config, NetworkConfig
from distrl.core.errors import ConfigError, DistrlError, MissingDependency, RunDirectoryError
from distrl.core.files import write_atomically, write_bytes_atomically
from distrl.core.importing import did_you_mean, import_object
from distrl.core.rundir import RunDir
from distrl.core.security import add_client, create_keys, list_allowed
from distrl.core.types import Record

BACKENDS = {
    "local": "distrl.cli.backends.local:LocalBackend",
    "ssh": "distrl.cli.backends.ssh:SshBackend",
    "slurm": "distrl.cli.backends.slurm:SlurmBackend",
    "ray": "distrl.cli.backends.ray:RayBackend",
    "k8s": "distrl.cli.backends.k8s:K8sBackend",
}

State = Literal["queued", "running", "restarting", "done", "failed", "stopped", "lost"]
HEALTHY = frozenset({"queued", "running", "restarting", "done"})
OVER = frozenset({"done", "failed", "stopped", "lost"})
_ROLES = TypeAdapter(list[Role])


class LaunchError(DistrlError):
    """A cluster or a host refused a command, or a launched process failed."""

    exit_code = 18


class ProcessState(Record):
    """A process of a launched run.

    Attributes:
        state: "lost" is one that is gone without a word: its machine failed, or it was killed.
        where: The machine; empty as long as there is none.
        detail: One line, such as the last error or why it waits.
    """

    name: str
    state: State
    where: str = ""
    detail: str = ""


class Backend(Protocol):
    """Places the processes of one run.

    A backend is made anew for each command: what it must remember from `submit`, it keeps by `write_notes`.
    """

    folder: Path
    """The run directory as the processes see it; the paths of their roles begin with it."""

    def __init__(self, config: Config, run: RunDir) -> None: ...

    def settings(self) -> dict[str, str]:
        """The addresses of the processes: values of the configuration by key, see `addresses`."""
        ...

    def submit(self, roles: Sequence[Role], dry_run: bool) -> list[str]:
        """Starts the roles, or queues them. Their configuration and keys are in the run directory by now.

        Returns:
            What it did, in lines for users. With `dry_run` it changes nothing, and the lines are the scripts
            and commands with which it would.

        Raises:
            MissingDependency: A program of the cluster is not installed.
            LaunchError: The cluster refused.
        """
        ...

    def status(self) -> list[ProcessState]:
        """All processes, in the order of the roles. Errors as of `submit`."""
        ...

    def stop(self) -> None:
        """Asks all processes to stop, the learner after a checkpoint, and returns. Nothing is restarted."""
        ...

    def logs(self, name: str | None, lines: int, follow: bool) -> None:
        """Prints the last lines of a process's log, or of all; with `follow` goes on until Ctrl-C."""
        ...


def make_backend(on: str, config: Config, run: RunDir) -> Backend:
    """The backend of this name for a run; ConfigError for an unknown one."""
    if on not in BACKENDS:
        known = ", ".join(BACKENDS)
        raise ConfigError(f"--on {on!r} is not one of {known}.", did_you_mean(on, BACKENDS).strip())
    backend: Backend = import_object(BACKENDS[on])(config, run)
    return backend


def addresses(network: NetworkConfig, host: str, rendezvous: str) -> dict[str, str]:
    """Settings by which the processes bind free ports of `host` and find the learner at a rendezvous.

    Addresses that the user chose stay.
    """
    free = {}
    for name in ("control", "broadcast", "weights", "act"):
        if getattr(network, name) == NetworkConfig.model_fields[name].default:
            free[f"network.{name}"] = f"tcp://{host}:*"
    return {**free, "network.rendezvous": rendezvous}


def plan_roles(config: Config, backend: Backend) -> list[Role]:
    """The roles of a run that `backend` is to start, with a key for each."""
    placed = config.placement
    is_appo = config.learner.algorithm.kind == "appo"
    num_servers = 0 if is_appo else placed.inference.count or config.num_servers
    num_workers = placed.workers.count or config.local.workers
    return roles(config, backend.folder, backend.settings(), num_servers, num_workers, has_keys=True)


def make_keys(config: Config, run: RunDir, wanted: Sequence[Role]) -> None:
    """Makes a key for each process, and for as many workers as a cluster may add; existing ones stay."""
    from distrl.core.sockets import new_keypair

    folder = run.path / KEYS
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        create_keys(folder, server=new_keypair(), client=new_keypair())
    names: dict[str, str] = {role.name: role.kind for role in wanted if role.kind != "learner"}
    names |= {f"worker-{i}": "worker" for i in range(config.placement.workers.max or 0)}
    for name in names.keys() - list_allowed(folder).keys():
        add_client(folder, name, new_keypair(), [names[name]])


def write_launch(run: RunDir, on: str, wanted: Sequence[Role]) -> None:
    """Notes what is submitted, and to which backend; what the keepers noted before is forgotten."""
    folder = run.path / "launch"
    folder.mkdir(exist_ok=True)
    shutil.rmtree(folder / "state", ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        (folder / "over").unlink()
    write_bytes_atomically(folder / "roles.json", dump_roles(wanted))
    write_atomically(folder / "backend.json", json.dumps({"on": on}) + "\n")


def dump_roles(wanted: Sequence[Role]) -> bytes:
    """What `read_roles` reads."""
    return _ROLES.dump_json(list(wanted), indent=1)


def read_roles(folder: Path) -> list[Role]:
    """What was submitted for the run directory `folder`; RunDirectoryError if nothing was."""
    try:
        return _ROLES.validate_json((folder / "launch" / "roles.json").read_bytes())
    except (OSError, ValidationError) as error:
        raise RunDirectoryError(
            f"{folder} was not started by `distrl launch`.", "Start it with `distrl launch CONFIG --on …`."
        ) from error


def read_notes(run: RunDir) -> dict[str, Any]:
    """The backend's name as "on", and its own notes."""
    read_roles(run.path)
    notes: dict[str, Any] = json.loads((run.path / "launch" / "backend.json").read_text(encoding="utf-8"))
    return notes


def write_notes(run: RunDir, **notes: Any) -> None:
    """Adds to the backend's notes."""
    text = json.dumps({**read_notes(run), **notes}) + "\n"
    write_atomically(run.path / "launch" / "backend.json", text)


def call(command: Sequence[str], given: bytes | None = None, timeout_s: float = 60.0) -> str:
    """The output of a command-line tool, which reads `given`.

    Raises:
        MissingDependency: It is not installed.
        LaunchError: It failed, or took longer than `timeout_s`.
    """
    check_program(command[0])
    try:
        done = subprocess.run(
            command, input=given or b"", capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"{command[0]} did not answer within {timeout_s:g} s.") from error
    if done.returncode:
        words = " ".join(done.stderr.decode("utf-8", "replace").split()) or f"exit code {done.returncode}"
        raise LaunchError(f"{command[0]} failed: {words}")
    return done.stdout.decode("utf-8", "replace")


def check_program(name: str) -> None:
    """Raises MissingDependency if a command-line tool is not on the PATH."""
    if shutil.which(name) is None:
        raise MissingDependency(
            f"The program {name} is not installed here.", "Install it, or run this command where it is."
        )


def show_files(files: Sequence[Path], lines: int, follow: bool) -> None:
    """Prints the last lines of files with `tail`; with `follow` as they grow, until Ctrl-C."""
    more = ["-F"] if follow else []
    header = ["-v"] if len(files) > 1 else []
    with contextlib.suppress(KeyboardInterrupt):
        subprocess.run(["tail", "-n", str(lines), *more, *header, *map(str, files)], check=False)


def check_process(run: RunDir, name: str | None) -> list[str]:
    """The names of the launched processes; ConfigError if `name` is not one of them."""
    names = [role.name for role in read_roles(run.path)]
    if name is not None and name not in names:
        raise ConfigError(f"{name!r} is not a process of {run.path}.", did_you_mean(name, names).strip())
    return names


def log_files(run: RunDir, name: str | None) -> list[Path]:
    """The log of a process in the run directory, or all that there are; ConfigError for an unknown name."""
    names = check_process(run, name)
    found = [run.logs / f"{one}.log" for one in ([name] if name is not None else names)]
    there = [path for path in found if path.is_file()]
    if not there:
        raise LaunchError(f"There are no logs in {run.logs} yet.", "See `distrl launch status`.")
    return there
