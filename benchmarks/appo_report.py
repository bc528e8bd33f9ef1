"""What the runs of `appo.py` came to: the table over seeds, the ratios, the pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appo_runs import Run

from distrl.evaluator.report.drawing import LINE, finish, new_figure
from distrl.evaluator.sweeps.arms import Mean, mean_curve, median_time
from distrl.evaluator.sweeps.plot import COLOURS

NEVER = "—"


@dataclass(frozen=True)
class ArmNumbers:
    """An arm over its finished runs.

    Attributes:
        num_runs, num_solved: How many of them, and how many of those found a solution.
        median_s: The median time to the solution from the start of training, a run without one counting as
            slower than all others; None if the median is such a run.
        median_from_launch_s: The same from the start of the process.
        solved_s, solved_steps: Seconds and environment steps to the solution, over the runs that have one.
        startup_s: From the start of the process to the start of training.
        final_return: Over 100 greedy episodes after the end, over all runs.
        steps_per_s: Environment steps a second of training.
    """

    name: str
    num_runs: int
    num_solved: int
    median_s: float | None
    median_from_launch_s: float | None
    solved_s: Mean | None
    solved_steps: Mean | None
    startup_s: Mean | None
    final_return: Mean | None
    steps_per_s: Mean | None


def summarise(name: str, runs: Sequence[Run]) -> ArmNumbers:
    """The numbers of an arm."""
    outcomes = [run.outcome for run in runs]
    return ArmNumbers(
        name=name,
        num_runs=len(runs),
        num_solved=sum(outcome.solved_s is not None for outcome in outcomes),
        median_s=median_time([outcome.solved_s for outcome in outcomes]),
        median_from_launch_s=median_time([run.solved_from_launch_s for run in runs]),
        solved_s=Mean.of([outcome.solved_s for outcome in outcomes]),
        solved_steps=Mean.of([outcome.solved_steps for outcome in outcomes]),
        startup_s=Mean.of([run.startup_s for run in runs]),
        final_return=Mean.of([outcome.final_return for outcome in outcomes]),
        steps_per_s=Mean.of([outcome.env_steps / outcome.elapsed_s for outcome in outcomes]),
    )


Column = tuple[str, int, Callable[[ArmNumbers], str]]
"""Its title, its width, and an arm's cell."""


def table(arms: Sequence[ArmNumbers], has_solution: bool) -> str:
    """A row per arm: means with 95% t-intervals over seeds.

    Args:
        arms: In the order of the rows.
        has_solution: Whether runs stop at a solution; else its columns are left out.
    """
    solution: list[Column] = [
        ("solved", 9, lambda arm: f"{arm.num_solved}/{arm.num_runs}"),
        ("median s", 10, lambda arm: _seconds(arm.median_s)),
        ("from launch", 13, lambda arm: _seconds(arm.median_from_launch_s)),
        ("mean s, of solved", 20, lambda arm: _mean(arm.solved_s)),
        ("steps, of solved", 22, lambda arm: _mean(arm.solved_steps)),
    ]
    columns: list[Column] = [
        ("runs", 6, lambda arm: str(arm.num_runs)),
        *(solution if has_solution else []),
        ("final return", 18, lambda arm: _mean(arm.final_return, 1)),
        ("steps/s", 14, lambda arm: _mean(arm.steps_per_s)),
        ("start-up s", 14, lambda arm: _mean(arm.startup_s, 1)),
    ]
    lines = [f"{'':<14}" + "".join(f"{title:>{width}}" for title, width, _ in columns)]
    lines += [
        f"{arm.name:<14}" + "".join(f"{cell(arm):>{width}}" for _, width, cell in columns) for arm in arms
    ]
    return "\n".join(lines)


def ratios(ours: Sequence[ArmNumbers], peer: ArmNumbers) -> str:
    """A line: our median time to the solution as a share of the peer's, from training and from launch."""
    cells = []
    for arm in ours:
        training = _ratio(arm.median_s, peer.median_s)
        launch = _ratio(arm.median_from_launch_s, peer.median_from_launch_s)
        cells.append(f"{arm.name} {training} ({launch} from launch)")
    return f"median time to solve, of {peer.name}'s: " + ", ".join(cells)


def _ratio(ours: float | None, theirs: float | None) -> str:
    if ours is None:
        return "never"
    return "peer never" if theirs is None else f"{ours / theirs:.2f}"


def _seconds(value: float | None) -> str:
    return NEVER if value is None else f"{value:.1f}"


def _mean(mean: Mean | None, digits: int = 0) -> str:
    if mean is None:
        return NEVER
    half = f" ± {(mean.interval.high - mean.interval.low) / 2:,.{digits}f}" if mean.interval else ""
    return f"{mean.value:,.{digits}f}{half}"


def draw(file: Path, runs: Mapping[str, Sequence[Run]], title: str, stop_at: float | None) -> None:
    """Writes the picture: mean return over time, and over environment steps.

    Of runs that stop at a solution, each run's greedy validations, with a dot at the last; of others the mean
    over seeds of their training episodes' returns, with its 95% interval.

    Raises:
        MissingDependency: If matplotlib is not installed.
    """
    figure = new_figure(10.4, 4.4)
    left, right = figure.subplots(1, 2, sharey=True)
    for place, (name, of_arm) in enumerate(runs.items()):
        colour, label = COLOURS[place % len(COLOURS)], f"{name} (n = {len(of_arm)})"
        outcomes = [run.outcome for run in of_arm]
        curves = [out.training if stop_at is None else out.validation for out in outcomes]
        paint = _draw_mean if stop_at is None else _draw_each
        paint(left, [[(p.elapsed_s / 60, p.mean_return) for p in curve] for curve in curves], colour, label)
        paint(right, [[(p.env_steps / 1e6, p.mean_return) for p in curve] for curve in curves], colour, label)
    measured = "of the last 100 training episodes" if stop_at is None else "of greedy episodes"
    left.set(xlabel="minutes of training", ylabel=f"mean return {measured}")
    right.set(xlabel="million environment steps")
    for axis in (left, right):
        axis.grid(axis="y", color=LINE, lw=0.8)
        if stop_at is not None:
            axis.axhline(stop_at, color=COLOURS[-1], lw=0.8, ls=":")
    if any(runs.values()):
        right.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    finish(figure, file, title)


def _draw_each(axis: Any, curves: Sequence[Sequence[tuple[float, float]]], colour: str, label: str) -> None:
    for curve in filter(None, curves):
        xs, ys = zip(*curve, strict=True)
        axis.plot(xs, ys, color=colour, lw=1.0, alpha=0.7, label=label)
        axis.plot(xs[-1], ys[-1], "o", color=colour, ms=4)
        label = "_nolegend_"


def _draw_mean(axis: Any, curves: Sequence[Sequence[tuple[float, float]]], colour: str, label: str) -> None:
    points = mean_curve(curves)
    if not points:
        return
    xs = [x for x, _ in points]
    axis.plot(xs, [mean.value for _, mean in points], color=colour, lw=1.8, label=label)
    bounds = [(x, mean.interval) for x, mean in points if mean.interval is not None]
    if bounds:
        low, high = [i.low for _, i in bounds], [i.high for _, i in bounds]
        axis.fill_between([x for x, _ in bounds], low, high, color=colour, alpha=0.12, lw=0)
