"""Full weights from GPU to GPU: who is called in which order, and what happens when a server fails or dies.

Sockets, heartbeats and the feed are real. What vLLM and NCCL do is played: a broadcast ends when every
server of the group is receiving.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import torch
from waiting import until

from distrl.core.sockets import Wire
from distrl.core.transfer import Transfer
from distrl.learner import transfer as transfers
from distrl.learner.publish import Publisher
from distrl.learner.server import Endpoints, ServerBase
from distrl.learner.transfer import WeightTransfer
from distrl.workers.client import LearnerLink
from distrl.workers.inference.control import EngineControl
from distrl.workers.inference.weight_feed import WeightFeed

ANY = Endpoints("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", "tcp://127.0.0.1:*")
WAIT_S = 30.0


class Cable:
    """What NCCL is between the trainer's engine and the servers' engines."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.receiving: dict[str, int] = {}  # by a server's name the version
        self.sent: dict[int, float] = {}
        self.condition, self.is_cut = threading.Condition(), False

    def cut(self) -> None:
        """Ends what waits for the other side."""
        with self.condition:
            self.is_cut = True
            self.condition.notify_all()

    def note(self, call: str) -> None:
        with self.condition:
            self.calls.append(call)
            self.condition.notify_all()

    def of(self, name: str) -> list[str]:
        """The calls of one side, without its name."""
        return [call.removeprefix(f"{name}: ") for call in self.calls if call.startswith(f"{name}: ")]

    def open(self, transfer: WeightTransfer, host: str, group: Transfer) -> Trainer:
        assert host == group.host == "127.0.0.1"
        self.note(f"learner: open for {' '.join(group.offsets)}")
        transfer.announce()
        return Trainer(self, transfer)


class Trainer:
    """vLLM's end in the learner."""

    def __init__(self, cable: Cable, transfer: WeightTransfer) -> None:
        self.cable, self.transfer = cable, transfer

    def send_weights(self) -> None:
        group = self.transfer.group
        assert group is not None
        version, names = group.version, set(group.offsets)
        ((name, tensor),) = self.transfer.tensors()
        assert name == "w", "vLLM's names are those of the model"
        self.transfer.announce()
        with self.cable.condition:  # without a limit, as NCCL waits
            self.cable.condition.wait_for(
                lambda: {n for n, v in self.cable.receiving.items() if v == version} >= names
            )
            self.cable.sent[version] = float(tensor[0])
            self.cable.condition.notify_all()
        self.cable.note(f"learner: broadcast {version}")

    def shutdown(self) -> None:
        self.cable.note("learner: shutdown")


class Engine:
    """A server's engine."""

    version = -1

    def __init__(self, cable: Cable, name: str) -> None:
        self._cable, self._name = cable, name
        self.weights: dict[int, float] = {}
        self.on_receive: Callable[[], None] = lambda: None

    def join(self, transfer: Transfer, offset: int) -> None:
        self._cable.note(f"{self._name}: join as {offset} of {transfer.num_ranks}")

    def receive(self, version: int) -> None:
        self._cable.note(f"{self._name}: receive {version}")
        self.on_receive()
        with self._cable.condition:
            self._cable.receiving[self._name] = version
            self._cable.condition.notify_all()
            self._cable.condition.wait_for(lambda: self._cable.is_cut or version in self._cable.sent)
        self.weights[version] = self._cable.sent[version]
        self.version = version

    sleep = wake = None


class Server:
    """An inference server without requests: a link, a feed and an engine thread."""

    def __init__(
        self, wire: Wire, learner: ServerBase, cable: Cable, name: str, ranks: int, root: Path
    ) -> None:
        self.engine, self.news, self.stopping = Engine(cable, name), threading.Event(), threading.Event()
        ends = learner.endpoints
        self.link = LearnerLink(
            wire, ends.control, ends.broadcast, "inference", name, act_endpoint="tcp://127.0.0.1:9"
        )
        self.feed = WeightFeed(wire, ends.weights, "full", self.news.set, share_root=root)
        self.control = EngineControl(
            self.engine, name, ranks, report=self._report, on_received=self.feed.received
        )
        self._report()
        for listener in (self.feed.heard, self.control.heard, lambda status: self.news.set()):
            self.link.add_listener(listener)
        self.thread = threading.Thread(target=self._run, daemon=True)
        for part in (self.feed, self.thread, self.link):
            part.start()

    def _report(self) -> None:
        self.link.set_stats({**self.control.stats(), "weight_version": self.engine.version}, is_urgent=True)

    def _run(self) -> None:
        while not self.stopping.is_set():
            self.news.wait(0.05)
            self.news.clear()
            self.control.act()
            if (fresh := self.feed.take()) is not None:
                self.engine.version, state = fresh
                self.engine.weights[self.engine.version] = float(state["model.w"][0])
                self._report()

    def close(self) -> None:
        self.stopping.set()
        self.link.close()
        self.feed.close()


class World:
    """A learner's sockets and publisher, and servers that come and go."""

    def __init__(self, wire: Wire, tmp_path: Path) -> None:
        self.cable, self._wire, self._root = Cable(), wire, tmp_path
        self.learner = ServerBase(ANY, None, "run-1", heartbeat_s=0.2)
        self.learner.start()
        self.value = 0.0
        policy = SimpleNamespace(
            published_state=self._state, published_metadata=dict, published_kind=lambda: "full"
        )
        self.publisher = Publisher(policy, self.learner, tmp_path / "version")
        self.publisher.transfer = self.transfer = WeightTransfer(self.learner)
        self.servers: list[Server] = []

    def _state(self) -> Mapping[str, Any]:
        self.value += 1.0
        return {"model.w": torch.full((4,), self.value)}

    def start(self, name: str, ranks: int = 1) -> Server:
        server = Server(self._wire, self.learner, self.cable, name, ranks, self._root / name)
        self.servers.append(server)
        until(lambda: "weight_version" in self.learner.server_stats().get(name, {}), "it is known", WAIT_S)
        return server

    def stop(self, server: Server) -> None:
        self.servers.remove(server)
        server.close()

    def publish(self, *servers: Server) -> int:
        """Publishes; returns how many bytes are offered, when the servers have the version."""
        info = self.publisher.publish()
        have = partial(self._have, servers, info.version)
        until(have, f"all have weights {info.version}", WAIT_S)
        return info.size_bytes

    def _have(self, servers: Sequence[Server], version: int) -> bool:
        return all(server.engine.weights.get(version) == self.value for server in servers)


@pytest.fixture
def world(wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(wire, tmp_path)
    monkeypatch.setattr(transfers, "open_engine", made.cable.open)
    yield made
    made.cable.cut()
    for server in made.servers:
        server.close()
    made.learner.close()


def test_a_group_is_opened_once_and_each_version_is_one_broadcast(world: World) -> None:
    a, b = world.start("a"), world.start("b", ranks=2)
    assert [world.publish(a, b) for _ in range(3)] == [0, 0, 0], "nothing was made into bytes"
    received = [f"receive {version}" for version in (1, 2, 3)]
    assert world.cable.of("a") == ["join as 1 of 4", *received]
    assert world.cable.of("b") == ["join as 2 of 4", *received]
    assert world.cable.of("learner") == ["open for a b", *(f"broadcast {version}" for version in (1, 2, 3))]
    assert not world.publisher.recent


def test_a_server_that_cannot_receive_fetches_and_the_others_do_not(world: World) -> None:
    a, other = world.start("a"), world.start("hf", ranks=0)
    assert world.publish(a, other) > 0
    assert world.cable.of("a") == ["join as 1 of 2", "receive 1"]
    assert world.cable.of("hf") == []
    assert list(world.publisher.recent) == [1]


def test_a_server_that_comes_later_joins_a_new_group(world: World) -> None:
    a = world.start("a")
    world.publish(a)
    assert not world.transfer.is_missed
    b = world.start("b")
    assert world.transfer.is_missed
    assert world.publish(a, b) == 0
    assert not world.transfer.is_missed
    assert [call for call in world.cable.of("learner") if call.startswith("open")] == [
        "open for a",
        "open for a b",
    ]


def test_a_server_that_restarts_joins_no_group_but_a_new_one(world: World) -> None:
    before = world.start("a")
    world.publish(before)
    world.stop(before)
    after = world.start("a")
    until(lambda: world.transfer.is_missed, "the learner has heard of it", WAIT_S)
    assert world.publish(after) == 0
    assert world.cable.of("a") == ["join as 1 of 2", "receive 1", "join as 1 of 2", "receive 2"]


def test_a_server_takes_the_lower_versions_of_another_run(world: World) -> None:
    a = world.start("a")
    world.publisher.version = 499
    world.publish(a)
    world.publisher.version = 0
    world.transfer._close()
    world.transfer._retry_at = math.inf
    assert world.publish(a) > 0
    world.transfer._retry_at = 0.0
    assert world.publish(a) == 0
    assert list(a.engine.weights) == [500, 1, 2]


def test_a_server_that_dies_in_the_middle_does_not_hold_up_the_learner(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = world.start("a"), world.start("b")
    world.publish(a, b)

    def die() -> None:
        world.stop(b)
        raise RuntimeError("cut off")  # its thread ends

    b.engine.on_receive = die
    assert world.publish() > 0, "the version goes out in chunks"
    assert "learner: shutdown" in world.cable.calls, "the group is given up"
    assert "b is gone." in caplog.text


def test_after_a_failure_weights_go_out_in_chunks_until_a_new_group_is_tried(world: World) -> None:
    a, b = world.start("a"), world.start("b")
    world.publish(a, b)

    def fail() -> None:
        world.cable.sent[2] = 0.0  # lets the other one go, which has half of it
        raise RuntimeError("NCCL error")

    b.engine.on_receive = fail
    assert world.publish() > 0
    b.engine.on_receive = lambda: None
    assert world.publish(b) > 0
    assert world.cable.of("b") == ["join as 2 of 3", "receive 1", "receive 2"]
    world.transfer._retry_at = 0.0
    assert world.publish(a, b) == 0
    assert world.cable.of("b")[3:] == ["join as 2 of 3", "receive 4"]


def test_a_deadline_ends_a_transfer_that_hangs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "LIMIT_S", 0.3)
    a = world.start("a")
    hung = threading.Event()
    monkeypatch.setattr(a.engine, "join", lambda *_: hung.wait(WAIT_S))
    try:
        assert world.publish() > 0
        assert world.learner.status.transfer is None, "nothing else is tried in this group"
    finally:
        hung.set()
    assert world.publish(a) > 0
