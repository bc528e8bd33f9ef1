"""The agent of robot arms: what it shows and asks, and motions as text and back."""

from __future__ import annotations

import random

import pytest

from distrl.configs.agents import ARM_SHAPE
from distrl.core.actions import Action, ActionKind
from distrl.core.errors import ConfigError
from distrl.core.types import ImagePart, Observation, TextPart
from distrl.workers.agents.arm import ArmAgent

SCREEN = Observation(image="0" * 32, width=80, height=80, state=(0.00461, -0.6, 0.2, 1.0))
AGENT = ArmAgent(chunk=2, axes=3, bins=5)


def text_of(agent: ArmAgent, goal: str) -> str:
    image, text = agent.prompt(goal, SCREEN, ()).messages[0].parts
    assert isinstance(image, ImagePart)
    assert image.digest == SCREEN.image
    assert isinstance(text, TextPart)
    return text.text


def test_a_prompt_has_the_picture_the_sentence_in_one_line_and_the_state_if_wanted() -> None:
    sentence = "Task: Open the\ndrawer".replace("\n", " ")
    assert text_of(AGENT, "Open the\ndrawer") == f"{sentence}\nState: 0.0046 -0.6000 0.2000 1.0000"
    assert text_of(ArmAgent(state=False), "Open the drawer") == sentence
    (message,) = ArmAgent(picture=False).prompt("Open the drawer", SCREEN, ()).messages
    assert message.parts == AGENT.prompt("Open the drawer", SCREEN, ()).messages[0].parts[1:]


def test_every_motion_that_it_can_write_is_read_again() -> None:
    rng = random.Random(0)
    for _ in range(50):
        text = "; ".join(" ".join(str(rng.randrange(5)) for _ in range(3)) for _ in range(2))
        action = AGENT.parse(text, SCREEN)
        assert {number for row in action.motion for number in row} <= {-1.0, -0.5, 0.0, 0.5, 1.0}
        assert AGENT.format(action, SCREEN) == text


def test_numbers_between_bins_go_to_the_nearest_and_rows_beyond_the_chunk_are_left_out() -> None:
    action = Action.move([(-1.0, 0.2, 0.3), (0.76, 0.74, 1.0), (0.0, 0.0, 0.0)])
    assert AGENT.format(action, SCREEN) == "0 2 3; 4 3 4"
    assert AGENT.parse("0 2 3 4 3 4", SCREEN) == AGENT.parse("0 2 3; 4 3 4", SCREEN)


@pytest.mark.parametrize(
    "text",
    [
        *("", "0 0 0", "0 0 0; 0 0", "0 0 0; 0 0 0; 0 0 0", "0 0 0; 0 0 5", "0 0 0; 0 0 -1"),
        *("0 0 0; 0 0 1.0", "0 0 0; 0 0 nan", "0 0 0; 0 0 ²", "0 0 0; 0 0 ٣", "0 0 0; 0 0 " + "0" * 5000),
    ],
)
def test_everything_else_is_invalid_and_says_why(text: str) -> None:
    action = AGENT.parse(text, SCREEN)
    assert action.kind is ActionKind.INVALID
    assert action.reason
    assert AGENT.format(action, SCREEN) == text[:200]


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (Action.tap(0.5, 0.5), "no action 'tap'"),
        (Action.move([(0.0, 0.0, 0.0)]), "1 rows of 3 numbers does not fill 2 rows of 3"),
        (Action.move([(0.0,) * 4] * 2), "2 rows of 4 numbers does not fill 2 rows of 3"),
    ],
)
def test_what_it_cannot_write_is_refused(action: Action, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        AGENT.format(action, SCREEN)


@pytest.mark.parametrize("options", [{"chunk": 0}, {"chunk": 65}, {"axes": 33}, {"bins": 1}])
def test_impossible_shapes_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be a number from"):
        ArmAgent(**options)


def test_random_motions_fill_a_chunk_and_hold_one_direction() -> None:
    rng = random.Random(0)
    drawn = [AGENT.random_action(rng) for _ in range(200)]
    assert all(action.motion[0] == action.motion[1] and len(action.motion) == 2 for action in drawn)
    first = [action.motion[0][0] for action in drawn]
    assert min(first) < -0.9
    assert max(first) > 0.9


def test_the_configuration_knows_its_default_shape() -> None:
    agent = ArmAgent()
    assert {name: getattr(agent, name) for name in ARM_SHAPE} == ARM_SHAPE
