"""The Gaussian policy, and a round of each preset."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("gymnasium", reason="needs gymnasium: not installed")

from pathlib import Path

import numpy as np

from distrl.appo.envs import Moments
from distrl.appo.policy import CLIP, GaussianPolicy, PolicySpec, load_policy
from distrl.core.errors import CheckpointError, PolicyError

SPEC = PolicySpec("Some-v0", 3, 2, (8,), "tanh", -0.5)


@pytest.fixture
def policy() -> GaussianPolicy:
    policy = GaussianPolicy(SPEC, seed=1)
    with torch.no_grad():
        policy.flat.vector.add_(0.3 * torch.randn(policy.flat.vector.shape, generator=torch.Generator()))
    return policy


def test_log_probabilities_and_entropy_are_those_of_the_distribution(policy: GaussianPolicy) -> None:
    x, actions = torch.randn(5, 3), torch.randn(5, 2)
    normal = torch.distributions.Normal(policy.actor(x), policy.log_std.exp())
    torch.testing.assert_close(policy.log_prob(x, actions), normal.log_prob(actions).sum(-1))
    torch.testing.assert_close(policy.entropy(), normal.entropy().sum(-1)[0])


def test_actions_are_drawn_from_it(policy: GaussianPolicy) -> None:
    x = np.zeros((20_000, 3), np.float32)
    drawn = policy.act(x, np.random.default_rng(0))
    mean = policy.act(x[:1], None)[0]
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.03)
    np.testing.assert_allclose(drawn.std(axis=0), policy.log_std.exp().detach().numpy(), rtol=0.03)


def test_observations_are_normalised_and_clipped(policy: GaussianPolicy) -> None:
    seen = np.random.default_rng(0).normal([100.0, -5.0, 0.0], [10.0, 0.1, 1.0], (1000, 3))
    policy.observations = Moments.of(seen)
    x = policy.normalise(seen)
    np.testing.assert_allclose(x.mean(axis=0), 0.0, atol=1e-4)
    np.testing.assert_allclose(x.std(axis=0), 1.0, atol=1e-3)
    assert policy.normalise(np.array([1e6, 0.0, 0.0]))[0] == CLIP


def test_a_checkpoint_keeps_weights_and_statistics(policy: GaussianPolicy, tmp_path: Path) -> None:
    policy.observations = Moments.of(np.random.default_rng(0).normal(3.0, 2.0, (10, 3)))
    policy.save(tmp_path / "policy")
    loaded = load_policy(tmp_path / "policy")
    observations = np.random.default_rng(1).normal(3.0, 2.0, (4, 3))
    assert loaded.spec == SPEC
    np.testing.assert_array_equal(loaded.act_greedily(observations), policy.act_greedily(observations))
    torch.testing.assert_close(loaded.flat.vector, policy.flat.vector, rtol=0.0, atol=0.0)


def test_another_policy_s_weights_are_refused(policy: GaussianPolicy, tmp_path: Path) -> None:
    other = GaussianPolicy(PolicySpec("Some-v0", 4, 2, (8,), "tanh", 0.0), seed=0)
    with pytest.raises(PolicyError, match=r"'actor\.0\.weight' is \(8, 4\)"):
        policy.load_published(other.published_state())
    with pytest.raises(CheckpointError, match="is not a Gaussian policy"):
        load_policy(tmp_path)


@pytest.mark.needs("Box2D", "mujoco")
@pytest.mark.parametrize("name", ["lunarlander", "bipedalwalker", "hopper", "halfcheetah"])
def test_a_round_of_a_preset(name: str) -> None:
    from distrl.appo.envs import Collector, GymGroup
    from distrl.appo.policy import GaussianPolicy, PolicySpec
    from distrl.appo.ppo import LocalPpo
    from distrl.configs.load import load_config

    config = load_config(f"appo-{name}", ["learner.algorithm.epochs=1"])
    group, appo = GymGroup(config.env.options, 2), config.learner.appo
    spec = PolicySpec.of(config, group.space.sizes)
    policy, rng = GaussianPolicy(spec, 0), np.random.default_rng(0)
    found = Collector(group, appo.gamma, rng).collect(policy, 40)
    assert found is not None
    eta, numbers = LocalPpo(policy, appo).train(found, appo.local_lr, rng)
    assert all(bool(np.isfinite(one.numpy()).all()) for one in eta.values())
    assert numbers["loss/value"] > 0.0
    group.close()
