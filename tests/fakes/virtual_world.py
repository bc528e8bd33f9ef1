"""A virtual world of counting environments: its engine answers at once, its leases are a list."""

from __future__ import annotations

from counting_env import COMPLETE, TAP, counting_task

from distrl.configs.schema import Config
from distrl.core.messages import Lease
from distrl.core.types import Completion, Purpose
from distrl.workers.agents.autoui import AutoUIAgent
from distrl.workers.virtual import World

TEXTS = [AutoUIAgent().format(action) for action in (TAP, TAP, TAP, COMPLETE)]


class Engine:
    """Answers rightly, by the step that the prompt names; its weights are a number."""

    def __init__(self, version=0) -> None:
        self.version, self.passes = version, []

    def prepare(self, messages, images, sampling, prefix):
        return int(messages[0].parts[1].text.split()[1])

    def submit(self, requests, on_done) -> None:
        self.passes.append(len(requests))
        for index, step in enumerate(requests):
            text = TEXTS[min(step, 3)]
            answer = Completion(text=text, token_ids=(1,), logprobs=(-0.5,), weight_versions=(self.version,))
            on_done(index, answer)

    def load(self, version, state) -> None:
        self.version = version

    def check(self) -> None: ...


class Leases:
    """The source of a world's leases: `count` training episodes, by default without an end."""

    def __init__(self, count=10**9) -> None:
        self.left, self.given, self.ended, self.clock = count, 0, [], lambda: 0.0

    def lease(self, worker):
        if not self.left:
            return None
        self.left, self.given = self.left - 1, self.given + 1
        return Lease(id=f"lease-{self.given}", task=counting_task(self.given), purpose=Purpose.TRAIN, ttl_s=1)

    def submit(self, trajectory, images) -> None:
        self.ended.append((self.clock(), trajectory))


def make_world(source, engine=None, simulate=None, **sections):
    """A world in which an action takes a second and an answer a quarter, unless `simulate` says otherwise."""
    durations = {
        "latency": {"median_s": 1.0, "sigma": 0.0},
        "batch_s": 0.25,
        "request_s": 0.0,
        "publish_s": 0.0,
    }
    data = {
        "env": {"import_path": "counting_env:CountingEnv"},
        "local": {"workers": 1},
        "worker": {"slots": 1},
        "inference": {"engine": {"kind": "hf", "max_wait_ms": 0.0}, "max_batch": 1},
        **sections,
        "simulate": {**durations, **(simulate or {})},
    }
    world = World(Config.model_validate(data), engine or Engine(), source)
    source.clock = lambda: world.now
    return world
