"""Progress of an evaluation: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from distrl.core.terminal import Console
from distrl.core.types import Fault
from distrl.evaluator.statistics import EpisodeResult

LINE_EVERY_S = 5.0
_TAIL_BYTES = 4096


class EvaluationProgress:
    """Shows the progress of an evaluation. Called by one thread at a time; `say` by any.

    Args:
        doing, what: The activity, and what is counted, in words.
        console: Where it is shown; by default standard error. On a terminal there is a bar.
    """

    def __init__(
        self, doing: str = "evaluating", what: str = "tasks", console: Console | None = None
    ) -> None:
        self._console = console or Console(file=sys.stderr)
        self._doing, self._what = doing, what
        self._total = self._done = self._solved = self._counted = self._faults = 0
        self._next_line = 0.0
        columns = BarColumn(bar_width=None), MofNCompleteColumn(), TextColumn("{task.description}")
        self._bar = Progress(TextColumn(doing), *columns, TimeRemainingColumn(), console=self._console)
        self._task = self._bar.add_task("", total=None)

    def start(self, total: int, done: int) -> None:
        """An evaluation begins; `done` of `total` tasks were measured in earlier sessions."""
        self._total, self._done, self._solved, self._counted, self._faults = total, done, 0, 0, 0
        if self._console.is_terminal:
            self._bar.reset(self._task, total=total, completed=done)
            self._bar.start()
        else:
            self.say(f"{self._doing}: {done} of {total} {self._what}")
            self._next_line = time.monotonic() + LINE_EVERY_S

    def add(self, result: EpisodeResult, is_final: bool) -> None:
        """An episode ended; `is_final` unless it faulted and is tried again."""
        self._done += is_final
        self._faults += result.fault is not Fault.NONE
        self._counted += result.counts
        self._solved += result.counts and result.success
        line = f"{100 * self._solved / self._counted:.0f}% solved" if self._counted else "none solved yet"
        line += f", {self._faults} faults" if self._faults else ""
        if self._console.is_terminal:
            self._bar.update(self._task, completed=self._done, description=line)
        elif time.monotonic() >= self._next_line or self._done == self._total:
            self._next_line = time.monotonic() + LINE_EVERY_S
            self.say(f"{self._done} of {self._total} {self._what}, {line}")

    def say(self, message: str) -> None:
        """Shows a line, such as the reason for a wait."""
        self._console.print(message, soft_wrap=True)

    def close(self) -> None:
        """Ends the display."""
        if self._console.is_terminal:
            self._bar.stop()


def read_counts(log: Path) -> tuple[int, int] | None:
    """The finished and total tasks or episodes of an evaluation, from the newest line of its log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = re.findall(rb"(\d+) of (\d+) (?:tasks|episodes)", file.read())
    except OSError:  # not there yet
        return None
    return (int(lines[-1][0]), int(lines[-1][1])) if lines else None
