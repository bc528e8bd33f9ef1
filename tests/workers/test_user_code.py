"""What environments of one's own return is checked where an episode uses it."""

from __future__ import annotations

import math
import re
import types
from typing import Any

import numpy as np
import pytest
from counting_env import COMPLETE, TAP, CountingEnv
from scripted_episode import TASK, Script, run

from distrl.configs.agents import AgentConfig
from distrl.configs.schema import EnvConfig
from distrl.core.actions import Action
from distrl.core.errors import ConfigError, OwnCodeError
from distrl.core.types import Observation, Purpose
from distrl.workers.agents import build_agent
from distrl.workers.agents.autoui import AutoUIAgent
from distrl.workers.envs import ENVS, build_env, seed_is_instance


class Careless(CountingEnv):
    """Its methods return what they are given here."""

    def __init__(self, **returns: Any) -> None:
        super().__init__()
        for name, value in returns.items():
            setattr(self, name, types.MethodType(named(name, value), self))


def named(name: str, value: Any) -> Any:
    def method(self: Any, *given: Any) -> Any:
        return value

    method.__name__ = name
    return method


@pytest.mark.parametrize("score", [2.0, -0.1, math.nan, "yes", None])
def test_a_score_outside_of_0_to_1_is_refused(score: Any) -> None:
    said = re.escape(f"Careless.evaluate returned {score!r}, not a score in [0, 1]")
    with pytest.raises(OwnCodeError, match=said):
        run(Script(COMPLETE), Careless(evaluate=score))


@pytest.mark.parametrize("score", [True, 1, np.float32(1.0)])
def test_any_number_may_be_a_score(score: Any) -> None:
    assert run(Script(COMPLETE), Careless(evaluate=score))[0].success == 1.0


@pytest.mark.parametrize(
    ("returns", "said"),
    [
        ({"reset": None}, r"Careless\.reset returned None instead of Frame"),
        ({"step": CountingEnv().reset(TASK)}, r"Careless\.step returned a Frame instead of StepResult"),
        ({"expert_action": "tap"}, r"Careless\.expert_action returned a str instead of Action"),
    ],
)
def test_what_is_of_the_wrong_type_is_refused(returns: dict[str, Any], said: str) -> None:
    with pytest.raises(OwnCodeError, match=said):
        run(Script(), Careless(**returns), purpose=Purpose.DEMO)


def test_a_method_that_takes_too_little_is_told_from_one_that_fails() -> None:
    env = CountingEnv()
    env.step = env.evaluate  # type: ignore[assignment, method-assign]
    with pytest.raises(OwnCodeError, match=r"CountingEnv\.evaluate cannot be called: .* takes 1 positional"):
        run(Script(TAP), env)
    env.step = lambda action: len(action)  # type: ignore[assignment, arg-type, return-value]
    with pytest.raises(TypeError, match="has no len"):
        run(Script(TAP), env)


def test_seeds_are_instances_where_the_goal_is_drawn_from_them() -> None:
    found = [kind for kind in ENVS if seed_is_instance(EnvConfig(kind=kind))]
    assert found == ["browser", "android_world", "metaworld"]
    assert not seed_is_instance(EnvConfig(import_path="counting_env:CountingEnv"))


def test_options_are_keyword_arguments_and_an_import_path_wins_over_the_kind() -> None:
    agent = build_agent(AgentConfig(kind="autoui", options={"history": 3}))
    assert isinstance(agent, AutoUIAgent)
    assert agent.history == 3
    env = build_env(EnvConfig(kind="phone", import_path="counting_env:CountingEnv", options={"closes_at": 2}))
    assert isinstance(env, CountingEnv)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("autoiu", {}, "Did you mean 'autoui'"),
        ("autoui", {"memory": 1}, r"AutoUIAgent: .*'memory'.*Its options are: history"),
        ("autoui", {"history": -1}, "history must be 0 or more, not -1"),
        ("autoui", {"notation": "json"}, "compact, autoui, digirl"),
        ("autoui", {"images": 0}, "images must"),
        ("mobile-use", {"mode": "both"}, "mode"),
        ("mobile-use", {"mode": "incremental", "summarise": True}, "summarise needs mode history"),
        ("mobile-use", {"coordinates": "pixels"}, "coordinates"),
        ("mobile-use", {"reasoning": "long"}, "reasoning"),
        ("mobile-use", {"history": -1}, "history"),
        ("mobile-use", {"resize": {"factor": 28}}, "resize has patch_size"),
        ("mobile-use", {"resize": {"patch_size": 0}}, "patch_size"),
        ("androidworld", {"coordinates": 1}, "coordinates"),
        ("androidworld", {"coordinates": [1, 2, 3]}, "coordinates"),
    ],
)
def test_an_agent_that_cannot_be_built_is_one_clear_error(
    kind: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build_agent(AgentConfig(kind=kind, options=options))


@pytest.mark.parametrize(
    ("kind", "lacks"),
    [
        ("autoui", {"kind": "answer", "text": "7"}),
        ("mobile-use", {"kind": "double_tap", "point": (0.5, 0.5)}),
    ],
)
def test_an_action_that_a_notation_lacks_is_refused(kind: str, lacks: dict[str, Any]) -> None:
    screen = Observation(image="f00d", width=1, height=1)
    with pytest.raises(ConfigError, match=lacks["kind"]):
        build_agent(AgentConfig(kind=kind)).format(Action(**lacks), screen)


class Half:
    """Some of the methods of an environment, and of an agent."""

    step = None

    def reset(self, task):
        return None

    def parse(self, text, screen):
        return None


def test_lacking_methods_are_listed() -> None:
    path = f"{__name__}:Half"
    with pytest.raises(ConfigError, match=f"{path} lacks the methods step, evaluate, expert_action, close"):
        build_env(EnvConfig(import_path=path))
    with pytest.raises(ConfigError, match=f"{path} lacks the methods prompt, format"):
        build_agent(AgentConfig(import_path=path))
