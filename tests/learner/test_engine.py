"""The engine's learning rate: how it rises and falls, and that it is what the optimiser steps by."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import math

import torch

from distrl.configs.learner import LearnerConfig
from distrl.learner.algorithms.aride import Aride
from distrl.learner.batching import Batcher, ImageCache
from distrl.learner.episodes import compile_episode
from distrl.learner.optimisers import TorchOptimiser
from distrl.learner.train_step import TrainStep


@pytest.fixture
def make_step(toy):
    def build(**optim: float) -> TrainStep:
        config = LearnerConfig.model_validate({"optim": {"lr": 0.02, **optim}})
        torch.manual_seed(0)
        return TrainStep(toy.policy(), toy.critic(), Aride(config.algorithm, config), config)

    return build


@pytest.fixture
def two(toy, policy, load_images):
    won = toy.trajectory("won", [toy.step(1, (2,), (-1.0,), image=1, outcome=1.0)])
    lost = toy.trajectory("lost", [toy.step(2, (4,), (-2.0,), image=3)])
    episodes = [compile_episode(trajectory, policy) for trajectory in (won, lost)]
    return Batcher(policy, ImageCache(policy.image, load_images)).trajectories(episodes)


def rates(engine, two, shares) -> list[float]:
    return [engine.update(two, share).metrics["policy/lr"] for share in shares]


def test_the_rate_falls_linearly_to_its_final_fraction_and_stays(make_step, two) -> None:
    engine = make_step(final_lr_fraction=0.1)
    assert rates(engine, two, [0.0, 0.5, 1.0, 1.2]) == pytest.approx([0.02, 0.011, 0.002, 0.002])


def test_the_warm_up_multiplies_the_decay(make_step, two) -> None:
    engine = make_step(final_lr_fraction=0.5, warmup_updates=4)
    assert rates(engine, two, [0.0, 0.2, 0.4, 0.6, 0.8]) == pytest.approx(
        [0.02 * 0.25 * 1.0, 0.02 * 0.5 * 0.9, 0.02 * 0.75 * 0.8, 0.02 * 0.7, 0.02 * 0.6]
    )


def test_cloning_leaves_nothing_in_the_optimiser_of_what_comes_after(make_step, two) -> None:
    cloned, other = make_step(), make_step()
    cloned.clone(two.steps)
    other.policy.load_state_dict(cloned.policy.state_dict())
    for engine in (cloned, other):
        engine.update(two)
    assert torch.equal(cloned.policy.head.weight, other.policy.head.weight)


def test_the_random_state_of_a_gpu_is_saved_with_the_policy_on_it(make_step, monkeypatch) -> None:
    """Draws for E_π Q come from the device's generator, so a resume needs its state too."""
    engine, given = make_step(), []
    assert "cuda_rng" not in engine.state_dict()
    monkeypatch.setattr(type(engine.policy), "device", property(lambda self: torch.device("cuda", 0)))
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: torch.arange(4, dtype=torch.uint8))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: given.append((state, device)))
    state = engine.state_dict()
    engine.load_state_dict(state)
    ((restored, device),) = given
    assert restored.tolist() == [0, 1, 2, 3]
    assert device == torch.device("cuda", 0)
    del state["cuda_rng"]  # written on a CPU
    engine.load_state_dict(state)
    assert len(given) == 1


@pytest.mark.parametrize(("share", "rate"), [(0.0, 0.02), (0.5, 0.011), (1.0, 0.002)])
def test_the_optimiser_steps_by_the_rate(make_step, two, share, rate) -> None:
    engine = make_step(final_lr_fraction=0.1)
    before = engine.policy.head.weight.detach().clone()
    critic_before = engine.critic.value.bias.detach().clone()
    engine.update(two, share)
    # AdamW's first step moves a parameter with a gradient by the learning rate, whatever the gradient's size.
    moved = (engine.policy.head.weight.detach() - before).abs().max()
    assert float(moved) == pytest.approx(rate, rel=1e-3)
    critic_moved = (engine.critic.value.bias.detach() - critic_before).abs().max()
    assert float(critic_moved) == pytest.approx(1e-3, rel=1e-3), "the critic's rate is its own and constant"


def test_a_gradient_that_is_not_finite_leaves_the_weights_alone() -> None:
    module = torch.nn.Linear(2, 1)
    before = [parameter.detach().clone() for parameter in module.parameters()]
    optimiser = TorchOptimiser(module, 0.1, 0.0, 1.0)
    optimiser.begin()
    loss = (module.weight * 0.0).sqrt().sum()  # whose derivative at 0 is infinite, times 0
    assert bool(torch.isfinite(loss))
    optimiser.backward(loss)
    assert math.isnan(optimiser.norm())
    assert all(bool((one == other).all()) for one, other in zip(before, module.parameters(), strict=True))
