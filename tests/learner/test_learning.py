"""Every objective learns a small contextual bandit, off-policy, with the embedded policy and engine."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("transformers", reason="needs transformers: not installed")

import torch
from policy_fakes import chat, png

from distrl.configs.policy import policy_config
from distrl.configs.schema import LearnerConfig
from distrl.core.policies import build_critic, build_policy
from distrl.core.types import Sampling
from distrl.learner.algorithms import ALGORITHMS, build_algorithm
from distrl.learner.batching import Batcher, ImageCache
from distrl.learner.episodes import Episode, GroupStats, StepData
from distrl.learner.train_step import TrainStep

WORDS = ["red", "green", "blue"]
RIGHT = ["PRESS_BACK", "PRESS_HOME", "PRESS_ENTER"]
SCREEN = png(0)
EPISODES, UPDATES = 36, 30
LAG = 2  # updates between playing and learning
CASES: dict[str, dict] = {name: {"algorithm": {"kind": name}} for name in ALGORITHMS}
CASES["digirl"]["algorithm"] |= {"top_fraction": 0.3}
CASES["ppo"]["algorithm"] |= {"decoupled": True, "minibatches": 2}
CASES["grpo"]["algorithm"] |= {"group_size": 12}
CASES["aride-q"] = {"algorithm": {"kind": "aride", "critic": "q"}, "max_new_tokens": 3}


class Bandit:
    """Three goals; the right press for each pays 1. Episodes of one step."""

    def __init__(self, policy) -> None:
        self.policy, self.generator = policy, torch.Generator().manual_seed(5)
        self.prompts = [tuple(policy.prompt_ids(chat(word))) for word in WORDS]
        self.right = [(policy.tokenizer.vocabulary.ids[f"<{name}>"],) for name in RIGHT]
        self.num_played = 0

    def play(self, count: int, expert: float = 0.0) -> list[Episode]:
        """`count` episodes of the present policy; a share `expert` of them does the right thing."""
        goals = [i % len(WORDS) for i in range(count)]
        image = self.policy.image(SCREEN)
        batch = self.policy.collate([self.prompts[goal] for goal in goals], [[image]] * count)
        generated = self.policy.generate(batch, [Sampling(max_new_tokens=3)] * count, self.generator)
        helped = (torch.rand(count, generator=self.generator) < expert).tolist()
        episodes = []
        for goal, one, is_helped in zip(goals, generated, helped, strict=True):
            tokens = self.right[goal] if is_helped else tuple(one.token_ids)
            logprobs = (0.0,) * len(tokens) if is_helped else tuple(one.logprobs)
            won = float(tokens == self.right[goal])
            step = StepData(self.prompts[goal], ("screen",), tokens, logprobs, 1.0, won, 0.0, False)
            self.num_played += 1
            episodes.append(
                Episode(str(self.num_played), WORDS[goal], (step,), True, (), success=won, oldest_version=0)
            )
        return episodes

    def success(self) -> float:
        return sum(episode.success for episode in self.play(240)) / 240


def grouped(episodes: list[Episode]) -> list[Episode]:
    """The episodes of one goal are a group."""
    stats = {
        word: GroupStats.of([one.total_reward for one in episodes if one.task_id == word]) for word in WORDS
    }
    return [replace(episode, group=stats[episode.task_id]) for episode in episodes]


@pytest.mark.parametrize("name", CASES)
def test_thirty_updates_raise_success(name: str) -> None:
    torch.manual_seed(0)
    config = LearnerConfig.model_validate({"optim": {"lr": 2e-3, "critic_lr": 1e-2}, **CASES[name]})
    sizes = {"d_model": 32, "num_heads": 2, "d_ff": 48, "num_layers": 1, "image_size": (40, 56)}
    policy = build_policy(policy_config(**{**sizes, "grid": (2, 2), "device": "cpu"}), WORDS, 0)
    critic = build_critic(policy, 0, has_action_values=name == "aride-q")
    engine = TrainStep(policy, critic, build_algorithm(config), config)
    batcher = Batcher(policy, ImageCache(policy.image, lambda digests: dict.fromkeys(digests, SCREEN)))
    bandit = Bandit(policy)
    before = bandit.success()
    # Cloning all that the policy does teaches nothing: `bc` is for what somebody better did.
    expert = 0.8 if name == "bc" else 0.0
    waiting = deque(grouped(bandit.play(EPISODES, expert)) for _ in range(LAG))
    if engine.algorithm.has_critic:
        for _ in range(10):
            engine.fit_critic(batcher.trajectories(waiting[0]))
    for _ in range(UPDATES):
        waiting.append(grouped(bandit.play(EPISODES, expert)))
        engine.update(batcher.trajectories(waiting.popleft()))
    after = bandit.success()
    assert before < 0.3
    assert after > before + 0.35, f"{name}: from {before:.2f} to {after:.2f}"
