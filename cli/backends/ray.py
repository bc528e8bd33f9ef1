"""`--on ray`: detached actors that supervise the processes of a run. No data goes through Ray.

    actor RUN           the manager: places the others, scales the workers, ends all when the learner is done
       │ beat: where the learner is ▼ ▲ state; the learner's: its address, its metrics
    actor RUN/NAME      supervises the process NAME on the node that has what it needs

The manager is the rendezvous: it passes on what the learner publishes in a file on its node, and each actor
writes that into the file on its own node where its process looks. Ray restarts actors whose node is lost.

    manager: `run` (the loop)   ray's threads: `states`, `stop`, `log`
    process: `keeper` (Keeper)  ray's thread: `beat`, `stop`, `log`
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from distrl.cli.backends.backend import (
    BEGUN,
    OVER,
    Backend,
    LaunchError,
    ProcessState,
    dump_roles,
    one_or_all,
    read_files,
    read_roles,
    read_state,
)
from distrl.cli.backends.keeper import LEAVE_S, Keeper
from distrl.cli.backends.roles import Role
from distrl.cli.backends.roles import roles as roles_of
from distrl.configs.schema import Config
from distrl.core.errors import MissingDependency
from distrl.core.files import write_bytes_atomically
from distrl.core.process import StopEvent
from distrl.core.rendezvous import HOST
from distrl.core.rundir import RunDir

NAMESPACE = "distrl"
BEAT_S = 1.0
SCALE_S = 60.0
"""From one look at the number of workers to the next: what a change does to the metrics takes a while."""

CALL_S = 30.0
TAIL_BYTES = 2**16
LOST = "its node was lost"


WAIT = "time/wait_for_episodes"
WITHHELD = "scheduler/withheld"
LEARNER_WAITS = 0.1
"""The share of its time that the learner may wait for episodes before it counts as short of them."""


@dataclass(frozen=True)
class Scaling:
    """Keeps between `least` and `most` workers.

    While the learner waits for episodes and `learner.max_staleness` lets every worker have its leases, a
    quarter more are added. While it does not wait, and leases are withheld because their episodes would be
    stale, one is removed. Where both are so, episodes are too long for the limit: more workers would idle.
    """

    least: int
    most: int

    def wanted(self, now: int, before: Mapping[str, float], after: Mapping[str, float]) -> int:
        """The number that should follow `now` workers, by the learner's metrics at the last look and now."""
        if WAIT not in after:  # no update has been made yet
            return now
        is_short = after[WAIT] > LEARNER_WAITS
        is_withheld = after[WITHHELD] > before.get(WITHHELD, after[WITHHELD])
        if is_short and not is_withheld:
            now += max(1, now // 4)
        elif is_withheld and not is_short:
            now -= 1
        return min(max(now, self.least), self.most)


class Process:
    """The actor that supervises one process of a run.

    Args:
        folder: The run directory here. A relative path begins at the home directory.
        files: The role's files by their paths in the run directory.
        has_begun: The learner has begun elsewhere or before, so that its run directory has to be here.
    """

    def __init__(self, folder: Path, role: Role, files: Mapping[str, bytes], has_begun: bool) -> None:
        import ray

        os.chdir(Path.home())
        os.environ[HOST] = host = ray.util.get_node_ip_address()
        self._folder, self._role, self._stop = folder, role, StopEvent()
        self._meeting, self._told = _meeting_file(folder, role), b""
        has_begun |= ray.get_runtime_context().was_current_actor_reconstructed
        if role.kind == "learner" and has_begun and not _has_begun(folder):
            raise LaunchError(
                f"The learner was placed on {host}, where {folder} is missing.",
                "Set placement.folder to a folder that all nodes share, or placement.learner.resources to "
                '{"node:ADDRESS": 0.001} for the node that has it.',
            )
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_bytes_atomically(path, content, mode=0o600)
        state = folder / "launch" / "state" / f"{role.name}.json"
        for stale in (state, self._meeting, folder / "launch" / "over"):
            stale.parent.mkdir(exist_ok=True)
            stale.unlink(missing_ok=True)
        if role.kind == "learner":
            (folder / BEGUN).touch()
        keeper = Keeper(folder, [role.name], self._stop, is_alone=False)
        threading.Thread(target=keeper.run, name="keeper", daemon=True).start()

    def beat(self, meeting: bytes) -> tuple[ProcessState | None, bytes, dict[str, float]]:
        """Takes the learner's address; returns the state, and of a learner its address and metrics."""
        state = read_state(self._folder, self._role.name)
        if self._role.kind == "learner":
            with contextlib.suppress(FileNotFoundError):
                meeting = self._meeting.read_bytes()
            return state, meeting, _newest_metrics(self._folder / "metrics.jsonl")
        if meeting != self._told:
            write_bytes_atomically(self._meeting, meeting, mode=0o600)
            self._told = meeting
        return state, b"", {}

    def stop(self) -> None:
        """Asks the process to stop; its state says when it has."""
        self._stop.set()

    def log(self, since: int) -> tuple[str, int]:
        """What the log has after the position `since`, `TAIL_BYTES` at most; and the position of its end."""
        with (self._folder / "logs" / f"{self._role.name}.log").open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - TAIL_BYTES, since))
            return file.read(end - file.tell()).decode("utf-8", "replace"), end


def _meeting_file(folder: Path, role: Role) -> Path:
    """The rendezvous of a process: where the learner publishes, and where others look for it."""
    return folder / "launch" / ("learner.json" if role.kind == "learner" else "meeting.json")


def _has_begun(folder: Path) -> bool:
    """Whether a learner has been here; other processes leave a run directory, too."""
    return (folder / BEGUN).exists() or RunDir(folder).store.exists()


def _newest_metrics(file: Path) -> dict[str, float]:
    """What `Scaling` goes by, from the newest update; empty before the first."""
    with contextlib.suppress(OSError), file.open("rb") as rows:
        rows.seek(max(0, rows.seek(0, os.SEEK_END) - TAIL_BYTES))
        for line in reversed(rows.read().splitlines()):
            with contextlib.suppress(ValueError, KeyError):
                row = json.loads(line)
                return {name: float(row[name]) for name in (WAIT, WITHHELD)}
    return {}


class Manager:
    """The actor that looks after those of the processes.

    Args:
        every: The roles of all processes that there may be; the workers last.
        num: How many of them to start with.
        files: What they read, by path in the run directory.
    """

    def __init__(
        self,
        run: str,
        folder: Path,
        every: Sequence[Role],
        num: int,
        files: Mapping[str, bytes],
        scaling: Scaling,
        has_begun: bool,
    ) -> None:
        import ray

        self._ray = ray
        self._run_name, self._folder, self._files, self._scaling = run, folder, files, scaling
        self._has_begun, self._roles, self._num = has_begun, {role.name: role for role in every}, num
        self._states: dict[str, ProcessState] = {}
        self._processes: dict[str, Any] = {}
        self._beats: dict[str, Any] = {}
        self._logs: dict[str, tuple[str, int]] = {}
        self._meeting, self._metrics, self._scaled_by = b"", dict[str, float](), dict[str, float]()
        self._stop, self._leave_at = threading.Event(), float("inf")
        self._scale_at = time.monotonic() + SCALE_S
        threading.Thread(target=self._run, name="run", daemon=True).start()

    def states(self) -> list[ProcessState]:
        """The states of all processes, in the order of the roles."""
        return list(self._states.values())

    def stop(self) -> None:
        """Asks all processes to stop."""
        self._stop.set()

    def log(self, name: str, since: int) -> tuple[str, int]:
        """As `Process.log`; of a process that is over, what its log ended with."""
        if (process := self._processes.get(name)) is not None:
            with contextlib.suppress(self._ray.exceptions.RayError):
                found: tuple[str, int] = self._ray.get(process.log.remote(since), timeout=BEAT_S)
                return found
        text, end = self._logs.get(name, ("", since))
        return ("" if since >= end else text), end

    def _run(self) -> None:
        if self._ray.get_runtime_context().was_current_actor_reconstructed:
            self._has_begun = True
            there = {one["name"] for one in self._ray.util.list_named_actors(all_namespaces=True)}
            found = [i for i, name in enumerate(self._roles, 1) if f"{self._run_name}/{name}" in there]
            self._num = max([self._num, *found])
        names = list(self._roles)[: self._num]
        self._states = {name: ProcessState(name=name, state="queued") for name in names}
        for name in names:
            self._place(self._roles[name])
        while self._processes:
            self._beat()
            if self._stop.is_set() or time.monotonic() > self._leave_at:
                self._end(list(self._processes))
            elif time.monotonic() >= self._scale_at:
                self._scale_at = time.monotonic() + SCALE_S
                self._scale()

    def _place(self, role: Role) -> None:
        own = tuple(f"{name}/" for name in ("launch/roles.json", *role.files))  # some are folders
        files = {name: text for name, text in self._files.items() if f"{name}/".startswith(own)}
        options = {
            "name": f"{self._run_name}/{role.name}",
            "get_if_exists": True,  # this manager may have been restarted
            "max_concurrency": 2,
            "scheduling_strategy": "SPREAD" if role.kind == "worker" else "DEFAULT",
            **_LASTING,
            **_reserved(role),
        }
        actor = self._ray.remote(Process).options(**options)
        self._processes[role.name] = actor.remote(self._folder, role, files, self._has_begun)

    def _beat(self) -> None:
        for name, process in self._processes.items():
            if name not in self._beats:
                self._beats[name] = process.beat.remote(self._meeting)
        pending = list(self._beats.values())
        time.sleep(BEAT_S)
        answered, _ = self._ray.wait(pending, num_returns=len(pending), timeout=0.0)
        for name in [name for name, beat in self._beats.items() if beat in answered]:
            self._take(name, self._beats.pop(name))

    def _take(self, name: str, beat: Any) -> None:
        before, role = self._states[name], self._roles[name]
        try:
            state, meeting, metrics = self._ray.get(beat)
        except self._ray.exceptions.ActorDiedError as error:
            words = [line for line in str(error).splitlines() if line.strip()]
            state = before.model_copy(update={"state": "failed", "detail": words[-1].strip()})
        except self._ray.exceptions.RayError:  # its node is lost, and Ray looks for another
            state = before.model_copy(update={"state": "restarting", "detail": LOST})
        else:
            if role.kind == "learner":
                self._meeting, self._metrics = meeting, metrics or self._metrics
        self._states[name] = state = state or before
        if state.state not in OVER:
            return
        self._logs[name] = self.log(name, 0)
        self._ray.kill(self._processes.pop(name))
        if role.kind == "learner":
            self._leave_at = time.monotonic() + (LEAVE_S if state.state == "done" else 0.0)
        elif role.kind == "worker" and list(self._roles).index(name) >= self._num:
            del self._states[name]  # it is not missed

    def _end(self, names: Sequence[str]) -> None:
        """Ends processes; those that no node has taken have nothing to end."""
        for name in names:
            if self._states[name].state == "queued" or self._states[name].detail == LOST:
                self._states[name] = self._states[name].model_copy(update={"state": "stopped"})
                self._beats.pop(name, None)
                self._ray.kill(self._processes.pop(name))
            else:
                self._processes[name].stop.remote()

    def _scale(self) -> None:
        fixed = sum(role.kind != "worker" for role in self._roles.values())
        wanted = fixed + self._scaling.wanted(self._num - fixed, self._scaled_by, self._metrics)
        self._scaled_by, names = self._metrics, list(self._roles)
        if any(name in self._processes for name in names[self._num :]):
            return  # some that were removed have not left yet
        for name in names[self._num : wanted]:
            self._states[name] = ProcessState(name=name, state="queued")
            self._place(self._roles[name])
        removed, self._num = names[wanted : self._num], wanted
        self._end([name for name in removed if name in self._processes])
        for name in removed:
            if name not in self._processes:
                del self._states[name]


_LASTING = {"namespace": NAMESPACE, "lifetime": "detached", "max_restarts": -1}
"""Options of actors that outlive the command which made them, and the loss of their node."""


def _reserved(role: Role) -> dict[str, Any]:
    """What Ray reserves for a process."""
    needs = role.needs
    found = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "resources": dict(needs.resources)}
    return {**found, **({"memory": int(needs.memory_gb * 2**30)} if needs.memory_gb else {})}


class RayBackend(Backend):
    """Actors of a Ray cluster."""

    def __init__(self, config: Config, run: RunDir) -> None:
        super().__init__(config, run)
        self.folder = Path(config.placement.folder) / run.path.name

    def settings(self) -> dict[str, str]:
        return {**super().settings(), "runs_dir": str(self.folder.parent)}

    def submit(self, roles: Sequence[Role], dry_run: bool) -> list[str]:
        name = self.run.path.name
        if dry_run:
            return [
                f"# actor {name}/{role.name} {_reserved(role)}\n"
                f"distrl {shlex.join(_found(self.folder, role))}"
                for role in roles
            ]
        ray = _connected()
        with contextlib.suppress(ValueError):  # there is none
            old = ray.get_actor(name, namespace=NAMESPACE)
            if any(one.state not in OVER for one in _answer(old.states.remote())):
                raise LaunchError(f"A run of the name {name} is on this Ray cluster.", "Choose another name.")
            _remove(old, name)
        kinds = [role.kind for role in roles]
        num, bounds = kinds.count("worker"), self.config.placement.workers
        scaling = Scaling(bounds.min if bounds.min is not None else num, bounds.max or num)
        counts = (kinds.count("inference"), max(num, scaling.most))
        every = roles_of(self.config, self.folder, self.settings(), *counts, has_keys=True)
        every = [role.model_copy(update={"arguments": _found(self.folder, role)}) for role in every]
        has_begun = _has_begun(self.run.path)
        files = read_files(self.run, {name for role in every for name in role.files})
        files["launch/roles.json"] = dump_roles(every)
        given = (name, self.folder, every, len(roles), files, scaling, has_begun)
        options = {"name": name, "num_cpus": 0, "max_concurrency": 8, **_LASTING}
        _answer(ray.remote(Manager).options(**options).remote(*given).states.remote())
        (self.run.path / BEGUN).touch()
        return [f"Ray starts {len(roles)} processes, each as soon as a node has what it needs."]

    def status(self) -> list[ProcessState]:
        try:
            found: list[ProcessState] = _answer(self._manager().states.remote())
        except ValueError:
            detail = f"the Ray cluster has no actor {self.run.path.name}"
            names = [role.name for role in read_roles(self.run.path)]
            return [ProcessState(name=name, state="lost", detail=detail) for name in names]
        return found

    def stop(self) -> None:
        with contextlib.suppress(ValueError):
            manager = self._manager()
            if all(one.state in OVER for one in _answer(manager.states.remote())):
                return _remove(manager, self.run.path.name)
            _answer(manager.stop.remote())

    def logs(self, name: str | None, lines: int, follow: bool) -> None:
        names = one_or_all(name, [one.name for one in self.status()])
        manager, ends = self._manager(), dict.fromkeys(names, 0)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                for one, end in ends.items():
                    text, ends[one] = _answer(manager.log.remote(one, end))
                    if not end:
                        text = "".join(text.splitlines(keepends=True)[-lines:]) if lines else ""
                    if text:
                        typer.echo(f"==> {one} <==\n{text}" if len(ends) > 1 else text, nl=False)
                if not follow:
                    return
                time.sleep(BEAT_S)

    def _manager(self) -> Any:
        """The actor; ValueError if there is none."""
        return _connected().get_actor(self.run.path.name, namespace=NAMESPACE)


def _found(folder: Path, role: Role) -> tuple[str, ...]:
    """The arguments of a process, with where its actor tells it the learner's address."""
    return (*role.arguments, f"--set=network.rendezvous=file:{_meeting_file(folder, role)}")


def _remove(manager: Any, name: str) -> None:
    """Ends an actor, and waits until its name is free."""
    import ray

    ray.kill(manager)
    deadline = time.monotonic() + CALL_S
    with contextlib.suppress(ValueError):
        while time.monotonic() < deadline:
            ray.get_actor(name, namespace=NAMESPACE)
            time.sleep(0.1)


def _connected() -> Any:
    """The module ray, connected to the cluster of RAY_ADDRESS or of this node.

    Raises:
        MissingDependency: It is not installed.
        LaunchError: There is no cluster.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingDependency(
            "--on ray needs the package ray.", "Install it: pip install 'distrl[ray]'."
        ) from error
    if not ray.is_initialized():
        try:
            ray.init("auto", namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
        except ConnectionError as error:
            raise LaunchError(
                "No Ray cluster can be reached.",
                "Set RAY_ADDRESS, or run this command on a node of the cluster.",
            ) from error
    return ray


def _answer(call: Any) -> Any:
    """What an actor answers; LaunchError if it does not."""
    import ray

    try:
        return ray.get(call, timeout=CALL_S)
    except ray.exceptions.RayError as error:
        words = " ".join(str(error).split()) or "the call took too long"
        raise LaunchError(f"The Ray actor of the run did not answer: {words}", "See `ray status`.") from error
