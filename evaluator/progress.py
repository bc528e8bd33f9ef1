"""Progress of an evaluation, as a bar on a terminal or lines in a log; and how long a run still takes."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from distrl.configs.goal import Goal
from distrl.configs.schema import Config
from distrl.core.terminal import Console
from distrl.core.types import Fault
from distrl.evaluator.statistics import EpisodeResult

LINE_EVERY_S = 5.0
_TAIL_BYTES = 4096
RECENT_S, RECENT_CHANGES = 60.0, 10
"""The time left follows from the rate of the last minute, or of the last ten changes if those took longer."""
SURE_S = 5.0
"""Time left is not estimated before a phase has been seen for as long."""


def unit_of(phase: str, goal: Goal) -> str:
    """What the progress of a phase counts, in a word: episodes, steps, cloning, …"""
    if phase in ("training", "done", "stopped"):
        return goal.unit.split()[-1]
    return "cloning" if phase == "warm-up" else phase


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


class TimeLeft:
    """Estimates how long the rest of a phase takes; `now` gives seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._phase = now, ""
        self._seen: dict[str, deque[tuple[float, float]]] = {}  # by unit, when it changed, and to what

    def left_s(
        self, phase: str, done: float, total: float, metrics: Mapping[str, float], config: Config | None
    ) -> float:
        """How long the rest of `phase` takes at the recent rate; infinite while that is unknown.

        Training goes on until its updates are made, but no longer than `learner.max_minutes`.
        """
        if phase != self._phase:
            self._seen.clear()
            self._phase = phase
        left_s = self._at_rate(phase, done, total)
        if phase != "training" or config is None:
            return left_s
        if config.goal.updates is not None:
            updates_s = self._at_rate("updates", metrics.get("updates", 0.0), config.goal.updates)
            left_s = max(left_s, updates_s if updates_s < math.inf else 0.0)
        minutes = config.learner.max_minutes or math.inf
        return min(left_s, max(0.0, 60.0 * minutes - metrics.get("time/online_s", 0.0)))

    def _at_rate(self, unit: str, done: float, total: float) -> float:
        now, seen = self._now(), self._seen.setdefault(unit, deque())
        if not seen or done != seen[-1][1]:
            seen.append((now, done))
        while len(seen) > RECENT_CHANGES and seen[1][0] <= now - RECENT_S:
            seen.popleft()
        since, before = seen[0]
        if total and done >= total:
            return 0.0
        if not total or done <= before or now - since < SURE_S:
            return math.inf
        return max(0.0, total - done) * (now - since) / (done - before)
