"""One GPU for learner and server: who has it when, and what becomes of requests meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import torch
from held_engine import WAIT_S, HeldEngine, reply, send
from waiting import until

from distrl.configs.schema import InferenceConfig
from distrl.core.messages import ActReply
from distrl.core.policies import weights_io
from distrl.core.sockets import Wire
from distrl.core.weights import describe
from distrl.learner import context as contexts
from distrl.learner.context import alone
from distrl.learner.server import Endpoints, ServerBase
from distrl.workers.client import LearnerLink
from distrl.workers.inference.control import EngineControl
from distrl.workers.inference.server import InferenceServer
from distrl.workers.inference.weight_feed import WeightFeed

ANY = Endpoints("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", "tcp://127.0.0.1:*")


class SleepyEngine(HeldEngine):
    """Like vLLM it keeps requests while it sleeps, and must not be touched otherwise."""

    def __init__(self, calls: list[str]) -> None:
        super().__init__()
        self.calls, self.is_asleep = calls, False

    def sleep(self) -> None:
        assert not self.is_asleep
        self.calls.append("sleep")
        self.is_asleep = True

    def wake(self) -> None:
        assert self.is_asleep
        self.calls.append("wake")
        self.is_asleep = False

    def can_load(self) -> bool:
        return not self.is_asleep

    def load(self, version: int, state: dict[str, torch.Tensor]) -> None:
        assert not self.is_asleep, "its memory is the learner's"
        super().load(version, state)
        self.calls.append(f"weights {version}")

    def finish(self, text: str, error: Exception | None = None) -> None:
        assert not self.is_asleep or error, "nothing is sampled in the learner's turn"
        super().finish(text, error)


class World:
    """A learner's sockets and an inference server that shares its GPU."""

    def __init__(self, wire: Wire, root: Path) -> None:
        self.calls: list[str] = []
        self.learner = ServerBase(ANY, None, "run-1", heartbeat_s=0.2)
        self.learner.start()
        self.context: Any = SimpleNamespace(
            server=self.learner, config=SimpleNamespace(local=SimpleNamespace(gpus="colocated"))
        )
        self.engine = SleepyEngine(self.calls)
        config = InferenceConfig.model_validate({"max_batch": 8})
        self.server = InferenceServer(wire, "tcp://127.0.0.1:*", self.engine, config, "a")  # type: ignore[arg-type]
        ends = self.learner.endpoints
        self.link = LearnerLink(
            wire, ends.control, ends.broadcast, "inference", "a", act_endpoint=self.server.endpoint
        )
        self.feed = WeightFeed(
            wire, ends.weights, "full", self.server.weights_ready, self.engine.can_load, share_root=root
        )
        control = EngineControl(
            self.engine, "a", 0, report=self.report, on_received=self.feed.received,  # type: ignore[arg-type]
        )  # fmt: skip
        self.server.follow(self.feed, control)
        self.report()
        for listener in (self.feed.heard, control.heard, lambda status: self.server.weights_ready()):
            self.link.add_listener(listener)
        for part in (self.server, self.feed, self.link):
            part.start()
        until(lambda: "turn" in self.learner.server_stats().get("a", {}), "the server is known", WAIT_S)

    def report(self) -> None:
        self.link.set_stats(self.server.snapshot(), is_urgent=True)

    def publish(self, version: int) -> None:
        data = weights_io.to_bytes({"w": torch.zeros(4)})
        self.learner.publish_weights(describe(version, data), data)

    def close(self) -> None:
        for part in (self.link, self.feed, self.server, self.learner):
            part.close()


@pytest.fixture
def world(wire: Wire, tmp_path: Path) -> Iterator[World]:
    made = World(wire, tmp_path)
    yield made
    made.close()


def has_loaded(world: World, version: int) -> bool:
    return world.engine.version == version


def test_the_server_sleeps_while_the_learner_updates_and_no_request_is_lost(wire: Wire, world: World) -> None:
    channel = wire.connect_dealer(world.server.endpoint)
    send(channel, "before")
    until(lambda: "before" in world.engine.running, "it runs", WAIT_S)
    for version in (2, 3):
        with alone(world.context):
            assert world.engine.is_asleep, "the learner waits until the GPU is free"
            world.calls.append("update")
            send(channel, f"during {version}")
            world.publish(version)
            until(lambda: world.feed._ready is not None, "the weights are here", WAIT_S)
        until(partial(has_loaded, world, version), "they are in use", WAIT_S)
    expected = [call for v in (2, 3) for call in ("sleep", "update", "wake", f"weights {v}")]
    assert world.calls == expected
    send(channel, "after")
    texts = {"before", "during 2", "during 3", "after"}
    until(lambda: set(world.engine.running) == texts, "none is lost", WAIT_S)
    for text in texts:
        world.engine.finish(text)
    replies = [reply(channel) for _ in texts]
    assert all(isinstance(one, ActReply) for one in replies)
    world.server.check()


def test_an_update_that_fails_gives_the_turn_back(world: World) -> None:
    with pytest.raises(ValueError, match="update"), alone(world.context):
        raise ValueError("update")
    until(lambda: world.calls == ["sleep", "wake"], "the server goes on", WAIT_S)


def test_a_server_that_does_not_sleep_is_waited_for_so_long(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(contexts, "SLEEP_S", 0.3)
    woken = threading.Event()
    monkeypatch.setattr(world.engine, "sleep", lambda: woken.wait(WAIT_S))
    with alone(world.context):
        woken.set()
    assert "did not free the GPU within 0.3 s" in caplog.text


def test_separate_gpus_take_no_turns() -> None:
    config = SimpleNamespace(local=SimpleNamespace(gpus="split"))
    with alone(SimpleNamespace(config=config)):  # type: ignore[arg-type]
        pass
