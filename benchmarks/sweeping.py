"""Running a sweep for a benchmark, by the command that users run, and reading its results."""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from distrl.cli.options import seeds_of
from distrl.cli.sweep import SOME_FAILED
from distrl.core.errors import ConfigError, MissingDependency
from distrl.evaluator.experiment_results import ArmSummary, ResultsFile, RunResult, summarise_arms
from distrl.evaluator.experiments import Sweep, load_sweep
from distrl.evaluator.statistics import Interval, t_interval


@dataclass(frozen=True)
class Outcome:
    """The results of a sweep; only finished runs are in `runs`."""

    sweep: Sweep
    arms: list[ArmSummary]
    runs: list[RunResult]

    def arm(self, name: str) -> ArmSummary | None:
        """An arm that has a finished run."""
        return next((arm for arm in self.arms if arm.name == name and arm.seeds), None)

    def of(self, name: str) -> dict[int, RunResult]:
        """The finished runs of an arm, by seed."""
        return {run.seed: run for run in self.runs if run.arm == name}


@dataclass(frozen=True)
class Gain:
    """How much better one arm is than another, over the seeds that both have.

    Attributes:
        mean, interval: Of the difference, seed by seed, in the metric's unit.
        relative: The difference of the means as a share of the other's; None if that is 0.
    """

    mean: float
    interval: Interval | None
    relative: float | None
    n: int

    def __str__(self) -> str:
        between = (
            f" (95%: {100 * self.interval.low:+.1f} to {100 * self.interval.high:+.1f})"
            if self.interval
            else ""
        )
        relative = "" if self.relative is None else f", {100 * self.relative:+.0f}% relative"
        return f"{100 * self.mean:+.1f} points{between}{relative}, n = {self.n}"


def parser(description: str, plot: str) -> argparse.ArgumentParser:
    """The options that benchmarks by sweep share: those of `distrl sweep`, and the picture's file."""
    options = argparse.ArgumentParser(description=description.strip().splitlines()[0])
    options.add_argument("--seeds", help="0,1,2 or 0-4; by default the sweep's")
    options.add_argument("--minutes", type=float, help="of each run; by default the sweep's")
    options.add_argument("--arms", help="only these, separated by commas (; with values of the grid)")
    options.add_argument("--runs-dir", default="runs", help="parent of the sweep's directory")
    options.add_argument("--name", help="of the sweep's directory; by default the sweep's")
    options.add_argument("--parallel", type=int, default=1, help="runs at a time; more measure contention")
    options.add_argument("--report-only", action="store_true", help="run nothing")
    options.add_argument("--results", type=Path, metavar="FILE", help="JSON with finished runs to keep")
    options.add_argument("--plot", type=Path, default=Path(plot), help="the picture's file")
    return options


def run(preset: str, args: argparse.Namespace) -> Outcome:
    """Runs the sweep, or the rest of it, and reads it. Ends the process if the sweep was interrupted.

    The same command continues. Failed runs are reported and left out.
    """
    chosen = args.arms.replace(";", " ").split() if args.arms is not None else None
    try:
        sweep = load_sweep(preset, seeds_of(args.seeds), args.minutes, chosen, args.runs_dir, args.name)
    except ConfigError as error:
        sys.exit(f"error: {error}")
    names = ("seeds", "minutes", "arms", "runs_dir", "name", "parallel", "results")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    options += ["--report-only"] if args.report_only else []
    code = _wait(subprocess.Popen([sys.executable, "-m", "distrl", "sweep", preset, *options]))
    if code not in (0, SOME_FAILED):
        sys.exit(code)
    results = ResultsFile(sweep, args.results).results()
    return Outcome(sweep, summarise_arms(results, sweep.arms), [run for run in results if run.is_finished])


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Waits for `process`, and passes SIGTERM on to it, which would continue without us."""
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        while True:
            with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C reached the sweep too, which stops in order
                return process.wait()
    finally:
        signal.signal(signal.SIGTERM, before)


def gain(outcome: Outcome, better: str, other: str) -> Gain | None:
    """How much better `better` is than `other`; None if they share no finished seed."""
    ours, theirs = outcome.of(better), outcome.of(other)
    pairs = [
        (first, second)
        for seed in ours
        if seed in theirs
        if (first := ours[seed].after) is not None and (second := theirs[seed].after) is not None
    ]
    if not pairs:
        return None
    base = sum(second for _, second in pairs) / len(pairs)
    mean = sum(first for first, _ in pairs) / len(pairs) - base
    interval = t_interval([first - second for first, second in pairs])
    return Gain(mean, interval, mean / base if base else None, len(pairs))


def draw(plot: Path, write: Callable[[Path], None]) -> None:
    """Writes the picture by `write` and prints its place; without matplotlib, the reason for its absence."""
    try:
        write(plot)
    except MissingDependency as error:
        print(f"no plot: {error}")
    else:
        print(f"\nplot: {plot}")


def first_at(curve: Sequence[tuple[float, float]], level: float) -> float | None:
    """The time at which a curve is at `level` first; None if never."""
    return next((time for time, value in curve if value >= level - 1e-9), None)
