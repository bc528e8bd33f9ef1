"""The parts of the reward, and the verdict on an episode."""

import pytest

from distrl.configs.judge import RewardConfig
from distrl.core.actions import Action, ActionKind
from distrl.core.types import ActionRecord, Observation, Outcome, TimeStep
from distrl.workers.rewards import judge, step_penalties

CONFIG = RewardConfig(repetition=0.05, invalid=0.1)
TAP = Action.tap(0.5, 0.5)
COMPLETE, IMPOSSIBLE = Action(kind=ActionKind.COMPLETE), Action(kind=ActionKind.IMPOSSIBLE)
INVALID = Action.invalid("?", "no action_type")


def penalties(*steps: tuple[Action, str]) -> list[tuple[float, float]]:
    """(repetition, invalid) of each step of an episode given as (action, digest of the screen it acts on)."""
    history: list[TimeStep] = []
    found = []
    for action, screen in steps:
        parts = step_penalties(history, action, screen, CONFIG)
        found.append((parts.repetition, parts.invalid))
        record = ActionRecord(**action.model_dump(mode="json"))
        observation = Observation(image=screen, width=1, height=1)
        history.append(TimeStep(observation=observation, chats=(), action=record, reward=parts))
    return found


BACK, SHOES = Action(kind=ActionKind.BACK), Action.type_text("shoes")
NEAR, FAR = Action.tap(0.52, 0.52), Action.tap(0.54, 0.5)
LONG, SWIPE = Action(kind=ActionKind.LONG_PRESS, point=(0.5, 0.5)), Action.swipe((0.5, 0.5), (0.5, 0.9))


@pytest.mark.parametrize(
    ("actions", "screens", "expected"),
    [
        ([TAP] * 4, "aaaa", [0, -0.05, -0.1, -0.15]),
        ([TAP] * 4, "aabb", [0, -0.05, 0, -0.05]),
        ([TAP, TAP, BACK, TAP, TAP], "aaaaa", [0, -0.05, 0, 0, -0.05]),
        ([TAP, NEAR], "aa", [0, -0.05]),
        ([TAP, FAR, TAP, LONG, TAP, SWIPE], "aaaaaa", [0] * 6),
        ([Action.type_text("red"), SHOES, SHOES], "aaa", [0, 0, -0.05]),
    ],
    ids=["accumulates", "another-screen", "another-action", "near", "not-the-same", "text"],
)
def test_the_repetition_penalty(actions: list[Action], screens: str, expected: list[float]) -> None:
    found = [round(repetition, 6) for repetition, _ in penalties(*zip(actions, screens, strict=True))]
    assert found == expected


def test_an_invalid_action_has_a_hard_penalty_and_leaves_the_run_alone() -> None:
    assert penalties((TAP, "a"), (INVALID, "a"), (INVALID, "a"), (TAP, "a")) == [
        (0.0, 0.0),
        (0.0, -0.1),
        (0.0, -0.1),
        (-0.05, 0.0),
    ]


@pytest.mark.parametrize(
    ("last", "score", "truncated", "outcome", "success"),
    [
        (COMPLETE, 1.0, False, Outcome.SUCCESS, 1.0),
        (COMPLETE, 0.0, False, Outcome.FAILURE, 0.0),
        (COMPLETE, 0.5, False, Outcome.FAILURE, 0.5),
        (COMPLETE, 7.0, False, Outcome.SUCCESS, 1.0),
        (IMPOSSIBLE, None, False, Outcome.IMPOSSIBLE_CLAIMED, 0.0),
        (IMPOSSIBLE, 1.0, False, Outcome.SUCCESS, 1.0),
        (TAP, None, True, Outcome.STEP_LIMIT, 0.0),
        (TAP, 1.0, True, Outcome.SUCCESS, 1.0),
        (TAP, 1.0, False, Outcome.SUCCESS, 1.0),
        (TAP, 0.0, False, Outcome.FAILURE, 0.0),
    ],
)
def test_the_verdict(
    last: Action, score: float | None, truncated: bool, outcome: Outcome, success: float
) -> None:
    verdict = judge(last, score, truncated)
    assert (verdict.outcome, verdict.success) == (outcome, success)
