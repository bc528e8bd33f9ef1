"""Gymnasium environments: what goes in and out, and errors in one line."""

from __future__ import annotations

import sys

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="needs gymnasium: not installed")

from control_world import AIM

from distrl.core.errors import ConfigError, EnvError, MissingDependency
from distrl.workers.envs.gym import GymGroup, control_space, make_env


def test_actions_are_clipped_to_the_box_for_the_environment() -> None:
    group = GymGroup({"id": AIM}, 2)
    group.reset(0, 1), group.reset(1, 2)
    steps = group.step(np.array([[9.0, -9.0], [0.0, 0.0]]))  # the fake asserts that it is in the box
    assert steps.observations.shape == (2, 2)
    assert group.space.sizes == (2, 2)


def test_some_of_a_group_can_be_stepped() -> None:
    group = GymGroup({"id": AIM}, 3)
    first = [group.reset(index, 7) for index in range(3)]
    steps = group.step(np.zeros((1, 2)), [2])
    assert steps.rewards.shape == (1,)
    np.testing.assert_array_equal(first[0], first[2])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"id": "NoSuch-v0"}, "cannot be made"),
        ({"id": AIM, "colour": 1}, "colour"),
        ({"id": "control_envs:Still-v0"}, "actions of the kind Discrete"),
        ({"id": "no_such_module:Env-v0"}, "cannot be made"),
    ],
)
def test_what_cannot_be_made_is_told_in_one_line(options: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        control_space(options)
    assert "\n" not in str(caught.value)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingDependency, match=r'pip install "distrl\[gym\]"'):
        make_env({"id": AIM})


def test_a_failing_environment_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    group = GymGroup({"id": "control_envs:Flaky-v0", "breaks_at": 1}, 1)
    monkeypatch.setattr("control_envs.Flaky.num_steps", 0)
    group.reset(0, 1)
    with pytest.raises(EnvError, match="RuntimeError: the simulator"):
        group.step(np.zeros((1, 2)))
