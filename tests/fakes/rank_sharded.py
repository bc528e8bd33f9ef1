"""Engines that shard, against one process of torch; run by tests/learner/test_sharded.py."""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import replace
from typing import Any

import torch
from rank_world import join, make_batch

from distrl.configs.learner import LearnerConfig
from distrl.configs.policy import policy_config
from distrl.core.policies import build_critic, build_policy
from distrl.core.policies.base import Pictures, PromptBatch
from distrl.learner.algorithms import build_algorithm
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.distributed import RankGroup, follow, sharded_by
from distrl.learner.train_step import TrainStep

STEPS = 8
LORA = {"rank": 2, "alpha": 4.0, "targets": ["q", "v"]}


def trainer_of(engine: str, lora: bool = False, **learner: Any) -> tuple[TrainStep, LearnerConfig]:
    """The same networks every time, in float32.

    Args:
        engine: Of `learner.engine`, or a stage of ZeRO.
    """
    chosen: dict[str, Any] = {"engine": engine}
    if engine.isdigit():
        zero = {"stage": int(engine), "stage3_param_persistence_threshold": 0}
        chosen = {"engine": "deepspeed", "ds_config": {"zero_optimization": zero}}
    rates = {"optim": {"lr": 1e-3}, "demonstrations": {"lr": 1e-3}}
    config = LearnerConfig.model_validate({**rates, **chosen, **learner})
    sizes = {
        "d_model": 32,
        "num_layers": 1,
        "num_heads": 2,
        "d_ff": 64,
        "image_size": [36, 72],
        "grid": [2, 2],
    }
    policy = build_policy(
        policy_config(**{**sizes, "device": "cpu", "lora": LORA if lora else None}),
        ["one", "two"],
        seed=1,
    )
    policy.get_buffer("_allowed")[:, 1:] = True  # the batches' tokens are not actions
    critic = build_critic(policy, seed=1)
    algorithm = build_algorithm(config)
    return TrainStep(policy, critic, algorithm, config, sharded_by(config, policy)), config


def batch_of(seed: int) -> TrajectoryBatch:
    """For the embedded policy, in float32."""
    batch = make_batch(seed=seed)
    g = torch.Generator().manual_seed(seed)

    def prompts(count: int) -> PromptBatch:
        ids = torch.randint(1, 8, (count, 3), generator=g)
        pictures = torch.randint(0, 256, (count, 3, 72, 36), generator=g).byte()
        return PromptBatch(ids, torch.ones_like(ids), Pictures([[picture] for picture in pictures]))

    changes = {
        name: getattr(batch, name).float()
        for name in ("outcome", "penalty", "invalid", "success", "group_mean", "group_std")
    }
    steps = replace(
        batch.steps,
        prompts=prompts(len(batch.steps)),
        behaviour_logprobs=batch.steps.behaviour_logprobs.float(),
    )
    return replace(batch, steps=steps, final_prompts=prompts(len(batch.final_row)), **changes)


def losses_of(engine: TrainStep, first: int = 0, last: int = STEPS) -> list[float]:
    """Both losses of each update."""
    found = []
    for seed in range(first, last):
        result = engine.update(batch_of(seed))
        found += [float(result.policy_loss.detach()), float(result.critic_loss.detach())]
    return found


def weights_of(engine: TrainStep) -> dict[str, torch.Tensor]:
    """What would be published, and what a checkpoint would have."""
    with engine.gathered():
        return {name: value.clone() for name, value in engine.policy.published_state().items()}


def group_of(own: TrainStep, config: LearnerConfig, size: int) -> TrainStep:
    """Rank 0's group of `size` ranks; with one rank `own` itself."""
    if size == 1:
        return own
    group = RankGroup(own.policy, own.critic, own.algorithm, config, own.sharded, num_ranks=size)
    group.load_optimisers({})
    return group


def stop(group: TrainStep) -> None:
    if isinstance(group, RankGroup):
        group.stop()


def compare(rank: int, size: int, file: str, *engines: str) -> None:
    """8 updates have the losses of one process, and the same weights afterwards."""
    expected = {lora: _alone(lora) for lora in (False, True)}
    join(rank, size, file)
    for kind in engines:
        for lora, learner in ((False, {}), (True, {"micro_batch_tokens": 20})):
            trainer, config = trainer_of(kind, lora, **learner)
            if rank > 0:
                follow(trainer)
                continue
            engine = group_of(trainer, config, size)
            name, (cloning, losses, scores, weights) = f"{kind}, LoRA {lora}", expected[lora]
            first = _published(engine)
            assert abs(engine.clone(batch_of(99).steps) - cloning) < 1e-5, name
            for step, (one, other) in enumerate(zip(losses[:-2], losses_of(engine), strict=True)):
                assert abs(one - other) < 1e-5, f"{name}: update {step // 2}: {other} for {one}"
            for one, other in zip(scores, _scores(engine, first), strict=True):
                torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-3, msg=lambda m, n=name: f"{n} {m}")
            close(weights_of(engine), weights, name)
            assert abs(losses_of(engine, STEPS, STEPS + 1)[0] - losses[-2]) < 1e-5, f"{name}: after lending"
            stop(engine)
    torch.distributed.destroy_process_group()


def _alone(lora: bool) -> tuple[float, list[float], list[torch.Tensor], dict[str, torch.Tensor]]:
    engine, _ = trainer_of("torch", lora)
    first, cloning = _published(engine), engine.clone(batch_of(99).steps)
    losses = losses_of(engine)
    scores, weights = _scores(engine, first), weights_of(engine)
    return cloning, losses + losses_of(engine, STEPS, STEPS + 1), scores, weights


def _published(engine: TrainStep) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in engine.policy.published_state().items()}


def _scores(engine: TrainStep, lent: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """What lent weights give, and then the engine's own."""
    steps = batch_of(98).steps
    return [engine.logprobs(steps, lent), engine.logprobs(steps)]


def close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], name: str) -> None:
    """Weights are alike, but for steps that AdamW makes of rounding where a gradient is nearly zero.

    These are one weight in a thousand; what gets other gradients is another network altogether.
    """
    assert found.keys() == expected.keys()
    far, count = 0, 0
    for key, value in expected.items():
        apart = (found[key] - value).abs()
        assert apart.max() < 2e-3, f"{name} {key}: {apart.max()}"
        far += int((apart > 2e-4 + 1e-4 * value.abs()).sum())
        count += value.numel()
    assert far <= 0.002 * count, f"{name}: {far} of {count} weights are far apart"


def resume(rank: int, size: int, file: str, *engines: str) -> None:
    """What one kind of optimiser saved, another goes on from, as if nothing had happened."""
    engine, _ = trainer_of("torch")
    start = losses_of(engine, 0, 4)
    saved = copy.deepcopy((weights_of(engine), engine.critic.state_dict(), engine.state_dict()))
    expected = losses_of(engine, 4, 8)
    join(rank, size, file)
    state: Any = saved
    for kind in engines:
        trainer, config = trainer_of(kind)
        if rank > 0:
            assert _kept(trainer) == {"step"}, "rank 0 alone keeps the states"
            continue
        assert len(start) == 8
        engine = group_of(trainer, config, size)
        engine.policy.load_published(state[0])
        engine.critic.load_state_dict(state[1])
        engine.load_state_dict(copy.deepcopy(state[2]))
        first = losses_of(engine, 4, 6)
        assert max(abs(a - b) for a, b in zip(first, expected[:4], strict=True)) < 1e-5, kind
        again = copy.deepcopy((weights_of(engine), engine.critic.state_dict(), engine.state_dict()))
        stop(engine)
        other, _ = trainer_of("torch")
        other.policy.load_published(again[0])
        other.critic.load_state_dict(again[1])
        other.load_state_dict(again[2])
        with _no_job():
            rest = losses_of(other, 6, 8)
        assert max(abs(a - b) for a, b in zip(rest, expected[4:], strict=True)) < 1e-5, f"after {kind}"
    torch.distributed.destroy_process_group()


def _kept(trainer: TrainStep) -> set[str]:
    """What another rank has in its main memory of the policy's optimiser when a checkpoint is written."""
    gather, kept = trainer.optimiser_states, set[str]()

    def gathered() -> dict[str, Any]:
        states = gather()
        kept.update(name for own in states["actor"]["state"].values() for name in own)
        return states

    trainer.optimiser_states = gathered
    follow(trainer)
    return kept


def skip(rank: int, size: int, file: str, *engines: str) -> None:
    """A gradient that is not finite changes nothing: updates after it are as if it had not been."""
    expected = losses_of(trainer_of("torch")[0], 0, 12)
    join(rank, size, file)
    for kind, learner in itertools.product(engines, ({}, {"micro_batch_tokens": 20})):
        trainer, config = trainer_of(kind, **learner)
        _spoil(trainer.algorithm)
        if rank > 0:
            follow(trainer)
            continue
        engine = group_of(trainer, config, size)
        found = losses_of(engine, 0, 2)
        for number, name in enumerate(("critic_loss", "policy_loss"), start=1):
            batch = batch_of(50)
            assert engine.update(replace(batch, ids=[name] * len(batch.ids))) is None, kind
            found += losses_of(engine, 5 * number - 3, 5 * number + 2)
        apart = [abs(one - other) for one, other in zip(found, expected, strict=True)]
        assert max(apart) < 1e-5, f"{kind}, {learner}: {apart}"
        stop(engine)
    torch.distributed.destroy_process_group()


def skip_in_parts(rank: int, size: int, file: str, *engines: str) -> None:
    """As `skip`, of a loss that is known not to be finite when the gradients of its parts have been added."""
    learner = {"algorithm": {"kind": "grpo"}, "micro_batch_tokens": 20}
    rates = {"demonstrations": {"lr": 1e-3, "rehearsal": 0.5}}

    def batch(seed: int, **changes: Any) -> TrajectoryBatch:
        return replace(batch_of(seed), demonstrated=batch_of(99).steps, **changes)

    def losses(engine: TrainStep, first: int, last: int) -> list[float]:
        return [float(engine.update(batch(seed)).policy_loss) for seed in range(first, last)]

    expected = losses(trainer_of("torch", **learner, **rates)[0], 0, 5)
    join(rank, size, file)
    for kind in engines:
        engine, _ = trainer_of(kind, **learner, **rates)
        found, judge = losses(engine, 0, 2), engine.algorithm.loss
        engine.algorithm.loss = _endless(judge)
        assert engine.update(batch(50)) is None, kind
        engine.algorithm.loss = judge
        found += losses(engine, 2, 5)
        apart = [abs(one - other) for one, other in zip(found, expected, strict=True)]
        assert max(apart) < 1e-5, f"{kind}: {apart}"
    torch.distributed.destroy_process_group()


def _endless(judge: Any) -> Any:
    def judged(*given: Any) -> Any:
        result = judge(*given)
        return replace(result, policy_loss=result.policy_loss + math.inf)

    return judged


def _spoil(algorithm: Any) -> None:
    """In a batch of which the trajectories are called like a loss this one has a slope that is not finite."""
    judge = algorithm.loss

    def spoilt(batch: TrajectoryBatch, outputs: Any) -> Any:
        result, name = judge(batch, outputs), batch.ids[0]
        if not name.endswith("_loss"):
            return result
        loss = getattr(result, name)
        return replace(result, **{name: loss + (0.0 * loss).sqrt()})  # 0 times infinity

    algorithm.loss = spoilt


def _no_job() -> Any:
    """Lets a single process compute beside the job that it is a rank of."""
    from unittest import mock

    return mock.patch("distrl.learner.ranks._is_job", return_value=False)
