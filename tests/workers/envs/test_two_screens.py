"""Two screens of coloured buttons: what taps do, who succeeds, what is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest

from distrl.configs.agents import CHAT_AGENTS
from distrl.configs.schema import Config, EnvConfig
from distrl.core.actions import Action, ActionKind
from distrl.core.errors import ConfigError, EnvError, TaskError
from distrl.core.types import Task
from distrl.evaluator.suites import load_suite
from distrl.workers.agents import build_agent
from distrl.workers.envs import build_env
from distrl.workers.envs.two_screens import COLORS, PLACES, TwoScreensEnv
from distrl.workers.episode import observe

BACK = Action(kind=ActionKind.BACK)
PARAMS: dict[str, Any] = {
    "screens": [
        [{"color": "red", "place": 0}, {"color": "blue", "place": 3}],
        [{"color": "green", "place": 1}],
    ],
    "right": [1, 0],
}


def task(params: dict[str, Any] = PARAMS, seed: int = 0) -> Task:
    return Task(id="t", suite="s", template="pick", split="test", goal="g", params=params, seed=seed)


def tap(place: int) -> Action:
    return Action.tap(*PLACES[place])


def test_a_wrong_button_goes_on_too_and_back_mends_it() -> None:
    env = TwoScreensEnv()
    env.reset(task())
    env.step(tap(0))
    assert env.expert_action() == BACK
    second = env.step(tap(1))
    assert (second.done, env.evaluate()) == (True, 0.0)
    env.reset(task())
    for action in (tap(0), BACK, tap(3), tap(1)):
        result = env.step(action)
    assert (result.done, env.evaluate()) == (True, 1.0)


def test_beside_the_buttons_nothing_happens() -> None:
    env = TwoScreensEnv()
    before = env.reset(task())
    for action in (tap(1), Action.tap(0.5, 0.02), Action(kind=ActionKind.HOME), BACK):
        result = env.step(action)
        assert result.frame.screen.key == before.screen.key
        assert not result.done


def test_the_colour_of_the_right_button_is_at_its_place() -> None:
    for seed in range(20):
        image = TwoScreensEnv(width=90, height=200).reset(task(seed=seed)).image
        assert image.size == (90, 200)
        for place, color in ((0, "red"), (3, "blue")):
            x, y = PLACES[place]
            assert image.getpixel((int(x * 90), int(y * 200))) == COLORS[color]


def test_the_same_task_shows_the_same_picture_and_another_seed_another() -> None:
    first, again, other = (TwoScreensEnv().reset(task(seed=seed)) for seed in (3, 3, 4))
    assert first.image.tobytes() == again.image.tobytes()
    assert first.screen.key == again.screen.key
    assert first.image.tobytes() != other.image.tobytes()


@pytest.mark.parametrize("kind", ["autoui", *CHAT_AGENTS])
def test_the_expert_solves_every_task_in_every_notation(kind: str) -> None:
    env = build_env(EnvConfig(kind="two_screens"))
    agent = build_agent(Config().agent.model_copy(update={"kind": kind}))
    rng = random.Random(0)
    for one in rng.sample(load_suite("two_screens"), 40):
        frame, num_steps, done = env.reset(one), 0, False
        while not done and num_steps < one.max_steps:
            screen, _ = observe(frame, Config().worker)
            result = env.step(agent.parse(agent.format(env.expert_action(), screen), screen))
            frame, done, num_steps = result.frame, result.done, num_steps + 1
        assert (done, env.evaluate(), num_steps) == (True, 1.0, 2), one.id


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, r"params\.screens: Field required"),
        (
            {"screens": [[{"color": "pink", "place": 9}]] * 2, "right": [0, 0]},
            r"params\.screens\.0\.0\.color",
        ),
    ],
)
def test_other_parameters_are_refused(params: dict[str, Any], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        TwoScreensEnv().reset(task(params))


def test_what_comes_before_reset_and_too_small_a_screen_are_refused() -> None:
    for call in (lambda: TwoScreensEnv().step(BACK), lambda: TwoScreensEnv().evaluate()):
        with pytest.raises(EnvError, match="reset"):
            call()
    with pytest.raises(ConfigError, match="16x640"):
        build_env(EnvConfig(kind="two_screens", options={"width": 16}))
