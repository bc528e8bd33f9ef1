"""Runs the runs of a sweep: each a `distrl train` process, as many at a time as requested.

    main thread ── starts, polls ──► `distrl train` (a Child: own session, output in SWEEP/ARM/seed-S.log)

One thread. It waits for at most `TICK_S`. When it is stopped, it stops its children, each of which writes its
checkpoint, so that everything can be resumed.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from rich.status import Status

from distrl.cli.backends.roles import CHECKPOINT_S, distrl
from distrl.cli.local import gpus
from distrl.cli.local.progress import clock
from distrl.core.files import write_atomically
from distrl.core.process import Child, stop_all
from distrl.core.rundir import RunDir
from distrl.core.terminal import Console
from distrl.evaluator.experiment_results import ResultsFile, chosen_arms, is_finished
from distrl.evaluator.experiments import PlannedRun, Sweep

TICK_S = 0.5
PATIENCE_S = CHECKPOINT_S + 10.0
"""How long `distrl train` may take to stop, besides its devices: it waits for its learner's checkpoint."""

LINE_EVERY_S = 300.0
TAIL_LINES, TAIL_BYTES = 8, 8192


@dataclass(frozen=True)
class _Running:
    planned: PlannedRun
    child: Child
    share: tuple[str, ...]  # of the GPUs


class Execution:
    """Makes the runs that are not finished, `parallel` at a time, and updates `known` after each.

    Attributes:
        failures: Of each run that ended with an error a title, and the last lines of its log.
    """

    def __init__(
        self, sweep: Sweep, parallel: int, stop: threading.Event, console: Console, known: ResultsFile
    ) -> None:
        self._sweep, self._parallel, self._stop, self._console = sweep, parallel, stop, console
        self._known = known
        self._waiting = deque(run for run in sweep.runs if not self._known.is_done(run))
        self._running: list[_Running] = []
        self._shares = gpus.for_runs(gpus.visible(), min(parallel, len(self._waiting)))
        self._left = len(self._waiting)
        self._took: list[float] = []  # seconds of finished runs
        self._next_line = time.monotonic() + LINE_EVERY_S
        self._status: Status | None = Status("", console=console) if console.is_terminal else None
        self.failures: list[tuple[str, str]] = []
        self._chosen: dict[str, str] = {}
        self._choose()

    def _choose(self) -> None:
        if self._sweep.tune is not None:
            self._chosen = chosen_arms(self._sweep, self._known.results())

    def run(self) -> bool:
        """Runs until no run is left. Returns False if it was stopped before."""
        done = len(self._sweep.runs) - self._left
        finished = f", {done} of them finished" if done else ""
        self._say(f"{len(self._sweep.runs)} runs{finished}; {self._rest()}")
        if self._status is not None:
            self._status.start()
        try:
            while (self._waiting or self._running) and not self._stop.is_set():
                while len(self._running) < self._parallel and (planned := self._next()) is not None:
                    self._start(planned)
                self._stop.wait(TICK_S)
                self._running = [running for running in self._running if not self._ended(running)]
                self._show()
        finally:
            try:
                if self._running:
                    runs = "the run" if len(self._running) == 1 else f"{len(self._running)} runs"
                    self._say(
                        f"Waiting for the checkpoint of {runs} under way. Another Ctrl-C ends all at once."
                    )
                if self._status is not None:
                    self._status.stop()
            finally:  # the reader of the output may be gone
                stop_all(
                    (running.child, PATIENCE_S + running.planned.config.devices.close_s)
                    for running in self._running
                )
        return not self._stop.is_set()

    def _next(self) -> PlannedRun | None:
        """The next run; those with a value that was not chosen are left out.

        None while the choice waits for runs under way. It cannot be made if one of these has failed.
        """
        tune = self._sweep.tune
        for planned in list(self._waiting):
            chosen = self._chosen.get(planned.family)
            if tune is None or planned.seed in tune.seeds or chosen == planned.arm:
                self._waiting.remove(planned)
                return planned
            if chosen is not None or not self._running:
                self._waiting.remove(planned)
                self._left -= 1
        return None

    def _start(self, planned: PlannedRun) -> None:
        """Starts a run, or resumes it."""
        run, log = RunDir(planned.directory), log_of(planned)
        config = log.with_suffix(".yaml")
        config.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(config, planned.config.to_yaml())
        is_begun = run.config.is_file()
        if self._sweep.is_virtual and is_begun:  # a simulation cannot be resumed
            run.discard()
            is_begun = False
        name = "simulate" if self._sweep.is_virtual else "train"
        command = distrl(name, str(config), *(["--resume"] if is_begun else []))
        number = len(self._sweep.runs) - self._left + len(self._running) + 1
        self._say(
            f"[{number}/{len(self._sweep.runs)}] {_name(planned)} {'continues' if is_begun else 'starts'}"
        )
        share = self._shares.pop(0) if self._shares and gpus.may_choose(planned.config) else ()
        self._running.append(_Running(planned, Child("train", command, log, gpus.variables(share)), share))

    def _ended(self, running: _Running) -> bool:
        """Whether a run has ended, which is then reported."""
        exit_code = running.child.poll()
        if exit_code is None:
            return False
        if running.share:
            self._shares.append(running.share)
        planned, seconds = running.planned, time.monotonic() - running.child.started_at
        is_well = exit_code == 0 and is_finished(planned.directory)
        self._left -= 1
        if is_well:
            self._took.append(seconds)
        self._say(
            f"{_name(planned)} {'finished' if is_well else 'failed'} after {clock(seconds)}; {self._rest()}"
        )
        if is_well:
            self._known.update()
            self._choose()
        elif not self._stop.is_set():
            how = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
            log = log_of(planned)
            title = f"{planned.arm}, seed {planned.seed} failed ({how}). The end of {log}:"
            self.failures.append((title, tail(log)))
        return True

    def _show(self) -> None:
        """Shows the state; in a log only now and then."""
        now = time.monotonic()
        if not self._running or (self._status is None and now < self._next_line):
            return
        shown = [f"{_name(one.planned)} {clock(now - one.child.started_at)}" for one in self._running]
        total = len(self._sweep.runs)
        line = f"{total - self._left}/{total} done · {', '.join(shown)} · {self._rest()}"
        if self._status is not None:
            self._status.update(self._console.render_str(line))
        else:
            self._next_line = now + LINE_EVERY_S
            self._say(line)

    def _rest(self) -> str:
        """The time left if the other runs take as long as those before."""
        if not self._left:
            return "no time left"
        if not self._took:
            return "time left unknown until a run has finished"
        mean_s = sum(self._took) / len(self._took)
        going = [one.child for one in self._running if one.child.poll() is None]
        spent_s = sum(time.monotonic() - child.started_at for child in going)
        rest_s = max(0.0, self._left * mean_s - spent_s) / self._parallel
        return f"about {clock(60 * math.ceil(rest_s / 60))} left" if rest_s else "no time left"

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)


def _name(planned: PlannedRun) -> str:
    return f"{planned.arm} seed {planned.seed}"


def log_of(planned: PlannedRun) -> Path:
    """The output of `distrl train`: beside the run's directory, which it may remove."""
    return planned.directory.with_name(f"{planned.directory.name}.log")


def tail(log: Path) -> str:
    """The last lines of a log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        text = file.read().decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(f"    {line}" for line in lines[-TAIL_LINES:]) or "    (nothing)"
