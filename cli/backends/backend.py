"""The interface of backends, which start the processes of a run elsewhere, and the files of a launched run.

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
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from distrl.cli.backends.roles import KEYS, Role, roles
from distrl.configs.schema import Config, NetworkConfig
from distrl.core.errors import ConfigError, DistrlError, MissingDependency, RunDirectoryError
from distrl.core.files import write_atomically, write_bytes_atomically
from distrl.core.importing import did_you_mean, import_object
from distrl.core.rendezvous import Meeting
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
BEGUN = "launch/begun"
"""A mark in the run directory that its learner was placed somewhere."""

_ROLES = TypeAdapter(list[Role])


class LaunchError(DistrlError):
    """A cluster or a host refused a command, or a launched process failed."""

    exit_code = 18


class ProcessState(Record):
    """A process of a launched run.

    Attributes:
        state: "lost" means that it ended without a report: its machine failed, or it was killed.
        where: The machine; empty before it has one.
        detail: One line, such as the last error or the reason for waiting.
    """

    name: str
    state: State
    where: str = ""
    detail: str = ""


class Backend(ABC):
    """Places the processes of one run.

    A backend is made anew for each command: what it must remember from `submit`, it keeps by `write_notes`.

    Attributes:
        folder: The run directory as the processes see it; the paths of their roles begin with it.
        interface: Where processes bind free ports.
        can_divide: The ranks of a learner may be on several nodes.
    """

    interface = "0.0.0.0"
    can_divide = False

    def __init__(self, config: Config, run: RunDir) -> None:
        self.config, self.run = config, run
        self.folder = run.path.resolve()

    def settings(self) -> dict[str, str]:
        """Values of the configuration by key: free ports, unless the user chose some, and the rendezvous."""
        bound = {f"network.{name}": f"tcp://{self.interface}:*" for name in default_addresses(self.config)}
        return {**bound, "network.rendezvous": f"file:{self.folder / 'launch' / 'learner.json'}"}

    @abstractmethod
    def submit(self, roles: Sequence[Role], dry_run: bool) -> list[str]:
        """Starts the roles, or queues them. Their configuration and keys are in the run directory by now.

        Returns:
            What it did, in lines for users. With `dry_run` it changes nothing, and the lines are the scripts
            and commands with which it would.

        Raises:
            MissingDependency: A program of the cluster is not installed.
            LaunchError: The cluster refused.
        """

    @abstractmethod
    def status(self) -> list[ProcessState]:
        """All processes, in the order of the roles. Errors as of `submit`."""

    def stop(self) -> None:
        """Asks all processes to stop, the learner after a checkpoint, and returns. Nothing is restarted."""
        end_run(self.folder, "stopped")

    def logs(self, name: str | None, lines: int, follow: bool) -> None:
        """Prints the last lines of a process's log, or of all; with `follow` goes on until Ctrl-C."""
        names = one_or_all(name, [role.name for role in read_roles(self.run.path)])
        files = [path for one in names if (path := self.run.logs / f"{one}.log").is_file()]
        if not files:
            raise LaunchError(f"There are no logs in {self.run.logs} yet.", "See `distrl launch status`.")
        show([tail(files, lines, follow)])

    def meeting(self, addresses: Mapping[str, str]) -> str:
        """The record of a learner at addresses that are known beforehand."""
        key = self.run.path / KEYS / "server.pub"
        return Meeting(**addresses, public=key.read_text().strip() if key.exists() else "").model_dump_json()


def make_backend(on: str, config: Config, run: RunDir) -> Backend:
    """The backend of this name for a run; ConfigError for an unknown one."""
    if on not in BACKENDS:
        known = ", ".join(BACKENDS)
        raise ConfigError(f"--on {on!r} is not one of {known}.", did_you_mean(on, BACKENDS).strip())
    backend: Backend = import_object(BACKENDS[on])(config, run)
    return backend


def default_addresses(config: Config) -> dict[str, str]:
    """By name the addresses in `network` that the user did not choose."""
    names = ("control", "broadcast", "weights", "act")
    found = {name: str(getattr(config.network, name)) for name in names}
    fields = NetworkConfig.model_fields
    return {name: address for name, address in found.items() if address == fields[name].default}


def plan_roles(config: Config, backend: Backend) -> list[Role]:
    """The roles of a run that `backend` is to start, with a key for each."""
    placed = config.placement
    if placed.learner.count > 1 and not backend.can_divide:
        raise ConfigError(
            f"placement.learner.count={placed.learner.count} works with --on ray only.",
            "Elsewhere start each rank by torchrun (docs/placement.md).",
        )
    is_appo = config.learner.algorithm.kind == "appo"
    num_servers = 0 if is_appo else placed.inference.count or config.num_servers
    given = placed.workers
    num_workers = given.count or min(max(config.local.workers, given.min or 0), given.max or 10**6)
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
    """Notes what is submitted, and to which backend; removes what keepers noted before."""
    folder = run.path / "launch"
    folder.mkdir(exist_ok=True)
    shutil.rmtree(folder / "state", ignore_errors=True)
    (folder / "over").unlink(missing_ok=True)
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


def read_files(run: RunDir, names: Iterable[str]) -> dict[str, bytes]:
    """Files of the run directory by their paths in it; a name may be that of a folder."""
    paths = [run.path / name for name in names]
    files = [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    return {file.relative_to(run.path).as_posix(): file.read_bytes() for file in files}


def state_file(folder: Path, name: str) -> Path:
    """Where the keeper of a process notes its state."""
    return folder / "launch" / "state" / f"{name}.json"


def read_state(folder: Path, name: str) -> ProcessState | None:
    """What the keeper of a process last noted; None if there was none yet."""
    with contextlib.suppress(OSError, ValidationError):
        return ProcessState.model_validate_json(state_file(folder, name).read_bytes())
    return None


def end_run(folder: Path, how: str) -> None:
    """Ends all keepers that see this run directory; `how` is "done", "failed" or "stopped"."""
    write_atomically(folder / "launch" / "over", how)


def read_ending(folder: Path) -> str:
    """How the run ended; empty if it did not."""
    with contextlib.suppress(OSError):
        return (folder / "launch" / "over").read_text(encoding="utf-8")
    return ""


def call(command: Sequence[str], given: bytes | None = None, timeout_s: float = 60.0) -> str:
    """The output of a command-line tool, which reads `given`.

    Raises:
        MissingDependency: It is not installed.
        LaunchError: It failed, or took longer than `timeout_s`.
    """
    try:
        done = subprocess.run(
            command, input=given or b"", capture_output=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError as error:
        raise _missing(command[0]) from error
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"{command[0]} did not answer within {timeout_s:g} s.") from error
    if done.returncode:
        words = " ".join(done.stderr.decode("utf-8", "replace").split()) or f"exit code {done.returncode}"
        raise LaunchError(f"{command[0]} failed: {words}")
    return done.stdout.decode("utf-8", "replace")


def show(commands: Sequence[Sequence[str]], at_once: bool = False) -> None:
    """Runs commands that print, one after the other or `at_once`, until they end or Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as running:
        for command in commands:
            try:
                process = running.enter_context(subprocess.Popen(command))  # waits for it at the end
            except FileNotFoundError as error:
                raise _missing(command[0]) from error
            if not at_once:
                process.wait()


def _missing(program: str) -> MissingDependency:
    problem = f"The program {program} is not installed here."
    return MissingDependency(problem, "Install it, or run this command where it is.")


def tail(files: Sequence[Path], lines: int, follow: bool) -> list[str]:
    """The command that prints the last lines of files; with `follow` also what is added to them."""
    return ["tail", "-n", str(lines), *(["-F"] if follow else []), *map(str, files)]


def one_or_all(name: str | None, names: Sequence[str]) -> list[str]:
    """The process of this name, or all without one; ConfigError for an unknown one."""
    if name is not None and name not in names:
        raise ConfigError(f"{name!r} is not a process of this run.", did_you_mean(name, names).strip())
    return list(names) if name is None else [name]
