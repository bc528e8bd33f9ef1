"""One update under the quickstart's configuration gives the numbers that it has always given."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import torch

from distrl.configs.load import load_config
from distrl.learner.algorithms import build_algorithm
from distrl.learner.batching import Batcher, ImageCache
from distrl.learner.engine import Engine
from distrl.learner.episodes import compile_episode

# Recorded when A-RIDE was the only algorithm.
EXPECTED = {
    "fitted": 1.16423,
    "policy_loss": -0.005603522,
    "critic_loss": 0.7528629,
    "weights": 208.0017,
    "critic": -1.293997,
    "priorities": 8.389389,
    "loss/policy": 0.05253752,
    "loss/entropy": -1.097614,
    "loss/validity": -0.2521262,
    "loss/value": 0.4374342,
    "loss/trajectory": 0.6308575,
    "off_policy/ratio_mean": 0.8100837,
    "off_policy/ratio_max": 1.397059,
    "off_policy/clipped_fraction": 0,
    "off_policy/silenced_fraction": 0.1666667,
    "off_policy/trace_cut_fraction": 0.3333333,
    "off_policy/log_ratio_clamped": 0,
    "off_policy/ess": 0.7436548,
    "off_policy/token_log_ratio_abs": 0.6035511,
    "value/mean": 0.257987,
    "value/trajectory_accuracy": 0.6666667,
    "advantage/mean": 0.03766703,
    "advantage/std": 0.3612209,
    "batch/success": 0.3333333,
    "batch/steps": 6,
    "policy/entropy": 1.473645,
    "policy/grad_norm": 0.1434015,
    "value/grad_norm": 0.2233017,
    "policy/lr": 6.083333e-06,
}


def test_the_quickstart_trains_as_ever(toy, policy, critic, load_images) -> None:
    config = load_config("quickstart").learner
    with torch.no_grad():
        for module in (policy, critic):
            for tensor in module.parameters():
                tensor.copy_(torch.linspace(-0.5, 0.4, tensor.numel()).view(tensor.shape))
    trajectories = [
        toy.trajectory(
            "won",
            [
                toy.step(1, (1,), (-1.5,), image=1, temperature=0.8, repetition=-0.1),
                toy.step(1, (2, 3), (-2.0, -1.0), image=2, temperature=0.8, outcome=1.0),
            ],
        ),
        toy.trajectory(
            "lost", [toy.step(2, (4,), (-2.5,), image=3, temperature=0.8, kind="invalid", invalid=-0.2)]
        ),
        toy.trajectory("cut", [toy.step(3, (5,), (-1.9,), image=4, temperature=0.8)] * 3, truncated=True),
    ]
    episodes = [compile_episode(t, policy) for t in trajectories]
    batcher = Batcher(policy, ImageCache(policy.image, load_images))
    engine = Engine(policy, critic, build_algorithm(config), config)
    fitted = engine.fit_critic(batcher.trajectories(episodes))
    result = engine.update(batcher.trajectories(episodes, [1.0, 0.5, 0.75]), 0.3)
    scale = torch.arange(1.0, policy.head.weight.numel() + 1).view(policy.head.weight.shape)
    found = {
        "fitted": fitted,
        "policy_loss": float(result.policy_loss.detach()),
        "critic_loss": float(result.critic_loss.detach()),
        "weights": float((policy.head.weight.detach() * scale).sum()),
        "critic": float(critic.value.weight.detach().sum() + critic.trajectory.weight.detach().sum()),
        "priorities": float(result.priorities.sum()),
        **result.metrics,
    }
    assert found == pytest.approx(EXPECTED, rel=1e-5)
