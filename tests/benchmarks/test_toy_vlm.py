"""benchmarks/toy_vlm.py: its model learns to press what it sees, here by cloning alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("transformers", reason="needs transformers: not installed")
pytest.importorskip("peft", reason="needs peft: not installed")

import torch
import toy_vlm
from in_process import InProcess

from distrl.configs.load import load_config
from distrl.configs.schema import Config
from distrl.core.messages import Lease
from distrl.core.policies import build_critic, build_policy
from distrl.core.types import Purpose, Sampling, Task
from distrl.evaluator.suites import load_suite
from distrl.learner.algorithms import build_algorithm
from distrl.learner.batching import Batcher, ImageCache
from distrl.learner.episodes import StepData, compile_episode
from distrl.learner.train_step import TrainStep
from distrl.workers.agents import build_agent
from distrl.workers.envs import build_env
from distrl.workers.episode import EpisodeRunner

GREEDY = Sampling(temperature=0.0, max_new_tokens=12)


class World:
    """The benchmark's model of a seed, and its tasks, in this process."""

    def __init__(self, directory: Path) -> None:
        toy_vlm.save_model(directory / "model", 0)
        settings = toy_vlm.SETTINGS | toy_vlm.GAMES["press"] | {"policy.model": directory / "model"}
        self.config: Config = load_config(toy_vlm.PRESET, toy_vlm.assignments(settings))
        self.policy = build_policy(self.config.policy, [], 0)
        env, agent = build_env(self.config.env), build_agent(self.config.agent)
        self.runner = EpisodeRunner(env, agent, InProcess(self.policy), self.config.worker)
        self.images: dict[str, bytes] = {}

    def tasks(self, split: str, count: int) -> list[Task]:
        """Those of the template `press`."""
        found = load_suite(self.config.tasks.suite, split)
        return [task for task in found if task.template == "press"][:count]

    def demonstrations(self, count: int) -> list[StepData]:
        """The expert's steps, some of them after noise."""
        steps: list[StepData] = []
        for number, task in enumerate(self.tasks("train", count)):
            lease = Lease(id=f"demo-{number}", task=task, purpose=Purpose.DEMO, noise=0.2)
            episode = self.runner.run(lease)
            assert episode is not None
            self.images |= episode[1]
            compiled = compile_episode(episode[0], self.policy, self.decoded)
            assert compiled is not None
            steps += compiled.steps
        return steps

    def decoded(self, digests: Sequence[str]) -> dict[str, torch.Tensor]:
        """Pictures as the policy reads them."""
        return {digest: self.policy.image(self.images[digest]) for digest in digests}

    def clone(self, steps: Sequence[StepData], updates: int) -> None:
        """As the warm start does."""
        config = self.config.learner
        images = ImageCache(self.policy.image, lambda digests: {one: self.images[one] for one in digests})
        critic = build_critic(self.policy, 0, kind=self.config.policy.critic)
        engine = TrainStep(self.policy, critic, build_algorithm(config), config)
        batcher, rng = Batcher(self.policy, images), random.Random(0)
        for _ in range(updates):
            engine.clone(batcher.steps(rng.choices(steps, k=24)))

    def successes(self, count: int) -> list[float]:
        """Of held-out tasks, greedily."""
        self.policy.eval()
        tasks = self.tasks("test", count)
        episodes = [self.runner.run(Lease(id="e", task=task, sampling=GREEDY)) for task in tasks]
        return [episode[0].success for episode in episodes if episode is not None]


@pytest.mark.timeout(600)
def test_a_tiny_random_model_learns_to_press_what_it_sees(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    world = World(tmp_path)
    assert sum(world.successes(4)) == 0, "what it writes is no action yet"
    world.clone(world.demonstrations(96), updates=110)
    assert sum(world.successes(16)) >= 9, "whoever does not look solves one"
