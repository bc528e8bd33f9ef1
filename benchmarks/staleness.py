"""What it costs to act with old weights: final success by policy lag, for several objectives.

`configs/experiments/staleness.yaml` by `distrl sweep`: workers act with weights 0, 4, 16 or 64 behind
the newest version (`learner.policy_lag`; each update makes one), on top of the staleness that asynchronous
collection has anyway. The quickstart's tasks, the same number of episodes for all. AcceRL and AReaL claim
that plain PPO degrades under such a lag, and that smooth or decoupled importance weights hold.

What is measured: success on the held-out test tasks after the last update, by the newest weights, with the
mean and the 95% t-interval over seeds; and what each objective loses against itself without a lag, seed by
seed. Interrupt it when you like: the same command goes on.

    python benchmarks/staleness.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import sweeping

from distrl.evaluator.experiment_results import COLOURS, LINE, ArmSummary, finish, new_figure, percent
from distrl.evaluator.statistics import Interval

KEY = ",policy_lag="


def by_objective(arms: Sequence[ArmSummary]) -> dict[str, dict[int, ArmSummary]]:
    """The arms that have a finished run: objective → lag → arm."""
    found: dict[str, dict[int, ArmSummary]] = {}
    for arm in arms:
        objective, _, lag = arm.name.partition(KEY)
        if arm.seeds:
            found.setdefault(objective, {})[int(lag)] = arm
    return found


def print_table(arms: dict[str, dict[int, ArmSummary]]) -> None:
    """Prints final success, a row per objective and a column per lag."""
    lags = sorted({lag for row in arms.values() for lag in row})
    print("\nfinal success by policy lag, in versions")
    print(f"{'':<12}" + "".join(f"{lag:>18}" for lag in lags))
    for objective, row in arms.items():
        print(f"{objective:<12}" + "".join(f"{_cell(row.get(lag)):>18}" for lag in lags))


def _cell(arm: ArmSummary | None) -> str:
    return percent(arm.after if arm is not None else None)


def print_losses(outcome: sweeping.Outcome, arms: dict[str, dict[int, ArmSummary]]) -> None:
    """Prints what each objective loses at each lag."""
    print("\nagainst itself without a lag")
    for objective, row in arms.items():
        for lag in sorted(row.keys() - {0}):
            loss = sweeping.gain(outcome, f"{objective}{KEY}{lag}", f"{objective}{KEY}0")
            told = "not both measured" if loss is None else f"{loss}: {_verdict(loss.interval)}"
            print(f"{objective:<12}lag {lag:<4} {told}")


def _verdict(between: Interval | None) -> str:
    if between is None:
        return "one seed cannot tell"
    if between.high < 0:
        return "degrades"
    if between.low > 0:
        return "better"
    return "no difference that these seeds show"


def draw(file: Path, arms: dict[str, dict[int, ArmSummary]]) -> None:
    """Writes the plot: final success over the lag, one line per objective.

    Raises:
        MissingDependency: If matplotlib is not installed.
    """
    figure = new_figure(6.4, 4.2)
    axis = figure.subplots()
    lags = sorted({lag for row in arms.values() for lag in row})
    for place, (objective, row) in enumerate(arms.items()):
        shown = [(lags.index(lag), arm.after) for lag, arm in sorted(row.items()) if arm.after is not None]
        xs = [x + 0.06 * (place - (len(arms) - 1) / 2) for x, _ in shown]
        half = [(m.interval.high - m.interval.low) / 2 if m.interval else 0.0 for _, m in shown]
        colour = COLOURS[place % len(COLOURS)]
        ys = [mean.value for _, mean in shown]
        axis.errorbar(xs, ys, yerr=half, fmt="o-", color=colour, lw=1.8, ms=5, capsize=3, label=objective)
    axis.set_xticks(range(len(lags)), [str(lag) for lag in lags])
    axis.set(ylim=(0, 1.02), xlabel="policy lag, in versions", ylabel="final success, 95% interval")
    axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    axis.grid(axis="y", color=LINE, lw=0.8)
    if arms:
        axis.legend(frameon=False, fontsize=9)
    finish(figure, file, "Acting with old weights")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the sweep, prints the numbers, draws the plot."""
    args = sweeping.parser(__doc__, "docs/images/staleness.png").parse_args(arguments)
    outcome = sweeping.run("staleness", args)
    arms = by_objective(outcome.arms)
    print_table(arms)
    print_losses(outcome, arms)
    sweeping.draw(args.plot, lambda file: draw(file, arms))


if __name__ == "__main__":
    main()
