"""Running a sweep for a benchmark, by the command that users run, and reading what it came to."""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep_results import ResultsFile

from distrl.cli.options import seeds_of
from distrl.cli.sweep import SOME_FAILED, check
from distrl.configs.sweep import Sweep, load_sweep
from distrl.core.errors import ConfigError, MissingDependency
from distrl.evaluator.statistics import Interval, t_interval
from distrl.evaluator.sweeps.arms import ArmSummary, summarise_arms
from distrl.evaluator.sweeps.runs import RunResult, read_run
from distrl.evaluator.sweeps.table import table_text

TEND_S = 10.0
"""How often finished runs are looked for while a sweep runs."""


@dataclass(frozen=True)
class Outcome:
    """What a sweep came to; only finished runs are in `runs`."""

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
    """The options that benchmarks by sweep share."""
    options = argparse.ArgumentParser(description=description.strip().splitlines()[0])
    options.add_argument("--seeds", help="0,1,2 or 0-4; by default the sweep's")
    options.add_argument("--minutes", type=float, help="of each run; by default the sweep's")
    options.add_argument("--arms", help="only these, separated by commas (; with values of the grid)")
    options.add_argument("--runs-dir", default="runs", help="where the sweep's directory is made")
    options.add_argument("--name", help="of the sweep's directory; by default the sweep's")
    options.add_argument(
        "--parallel", type=int, default=1, help="runs at a time; more than 1 measures contention"
    )
    options.add_argument("--report-only", action="store_true", help="run nothing")
    options.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="JSON with finished runs: those in it count as done, those finished here are added",
    )
    options.add_argument("--plot", type=Path, default=Path(plot), help="where the picture goes")
    return options


def run(preset: str, args: argparse.Namespace) -> Outcome:
    """Runs the sweep, or what is left of it, and reads it. Ends the process if the sweep was interrupted.

    The same command again goes on. Runs that failed are told and left out. With --results, runs that the
    file holds are not made again, wherever they were made, and those finished here are added to it at once.
    """
    sweep = _load(preset, args)
    if args.results is None:
        _sweep(preset, args, {"seeds": args.seeds, "arms": args.arms})
        results = [read_run(planned, sweep) for planned in sweep.runs]
    else:
        results = _run_missing(preset, args, sweep)
        print(table_text(sweep, summarise_arms(results, sweep.arms)))
    return Outcome(sweep, summarise_arms(results, sweep.arms), [run for run in results if run.is_finished])


def _load(preset: str, args: argparse.Namespace) -> Sweep:
    chosen = args.arms.replace(";", " ").split() if args.arms is not None else None
    try:
        return load_sweep(preset, seeds_of(args.seeds), args.minutes, chosen, args.runs_dir, args.name)
    except ConfigError as error:
        sys.exit(f"error: {error}")


def _run_missing(preset: str, args: argparse.Namespace, sweep: Sweep) -> list[RunResult]:
    """Makes the runs that the results file lacks, a sweep for each seed; returns all of them."""
    try:
        check(sweep)  # what is here and was made with another configuration must not get into the file
        known = ResultsFile(args.results, sweep)
    except ConfigError as error:
        sys.exit(f"error: {error}")
    for line in known.left_out:
        print(f"{args.results}: {line}")
    known.take()
    if not args.report_only:
        for seed, arms in known.missing().items():
            _sweep(preset, args, {"seeds": str(seed), "arms": ";".join(arms)}, known.take)
    return known.results()


def _sweep(
    preset: str,
    args: argparse.Namespace,
    selection: Mapping[str, str | None],
    tend: Callable[[], None] = lambda: None,
) -> None:
    """One `distrl sweep`; calls `tend` now and then and at its end. Ends the process if interrupted."""
    options = [f"--runs-dir={args.runs_dir}", f"--parallel={args.parallel}"]
    for name, value in {"minutes": args.minutes, "name": args.name, **selection}.items():
        if value is not None:
            options.append(f"--{name}={value}")
    if args.report_only:
        options.append("--report-only")
    process = subprocess.Popen([sys.executable, "-m", "distrl", "sweep", preset, *options])
    code = None
    with _ended_with_us(process):
        while code is None:
            with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C reached the sweep too, which stops in order
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = process.wait(TEND_S)
                tend()
    if code not in (0, SOME_FAILED):
        sys.exit(code)


@contextlib.contextmanager
def _ended_with_us(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Passes SIGTERM on to `process`, which would go on without us."""
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def gain(outcome: Outcome, better: str, other: str) -> Gain | None:
    """How much better `better` is than `other`; None if they share no finished seed."""
    ours, theirs = outcome.of(better), outcome.of(other)
    pairs = [
        (ours[seed].after, theirs[seed].after)
        for seed in ours
        if seed in theirs and ours[seed].after is not None and theirs[seed].after is not None
    ]
    if not pairs:
        return None
    first, second = [a for a, _ in pairs if a is not None], [b for _, b in pairs if b is not None]
    base = sum(second) / len(second)
    mean = sum(first) / len(first) - base
    differences = [a - b for a, b in zip(first, second, strict=True)]
    return Gain(mean, t_interval(differences), mean / base if base else None, len(pairs))


def draw(plot: Path, write: Callable[[Path], None]) -> None:
    """Writes the picture by `write`, and says where it is; without matplotlib, why there is none."""
    try:
        write(plot)
    except MissingDependency as error:
        print(f"no plot: {error}")
    else:
        print(f"\nplot: {plot}")


def first_at(curve: Sequence[tuple[float, float]], level: float) -> float | None:
    """The time at which a curve is at `level` first; None if never."""
    return next((time for time, value in curve if value >= level - 1e-9), None)
