"""Inference servers pass weights on: the learner sends a version to the first few, whatever their number."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import torch

from distrl.core.messages import Status
from distrl.core.policies import weights_io
from distrl.core.sockets import Wire
from distrl.core.weights import describe_chunks
from distrl.learner.station import FIRST_RECEIVERS, Endpoints, Station
from distrl.workers.client import LearnerLink
from distrl.workers.inference.relay import Relay
from distrl.workers.inference.weight_feed import WeightFeed

WAIT_S = 60.0
NUM_SERVERS = 5
CHUNK = 2**14


class Server:
    """An inference server without a policy."""

    def __init__(self, wire: Wire, endpoints: Endpoints, name: str, folder: Path) -> None:
        self.ready = threading.Semaphore(0)
        self.relay = Relay(wire, "tcp://127.0.0.1:*")
        self.link = LearnerLink(
            wire, endpoints.control, endpoints.broadcast, "inference", name, relay=self.relay.advertised
        )
        self.relay.on_offer = self.link.holds
        self.feed = WeightFeed(
            wire, endpoints.weights, "full", self.ready.release, share_root=folder, relay=self.relay
        )
        self.link.add_listener(self.feed.heard)
        self.relay.start()
        self.feed.start()
        self.link.start()

    def next(self) -> int:
        assert self.ready.acquire(timeout=WAIT_S)
        assert self.feed.error is None
        fresh = self.feed.take()
        assert fresh is not None
        assert torch.equal(fresh.state["w"], torch.full((50_000,), float(fresh.version)))
        return fresh.version

    def stop_relaying(self) -> None:
        """Nobody listens any more, but the learner is told the contrary."""
        self.relay.close()
        self.relay.offer = lambda info, data: self.link.holds(info.digest)  # type: ignore[method-assign]

    def close(self) -> None:
        self.link.close()
        self.feed.close()
        with contextlib.suppress(OSError):  # closed already
            self.relay.close()


@pytest.fixture
def station() -> Iterator[Station]:
    made = Station(Endpoints(*["tcp://127.0.0.1:*"] * 3), None, "run-1", heartbeat_s=0.2)
    made.start()
    yield made
    made.close()


@pytest.fixture
def servers(wire: Wire, station: Station, tmp_path: Path) -> Iterator[list[Server]]:
    made = [Server(wire, station.endpoints, f"s{number}", tmp_path) for number in range(NUM_SERVERS)]
    for one in made:
        one.link.wait_connected(WAIT_S)
    yield made
    for one in made:
        one.close()


def publish(station: Station, version: int) -> int:
    data = weights_io.to_bytes({"w": torch.full((50_000,), float(version))})
    info, chunk_list = describe_chunks(version, data, chunk_bytes=CHUNK)
    station.publish_weights(info, data, chunk_list)
    return len(data)


def sent(station: Station) -> float:
    return station.peer_metrics()["weights/sent_bytes"]


def test_the_learner_sends_each_version_to_the_first_few_only(
    station: Station, servers: list[Server]
) -> None:
    for version in range(1, 4):
        before, passed_on = sent(station), sum(one.relay.num_bytes for one in servers)
        size = publish(station, version)
        assert [one.next() for one in servers] == [version] * NUM_SERVERS
        lists = NUM_SERVERS * 32 * -(-size // CHUNK)
        assert sent(station) - before <= FIRST_RECEIVERS * size + lists
        assert (
            sum(one.relay.num_bytes for one in servers) - passed_on >= (NUM_SERVERS - FIRST_RECEIVERS) * size
        )


def test_servers_whose_relay_is_gone_are_passed_over(station: Station, servers: list[Server]) -> None:
    for gone in servers[:2]:
        gone.stop_relaying()  # the learner goes on to name it as a holder
    for version in (1, 2):
        publish(station, version)
        assert [one.next() for one in servers] == [version] * NUM_SERVERS


def test_a_late_joiner_finds_holders(
    wire: Wire, station: Station, servers: list[Server], tmp_path: Path
) -> None:
    size = publish(station, 1)
    assert [one.next() for one in servers] == [1] * NUM_SERVERS
    listed = threading.Event()

    def heard(status: Status) -> None:
        if len(status.holders.endpoints) == NUM_SERVERS:
            listed.set()

    servers[0].link.add_listener(heard)
    assert listed.wait(WAIT_S)
    before = sent(station)
    late = Server(wire, station.endpoints, "late", tmp_path)
    assert late.next() == 1
    assert sent(station) - before < size
    late.close()
