"""Models of the hub and AutoUI's T5 under ZeRO against one process of torch; run by test_zero_models.py."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from policy_fakes import WORDS, chat, png
from rank_world import join, make_batch
from rank_zero import close, group_of, stop

from distrl.configs.learner import LearnerConfig
from distrl.configs.policy import policy_config
from distrl.core.policies import build_critic, build_policy
from distrl.core.policies.base import Policy, PromptBatch
from distrl.learner.algorithms import build_algorithm
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.distributed import follow
from distrl.learner.train_step import TrainStep
from distrl.learner.zero import ZeroPolicy

UPDATES = 4
LR = 1e-3
POLICIES: dict[str, dict[str, Any]] = {
    "hub-lora": {"kind": "hub", "lora": {"rank": 2, "alpha": 4.0}},
    "hub-lora-checkpointed": {"kind": "hub", "lora": {"rank": 2}, "gradient_checkpointing": True},
    "hub-lora-half": {"kind": "hub", "lora": {"rank": 2}, "dtype": "bfloat16"},
    "hub-lora-grpo": {"kind": "hub", "lora": {"rank": 2}},
    "hub-full": {"kind": "hub"},
    "autoui": {"kind": "autoui", "image_features": "blip2"},
    "autoui-lora": {"kind": "autoui", "image_size": [40, 56], "lora": {"rank": 2, "targets": ["q", "v"]}},
}

ALGORITHMS = {"hub-lora-grpo": {"kind": "grpo", "kl": 0.1}}  # one pass; DeepSpeed starts with the base model

COARSE = {"hub-lora-half": 0.05}
"""How far losses may differ, if not by 1e-5: in bfloat16 other paddings of a batch round otherwise."""


def trainer_of(name: str, model: str, zero: dict[str, Any] | None) -> tuple[TrainStep, LearnerConfig]:
    """The same networks every time; without `zero` by torch."""
    engine = {"engine": "deepspeed", "ds_config": {"zero_optimization": zero}} if zero is not None else {}
    config = LearnerConfig.model_validate(
        {
            "algorithm": ALGORITHMS.get(name, {"kind": "aride"}),
            "optim": {"lr": LR},
            "demonstrations": {"lr": LR},
            "micro_batch_tokens": 60,
            **engine,
        }
    )
    options = {"model": model, "device": "cpu", "max_prompt_tokens": 200, **POLICIES[name]}
    if "image_features" in options:
        options["image_features"] = str(Path(model).parent / options["image_features"])
    policy = build_policy(policy_config(**options), [], seed=1)
    trainer = TrainStep(
        policy,
        build_critic(policy, seed=1),
        build_algorithm(config),
        config,
        ZeroPolicy(policy, config) if zero is not None else None,
    )
    return trainer, config


def batch_of(policy: Policy, seed: int) -> TrajectoryBatch:
    """Three trajectories with pictures of several sizes, and answers that the policy can write."""
    batch, rng = make_batch((2, 1, 2), seed), random.Random(seed)

    def prompts(count: int) -> PromptBatch:
        sizes = [(rng.choice((54, 33, 130)), rng.choice((120, 31))) for _ in range(count)]
        images = [[policy.image(png(rng.randrange(100), size))] for size in sizes]
        return policy.collate([policy.prompt_ids(chat(rng.choice(WORDS)), row) for row in images], images)

    answers = [policy.completion_ids(rng.choice("abcd") + rng.choice("xyz"))[:3] for _ in batch.row]
    changes = {
        name: getattr(batch, name).float()
        for name in ("outcome", "penalty", "invalid", "success", "group_mean", "group_std")
    }
    steps = replace(
        batch.steps,
        prompts=prompts(len(batch.steps)),
        completions=torch.tensor(answers),
        behaviour_logprobs=batch.steps.behaviour_logprobs.float() - 2.0,
    )
    return replace(batch, steps=steps, final_prompts=prompts(len(batch.final_row)), **changes)


def trained(engine: TrainStep) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The losses of cloning and of the updates after it, and what would be published then."""
    policy = engine.policy
    losses = [engine.clone(batch_of(policy, 99).steps)] if engine.algorithm.has_critic else []
    for seed in range(UPDATES):
        result = engine.update(batch_of(policy, seed))
        losses += [float(x.detach()) for x in (result.policy_loss, result.critic_loss) if x is not None]
    with engine.gathered(is_full=policy.published_kind() == "full"):
        return losses, {name: value.detach().clone() for name, value in policy.published_state().items()}


def compare(rank: int, size: int, file: str, name: str, model: str, *stages: str) -> None:
    """Losses and published weights are those of one process, and so are the weights' types.

    Args:
        stages: A `zero_optimization` each, as JSON.
    """
    alone, _ = trainer_of(name, model, None)
    losses, weights = trained(alone)
    join(rank, size, file)
    for stage in stages:
        trainer, config = trainer_of(name, model, json.loads(stage))
        if rank > 0:
            follow(trainer)
            continue
        engine = group_of(trainer, config, size)
        found, published = trained(engine)
        apart = max(abs(a - b) for a, b in zip(found, losses, strict=True))
        assert apart < COARSE.get(name, 1e-5), f"{stage}: {found} {losses}"
        assert found[0] != found[1]
        assert {k: v.dtype for k, v in published.items()} == {k: v.dtype for k, v in weights.items()}
        if name not in COARSE:
            close(published, weights, stage)
        stop(engine)
    torch.distributed.destroy_process_group()
