"""curves.png: the mean learning curve of each arm over wall time, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distrl.configs.sweep import Sweep
from distrl.evaluator.report.drawing import LINE, finish, new_figure
from distrl.evaluator.sweeps.arms import ArmSummary
from distrl.evaluator.sweeps.table import is_share

MOST = 10
"""Arms in a picture; of more, the best."""

# Told apart by people who see colours differently (Okabe & Ito 2008), then by dashes.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5b5b5b")


def draw_curves(file: Path, sweep: Sweep, arms: Sequence[ArmSummary], title: str = "") -> None:
    """Writes the picture.

    Raises:
        MissingDependency: If matplotlib is not installed.
    """
    figure = new_figure(8.4, 4.8)
    axis = figure.subplots()
    shown = best(arms)
    for place, arm in enumerate(shown):
        draw_arm(axis, arm, place)
    axis.set(xlabel="minutes", ylabel=sweep.curve)
    if is_share(sweep.curve):
        axis.set_ylim(0, 1.02)
        axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    if sweep.threshold is not None:
        axis.axhline(sweep.threshold, color=COLOURS[-1], lw=0.8, ls=":")
    axis.grid(axis="y", color=LINE, lw=0.8)
    if any(arm.curve for arm in shown):
        axis.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    more = f" (the best {len(shown)} of {len(arms)} arms)" if len(shown) < len(arms) else ""
    finish(figure, file, (title or sweep.name) + more)


def best(arms: Sequence[ArmSummary], most: int = MOST) -> list[ArmSummary]:
    """The arms with the best results, in their own order."""
    if len(arms) <= most:
        return list(arms)
    ranked = sorted(arms, key=lambda arm: arm.after.value if arm.after is not None else float("-inf"))
    names = {arm.name for arm in ranked[-most:]}
    return [arm for arm in arms if arm.name in names]


def draw_arm(axis: Any, arm: ArmSummary, place: int) -> None:
    """Draws one arm's curve, in the look of its place."""
    if not arm.curve:
        return
    colour = COLOURS[place % len(COLOURS)]
    style = ("-", "--", ":")[place // len(COLOURS) % 3]
    minutes = [seconds / 60 for seconds, _ in arm.curve]
    label = f"{arm.name} (n = {len(arm.seeds)})"
    axis.plot(minutes, [mean.value for _, mean in arm.curve], style, color=colour, lw=1.8, label=label)
    bounds = [(x, mean.interval) for x, (_, mean) in zip(minutes, arm.curve, strict=True) if mean.interval]
    if bounds:
        xs, intervals = zip(*bounds, strict=True)
        low, high = [i.low for i in intervals], [i.high for i in intervals]
        axis.fill_between(xs, low, high, color=colour, alpha=0.12, lw=0)
