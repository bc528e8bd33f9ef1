"""Progress of an evaluation: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Protocol, TextIO

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from distrl.core.logs import printable
from distrl.core.terminal import Console
from distrl.core.types import Fault
from distrl.evaluator.statistics import EpisodeResult

LINE_EVERY_S = 5.0
_TAIL_BYTES = 4096


class EvaluationProgress(Protocol):
    """Shows the progress of an evaluation. Called by one thread at a time; `say` by any."""

    def start(self, total: int, done: int) -> None:
        """`done` of `total` tasks were measured in earlier sessions."""
        ...

    def add(self, result: EpisodeResult, is_final: bool) -> None:
        """An episode ended; `is_final` unless it faulted and is tried again."""
        ...

    def say(self, message: str) -> None:
        """Shows a line, such as the reason for a wait."""
        ...

    def close(self) -> None:
        """Ends the display."""
        ...


class _Counts:
    """The numbers of both displays."""

    def __init__(self) -> None:
        self.total = self.done = self.solved = self.counted = self.faults = 0

    def add(self, result: EpisodeResult, is_final: bool) -> None:
        self.done += is_final
        self.faults += result.fault is not Fault.NONE
        if result.counts:
            self.counted += 1
            self.solved += result.success

    def line(self) -> str:
        """Success so far, and faults if there are any."""
        success = f"{100 * self.solved / self.counted:.0f}% solved" if self.counted else "none solved yet"
        return success + (f", {self.faults} faults" if self.faults else "")


class BarProgress:
    """A progress bar."""

    def __init__(self, console: Console, doing: str = "evaluating") -> None:
        self._counts = _Counts()
        self._console = console
        self._bar = Progress(
            TextColumn(doing),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._bar.add_task("", total=None)

    def start(self, total: int, done: int) -> None:
        """See `EvaluationProgress`."""
        self._counts.total, self._counts.done = total, done
        self._bar.update(self._task, total=total, completed=done)
        self._bar.start()

    def add(self, result: EpisodeResult, is_final: bool) -> None:
        """See `EvaluationProgress`."""
        self._counts.add(result, is_final)
        self._bar.update(self._task, completed=self._counts.done, description=self._counts.line())

    def say(self, message: str) -> None:
        """See `EvaluationProgress`."""
        self._console.print(message)

    def close(self) -> None:
        """See `EvaluationProgress`."""
        self._bar.stop()


class LineProgress:
    """A line every few seconds, and one at the end."""

    def __init__(self, out: TextIO, doing: str = "evaluating", what: str = "tasks") -> None:
        self._counts, self._out = _Counts(), out
        self._doing, self._what = doing, what
        self._next_line = 0.0

    def start(self, total: int, done: int) -> None:
        """See `EvaluationProgress`."""
        self._counts.total, self._counts.done = total, done
        self.say(f"{self._doing}: {done} of {total} {self._what}")
        self._next_line = time.monotonic() + LINE_EVERY_S

    def add(self, result: EpisodeResult, is_final: bool) -> None:
        """See `EvaluationProgress`."""
        self._counts.add(result, is_final)
        if time.monotonic() >= self._next_line or self._counts.done == self._counts.total:
            self._next_line = time.monotonic() + LINE_EVERY_S
            self.say(f"{self._counts.done} of {self._counts.total} {self._what}, {self._counts.line()}")

    def say(self, message: str) -> None:
        """See `EvaluationProgress`."""
        print(printable(message), file=self._out, flush=True)

    def close(self) -> None:
        """See `EvaluationProgress`."""


def read_counts(log: Path) -> tuple[int, int] | None:
    """The finished and total tasks or episodes of an evaluation, from the newest line of its log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = re.findall(rb"(\d+) of (\d+) (?:tasks|episodes)", file.read())
    except OSError:  # not there yet
        return None
    return (int(lines[-1][0]), int(lines[-1][1])) if lines else None


def make_progress(
    out: TextIO | None = None, doing: str = "evaluating", what: str = "tasks"
) -> EvaluationProgress:
    """A bar if `out` (standard error by default) is a terminal, else lines."""
    out = out or sys.stderr
    console = Console(file=out)
    return BarProgress(console, doing) if console.is_terminal else LineProgress(out, doing, what)
