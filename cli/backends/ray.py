"""`--on ray`: detached actors that supervise the processes of a run. No data goes through Ray.

    actor RUN/NAME      keeps the process NAME alive, on a node that has what it needs
       │ every second: state, log; of the learner also its addresses and metrics
       ▼ ▲ the learner's addresses; how the run ended
    actor RUN           places the others, scales the workers, answers `status` and `logs`

Ray restarts actors whose node is lost. The actor of a process writes the learner's addresses into the file
where the process looks for them. A learner on several nodes has an actor for each rank, in a placement group;
they meet on a port that rank 0's actor chose.

    RUN: ray's thread alone, which waits for nothing       RUN/NAME: the thread `keeper`, which waits for RUN
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from distrl.cli.backends.backend import (
    BEGUN,
    OVER,
    Backend,
    LaunchError,
    ProcessState,
    one_or_all,
    read_files,
    read_roles,
    state_file,
)
from distrl.cli.backends.keeper import LOOK_S, Keeper
from distrl.cli.backends.roles import Role
from distrl.cli.backends.roles import roles as roles_of
from distrl.cli.local.programs import free_port
from distrl.configs.schema import Config
from distrl.core.errors import DistrlError, MissingDependency
from distrl.core.files import write_bytes_atomically
from distrl.core.process import StopEvent
from distrl.core.rendezvous import HOST
from distrl.core.rundir import RunDir
from distrl.core.user_errors import user_error

NAMESPACE = "distrl"
LASTING = {"namespace": NAMESPACE, "lifetime": "detached", "max_restarts": -1}  # beyond command and node
LOST_S = 30.0  # how long a process may be silent before it counts as lost
SCALE_S = 60.0  # between two looks at the number of workers: what a change does to the metrics takes a while
ANSWER_S, CALL_S = 2.0, 30.0
TAIL_BYTES = 2**16
LOST = "its node was lost"
MISSING = (
    "The learner was placed on {host}, where {folder} is missing. Set placement.folder to a folder that all "
    'nodes share, or placement.learner.resources to {{"node:ADDRESS": 0.001}} for the node that has it.'
)
WAIT, WITHHELD = "time/wait_for_episodes", "scheduler/withheld"
LEARNER_WAITS = 0.1  # more of its time, and the learner is short of episodes


def num_wanted(
    now: int, least: int, most: int, before: Mapping[str, float], after: Mapping[str, float]
) -> int:
    """How many workers should follow `now`, by the learner's metrics at the last look and at this one.

    While the learner waits for episodes and `learner.max_staleness` lets every worker have its leases, a
    quarter more are added. While it does not wait, and leases are withheld because their episodes would be
    stale, one is removed. Where both are so, episodes are too long for the limit: more workers would idle.
    """
    if WAIT not in after:  # no update has been made yet
        return now
    is_short = after[WAIT] > LEARNER_WAITS
    is_withheld = after[WITHHELD] > before.get(WITHHELD, after[WITHHELD])
    if is_short and not is_withheld:
        now += max(1, now // 4)
    elif is_withheld and not is_short:
        now -= 1
    return min(max(now, least), most)


class Process(Keeper):
    """The actor that supervises one process of a run.

    Args:
        run: The name of the run's actor.
        folder: The run directory here. A relative path begins at the home directory.
        files: The role's files by their paths in the run directory.
        has_begun: The learner has begun elsewhere or before, so that its run directory has to be here.
    """

    def __init__(
        self, run: str, folder: Path, role: Role, files: Mapping[str, bytes], has_begun: bool
    ) -> None:
        import ray

        os.chdir(Path.home())
        os.environ[HOST] = ray.util.get_node_ip_address()
        super().__init__(folder, [role], StopEvent(), is_alone=False)
        self._ray, self._actor, self._role = ray, ray.get_actor(run, namespace=NAMESPACE), role
        self._is_first, self._position = role.name == "learner", 0
        # Of the learner: "meeting", where clients connect, and "ranks", where its ranks meet.
        self._found = {"ranks": f"{self._host} {free_port()}"} if self._is_first else dict[str, str]()
        has_begun |= ray.get_runtime_context().was_current_actor_reconstructed
        threading.Thread(target=self._keep, args=(files, has_begun), name="keeper", daemon=True).start()

    def _keep(self, files: Mapping[str, bytes], has_begun: bool) -> None:
        name = self._role.name
        try:
            self._work(files, has_begun)
        except (OSError, DistrlError) as error:  # such as a full disk, or a folder that cannot be written
            self._supervisor.stop()
            detail = str(user_error(error) or error)
            self._states[name] = ProcessState(name=name, state="failed", where=self._host, detail=detail)
        while self.ending() is None:
            time.sleep(LOOK_S)

    def _work(self, files: Mapping[str, bytes], has_begun: bool) -> None:
        folder, role = self._folder, self._role
        if self._is_first and has_begun and not _has_begun(folder):
            raise LaunchError(MISSING.format(host=self._host, folder=folder))
        for path in (state_file(folder, role.name), *(folder / name for name in files)):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, content in files.items():
            write_bytes_atomically(folder / name, content, mode=0o600)
        if self._is_first:
            (folder / BEGUN).touch()
        while role.kind == "learner" and "ranks" not in self._found and not self.ending():
            time.sleep(LOOK_S)
        given = self._found.get("ranks", "").split()
        os.environ.update(zip(("MASTER_ADDR", "MASTER_PORT"), given, strict=False))
        self.run()
        if role.name not in self._states or self._states[role.name].state not in OVER:
            # The run was over before the process could start.
            self._note(role.name, "done" if self.ending() == "done" else "stopped")

    def ending(self) -> str | None:
        """Reports to the run's actor; returns how the run ended, if it did, or None without an answer."""
        role, file, metrics = self._role, _meeting_file(self._folder, self._role), {}
        state = self._states.get(role.name) or ProcessState(name=role.name, state="queued", where=self._host)
        log, position = _read(self._folder / "logs" / f"{role.name}.log", self._position)
        if self._is_first:
            self._found["meeting"] = _read(file)[0].decode()
            metrics = _newest_metrics(self._folder / "metrics.jsonl")
        try:
            report = self._actor.report.remote(state, log, self._found, metrics)
            found, ending = self._ray.get(report, timeout=ANSWER_S)
        except self._ray.exceptions.RayError:  # its node is lost, and Ray looks for another
            return None
        self._position = position
        new = {key: value for key, value in found.items() if value != self._found.get(key)}
        if role.kind != "learner" and "meeting" in new:
            write_bytes_atomically(file, new["meeting"].encode(), mode=0o600)
        elif role.kind == "learner" and "ranks" in new and "ranks" in self._found:
            os._exit(1)  # rank 0 is on another node now: Ray starts this actor again
        self._found |= new
        return str(ending)


def _meeting_file(folder: Path, role: Role) -> Path:
    """The rendezvous of a process: where the learner publishes, and where others look for it."""
    return folder / "launch" / ("learner.json" if role.kind == "learner" else "meeting.json")


def _has_begun(folder: Path) -> bool:
    """Whether a learner has been here; other processes leave a run directory, too."""
    return (folder / BEGUN).exists() or RunDir(folder).store.exists()


def _read(path: Path, since: int = 0) -> tuple[bytes, int]:
    """What a file has after the position `since`, `TAIL_BYTES` at most; and the position of its end."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - TAIL_BYTES, since))
        return file.read(), file.tell()
    return b"", since


def _newest_metrics(file: Path) -> dict[str, float]:
    """What the number of workers goes by, from the newest update; empty before the first."""
    for line in reversed(_read(file)[0].splitlines()):
        with contextlib.suppress(ValueError, KeyError):
            row = json.loads(line)
            return {name: float(row[name]) for name in (WAIT, WITHHELD)}
    return {}


class Run:
    """The actor to which those of the processes report.

    Args:
        every: All processes that there may be, the workers last, with the files that they read.
        num: How many of them to start with.
        least: How many of them there are at least.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        every: Sequence[tuple[Role, Mapping[str, bytes]]],
        num: int,
        least: int,
        has_begun: bool,
    ) -> None:
        import ray

        self._ray, self._name, self._folder, self._least = ray, name, folder, least
        is_restarted = ray.get_runtime_context().was_current_actor_reconstructed
        self._has_begun = has_begun or is_restarted
        self._roles, self._num = {role.name: (role, files) for role, files in every}, 0
        self._states: dict[str, ProcessState] = {}
        self._actors: dict[str, Any] = {}
        self._heard_at: dict[str, float] = {}
        self._logs: dict[str, tuple[bytes, int]] = {}
        self._found, self._ending, self._scaled_by = dict[str, str](), "", dict[str, float]()
        self._scale_at = time.monotonic() + SCALE_S
        self._ranks = [name for name, (role, _) in self._roles.items() if role.kind == "learner"]
        self._group: Any = None  # of several ranks
        if not is_restarted:  # else those that run report soon, and a run that is over must not begin again
            self._resize(num)

    def report(
        self, state: ProcessState, log: bytes, found: dict[str, str], metrics: dict[str, float]
    ) -> tuple[dict[str, str], str]:
        """Takes what a process does; returns where the learner is, and how the run ended for this process."""
        name = state.name
        if name not in self._states:  # it was added before this actor was restarted
            self._resize(list(self._roles).index(name) + 1)
        text, length = self._logs.get(name, (b"", 0))
        self._logs[name] = (text + log)[-TAIL_BYTES:], length + len(log)
        self._states[name] = state
        if name == "learner":
            self._found = found
            if state.state not in OVER and time.monotonic() >= self._scale_at:
                self._scale_at = time.monotonic() + SCALE_S
                self._scale(metrics)
        if state.state in OVER:
            if name == "learner" or (name in self._ranks and state.state == "failed"):
                self._ending = self._ending or state.state
            self._release(name)
        ending = self._ending or ("stopped" if self._is_surplus(name) else "")
        # A process that stops is silent until its end.
        self._heard_at[name] = float("inf") if ending else time.monotonic()
        return self._found, ending

    def states(self) -> list[ProcessState]:
        """The states of all processes, in the order of the roles."""
        for name in list(self._actors):
            is_queued = name not in self._heard_at
            if is_queued or time.monotonic() - self._heard_at[name] > LOST_S:
                now = {} if is_queued else {"state": "restarting", "detail": LOST}
                if self._ending or self._is_surplus(name):  # no node has it, so that there is nothing to end
                    self._release(name)
                    now = {"state": "done" if self._ending == "done" else "stopped"}
                self._states[name] = self._states[name].model_copy(update=now)
        return [
            state
            for name, state in self._states.items()
            if name in self._actors or not self._is_surplus(name)
        ]

    def stop(self) -> None:
        """Asks all processes to stop."""
        self._ending = self._ending or "stopped"

    def log(self, name: str, since: int) -> tuple[bytes, int]:
        """What the log of a process has after `since`, `TAIL_BYTES` at most; and how long it is."""
        text, length = self._logs.get(name, (b"", 0))
        return text[max(0, len(text) - (length - since)) :], length

    def _is_surplus(self, name: str) -> bool:
        return list(self._roles).index(name) >= self._num

    def _release(self, name: str) -> None:
        """Gives back what Ray reserves for a process that is over; the ranks' after the last of them."""
        if (actor := self._actors.pop(name, None)) is not None:
            self._ray.kill(actor)
        if self._group is not None and self._actors.keys().isdisjoint(self._ranks):
            self._ray.util.remove_placement_group(self._group)

    def _scale(self, metrics: dict[str, float]) -> None:
        fixed = sum(role.kind != "worker" for role, _ in self._roles.values())
        now, least, most = (num - fixed for num in (self._num, self._least, len(self._roles)))
        wanted = fixed + num_wanted(now, least, most, self._scaled_by, metrics)
        self._scaled_by = metrics
        if not any(map(self._is_surplus, self._actors)):  # else some that were removed have not left yet
            self._resize(wanted)

    def _placement_group(self) -> Any:
        """Room for the ranks, on as few nodes as possible."""
        name, util = f"{self._name}/ranks", self._ray.util
        try:
            return util.get_placement_group(name)
        except ValueError:
            names = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
            reserved = [_reserved(self._roles[rank][0]) for rank in self._ranks]
            bundles = [{names[k]: one[k] for k in names if one.get(k)} | one["resources"] for one in reserved]
            return util.placement_group(bundles, "PACK", name, lifetime="detached")

    def _resize(self, wanted: int) -> None:
        for name in list(self._roles)[self._num : wanted]:
            role, files = self._roles[name]
            place: Any = "SPREAD" if role.kind == "worker" else "DEFAULT"
            if len(self._ranks) > 1 and name in self._ranks:
                self._group = self._group or self._placement_group()
                strategies = self._ray.util.scheduling_strategies
                place = strategies.PlacementGroupSchedulingStrategy(self._group, self._ranks.index(name))
            options = {
                "name": f"{self._name}/{name}",
                "get_if_exists": True,  # this actor may have been restarted
                "scheduling_strategy": place,
                **LASTING,
                **_reserved(role),
            }
            actor = self._ray.remote(Process).options(**options)
            self._actors[name] = actor.remote(self._name, self._folder, role, files, self._has_begun)
            self._states[name] = ProcessState(name=name, state="queued")
            self._heard_at.pop(name, None)
        self._num = wanted


def _reserved(role: Role) -> dict[str, Any]:
    """What Ray reserves for a process."""
    needs = role.needs
    found = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "resources": dict(needs.resources)}
    return {**found, **({"memory": int(needs.memory_gb * 2**30)} if needs.memory_gb else {})}


class RayBackend(Backend):
    """Actors of a Ray cluster."""

    can_divide = True

    def __init__(self, config: Config, run: RunDir) -> None:
        super().__init__(config, run)
        self.folder = Path(config.placement.folder) / run.path.name

    def settings(self) -> dict[str, str]:
        return {**super().settings(), "runs_dir": str(self.folder.parent)}

    def submit(self, roles: Sequence[Role], dry_run: bool) -> list[str]:
        name, roles = self.run.path.name, self._divided(roles)
        if dry_run:
            return [
                f"# actor {name}/{role.name} {_reserved(role)}\n"
                f"distrl {shlex.join(self._found(role).arguments)}"
                for role in roles
            ]
        ray = _connected()
        if (old := self._actor()) is not None:
            if any(one.state not in OVER for one in _answer(old.states.remote())):
                raise LaunchError(
                    f"A run named {name} is already on this Ray cluster.", "Choose another name."
                )
            self._remove(old)
        kinds = [role.kind for role in roles]
        num, bounds = kinds.count("worker"), self.config.placement.workers
        least = len(roles) - num + (num if bounds.min is None else min(num, bounds.min))
        counts = (kinds.count("inference"), max(num, bounds.max or 0))
        every = self._divided(roles_of(self.config, self.folder, self.settings(), *counts, has_keys=True))
        whole = [(self._found(role), read_files(self.run, role.files)) for role in every]
        given = (name, self.folder, whole, len(roles), least, _has_begun(self.run.path))
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=True
        )  # rather than on a node of workers, which may be lost more often
        options = {"name": name, "num_cpus": 0, "scheduling_strategy": here, **LASTING}
        _answer(ray.remote(Run).options(**options).remote(*given).states.remote())
        (self.run.path / BEGUN).touch()
        return [f"Ray starts {len(roles)} processes, each as soon as a node has what it needs."]

    def status(self) -> list[ProcessState]:
        actor = self._actor()
        found: list[ProcessState] = _answer(actor.states.remote()) if actor is not None else []
        detail = f"the Ray cluster has no process of {self.run.path.name}"
        names = [role.name for role in read_roles(self.run.path)]
        return found or [ProcessState(name=name, state="lost", detail=detail) for name in names]

    def stop(self) -> None:
        if (actor := self._actor()) is not None:
            _answer(actor.stop.remote())
            if all(one.state in OVER for one in self.status()):
                self._remove(actor)

    def logs(self, name: str | None, lines: int, follow: bool) -> None:
        names = one_or_all(name, [one.name for one in self.status()])
        actor, ends = self._actor(), dict.fromkeys(names, 0)
        with contextlib.suppress(KeyboardInterrupt):
            while actor is not None:
                for one, end in ends.items():
                    data, ends[one] = _answer(actor.log.remote(one, end))
                    text = data.decode("utf-8", "replace")
                    if not end:
                        text = "".join(text.splitlines(keepends=True)[-lines:]) if lines else ""
                    if text:
                        typer.echo(f"==> {one} <==\n{text}" if len(ends) > 1 else text, nl=False)
                if not follow:
                    return
                time.sleep(LOOK_S)

    def _actor(self) -> Any:
        """The run's actor; None if there is none."""
        try:
            return _connected().get_actor(self.run.path.name, namespace=NAMESPACE)
        except ValueError:
            return None

    def _remove(self, actor: Any) -> None:
        """Ends the run's actor, and waits until its name is free."""
        _connected().kill(actor)
        deadline = time.monotonic() + CALL_S
        while self._actor() is not None and time.monotonic() < deadline:
            time.sleep(0.1)

    def _divided(self, roles: Sequence[Role]) -> list[Role]:
        """The roles, with one for each rank of a learner of several."""
        size = self.config.placement.learner.count
        if size == 1:
            return list(roles)
        learner, *others = roles
        # A rank sees its own GPU only.
        envs = [{"RANK": str(i), "WORLD_SIZE": str(size), "LOCAL_RANK": "0"} for i in range(size)]
        bare = learner.needs.model_copy(update={"resources": {}})
        ranks = [learner.model_copy(update={"env": envs[0]})]
        for i in range(1, size):
            own = {"name": f"rank-{i}", "env": envs[i], "needs": bare, "files": ("config.yaml",)}
            ranks.append(learner.model_copy(update=own))
        return [*ranks, *others]

    def _found(self, role: Role) -> Role:
        """A role that looks for the learner's address where its actor writes it."""
        rendezvous = f"--set=network.rendezvous=file:{_meeting_file(self.folder, role)}"
        return role.model_copy(update={"arguments": (*role.arguments, rendezvous)})


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
