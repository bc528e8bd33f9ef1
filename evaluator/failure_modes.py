"""Why an episode failed: one mode for each, by rules over its path of screens.

The three modes of DistRL's figure 10 (appendix A.6.1) are "fails to recover from a mistake", "gets stuck
midway" and "arrives at a wrong goal"; the paper gives no rules for them. These are ours: docs/evaluation.md
lists them in their order, and their limits. An unknown distance of a screen counts as infinitely far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

from distrl.core.actions import ActionKind
from distrl.core.types import Observation, TimeStep, Trajectory

MIN_TAIL = 3
"""The fewest steps after which an episode counts as stuck."""
MIN_ASTRAY = 2
"""A mistake with fewer steps left to recover is not counted."""
_GOING_BACK = (ActionKind.BACK.value, ActionKind.HOME.value)


class FailureMode(str, Enum):
    """Why a task was not solved."""

    MISTAKE = "unrecovered-mistake"
    STUCK = "stuck"
    WRONG_GOAL = "wrong-goal"
    PREMATURE = "premature-stop"
    STEP_LIMIT = "step-limit"


MODE_WORDS = {
    FailureMode.MISTAKE: "Fails to recover from a mistake",
    FailureMode.STUCK: "Gets stuck midway",
    FailureMode.WRONG_GOAL: "Arrives at a wrong goal",
    FailureMode.PREMATURE: "Stops too early",
    FailureMode.STEP_LIMIT: "Runs out of steps",
}
"""Titles of the modes, the paper's three first."""

MODE_NOTES = {
    FailureMode.MISTAKE: "Ended farther from the goal than before, with at least two steps left to recover.",
    FailureMode.STUCK: "Came no closer to the goal in the last third of its steps, at least three.",
    FailureMode.WRONG_GOAL: "Said that it was done after moving on from its closest point to the goal.",
    FailureMode.PREMATURE: "Said too early that it was done, or that the task is impossible.",
    FailureMode.STEP_LIMIT: "Was still approaching the goal, or did not say that it was done.",
}


def failure_mode(trajectory: Trajectory) -> FailureMode | None:
    """The mode of an episode that a judge calls a failure.

    Args:
        trajectory: An episode that ended without a fault. What it says of its success does not matter.

    Returns:
        None for an episode without steps.
    """
    steps = trajectory.steps
    if not steps:
        return None
    path = [step.observation for step in steps]
    path += [trajectory.final] if trajectory.final is not None else []
    distances = _distances(path)
    last, ended_by_itself = steps[-1].action.kind, not trajectory.truncated
    if last == ActionKind.IMPOSSIBLE.value:
        return FailureMode.PREMATURE
    if last == ActionKind.COMPLETE.value:
        closest = 0 if distances is None else distances.index(min(distances))
        stayed = len({screen.image for screen in path[closest:]}) == 1
        return FailureMode.PREMATURE if stayed else FailureMode.WRONG_GOAL
    if ended_by_itself:
        return FailureMode.WRONG_GOAL
    return _by_screens(steps, path) if distances is None else _by_distance(distances)


def _distances(path: Sequence[Observation]) -> list[float] | None:
    """How far each screen is from the goal; None if none of them is known."""
    if all(screen.distance is None for screen in path):
        return None
    return [math.inf if screen.distance is None else float(screen.distance) for screen in path]


def _tail(num_steps: int) -> int:
    return max(MIN_TAIL, math.ceil(num_steps / 3))


def _by_distance(distances: Sequence[float]) -> FailureMode:
    end, closest = len(distances) - 1, min(distances)
    first = distances.index(closest)
    last = end - list(reversed(distances)).index(closest)
    if distances[end] == 0:
        return FailureMode.STEP_LIMIT
    if distances[end] > closest and end - last >= MIN_ASTRAY:
        return FailureMode.MISTAKE
    return FailureMode.STUCK if end - first >= _tail(end) else FailureMode.STEP_LIMIT


def _by_screens(steps: Sequence[TimeStep], path: Sequence[Observation]) -> FailureMode:
    images, tail = [screen.image for screen in path], _tail(len(steps))
    before, after = images[:-tail], images[-tail:]
    if before and set(after) <= set(before):
        return FailureMode.STUCK
    for t, step in enumerate(steps[: len(images) - 1]):
        has_changed = images[t + 1] != images[t]
        if has_changed and (step.action.kind in _GOING_BACK or images[t + 1] in images[:t]):
            return FailureMode.MISTAKE
    return FailureMode.STEP_LIMIT


def expert_steps(trajectory: Trajectory) -> int | None:
    """How many steps the expert takes for this task, its word that it is done included; None if unknown."""
    first = trajectory.steps[0].observation if trajectory.steps else trajectory.final
    return None if first is None or first.distance is None else first.distance + 1
