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

from distrl.core.errors import (
    OwnCodeError,
)
from distrl.core.types import (
    Purpose,
)


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
