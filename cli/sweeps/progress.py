"""What `distrl sweep` shows while it runs: which run of how many, and about how long the rest takes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from types import TracebackType

from rich.status import Status

from distrl.cli.local.progress import clock
from distrl.configs.sweep import PlannedRun, Sweep
from distrl.core.terminal import Console

LINE_EVERY_S = 300.0
AROUND_S = 90.0
"""What a run takes besides its time limit, before one has been measured: warm start and evaluations."""


class SweepProgress:
    """A line that changes on a terminal; in a log, a line for each start and end, and now and then.

    Args:
        sweep: All runs.
        left: How many are not finished.
        parallel: How many run at a time.
        console: Where to.
    """

    def __init__(self, sweep: Sweep, left: int, parallel: int, console: Console) -> None:
        self._total, self._left, self._parallel = len(sweep.runs), left, parallel
        self._minutes = {run.directory: run.config.learner.max_minutes or 0.0 for run in sweep.runs}
        self._console = console
        self._began: dict[object, float] = {}
        self._around: list[float] = []
        self._next_line = time.monotonic() + LINE_EVERY_S
        self._status: Status | None = Status("", console=console) if console.is_terminal else None

    def __enter__(self) -> SweepProgress:
        done = self._total - self._left
        finished = f", {done} of them finished" if done else ""
        self._say(f"{self._total} runs{finished}; {self._rest()}")
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def begins(self, planned: PlannedRun, resumed: bool) -> None:
        """A run is about to start."""
        self._began[planned.directory] = time.monotonic()
        number = self._total - self._left + len(self._began)
        self._say(f"[{number}/{self._total}] {name_of(planned)} {'goes on' if resumed else 'begins'}")

    def ends(self, planned: PlannedRun, seconds: float, is_well: bool) -> None:
        """A run has ended."""
        del self._began[planned.directory]
        self._left -= 1
        if is_well:
            self._around.append(seconds - 60.0 * self._minutes[planned.directory])
        how = "finished" if is_well else "failed"
        self._say(f"{name_of(planned)} {how} after {clock(seconds)}; {self._rest()}")

    def waits(self, num_running: int) -> None:
        """The sweep stops; this many runs are still to write their checkpoints."""
        runs = "the run" if num_running == 1 else f"{num_running} runs"
        self._say(f"Waiting for the checkpoint of {runs} under way. Another Ctrl-C ends all at once.")

    def warn(self, text: str) -> None:
        """Says something that must not be missed."""
        self._console.print(f"WARNING: {text}", style="bold yellow", soft_wrap=True)

    def show(self, running: Sequence[PlannedRun]) -> None:
        """Shows where it stands; call it often."""
        now = time.monotonic()
        is_due = now >= self._next_line
        if not running or (self._status is None and not is_due):
            return
        names = ", ".join(f"{name_of(run)} {clock(now - self._began[run.directory])}" for run in running)
        done = self._total - self._left
        line = f"{done}/{self._total} done · {names} · {self._rest()}"
        if self._status is not None:
            self._status.update(self._console.render_str(line))
        else:
            self._next_line = now + LINE_EVERY_S
            self._say(line)

    def _rest(self) -> str:
        """How long the rest takes if runs take their time limit, and besides as much as those before."""
        if not self._around and not all(self._minutes.values()):
            return "time left unknown until a run has finished"  # only episodes end them
        around_s = sum(self._around) / len(self._around) if self._around else AROUND_S
        mean_s = 60.0 * sum(self._minutes.values()) / max(1, len(self._minutes))
        spent_s = sum(time.monotonic() - began for began in self._began.values())
        rest_s = max(0.0, self._left * (mean_s + around_s) - spent_s) / self._parallel
        return f"about {clock(60 * math.ceil(rest_s / 60))} to go" if rest_s else "nothing to go"

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)


def name_of(planned: PlannedRun) -> str:
    """How a run is called on screen."""
    return f"{planned.arm} seed {planned.seed}"
