"""The preset for AutoUI with tiny random models in their place: episodes on simulated phones, one update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("transformers", reason="needs transformers: not installed")
pytest.importorskip("peft", reason="needs peft: not installed")

import torch
from autoui_models import save_autoui, save_blip2, save_t5
from in_process import InProcess

from distrl.configs.load import load_config
from distrl.core.messages import Lease
from distrl.core.policies import build_critic, build_policy
from distrl.core.policies.autoui import AutoUIPolicy
from distrl.core.policies.base import Policy
from distrl.core.types import (
    ImagePart,
    Purpose,
    Trajectory,
)
from distrl.evaluator.suites import load_suite
from distrl.learner.algorithms import build_algorithm
from distrl.learner.batching import Batcher, ImageCache, TrajectoryBatch
from distrl.learner.episodes import compile_episode, verify
from distrl.learner.train_step import TrainStep
from distrl.workers.agents import build_agent
from distrl.workers.envs import build_env
from distrl.workers.episode import EpisodeRunner


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("autoui", []),
        ("autoui", ["policy.lora=null", "learner.micro_batch_tokens=1500", "policy.critic=head"]),
        (
            "flan",
            ["policy.image_features=null", "agent.options.notation=digirl", "learner.algorithm.critic=q"],
        ),
    ],
)
def test_episodes_and_one_update(model: str, changes: list[str], tmp_path: Path) -> None:
    save_autoui(tmp_path / "autoui")
    save_t5(tmp_path / "flan")
    save_blip2(tmp_path / "blip2")
    places = [f"policy.model={tmp_path / model}", f"policy.image_features={tmp_path / 'blip2'}"]
    config = load_config("autoui", [*places, "policy.device=cpu", "policy.max_prompt_tokens=3000", *changes])
    policy = build_policy(config.policy, [], config.seed)
    assert isinstance(policy, AutoUIPolicy)
    env, agent = build_env(config.env), build_agent(config.agent)
    runner = EpisodeRunner(env, agent, InProcess(policy, max_new_tokens=6), config.worker, "w", 0)
    images: dict[str, bytes] = {}
    trajectories: list[Trajectory] = []
    for number, task in enumerate(load_suite("quickstart", "train")[:3]):
        purpose = Purpose.DEMO if number == 2 else Purpose.TRAIN
        lease = Lease(id=f"lease-{number}", task=task.model_copy(update={"max_steps": 3}), purpose=purpose)
        episode = runner.run(lease)
        assert episode is not None
        trajectory, shots = episode
        assert trajectory.fault.value == "none", trajectory.fault_detail
        trajectories.append(trajectory)
        images |= shots
    env.close()
    for trajectory in trajectories[:2]:
        shown = [
            [p.digest for p in step.chats[0].messages[0].parts if isinstance(p, ImagePart)]
            for step in trajectory.steps
        ]
        screens = [step.observation.image for step in trajectory.steps]
        assert shown == [screens[max(0, n - 1) : n + 1] for n in range(len(screens))]
        assert all(step.action.kind == "invalid" and step.action.text for step in trajectory.steps)

    def decoded(digests: Sequence[str]) -> dict[str, bytes]:
        return {digest: images[digest] for digest in digests}

    cache = ImageCache(policy.image, decoded)
    compiled = [compile_episode(trajectory, policy, cache.get) for trajectory in trajectories]
    episodes = [replace(e, success=float(n == 0)) for n, e in enumerate(compiled) if e is not None]
    assert len(episodes) == 3
    for one in episodes:
        verify(one, policy, cache.get(one.digests))
    batcher = Batcher(policy, cache)
    algorithm = build_algorithm(config.learner)
    critic = build_critic(policy, 0, config.learner.algorithm.critic == "q", config.policy.critic)
    engine = TrainStep(policy, critic, algorithm, config.learner)
    assert engine.clone(batcher.steps(episodes[2].steps)) > 0

    policy = build_policy(config.policy, [], config.seed)
    batch = batcher.trajectories(episodes[:2])
    check_one_update(policy, TrainStep(policy, critic, algorithm, config.learner), batch)


def check_one_update(policy: Policy, engine: TrainStep, batch: TrajectoryBatch) -> None:
    steps = batch.steps
    with torch.no_grad():
        scores = policy.score(steps.prompts, steps.completions, steps.token_mask, steps.temperature)
    torch.testing.assert_close(scores.logprobs, steps.behaviour_logprobs, atol=1e-4, rtol=0)
    trained = {name for name, parameter in policy.named_parameters() if parameter.requires_grad}
    before = {name: tensor.clone() for name, tensor in policy.named_parameters()}
    value = {name: tensor.clone() for name, tensor in engine.critic.named_parameters()}
    published = {name: tensor.clone() for name, tensor in policy.published_state().items()}
    result = engine.update(batch)
    assert result.metrics["policy/grad_norm"] > 0
    assert result.metrics["off_policy/ratio_mean"] == pytest.approx(1.0, abs=1e-3)
    changed = {name for name, p in policy.named_parameters() if not torch.equal(p, before[name])}
    assert changed
    assert changed <= trained
    assert {"t5", "image_dense", "mha_layer", "gate_dense"} <= {name.split(".")[1] for name in changed}
    assert any(not torch.equal(x, value[name]) for name, x in engine.critic.named_parameters())
    sent = policy.published_state()
    assert any(not torch.equal(x, published[name]) for name, x in sent.items())
