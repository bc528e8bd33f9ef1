"""A run on this machine from start to report: children in, result out.

    main thread ── Supervisor.check ──► learner, inference servers, workers (processes)
        │    └──── LearnerWatch.poll ◄── broadcast
        └── then ──► evaluate before, evaluate after (processes, at the same time unless they need a pool of
                     devices, or a GPU) ──► report

One thread. It waits in `LearnerWatch.poll` for at most `TICK_S`; a signal ends all within that plus the
learner's patience, `roles.CHECKPOINT_S`. A second signal ends this process at once, and that its children.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from distrl.cli.backends.roles import Role, allocator, distrl, environment, roles
from distrl.cli.local import gpus, programs
from distrl.cli.local.progress import Progress, clock
from distrl.configs.policy import PretrainedConfig
from distrl.configs.schema import Config, NetworkConfig
from distrl.core.checkpoints import pointed, resolve, step_of
from distrl.core.errors import DistrlError, ProtocolError, StoreError
from distrl.core.messages import Shutdown, Status
from distrl.core.process import Child, stop_all
from distrl.core.prometheus import show
from distrl.core.rundir import RunDir
from distrl.core.security import load_security
from distrl.core.sockets import Wire
from distrl.core.store import TrajectoryStore
from distrl.core.supervisor import Program, ProgramFailed, Supervisor
from distrl.core.terminal import Console
from distrl.evaluator.progress import read_counts
from distrl.evaluator.run_state import arms, is_complete
from distrl.workers.spool import Spool

TICK_S = 0.2
LEAVE_S = 10.0
"""How long workers and servers have when the run is over: a worker may be waiting for its last acks."""

STOPPING = "Stopping: the learner finishes its update and writes a checkpoint"
AT_ONCE = "Press Ctrl-C again to stop immediately."


class LearnerWatch:
    """Receives broadcasts; the learner repeats its status every second, so a missed one does not matter."""

    def __init__(self, network: NetworkConfig) -> None:
        self.status: Status | None = None
        self.is_over = False
        self._wire = Wire(load_security(network.keys_path, network.key_name))
        self._channel = self._wire.connect_sub(network.broadcast)

    def poll(self, timeout_s: float) -> None:
        """Takes what has arrived; waits up to `timeout_s` for the first message."""
        while True:
            with contextlib.suppress(ProtocolError):  # not a message: another program has that port
                received = self._channel.recv(timeout_s)
                if received is None:
                    return
                if isinstance(received.message, Status):
                    self.status = received.message
                    self.is_over |= received.message.phase == "done"
                self.is_over |= isinstance(received.message, Shutdown)
            timeout_s = 0.0

    def __enter__(self) -> LearnerWatch:
        return self

    def __exit__(self, *exc: object) -> None:
        self._channel.close()
        self._wire.close()


class LocalRun:
    """Trains and evaluates `config` at the addresses `network`, until `stop` is set."""

    def __init__(
        self, config: Config, network: NetworkConfig, run: RunDir, stop: threading.Event, console: Console
    ) -> None:
        self.config, self._run, self._stop = config, run, stop
        self._network, self._gpus = network, gpus.visible()
        self._supervisor = Supervisor(run.logs, environment())
        self._started_at = time.monotonic()
        self._progress = Progress(config, console)
        self._latest = pointed(run.checkpoints, "latest") or ""

    def train(self) -> bool:
        """Runs all roles until the learner is done. Returns False if it was stopped before."""
        config, settings = self.config, programs.assignments(self._network)
        learner, *others = roles(config, self._run.path, settings, config.num_servers, config.local.workers)
        is_on_cpu = config.learner.device == "cpu" or not self._gpus
        places = gpus.for_training(self.config, self._gpus)
        if places:
            self._progress.note(gpus.described(places))

        def seen(role: Role) -> dict[str, str]:
            return gpus.variables(places.get(role.name, ()))

        try:
            with self._progress, LearnerWatch(self._network) as watch:
                show(lambda: watch.status.metrics if watch.status is not None else {})
                self._supervisor.start(learner.program(seen(learner) | (allocator() if is_on_cpu else {})))
                for role in others:
                    self._supervisor.start(role.program(seen(role), ends=False))
                while not self._stop.is_set():
                    watch.poll(TICK_S)
                    # Those that leave because the run is over are not to be replaced.
                    self._supervisor.closing = watch.is_over
                    self._check()
                    self._note_fall_back()
                    self._progress.show(watch.status, len(self._supervisor.pids()), self._supervisor.restarts)
                    if self._supervisor.is_done(learner.name):
                        self._let_leave()
                        return True
            return False
        finally:
            show(dict)  # the last metrics would look as if the run went on
            try:
                if learner.name in self._supervisor.pids():
                    self._progress.note(f"{STOPPING}. {AT_ONCE}" if self._stop.is_set() else f"{STOPPING}.")
            finally:  # whoever read the output may have left
                self._supervisor.stop()

    def _note_fall_back(self) -> None:
        """Reports that the learner resumes from an older checkpoint than the newest, which is not whole."""
        before, self._latest = self._latest, pointed(self._run.checkpoints, "latest") or ""
        if (step_of(self._latest) or 0) < (step_of(before) or 0):
            log = self._run.logs / "learner.log"
            self._progress.note(f"{before} is missing or damaged: resuming from {self._latest}. See {log}.")

    def _let_leave(self) -> None:
        """Waits until workers and servers, which know that the run is over, are gone."""
        self._supervisor.closing = True
        deadline = time.monotonic() + LEAVE_S
        while self._supervisor.pids() and time.monotonic() < deadline and not self._stop.wait(TICK_S):
            self._check()

    def train_and_measure(self) -> dict[str, Path] | None:
        """`train` unless that is done, then `evaluate`, if there are environments here. None if stopped."""
        if not is_complete(self._run, self.config) and not self.train():
            return None
        return self.evaluate() if self.config.local.workers else {}

    def evaluate(self) -> dict[str, Path] | None:
        """Measures the warm start and the result on the test splits, each in a process of its own.

        Returns the evaluations' directories by label, the warm start first; None if it was stopped.
        """
        wanted: list[tuple[Program, str]] = []
        results: dict[str, Path] = {}
        for label, checkpoint in arms(self._run, self.config).items():
            path = resolve(self._run.checkpoints, checkpoint)
            program, results[label] = programs.evaluation(self.config, self._run, path)
            wanted.append((program, f"{path.name} ({label})"))
        # On the same devices or in a GPU's memory they would be in each other's way.
        take_turns = bool(self.config.devices.pool) or isinstance(self.config.policy, PretrainedConfig)
        started: list[str] = []
        self._supervisor.closing = False
        try:
            with self._progress:
                for program, said in wanted:
                    if take_turns and not self._wait_for(started, len(wanted)):
                        return None
                    self._progress.note(f"evaluating {said}")
                    self._supervisor.start(program)
                    started.append(program.name)
                return results if self._wait_for(started, len(wanted)) else None
        finally:
            self._supervisor.stop()

    def _wait_for(self, names: Sequence[str], num: int) -> bool:
        """Waits until these of `num` evaluations are done. False if the run was stopped before."""
        while not all(self._supervisor.is_done(name) for name in names):
            if self._stop.wait(TICK_S):
                return False
            self._check()
            counts = {name: read_counts(self._run.logs / f"{name}.log") for name in names}
            known = {name.removeprefix("evaluate-"): one for name, one in counts.items() if one is not None}
            self._progress.show_evaluations(known, num)
        return True

    def elapsed(self) -> str:
        """How long all of it took so far."""
        return clock(time.monotonic() - self._started_at)

    def _check(self) -> None:
        for death in self._supervisor.check():
            if not self._supervisor.closing:
                code = death.exit_code
                cause = f"signal {-code}" if code < 0 else f"exit code {code}"
                self._progress.note(f"{death.name} died ({cause}), replaced in {death.restart_in_s:g} s")


@contextlib.contextmanager
def followed(run: RunDir, console: Console, ui: bool) -> Iterator[None]:
    """Prints how to follow the run; with `ui` serves its dashboard as long as the block lasts.

    If the dashboard ends, the run goes on without it.
    """
    if not ui:
        console.print(f"Dashboard: distrl dashboard {run.path}", soft_wrap=True)
        yield
        return
    port = programs.free_port()
    command = distrl("dashboard", str(run.path), "--http", str(port))
    child = Child("dashboard", command, run.logs / "dashboard.log", environment())
    console.print(f"Dashboard: http://127.0.0.1:{port}/", soft_wrap=True)
    try:
        yield
    finally:
        stop_all([(child, Program.patience_s)])


def unmake(run: RunDir, error: DistrlError) -> None:
    """Removes the directory of a run that `error` ended before anything was stored; says so in its remedy.

    The directory stays with its logs if the error line does not say everything, as after a crash.
    """
    is_explained = not isinstance(error, ProgramFailed) or error.is_explained
    if not is_explained or has_begun(run):
        return
    run.discard()
    if not run.path.exists():
        removed = f"Nothing was stored, so {run.path} was removed. Fix the problem and run the command again."
        error.remedy = removed if isinstance(error, ProgramFailed) else f"{error.remedy} {removed}".strip()


def has_begun(run: RunDir) -> bool:
    """Whether a run has a checkpoint, an evaluation or a trajectory, in its store or not delivered yet."""
    if any(any(folder.glob("*")) for folder in (run.checkpoints, run.evaluations)):
        return True
    try:
        if run.store.exists():
            with contextlib.closing(TrajectoryStore(run.store)) as store:
                if store.count():
                    return True
        for file in run.spool.glob("*.sqlite3"):
            with contextlib.closing(Spool(file)) as spool:
                if len(spool) or spool.refused():
                    return True
    except StoreError:
        return True  # unreadable is not empty
    return False
