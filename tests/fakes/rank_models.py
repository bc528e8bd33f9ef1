"""Models of the hub and AutoUI's T5, sharded, against one process of torch; run by test_sharded_models.py."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from policy_fakes import WORDS, chat, png
from rank_sharded import close, group_of, stop
from rank_world import join, make_batch

from distrl.configs.learner import LearnerConfig
from distrl.configs.policy import policy_config
from distrl.core.policies import build_critic, make_policy, sampling
from distrl.core.policies.base import Policy, PromptBatch
from distrl.core.types import ChatMessage, TextPart
from distrl.learner.algorithms import build_algorithm
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.distributed import follow, sharded_by
from distrl.learner.train_step import TrainStep

UPDATES = 4
SPOKEN = (ChatMessage(role="user", parts=(TextPart(text="open settings"),)),)
LR = 1e-3
POLICIES: dict[str, dict[str, Any]] = {
    "hub-lora": {"kind": "hub", "lora": {"rank": 2, "alpha": 4.0}},
    "hub-lora-checkpointed": {"kind": "hub", "lora": {"rank": 2}, "gradient_checkpointing": True},
    "hub-lora-half": {"kind": "hub", "lora": {"rank": 2}, "dtype": "bfloat16"},
    "hub-lora-grpo": {"kind": "hub", "lora": {"rank": 2}},
    "hub-full": {"kind": "hub", "train_vision": True},
    "hub-full-half": {"kind": "hub", "dtype": "bfloat16"},
    "autoui": {"kind": "autoui", "image_features": "blip2"},
    "autoui-lora": {"kind": "autoui", "image_size": [40, 56], "lora": {"rank": 2, "targets": ["q", "v"]}},
}

ALGORITHMS = {"hub-lora-grpo": {"kind": "grpo", "kl": 0.1}}  # one pass; an engine starts with the base model

COARSE = {"hub-lora-half": 0.05, "hub-full-half": 0.05}
"""How far losses may differ, if not by 1e-5: in bfloat16 other paddings of a batch round otherwise."""


MAX_LOGITS = 240
"""A few tokens' at a time: ranks, which have different numbers of tokens, score them in several pieces."""


def trainer_of(
    name: str, model: str, engine: dict[str, Any], rank: int = 0
) -> tuple[TrainStep, LearnerConfig]:
    """The same networks every time; `engine`: keys of the section `learner`."""
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
    is_bare = config.zero_stage == 3 and rank > 0 and options["kind"] == "hub"
    bare = {"has_weights": False} if is_bare else {}
    policy = make_policy(policy_config(**options), [], seed=1, **bare)
    trainer = TrainStep(
        policy,
        build_critic(policy, seed=1, device="cpu"),
        build_algorithm(config),
        config,
        sharded_by(config, policy),
    )
    return trainer, config


def batch_of(policy: Policy, seed: int) -> TrajectoryBatch:
    """Three trajectories with pictures of several sizes, and answers that the policy can write.

    Models of the hub get no pictures in the last trajectory of every second batch, the only one of a rank.
    A batch of one trajectory leaves nothing to the other rank.
    """
    batch, rng = make_batch((2,) if seed == 2 else (2, 1, 2), seed), random.Random(seed)
    is_blind = policy.name == "hub" and seed % 2 == 1

    def prompts(rows: torch.Tensor) -> PromptBatch:
        shown = [not is_blind or row < 2 for row in rows.tolist()]
        sizes = [(rng.choice((54, 33, 130)), rng.choice((120, 31))) for _ in shown]
        images = [
            [policy.image(png(rng.randrange(100), size))] * is_shown
            for size, is_shown in zip(sizes, shown, strict=True)
        ]
        chats = [chat(rng.choice(WORDS)) if row else SPOKEN for row in images]
        ids = [policy.prompt_ids(words, row) for words, row in zip(chats, images, strict=True)]
        return policy.collate(ids, images)

    final = prompts(batch.final_row) if len(batch.final_row) else None
    answers = [policy.completion_ids(rng.choice("abcd") + rng.choice("xyz"))[:3] for _ in batch.row]
    changes = {
        name: getattr(batch, name).float()
        for name in ("outcome", "penalty", "invalid", "success", "group_mean", "group_std")
    }
    steps = replace(
        batch.steps,
        prompts=prompts(batch.row),
        completions=torch.tensor(answers),
        behaviour_logprobs=batch.steps.behaviour_logprobs.float() - 2.0,
    )
    return replace(batch, steps=steps, final_prompts=final, **changes)


def trained(engine: TrainStep) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The losses of cloning and of the updates after it, and what would be published then."""
    policy = engine.policy
    losses = [engine.clone(batch_of(policy, 99).steps)] if engine.algorithm.has_critic else []
    for seed in range(UPDATES):
        result = engine.update(batch_of(policy, seed))
        losses += [float(x.detach()) for x in (result.policy_loss, result.critic_loss) if x is not None]
    with engine.gathered():
        return losses, {name: value.detach().clone() for name, value in policy.published_state().items()}


def compare(rank: int, size: int, file: str, name: str, model: str, *engines: str) -> None:
    """Losses and published weights are those of one process, and so are the weights' types.

    Args:
        engines: Keys of the section `learner` each, as JSON.
    """
    sampling.MAX_LOGITS = MAX_LOGITS
    alone, _ = trainer_of(name, model, {})
    losses, weights = trained(alone)
    join(rank, size, file)
    for engine_keys in engines:
        trainer, config = trainer_of(name, model, json.loads(engine_keys), rank)
        if rank > 0:
            follow(trainer)
            continue
        engine = group_of(trainer, config, size)
        found, published = trained(engine)
        apart = max(abs(a - b) for a, b in zip(found, losses, strict=True))
        assert apart < COARSE.get(name, 1e-5), f"{engine_keys}: {found} {losses}"
        assert found[0] != found[1]
        assert {k: v.dtype for k, v in published.items()} == {k: v.dtype for k, v in weights.items()}
        if name not in COARSE:
            close(published, weights, engine_keys)
        stop(engine)
    torch.distributed.destroy_process_group()


def resume(rank: int, size: int, file: str, name: str, model: str, *engines: str) -> None:
    """A learner goes on from what another of its kind saved as that one does, to the bit."""
    join(rank, size, file)
    for engine_keys in engines:
        _resume(rank, size, name, model, engine_keys)
    torch.distributed.destroy_process_group()


def _resume(rank: int, size: int, name: str, model: str, engine_keys: str) -> None:
    weights: Any = None
    saved: Any = None
    losses: list[float] = []
    for _ in range(2):
        trainer, config = trainer_of(name, model, json.loads(engine_keys), rank)
        if rank > 0:
            follow(trainer)
            continue
        policy = trainer.policy
        if saved is not None:
            policy.load_published(weights)
            trainer.critic.load_state_dict(saved[0])
        engine = group_of(trainer, config, size)
        if saved is not None:
            engine.load_state_dict(saved[1])
        else:
            engine.clone(batch_of(policy, 99).steps)
            engine.update(batch_of(policy, 0))
            engine.update(batch_of(policy, 1))
            with engine.gathered():
                weights = {key: value.clone() for key, value in policy.published_state().items()}
            saved = copy.deepcopy((engine.critic.state_dict(), engine.state_dict()))
        losses += [float(engine.update(batch_of(policy, seed)).policy_loss.detach()) for seed in (3, 4)]
        stop(engine)
    assert losses[:2] == losses[2:], engine_keys
