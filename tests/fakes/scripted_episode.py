"""Episodes of the counting environment with a policy whose answers are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from counting_env import CountingEnv, counting_task

from distrl.configs.schema import WorkerConfig
from distrl.core.actions import Action
from distrl.core.errors import InferenceUnavailable
from distrl.core.messages import Lease
from distrl.core.types import ChatMessage, Completion, Sampling, Trajectory
from distrl.workers.agents.autoui import AutoUIAgent
from distrl.workers.episode import EpisodeRunner

AGENT = AutoUIAgent()
TASK = counting_task()


class Script:
    """A policy that answers with given texts in turn, and notes what it was asked."""

    def __init__(self, *answers: str | Action) -> None:
        self.answers = [a if isinstance(a, str) else AGENT.format(a) for a in answers]
        self.asked: list[tuple[Sequence[ChatMessage], Mapping[str, bytes], Sampling]] = []

    def act(
        self, messages: Sequence[ChatMessage], images: Mapping[str, bytes], sampling: Sampling, *_: object
    ) -> Completion:
        self.asked.append((messages, images, sampling))
        if len(self.asked) > len(self.answers):
            raise InferenceUnavailable("nobody answered.")
        text = self.answers[len(self.asked) - 1]
        return Completion(text=text, token_ids=(1, 2), logprobs=(-0.1, -0.2), weight_versions=(7, 7))


def lease(**fields: Any) -> Lease:
    return Lease(**{"id": "lease-1", "task": TASK, "group_id": "g", **fields})


def run(
    policy: Script, env: CountingEnv | None = None, config: WorkerConfig | None = None, **fields: Any
) -> tuple[Trajectory, dict[str, bytes]]:
    runner = EpisodeRunner(env or CountingEnv(), AGENT, policy, config or WorkerConfig(), worker="w", slot=3)
    episode = runner.run(lease(**fields))
    assert episode is not None
    return episode
