"""The presets of continuous control: each environment is there, and a round of training works."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.needs("torch", "gymnasium", "Box2D", "mujoco")


@pytest.mark.parametrize("name", ["lunarlander", "bipedalwalker", "hopper", "halfcheetah"])
def test_a_round_of_a_preset(name: str) -> None:
    from distrl.configs.load import load_config
    from distrl.core.policies.gaussian import ControlSpec, GaussianPolicy
    from distrl.core.policies.local_ppo import LocalPpo
    from distrl.workers.control.collector import Collector
    from distrl.workers.envs.gym import GymGroup

    config = load_config(f"appo-{name}", ["learner.appo.epochs=1"])
    group, appo = GymGroup(config.env.options, 2), config.learner.appo
    spec = ControlSpec.of(config.policy.gaussian, config.env.options["id"], group.space.sizes, True)
    policy, rng = GaussianPolicy(spec, 0), np.random.default_rng(0)
    found = Collector(group, appo.gamma, appo.scale_rewards, rng).collect(policy, 40)
    assert found is not None
    eta, numbers = LocalPpo(policy, appo).train(found[0], appo.local_lr, rng)
    assert all(bool(np.isfinite(one.numpy()).all()) for one in eta.values())
    assert numbers["loss/value"] > 0.0
    group.close()
