"""The tables and pictures of docs/results.md that two sweeps make, beyond what `distrl sweep` prints.

    distrl sweep learning --results docs/results/learning.json       # trains what the file lacks
    python benchmarks/sweeps.py learning                             # success by split, gains, picture

learning    Objectives in equal wall time, when most of it is spent waiting for devices. Every run practises
            for the same time after the same warm start. Printed: success after the last update on each test
            split, and what A-RIDE gains over each other arm.
staleness   Workers act with weights 0, 4, 16 or 64 versions behind the newest (`learner.policy_lag`), on top
            of the staleness that asynchronous collection has anyway. Printed: success after the last update
            by policy lag, and the difference of each objective from itself without a lag.

Differences are taken seed by seed, with 95% t-intervals. The sweeps are in configs/experiments/.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from distrl.core.errors import DistrlError
from distrl.evaluator.experiment_results import (
    COLOURS,
    LINE,
    ArmSummary,
    ResultsFile,
    RunResult,
    draw_curves,
    finish,
    new_figure,
    percent,
    summarise_arms,
)
from distrl.evaluator.experiments import Sweep, load_sweep
from distrl.evaluator.statistics import Interval, t_interval

OURS, LAG = "aride", ",policy_lag="
DOCS = Path(__file__).resolve().parents[1] / "docs"


@dataclass(frozen=True)
class Outcome:
    """The finished runs of a sweep, and its arms that have any."""

    sweep: Sweep
    arms: list[ArmSummary]
    runs: list[RunResult]


@dataclass(frozen=True)
class Gain:
    """How much better one arm is than another, over the seeds that both have: the mean and its interval."""

    mean: float
    interval: Interval | None
    n: int

    def __str__(self) -> str:
        span = self.interval and f" (95%: {100 * self.interval.low:+.1f} to {100 * self.interval.high:+.1f})"
        return f"{100 * self.mean:+.1f} points{span or ''}, n = {self.n}"


def read(preset: str | Path, results: Path) -> Outcome:
    """The finished runs of a sweep, from its results file and its directory under runs/."""
    sweep = load_sweep(preset)
    runs = [run for run in ResultsFile(sweep, results).results() if run.is_finished]
    return Outcome(sweep, [arm for arm in summarise_arms(runs, sweep.arms) if arm.seeds], runs)


def gain(outcome: Outcome, better: str, other: str) -> Gain | None:
    """How much better `better` is than `other`; None if they share no finished seed."""
    ours, theirs = (
        {run.seed: run.after for run in outcome.runs if run.arm == name and run.after is not None}
        for name in (better, other)
    )
    found = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    return Gain(sum(found) / len(found), t_interval(found), len(found)) if found else None


def learning(outcome: Outcome, plot: Path) -> None:
    """Prints success by split and A-RIDE's gains, and draws the curves of validation success."""
    splits = list(dict.fromkeys(split for arm in outcome.arms for split in arm.splits))
    print("final success by split: " + ", ".join(splits))
    for arm in outcome.arms:
        cells = (percent(arm.splits.get(split)) for split in splits)
        print(f"  {arm.name:<18}" + "".join(f"{cell:>18}" for cell in cells))
    print(f"\nfinal {outcome.sweep.metric}, {OURS} against")
    for arm in outcome.arms:
        if arm.name != OURS:
            print(f"  {arm.name:<18}{gain(outcome, OURS, arm.name)}")
    draw_curves(plot, outcome.sweep, outcome.arms, "Validation success over wall time, 95% intervals")


def staleness(outcome: Outcome, plot: Path) -> None:
    """Prints and draws success by policy lag, and prints the losses."""
    rows: dict[str, dict[int, ArmSummary]] = {}  # objective → lag → arm
    for arm in outcome.arms:
        objective, _, lag = arm.name.partition(LAG)
        rows.setdefault(objective, {})[int(lag)] = arm
    lags = sorted({lag for row in rows.values() for lag in row})
    print("final success by policy lag, in versions")
    print(f"{'':<12}" + "".join(f"{lag:>18}" for lag in lags))
    for objective, row in rows.items():
        cells = (percent(row[lag].after if lag in row else None) for lag in lags)
        print(f"{objective:<12}" + "".join(f"{cell:>18}" for cell in cells))
    print("\nagainst itself without a lag")
    for objective, row in rows.items():
        for lag in sorted(row.keys() - {0}):
            loss = gain(outcome, f"{objective}{LAG}{lag}", f"{objective}{LAG}0")
            print(f"{objective:<12}lag {lag:<4} {loss}")
    draw_lags(plot, rows, lags)


def draw_lags(file: Path, rows: dict[str, dict[int, ArmSummary]], lags: Sequence[int]) -> None:
    """Writes the plot: final success over the lag, one line for each objective."""
    figure = new_figure(6.4, 4.2)
    axis = figure.subplots()
    for place, (objective, row) in enumerate(rows.items()):
        shown = [(lags.index(lag), arm.after) for lag, arm in sorted(row.items()) if arm.after is not None]
        xs = [x + 0.06 * (place - (len(rows) - 1) / 2) for x, _ in shown]
        half = [(m.interval.high - m.interval.low) / 2 if m.interval else 0.0 for _, m in shown]
        colour = COLOURS[place % len(COLOURS)]
        ys = [mean.value for _, mean in shown]
        axis.errorbar(xs, ys, yerr=half, fmt="o-", color=colour, lw=1.8, ms=5, capsize=3, label=objective)
    axis.set_xticks(range(len(lags)), [str(lag) for lag in lags])
    axis.set(ylim=(0, 1.02), xlabel="policy lag, in versions", ylabel="final success, 95% interval")
    axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    axis.grid(axis="y", color=LINE, lw=0.8)
    if rows:
        axis.legend(frameon=False, fontsize=9)
    finish(figure, file, "Acting with old weights")


def main() -> None:
    """Reads the finished runs, prints the numbers, draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sweep", choices=["learning", "staleness"])
    parser.add_argument("--results", type=Path, help="by default docs/results/SWEEP.json")
    parser.add_argument("--plot", type=Path, help="by default docs/images/SWEEP.png")
    args = parser.parse_args()
    outcome = read(args.sweep, args.results or DOCS / "results" / f"{args.sweep}.json")
    show = {"learning": learning, "staleness": staleness}[args.sweep]
    show(outcome, args.plot or DOCS / "images" / f"{args.sweep}.png")


if __name__ == "__main__":
    try:
        main()
    except DistrlError as error:
        sys.exit(str(error))
