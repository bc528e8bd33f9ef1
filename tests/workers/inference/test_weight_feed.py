"""Feeds of one host take each version from the learner once, and always end at the newest."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import torch

from distrl.core import weights
from distrl.core.files import try_lock
from distrl.core.messages import Status
from distrl.core.policies import weights_io
from distrl.core.sockets import Wire
from distrl.core.weights import ChunkServer, describe
from distrl.workers.inference.weight_feed import WeightFeed

WAIT_S = 30.0


class Learner:
    """Publishes tensors full of their version."""

    def __init__(self, wire: Wire) -> None:
        channel = wire.bind_router("tcp://127.0.0.1:0")
        self.endpoint, self.server = channel.endpoint, ChunkServer(channel)
        self.server.start()
        self.size = 0

    def publish(self, version: int) -> Status:
        data = weights_io.to_bytes({"w": torch.full((50_000,), float(version))})
        info = describe(version, data, chunk_bytes=2**16)
        self.server.publish(info, data)
        self.size = len(data)
        return Status(run_id="run-1", phase="train", weights=info)


class Follower:
    """A feed whose weights can be waited for."""

    def __init__(self, feed: Callable[..., WeightFeed]) -> None:
        self.ready = threading.Semaphore(0)
        self.feed = feed(on_ready=self.ready.release)
        self.feed.start()

    def next(self) -> int:
        assert self.ready.acquire(timeout=WAIT_S)
        assert self.feed.error is None
        fresh = self.feed.take()
        assert fresh is not None
        version, state = fresh
        assert torch.equal(state["w"], torch.full((50_000,), float(version)))
        return version


@pytest.fixture
def learner(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Iterator[Learner]:
    monkeypatch.setattr(weights, "RESEND_S", 600.0)  # a slow machine must not be served twice
    made = Learner(wire)
    yield made
    made.server.close()


@contextmanager
def followers(wire: Wire, learner: Learner, root: Path) -> Iterator[list[Follower]]:
    def build(on_ready: Callable[[], None]) -> WeightFeed:
        return WeightFeed(wire, learner.endpoint, "full", on_ready, share_root=root)

    made = [Follower(build) for _ in range(2)]
    try:
        yield made
    finally:
        for follower in made:
            follower.feed.close()


def test_two_feeds_share_one_fetch(wire: Wire, learner: Learner, tmp_path: Path) -> None:
    with followers(wire, learner, tmp_path / "shared") as feeds:
        for version in range(1, 5):
            learner.server.num_bytes = 0
            status = learner.publish(version)
            for follower in feeds:
                follower.feed.heard(status)
            assert [follower.next() for follower in feeds] == [version, version]
            assert learner.server.num_bytes == learner.size
    assert not list(tmp_path.glob("shared/*"))


def test_what_is_superseded_while_waiting_is_left_out(wire: Wire, learner: Learner, tmp_path: Path) -> None:
    root = tmp_path / "shared"
    with followers(wire, learner, root) as feeds:
        status = learner.publish(1)
        for follower in feeds:
            follower.feed.heard(status)
        assert [follower.next() for follower in feeds] == [1, 1]
        (group,) = root.iterdir()
        learner.server.num_bytes = 0
        with try_lock(group / "lock"):
            for version in (2, 3):
                status = learner.publish(version)
                for follower in feeds:
                    follower.feed.heard(status)
        assert [follower.next() for follower in feeds] == [3, 3]
        assert learner.server.num_bytes == learner.size


def test_a_transfer_that_ends_late_does_not_displace_newer_weights(
    wire: Wire, learner: Learner, tmp_path: Path
) -> None:
    with followers(wire, learner, tmp_path / "shared") as (follower, _):
        follower.feed.heard(learner.publish(2))
        assert follower.ready.acquire(timeout=WAIT_S)
        follower.feed.received(1)
        follower.ready.release()
        assert follower.next() == 2


def test_weights_wait_while_the_engine_has_no_room(wire: Wire, learner: Learner, tmp_path: Path) -> None:
    room: list[bool] = []
    with followers(wire, learner, tmp_path / "shared") as (follower, _):
        follower.feed._can_load = lambda: bool(room)
        follower.feed.heard(learner.publish(1))
        assert follower.ready.acquire(timeout=WAIT_S)
        assert follower.feed.take() is None
        room.append(True)
        follower.ready.release()
        assert follower.next() == 1
