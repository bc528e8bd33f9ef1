"""Rewards of a step: the outcome, the penalty for repeated actions, the penalty for invalid actions.

Pure functions; the parts stay separate in `RewardParts` and are summed only in `RewardParts.total`.
Source: DistRL §4.1 (outcome from the evaluator) and appendix A.2.2 ("accumulative penalty on repetitions and
hard penalty on invalid actions").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from distrl.configs.judge import RewardConfig
from distrl.core.actions import TERMINAL_KINDS, Action, ActionKind
from distrl.core.types import ActionRecord, Outcome, Purpose, RewardParts, TimeStep, Trajectory, Verdict

NEAR = 0.04  # points closer than this (a fraction of the screen, Euclidean) count as the same place
SUCCESS_SCORE = 1.0  # the smallest score of a success; less is partial credit and a failure


AnyAction = Action | ActionRecord  # a stored action may have a kind that this version does not support


@dataclass(frozen=True)
class Ending:
    """How an episode that was not faulted ended.

    `success` is the score in [0, 1] that counts; also the outcome part of the last step's reward.
    """

    outcome: Outcome
    success: float


def needs_evaluation(last: AnyAction, env_done: bool, config: RewardConfig) -> bool:
    """Whether the environment's score can count, given how the episode ended.

    With `require_complete`, it counts only if the agent said COMPLETE or the environment itself ended the
    episode: an agent stopped by the step limit has not shown that it recognises success.
    """
    return not config.require_complete or env_done or last.kind == ActionKind.COMPLETE


def is_asked_about(trajectory: Trajectory, config: RewardConfig) -> bool:
    """Whether a judge's verdict on a finished episode can count; see `needs_evaluation`."""
    last = trajectory.steps[-1].action
    env_done = not trajectory.truncated and not any(last.kind == kind for kind in TERMINAL_KINDS)
    return needs_evaluation(last, env_done, config)


def judge(last: AnyAction, score: float | None, truncated: bool) -> Ending:
    """How an episode ended, truncated or not; `score` is the environment's, None if it does not count."""
    success = 0.0 if score is None else min(1.0, max(0.0, score))
    if success >= SUCCESS_SCORE:
        return Ending(Outcome.SUCCESS, success)
    if last.kind == ActionKind.IMPOSSIBLE:
        return Ending(Outcome.IMPOSSIBLE_CLAIMED, success)
    return Ending(Outcome.STEP_LIMIT if truncated else Outcome.FAILURE, success)


def awaits_judge(purpose: Purpose, config: RewardConfig) -> bool:
    """Whether the configured judge decides how an episode ended, not the environment.

    Demonstrations are never judged, because training on them only uses the expert's answers. In an imagined
    episode the world model decides.
    """
    return config.source == "judge" and purpose not in (Purpose.DEMO, Purpose.IMAGINED)


def judged(trajectory: Trajectory, verdict: Verdict) -> Trajectory:
    """The episode with a judge's verdict, which is also the outcome part of its last reward.

    A verdict on an earlier screen (`verdict.step`) ends the episode there: later steps and their ground truth
    are dropped. With an undecided verdict the episode stays unjudged, without a reward.
    """
    steps, final, truth = trajectory.steps, trajectory.final, trajectory.truth
    if verdict.is_decided and 0 < verdict.step < len(steps):
        truth = truth_after(trajectory, verdict.step)
        final, steps = steps[verdict.step].observation, steps[: verdict.step]
    truncated = trajectory.truncated and len(steps) == len(trajectory.steps)
    last = steps[-1]
    ending = Ending(Outcome.UNJUDGED, 0.0)
    if verdict.is_decided:
        ending = judge(last.action, float(verdict.success), truncated)
    reward = last.reward.model_copy(update={"outcome": ending.success})
    return trajectory.model_copy(
        update={
            "steps": (*steps[:-1], last.model_copy(update={"reward": reward, "done": True})),
            "final": final,
            "outcome": ending.outcome,
            "success": ending.success,
            "truth": truth,
            "truncated": truncated,
            "verdict": verdict,
        }
    )


def truth_after(trajectory: Trajectory, count: int) -> float | None:
    """The environment's score of the screen after `count` steps (0: all); None if it was not recorded.

    The environment scores the end of an episode. Earlier screens are scored by the expert's distance, if it
    was recorded: it is 0 when the task is done. The same applies to an end at the step limit, which scores 0
    with `require_complete` in any case.
    """
    path = [*(step.observation for step in trajectory.steps), trajectory.final]
    is_end = not 0 < count < len(trajectory.steps)
    shown = trajectory.final if is_end else path[count]
    is_done = shown is not None and shown.distance == 0
    if is_end:
        return 1.0 if is_done and trajectory.truncated else trajectory.ground_truth
    is_known = any(screen is not None and screen.distance is not None for screen in path)
    return float(is_done) if is_known else None


def step_penalties(
    history: Sequence[TimeStep], action: Action, screen: str, config: RewardConfig
) -> RewardParts:
    """The penalties that `action` earns.

    repetition = −κ · n, where n counts how often the same action was just done on this screen (see
    `count_repeats`): −κ, −2κ, … while it is repeated, and 0 after any change.
    invalid = −`config.invalid` for an invalid action, which is not penalised as a repetition.
    """
    if action.kind is ActionKind.INVALID:
        return RewardParts(invalid=-config.invalid)
    return RewardParts(repetition=-config.repetition * count_repeats(history, action, screen))


def count_repeats(history: Sequence[TimeStep], action: AnyAction, screen: str) -> int:
    """How many of the latest steps had the same action on a screen with the same digest.

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


def same_action(first: AnyAction, second: AnyAction) -> bool:
    """Whether two actions are of one kind, in (nearly) one place, with the same text and motion."""
    return (
        first.kind == second.kind
        and first.text == second.text
        and is_near(first.point, second.point)
        and is_near(first.to, second.to)
        and first.motion == second.motion
    )


def is_near(first: tuple[float, float] | None, second: tuple[float, float] | None) -> bool:
    """Whether two points are less than `NEAR` apart; two absent points are."""
    if first is None or second is None:
        return first is second
    return math.dist(first, second) < NEAR
