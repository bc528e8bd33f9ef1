"""Making the runs of a sweep: each a `distrl train` process, as many at a time as asked for.

    main thread ── starts, polls ──► `distrl train` (a Child: own session, output in SWEEP/ARM/seed-S.log)

One thread. It waits for at most `TICK_S`; when it is told to stop, it stops its children, each of which
writes its checkpoint, and leaves everything to be resumed.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from distrl.cli.local import gpus
from distrl.cli.local.programs import CHECKPOINT_S, distrl
from distrl.cli.sweeps.progress import SweepProgress
from distrl.configs.load import dump_config
from distrl.configs.sweep import PlannedRun, Sweep
from distrl.core.files import write_atomically
from distrl.core.process import Child, stop_all
from distrl.core.rundir import RunDir
from distrl.core.terminal import Console
from distrl.evaluator.sweeps.metric import not_measured
from distrl.evaluator.sweeps.runs import is_finished, read_run

TICK_S = 0.5
PATIENCE_S = CHECKPOINT_S + 10.0
"""How long `distrl train` may take to stop, besides its devices: it waits for its learner's checkpoint."""

TAIL_LINES, TAIL_BYTES = 8, 8192


@dataclass(frozen=True)
class Failure:
    """A run that ended with an error, and the last lines of its log."""

    title: str
    tail: str


@dataclass(frozen=True)
class _Running:
    planned: PlannedRun
    child: Child
    share: tuple[str, ...]  # of the GPUs


class Execution:
    """Makes the runs that are not finished.

    Args:
        sweep: What is to be run; its configurations are checked.
        parallel: How many runs at a time.
        stop: Set when the sweep should stop.
        console: Where progress is shown.

    Attributes:
        failures: Runs that ended with an error. They do not stop the others.
    """

    def __init__(self, sweep: Sweep, parallel: int, stop: threading.Event, console: Console) -> None:
        self._sweep, self._parallel, self._stop = sweep, parallel, stop
        done = [is_finished(run.directory) for run in sweep.runs]
        self._earlier = [run for run, is_done in zip(sweep.runs, done, strict=True) if is_done]
        self._waiting = deque(run for run, is_done in zip(sweep.runs, done, strict=True) if not is_done)
        self._running: list[_Running] = []
        self._shares = gpus.for_runs(gpus.visible(), min(parallel, len(self._waiting)))
        self._progress = SweepProgress(sweep, len(self._waiting), parallel, console)
        self._has_warned = False
        self.failures: list[Failure] = []

    def run(self) -> bool:
        """Runs until nothing is left. Returns False if it was stopped before."""
        try:
            with self._progress:
                for planned in self._earlier[:1]:
                    self._check_measured(planned)
                while (self._waiting or self._running) and not self._stop.is_set():
                    while self._waiting and len(self._running) < self._parallel:
                        self._start(self._waiting.popleft())
                    self._stop.wait(TICK_S)
                    self._running = [running for running in self._running if not self._ended(running)]
                    self._progress.show([running.planned for running in self._running])
        finally:
            try:
                if self._running:
                    self._progress.waits(len(self._running))
            finally:  # whoever read the output may have left
                stop_all(
                    (running.child, PATIENCE_S + running.planned.config.devices.close_s)
                    for running in self._running
                )
        return not self._stop.is_set()

    def _start(self, planned: PlannedRun) -> None:
        """Starts a run, or goes on with what is there of it."""
        run, log = RunDir(planned.directory), log_of(planned)
        config = log.with_suffix(".yaml")
        config.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(config, dump_config(planned.config))
        is_begun = run.config.is_file()
        if not is_begun and run.path.is_dir() and not any(map(_is_kept, run.path.rglob("*"))):
            shutil.rmtree(run.path)  # killed while it was made
        command = distrl("train", str(config), *(["--resume"] if is_begun else []))
        self._progress.begins(planned, is_begun)
        share = self._shares.pop(0) if self._shares and gpus.may_choose(planned.config) else ()
        self._running.append(_Running(planned, Child("train", command, log, gpus.variables(share)), share))

    def _ended(self, running: _Running) -> bool:
        """Whether a run has ended; notes how."""
        exit_code = running.child.poll()
        if exit_code is None:
            return False
        if running.share:
            self._shares.append(running.share)
        planned, is_well = running.planned, exit_code == 0 and is_finished(running.planned.directory)
        self._progress.ends(planned, time.monotonic() - running.child.started_at, is_well)
        if is_well:
            self._check_measured(planned)
        if not is_well and not self._stop.is_set():
            how = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
            log = log_of(planned)
            title = f"{planned.arm}, seed {planned.seed} failed ({how}). The end of {log}:"
            self.failures.append(Failure(title, tail(log)))
        return True

    def _check_measured(self, finished: PlannedRun) -> None:
        """Warns, once, if a finished run lacks what the sweep compares. Runs are none the worse for it."""
        if self._has_warned:
            return
        lacking = not_measured(self._sweep, read_run(finished, self._sweep))
        if lacking is not None:
            self._has_warned = True
            self._progress.warn(f"{lacking} The runs are none the worse: correct it in the sweep's file.")


def _is_kept(path: Path) -> bool:
    """Whether a run's directory holds more than folders and a configuration half written."""
    return path.is_file() and not path.name.startswith(".config.yaml.")


def log_of(planned: PlannedRun) -> Path:
    """Where what `distrl train` prints goes: beside the run's directory, which it may remove."""
    return planned.directory.with_name(f"{planned.directory.name}.log")


def tail(log: Path) -> str:
    """The last lines of a log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        text = file.read().decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(f"    {line}" for line in lines[-TAIL_LINES:]) or "    (nothing)"
