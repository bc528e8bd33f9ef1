"""Which objective learns how fast in equal wall time, while waiting for devices is what takes time.

`configs/experiments/learning.yaml` by `distrl sweep`: the quickstart's tasks on simulated phones whose
actions take log-normal time; from half of the time on, half of the tasks have another look (`tasks.drift`).
Every run practises for the same wall time after the same warm start; runs are made one after another, so
that none takes the cores of another. Interrupt it at any time: the same command continues, and the numbers
are always those of the finished seeds.

Arms
    aride              A-RIDE, asynchronous
    digirl, ppo, filtered-bc    the same, with another objective
    digirl-sync        DigiRL's objective, collected synchronously: all slots wait for the slowest of a round
    aride-no-dper      replay drawn uniformly, but for the first time as it comes in, as everywhere
    aride-no-retrace   GAE(λ) in place of Retrace(λ): the importance ratio cuts no traces

What is measured. Final success: on the held-out test tasks of both looks, which chose nothing, after the last
update. Time: on the validation curve. The level is the mean of the synchronous baseline's last rounds, over
its seeds; the time is from the first update to where the mean curve of A-RIDE is at that level first, as a
share of the baseline's whole training time (and, stricter, of the time at which its own mean curve is there).

    python benchmarks/learning.py
"""

from __future__ import annotations

from collections.abc import Sequence

import sweeping

from distrl.evaluator.experiment_results import draw_curves, percent

OURS, BASELINE = "aride", "digirl-sync"
TARGET_TIME, TARGET_GAIN = 1 / 3, 0.20
LAST_ROUNDS = 3
Curve = list[tuple[float, float]]


def training_curve(outcome: sweeping.Outcome, name: str) -> Curve:
    """The mean validation curve of an arm, in seconds since its first point: the start of training."""
    arm = outcome.arm(name)
    if arm is None or not arm.curve:
        return []
    start = arm.curve[0][0]
    return [(seconds - start, mean.value) for seconds, mean in arm.curve]


def final_level(outcome: sweeping.Outcome, name: str) -> float | None:
    """The mean over an arm's runs of their last validation rounds."""
    levels = []
    for run in outcome.of(name).values():
        last = [value for _, value in run.curve[-LAST_ROUNDS:]]
        if last:
            levels.append(sum(last) / len(last))
    return sum(levels) / len(levels) if levels else None


def print_gains(outcome: sweeping.Outcome) -> None:
    """Prints A-RIDE's final success against each other arm's."""
    others = [arm.name for arm in outcome.arms if arm.name != OURS]
    print(f"\nfinal {outcome.sweep.metric}, {OURS} against")
    for other in others:
        gain = sweeping.gain(outcome, OURS, other)
        verdict = "no seed finished by both" if gain is None else str(gain)
        if gain is not None and other == BASELINE and gain.relative is not None:
            verdict += f" (target {100 * TARGET_GAIN:+.0f}%: {_met(gain.relative >= TARGET_GAIN)})"
        print(f"  {other:<18}{verdict}")


def print_time(outcome: sweeping.Outcome) -> None:
    """Prints how long A-RIDE takes to the synchronous baseline's final success."""
    level = final_level(outcome, BASELINE)
    ours, theirs = training_curve(outcome, OURS), training_curve(outcome, BASELINE)
    if level is None or not ours or not theirs:
        print(f"\nno time to {BASELINE}'s final success: both arms need a finished run")
        return
    whole_s = theirs[-1][0]
    print(
        f"\n{BASELINE} ends at {100 * level:.1f}% of validation tasks "
        f"after {whole_s / 60:.1f} minutes of training"
    )
    reached_s = sweeping.first_at(ours, level)
    if reached_s is None:
        print(f"{OURS} never gets there (target {TARGET_TIME:.2f} of the time: missed)")
        return
    if reached_s == 0.0:
        print(f"{OURS} is there at its first validation, before any update: no ratio of times is to be had")
        return
    share = reached_s / whole_s
    print(
        f"{OURS} is there after {reached_s / 60:.1f} minutes: {share:.2f} of the time "
        f"(target {TARGET_TIME:.2f}: {_met(share <= TARGET_TIME)})"
    )
    own_s = sweeping.first_at(theirs, level)
    if own_s:
        print(
            f"{BASELINE} itself is there first after {own_s / 60:.1f} minutes: "
            f"{reached_s / own_s:.2f} of that"
        )


def print_splits(outcome: sweeping.Outcome) -> None:
    """Prints the final success on every test split."""
    splits = list(dict.fromkeys(split for arm in outcome.arms for split in arm.splits))
    print("\nfinal success by split: " + ", ".join(splits))
    for arm in outcome.arms:
        cells = [percent(arm.splits.get(split)) for split in splits]
        print(f"  {arm.name:<18}" + "".join(f"{cell:>18}" for cell in cells))


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the sweep, prints the numbers, draws the plot."""
    args = sweeping.parser(__doc__, "docs/images/learning.png").parse_args(arguments)
    outcome = sweeping.run("learning", args)
    print_splits(outcome)
    print_gains(outcome)
    print_time(outcome)
    title = "Validation success over wall time, 95% intervals"
    sweeping.draw(args.plot, lambda file: draw_curves(file, outcome.sweep, outcome.arms, title))


if __name__ == "__main__":
    main()
