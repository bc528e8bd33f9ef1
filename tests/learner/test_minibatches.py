"""Several gradient steps on one batch: what a minibatch is, and what comes back."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import torch

from distrl.configs.schema import LearnerConfig
from distrl.core.policies.base import PromptBatch
from distrl.learner import losses, off_policy
from distrl.learner.algorithms import build_algorithm
from distrl.learner.algorithms.base import Loss
from distrl.learner.batching import Batcher, ImageCache
from distrl.learner.episodes import compile_episode
from distrl.learner.off_policy import StepStats
from distrl.learner.train_step import TrainStep, merge, minibatches


@pytest.fixture
def make(toy, policy, load_images):
    trajectories = [
        toy.trajectory("a", [toy.step(1, (1,), (-1.5,), image=k) for k in range(2)], truncated=True),
        toy.trajectory("b", [toy.step(2, (4, 5), (-2.5, -1.0), image=3, kind="invalid", invalid=-0.2)]),
        toy.trajectory("c", [toy.step(3, (5,), (-1.9,), image=k) for k in range(3)], truncated=True),
        toy.trajectory("d", [toy.step(4, (6,), (-2.2,), image=5, outcome=1.0)]),
    ]
    episodes = [compile_episode(t, policy) for t in trajectories]
    batcher = Batcher(policy, ImageCache(policy.image, load_images))
    return lambda *rows: batcher.trajectories([episodes[i] for i in rows])


@pytest.mark.parametrize("rows", [[0], [1, 3], [3, 2, 0], [0, 1, 2, 3], [2]])
def test_a_part_is_the_batch_of_its_trajectories(make, rows) -> None:
    part, alone = make(0, 1, 2, 3).part(torch.tensor(rows)), make(*rows)
    assert part.ids == alone.ids
    width = alone.mask.shape[1]
    for name in (
        "row",
        "col",
        "last",
        "invalid",
        "terminated",
        "success",
        "final_row",
        "final_step",
        "weights",
    ):
        assert torch.equal(getattr(part, name), getattr(alone, name)), name
    for name in ("mask", "outcome", "penalty"):
        assert torch.equal(getattr(part, name)[:, :width], getattr(alone, name)), name
        assert not getattr(part, name)[:, width:].any()
    tokens = alone.steps.completions.shape[1]
    assert torch.equal(part.steps.completions[:, :tokens], alone.steps.completions)
    assert torch.equal(part.first, alone.first)
    for mine, other in ((part.steps.prompts, alone.steps.prompts), (part.final_prompts, alone.final_prompts)):
        if not isinstance(other, PromptBatch):
            assert mine is None
        else:
            assert torch.equal(mine.input_ids, other.input_ids)
            assert torch.equal(mine.images, other.images)


def test_a_part_keeps_what_belongs_to_its_steps(make) -> None:
    batch = make(0, 1, 2, 3)
    batch.old_values, batch.old_bootstrap = torch.arange(7.0), torch.arange(4.0)
    batch.steps.proximal_logprobs = torch.arange(14.0).view(7, 2)
    batch.group_mean = torch.tensor([0.1, 0.2, 0.3, 0.4])
    part = batch.part(torch.tensor([2, 0]))
    assert part.old_values.tolist() == [3.0, 4.0, 5.0, 0.0, 1.0]
    assert part.old_bootstrap.tolist() == [2.0, 0.0]
    assert part.steps.proximal_logprobs[:, 0].tolist() == [6.0, 8.0, 10.0, 0.0, 2.0]
    assert part.group_mean.tolist() == pytest.approx([0.3, 0.1])


def test_every_epoch_sees_every_trajectory_once(make) -> None:
    batch = make(0, 1, 2, 3)
    torch.manual_seed(0)
    parts = list(minibatches(batch, epochs=2, parts=3))
    assert [len(rows) for rows, _ in parts] == [2, 1, 1, 2, 1, 1]
    for epoch in (parts[:3], parts[3:]):
        assert sorted(torch.cat([rows for rows, _ in epoch]).tolist()) == [0, 1, 2, 3]
    assert [len(part.ids) for _, part in minibatches(make(1), 1, 4)] == [1]
    assert [(rows, part is batch) for rows, part in minibatches(batch, 2, 1)] == [(None, True)] * 2


def said(rows, lengths, ratio, level="action", **metrics: float) -> tuple[torch.Tensor, Loss]:
    """A pass over trajectories `rows` of these lengths, one token a step, of one ratio, capped at 2."""
    row = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor(lengths))
    mask = torch.ones(len(row), 1, dtype=torch.bool)
    ratios = losses.importance_ratios(torch.full((len(row), 1), math.log(ratio)), 0.0 * mask, mask, 20.0)
    steps = StepStats.of(row, ratios, mask, level, {"clipped_fraction": ratios.at(level) > 2.0})
    priorities = torch.full((len(rows), 3), ratio)
    metrics = {**metrics, **off_policy.metrics(steps)}
    return torch.tensor(rows), Loss(torch.tensor(ratio), None, priorities, metrics, steps)


@pytest.mark.parametrize("level", ["action", "token"])
def test_what_several_steps_say_becomes_one(level) -> None:
    """Two epochs over trajectories of 1, 2 and 3 steps. 12 steps in all, of ratios 1 (4), 2 (2), 3 (5), 4."""
    merged = merge(
        [
            said([2, 0], [3, 1], 1.0, level, x=1.0, **{"batch/success": 0.0, "policy/grad_norm": 1.0}),
            said([1], [2], 2.0, level, x=2.0, **{"batch/success": 1.0, "policy/grad_norm": 2.0}),
            said([1, 2], [2, 3], 3.0, level, x=3.0, **{"batch/success": 0.5, "policy/grad_norm": 3.0}),
            said([0], [1], 4.0, level, x=4.0, **{"batch/success": 0.0, "policy/grad_norm": 8.0}),
        ],
        3,
    )
    assert merged.priorities[:, 0].tolist() == [4.0, 3.0, 3.0]
    assert float(merged.policy_loss) == 4.0
    found = merged.metrics
    assert found["x"] == pytest.approx((4 * 1 + 2 * 2 + 5 * 3 + 4) / 12), "by steps"
    assert found["batch/success"] == pytest.approx((2 * 0 + 1 * 1 + 2 * 0.5 + 0) / 6), "by trajectories"
    assert found["policy/grad_norm"] == pytest.approx((1 + 2 + 3 + 8) / 4), "by gradient steps"
    assert found["batch/steps"] == 6
    assert found["off_policy/ratio_max"] == pytest.approx(4.0)
    assert found["off_policy/ratio_mean"] == pytest.approx((4 * 1 + 2 * 2 + 5 * 3 + 4) / 12)
    assert found["off_policy/clipped_fraction"] == pytest.approx(6 / 12)
    assert found["off_policy/ess"] == pytest.approx(27**2 / (12 * (4 * 1 + 2 * 4 + 5 * 9 + 16)))
    assert merged.steps.row.tolist() == [2, 2, 2, 0, 1, 1, 1, 1, 2, 2, 2, 0]


def test_an_update_makes_all_steps_around_one_proximal_policy(make, policy, critic) -> None:
    options = {"decoupled": True, "epochs": 3, "minibatches": 2, "entropy": 0.0}
    config = LearnerConfig.model_validate({"algorithm": {"kind": "ppo", **options}, "optim": {"lr": 0.1}})
    algorithm = build_algorithm(config)
    engine, batch = TrainStep(policy, critic, algorithm, config), make(0, 1, 2, 3)
    steps = batch.steps
    with torch.no_grad():
        before = policy.score(steps.prompts, steps.completions, steps.token_mask, steps.temperature).logprobs
    seen = []
    judge = algorithm.loss

    moments = []

    def spy(part, outputs):
        seen.append(part.steps.proximal_logprobs)
        moments.append(part.advantage_moments)
        return judge(part, outputs)

    algorithm.loss = spy
    result = engine.update(batch)
    assert torch.equal(batch.steps.proximal_logprobs, before)
    assert len(seen) == 6
    assert sorted(torch.cat(seen[:2]).flatten().tolist()) == pytest.approx(sorted(before.flatten().tolist()))
    assert moments == [batch.advantage_moments] * 6, "all are normalised alike, by the whole batch"
    assert result.priorities.shape == (4, 3)
    assert {"policy/grad_norm", "value/grad_norm", "off_policy/clipped_fraction"} <= set(result.metrics)
    assert int(engine.state_dict()["num_steps"]) == 1, "the learning rate counts batches"
