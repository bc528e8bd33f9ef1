"""The preset for Qwen-VL with a tiny random model in its place: episodes on simulated phones, one update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
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
from distrl.core.types import Trajectory
from distrl.evaluator.suites import load_suite
from distrl.learner.algorithms import build_algorithm
from distrl.learner.batching import Batcher, ImageCache
from distrl.learner.episodes import GroupStats, compile_episode
from distrl.learner.train_step import TrainStep
from distrl.workers.agents import build_agent
from distrl.workers.envs import build_env
from distrl.workers.episode import EpisodeRunner


def small(config_overrides: Sequence[str], directory: Path) -> Config:
    sizes = ["policy.device=cpu", "policy.max_prompt_tokens=20000", "policy.max_pixels=40000"]
    return load_config("qwen-vl", [f"policy.model={directory}", *sizes, *config_overrides])


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("qwen3", []),
        (
            "qwen",
            [
                "agent.options={mode: history, coordinates: absolute}",
                "agent.options.resize={min_pixels: 784, max_pixels: 40000}",
                "learner.algorithm=aride",
                "policy.critic=head",
            ],
        ),
    ],
)
def test_episodes_and_one_update(family: str, changes: list[str], tmp_path: Path) -> None:
    FAMILIES[family](tmp_path)
    config = small(changes, tmp_path)
    policy = build_policy(config.policy, [], config.seed)
    check_agent_points(config.agent, policy)
    env, agent = build_env(config.env), build_agent(config.agent)
    client = InProcess(policy, max_new_tokens=6)
    runner = EpisodeRunner(env, agent, client, config.worker, "w", 0)
    images: dict[str, bytes] = {}
    trajectories: list[Trajectory] = []
    for number, task in enumerate(load_suite("quickstart", "train")[:2]):
        lease = Lease(id=f"lease-{number}", task=task.model_copy(update={"max_steps": 3}))
        episode = runner.run(lease)
        assert episode is not None
        trajectory, shots = episode
        assert trajectory.fault.value == "none", trajectory.fault_detail
        trajectories.append(trajectory)
        images |= shots
    env.close()

    batcher = Batcher(policy, ImageCache(policy.image, lambda digests: {d: images[d] for d in digests}))
    compiled = [compile_episode(trajectory, policy) for trajectory in trajectories]
    episodes = [
        replace(e, group=GroupStats(0.5 - i, 0.5, 8)) for i, e in enumerate(compiled) if e is not None
    ]
    assert len(episodes) == 2
    batch = batcher.trajectories(episodes)
    is_one_sequence = config.agent.options["mode"] == "incremental"
    assert batch.steps.prompts.input_ids.shape[0] == (2 if is_one_sequence else len(batch.steps))
    steps = batch.steps
    scores = policy.score(steps.prompts, steps.completions, steps.token_mask, steps.temperature)
    torch.testing.assert_close(scores.logprobs, steps.behaviour_logprobs, atol=1e-4, rtol=0)

    critic = build_critic(policy, 0, kind=config.policy.critic)
    engine = TrainStep(policy, critic, build_algorithm(config.learner), config.learner)
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    result = engine.update(batch)
    assert result.metrics["policy/grad_norm"] > 0
    assert result.metrics["off_policy/ratio_mean"] == pytest.approx(1.0, abs=1e-3)
    changed = {name for name, tensor in policy.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed
    assert all("lora_" in name for name in changed)
