"""The presets for hub models with tiny random ones in their place: simulated phones, one update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs transformers: not installed")
pytest.importorskip("peft", reason="needs peft: not installed")

import torch
from hub_models import FAMILIES
from in_process import InProcess

from distrl.configs.load import load_config
from distrl.configs.schema import Config
from distrl.core.messages import Lease
from distrl.core.model_points import check_agent_points
from distrl.core.policies import build_critic, build_policy
from distrl.core.policies.base import Policy
from distrl.core.policies.images import ImageCache
from distrl.core.types import Purpose, Trajectory
from distrl.evaluator.suites import load_suite
from distrl.learner.algorithms import build_algorithm
from distrl.learner.batching import Batcher, TrajectoryBatch
from distrl.learner.episodes import GroupStats, compile_episode
from distrl.learner.train_step import TrainStep
from distrl.workers.agents import build_agent
from distrl.workers.envs import build_env
from distrl.workers.episode import EpisodeRunner


def play(config: Config, policy: Policy, purposes: Sequence[Purpose]) -> tuple[list[Trajectory], ImageCache]:
    """An episode of two steps for each purpose, and their pictures."""
    env, agent = build_env(config.env), build_agent(config.agent)
    runner = EpisodeRunner(env, agent, InProcess(policy, max_new_tokens=6), config.worker, "w", 0)
    images: dict[str, bytes] = {}
    trajectories: list[Trajectory] = []
    for task, purpose in zip(load_suite("quickstart", "train"), purposes, strict=False):
        short = task.model_copy(update={"max_steps": 2})
        episode = runner.run(Lease(id=f"lease-{len(trajectories)}", task=short, purpose=purpose))
        assert episode is not None
        trajectory, shots = episode
        assert trajectory.fault.value == "none", trajectory.fault_detail
        trajectories.append(trajectory)
        images |= shots
    env.close()
    return trajectories, ImageCache(policy.image, lambda digests: {d: images[d] for d in digests})


def one_update(policy: Policy, engine: TrainStep, batch: TrajectoryBatch) -> set[str]:
    """Scores are those of the behaviour, and an update moves weights, whose names are returned."""
    steps = batch.steps
    with torch.no_grad():
        scores = policy.score(steps.prompts, steps.completions, steps.token_mask, steps.temperature)
    torch.testing.assert_close(scores.logprobs, steps.behaviour_logprobs, atol=1e-4, rtol=0)
    before = {name: tensor.clone() for name, tensor in policy.named_parameters()}
    value = {name: tensor.clone() for name, tensor in engine.critic.named_parameters()}
    published = {name: tensor.clone() for name, tensor in policy.published_state().items()}
    result = engine.update(batch)
    assert result is not None
    assert result.metrics["policy/grad_norm"] > 0
    assert result.metrics["off_policy/ratio_mean"] == pytest.approx(1.0, abs=1e-3)
    sent = policy.published_state()
    assert any(not torch.equal(x, published[name]) for name, x in sent.items())
    if engine.algorithm.has_critic:
        assert any(not torch.equal(x, value[name]) for name, x in engine.critic.named_parameters())
    return {name for name, tensor in policy.named_parameters() if not torch.equal(tensor, before[name])}


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("qwen3", []),
        (
            "qwen",
            [
                "agent.options={mode: history, coordinates: absolute}",
                "agent.options.resize={min_pixels: 784, max_pixels: 10000}",
                "learner.algorithm=aride",
                "policy.critic=head",
            ],
        ),
    ],
)
def test_qwen_vl(family: str, changes: list[str], tmp_path: Path) -> None:
    FAMILIES[family](tmp_path)
    sizes = ["policy.device=cpu", "policy.max_prompt_tokens=20000", "policy.max_pixels=10000"]
    config = load_config("qwen-vl", [f"policy.model={tmp_path}", *sizes, *changes])
    policy = build_policy(config.policy, [], config.seed)
    check_agent_points(config.agent, policy)
    trajectories, cache = play(config, policy, [Purpose.TRAIN] * 2)
    compiled: list[Any] = [compile_episode(trajectory, policy) for trajectory in trajectories]
    episodes = [replace(e, group=GroupStats(0.5 - i, 0.5, 8)) for i, e in enumerate(compiled)]
    batch = Batcher(policy, cache).trajectories(episodes)
    is_one_sequence = config.agent.options["mode"] == "incremental"
    assert batch.steps.prompts.input_ids.shape[0] == (2 if is_one_sequence else len(batch.steps))
    critic = build_critic(policy, 0, kind=config.policy.critic)
    changed = one_update(
        policy, TrainStep(policy, critic, build_algorithm(config.learner), config.learner), batch
    )
    assert changed
    assert all("lora_" in name for name in changed)
