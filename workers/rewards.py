"""What a step earns: the outcome, the penalty for repeating oneself, the penalty for an invalid action.

Pure functions; the parts stay apart in `RewardParts` and are summed in one place, `RewardParts.total`.
Source: DistRL §4.1 (outcome from the evaluator) and appendix A.2.2 ("accumulative penalty on repetitions and
hard penalty on invalid actions").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from distrl.configs.schema import RewardConfig
from distrl.core.actions import Action, ActionKind
from distrl.core.types import ActionRecord, Outcome, RewardParts, TimeStep

NEAR = 0.04
"""Points closer than this (a fraction of the screen, Euclidean) count as the same place."""

SUCCESS_SCORE = 1.0
"""The judge's score from which an episode counts as a success; less is partial credit and a failure."""


@dataclass(frozen=True)
class Verdict:
    """How an episode that was not faulted ended.

    Attributes:
        outcome: The kind of ending.
        success: The score in [0, 1] that counts; also the outcome part of the last step's reward.
    """

    outcome: Outcome
    success: float


def needs_evaluation(last: Action, env_done: bool, config: RewardConfig) -> bool:
    """Whether the environment's score can count, given how the episode ended.

    With `require_complete`, it counts only if the agent said COMPLETE or the environment itself ended the
    episode: an agent that is merely cut off by the step limit has not shown that it knows it is done.
    """
    return not config.require_complete or env_done or last.kind is ActionKind.COMPLETE


def judge(last: Action, score: float | None, truncated: bool) -> Verdict:
    """The verdict on an episode.

    Args:
        last: Its last action.
        score: What the environment's evaluation gave, in [0, 1]; None when it does not count.
        truncated: Whether the step limit ended the episode.
    """
    success = 0.0 if score is None else min(1.0, max(0.0, score))
    if success >= SUCCESS_SCORE:
        return Verdict(Outcome.SUCCESS, success)
    if last.kind is ActionKind.IMPOSSIBLE:
        return Verdict(Outcome.IMPOSSIBLE_CLAIMED, success)
    return Verdict(Outcome.STEP_LIMIT if truncated else Outcome.FAILURE, success)


def step_penalties(
    history: Sequence[TimeStep], action: Action, screen: str, config: RewardConfig
) -> RewardParts:
    """The penalties that `action` earns.

    repetition = −κ · n, where n counts how often the same action has just been done on this very screen
    (see `count_repeats`), so −κ, −2κ, … while it goes on and 0 after any change.
    invalid = −`config.invalid` for an action that could not be understood. An invalid action is not
    penalised as a repetition too.

    Args:
        history: The steps before this one.
        action: What the agent does now.
        screen: Content address of the screenshot that it acts on.
        config: κ and the invalid penalty.
    """
    if action.kind is ActionKind.INVALID:
        return RewardParts(invalid=-config.invalid)
    return RewardParts(repetition=-config.repetition * count_repeats(history, action, screen))


def count_repeats(history: Sequence[TimeStep], action: Action, screen: str) -> int:
    """How many of the latest steps did the same as `action` on a screen with the same digest.

    The run ends at the first step, going back, whose screen or action differs. Invalid steps, which leave the
    screen alone, neither count nor end the run.
    """
    count = 0
    for step in reversed(history):
        if step.observation.image != screen:
            break
        if step.action.kind == ActionKind.INVALID.value:
            continue
        if not same_action(step.action, action):
            break
        count += 1
    return count


def same_action(first: ActionRecord | Action, second: ActionRecord | Action) -> bool:
    """Whether two actions are of one kind, in (nearly) one place, with the same text."""
    return (
        ActionKind(first.kind) is ActionKind(second.kind)
        and first.text == second.text
        and is_near(first.point, second.point)
        and is_near(first.to, second.to)
    )


def is_near(first: tuple[float, float] | None, second: tuple[float, float] | None) -> bool:
    """Whether two points are less than `NEAR` apart; two absent points are."""
    if first is None or second is None:
        return first is second
    return math.dist(first, second) < NEAR
