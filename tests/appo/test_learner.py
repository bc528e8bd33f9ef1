"""The learner: its main loop and checkpoints, and its answers over sockets."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("gymnasium", reason="needs gymnasium: not installed")

import json
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgpack
from appo_world import World, appo_config, gradient, new_policy

from distrl.appo.learner import AppoLearner, AppoServer
from distrl.appo.worker import MasterClient
from distrl.core import checkpoints
from distrl.core.errors import ProtocolError
from distrl.core.messages import (
    EpisodeReturn,
    LeaseRequest,
    Measured,
    Reject,
    RejectCode,
    Shutdown,
    WeightInfo,
    WorkAck,
    WorkGrant,
    WorkRequest,
    encode,
)
from distrl.core.metrics import MetricsWriter
from distrl.core.rundir import RunDir
from distrl.core.sockets import Channel, Wire
from distrl.core.types import Record
from distrl.core.weights import Buffer, WeightFetcher
from distrl.learner.server import Endpoints, ServerBase


def solving_server(world: World) -> Mock:
    """A server without sockets whose `check` does what workers would: a good round, good measurements."""
    good = EpisodeReturn(total=0.0, length=8)

    def check() -> None:
        number = world.master.progress.accepted + 1
        message, payload = gradient(world, unit_id=f"r{number}", episodes=(good,))
        world.master.take_gradient(message, [payload])
        units = [world.master.work(f"w{i}") for i in range(6)] if number > 3 else []
        for unit in units:
            if unit is not None and unit.kind == "evaluate":
                episodes = (good,) * len(unit.seeds)
                world.master.take_measured(Measured(worker="w", unit_id=unit.id, episodes=episodes))

    return Mock(check=check, peer_metrics=dict)


def test_the_checkpoint_of_a_solution_outlives_newer_ones(tmp_path: Path) -> None:
    """Others train while it is confirmed, and each of their rounds is a checkpoint of which one is kept."""
    config = appo_config(stop_at_return=-1.0, eval_every=256, max_env_steps=10**9)
    config.learner.checkpoint_every = config.learner.keep_checkpoints = 1
    world, run = World(tmp_path, config), RunDir(tmp_path)
    metrics, directory = MetricsWriter(tmp_path / "metrics.jsonl"), run.checkpoints
    learner = (config, run, solving_server(world), world.master, new_policy(config), metrics)
    AppoLearner(*learner, threading.Event()).run()
    solved = checkpoints.resolve(directory, "final")
    latest = checkpoints.resolve(directory, "latest")
    assert checkpoints.step_of(solved.name) < checkpoints.step_of(latest.name)
    assert json.loads(checkpoints.note_of(directory, "final"))["return"] >= -1.0


WAIT_S = 20.0


class Served(World):
    """A master that publishes through a real server."""

    def __init__(self, folder: Path) -> None:
        local = "tcp://127.0.0.1:*"
        self.server = AppoServer(Endpoints(local, local, local), None, "run")
        super().__init__(folder, appo_config())
        self.server.master = self.master
        self.server.start()

    def publish_weights(self, info: WeightInfo, data: Buffer) -> None:
        super().publish_weights(info, data)
        self.server.publish_weights(info, data)

    def offer_weights(self, info: WeightInfo, data: Buffer) -> None:
        self.server.offer_weights(info, data)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    world = Served(tmp_path)
    yield world
    world.server.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    with Wire() as wire:
        yield wire


@pytest.fixture
def channel(served: Served, wire: Wire) -> Iterator[Channel]:
    channel = wire.connect_dealer(served.server.endpoints.control)
    yield channel
    channel.close()


def ask(channel: Channel, message: Record, blobs: list[bytes] | None = None) -> Record:
    channel.send(message, blobs or [])
    received = channel.recv(WAIT_S)
    assert received is not None
    return received.message


def test_a_gradient_is_acked_once_applied_and_a_resend_as_a_duplicate(
    served: Served, channel: Channel
) -> None:
    message, payload = gradient(served)
    assert ask(channel, message, [payload]) == WorkAck(unit_id="u1")
    assert ask(channel, message, [payload]) == WorkAck(unit_id="u1", duplicate=True)
    assert served.master.progress.accepted == 1


def test_what_is_refused_says_what_and_why_and_the_service_goes_on(served: Served, channel: Channel) -> None:
    message, payload = gradient(served)
    reply = ask(channel, message, [payload[:-1] + b"\xff"])
    assert isinstance(reply, Reject)
    assert (reply.code, reply.ref) == (RejectCode.DIGEST, "u1")
    reply = ask(channel, LeaseRequest(worker="w"))  # a worker of another configuration
    assert isinstance(reply, Reject)
    assert reply.code is RejectCode.UNEXPECTED
    assert isinstance(ask(channel, message, [payload]), WorkAck)


@pytest.mark.parametrize(
    "change",
    [
        {"episodes": [{"total": 1.7e308, "length": 1}] * 2},
        {"episodes": [{"total": 1.0, "length": 2**40}]},
        {"metrics": {"loss": 1.7e308}},
        {"metrics": {f"m{i}": 0.0 for i in range(2000)}},
        {"metrics": {"m" * 1000: 0.0}},
        {"worker": "w\x1b[2J"},
    ],
)
def test_numbers_that_would_overflow_statistics_are_rejected(
    served: Served, channel: Channel, change: dict[str, Any]
) -> None:
    message, payload = gradient(served)
    body = msgpack.unpackb(encode(message)) | change
    channel.raw.send_multipart([msgpack.packb(body), payload])
    received = channel.recv(WAIT_S)
    assert received is not None
    reply = received.message
    assert isinstance(reply, Reject), "it was applied"
    assert (reply.code.value, reply.ref) == ("malformed" if "worker" in change else "limit", "u1")
    assert served.server.peer_metrics()[f"rejected/{reply.code.value}"] == 1
    assert isinstance(ask(channel, message, [payload]), WorkAck)


def test_work_comes_with_weights_that_can_be_fetched(served: Served, channel: Channel, wire: Wire) -> None:
    message, payload = gradient(served)
    ask(channel, message, [payload])
    grant = ask(channel, WorkRequest(worker="w"))
    assert isinstance(grant, WorkGrant)
    assert grant.unit is not None
    assert (grant.unit.kind, grant.unit.weights.version) == ("evaluate", 2)
    for number in range(20):  # more than the server keeps
        message, payload = gradient(served, unit_id=f"n{number}")
        ask(channel, message, [payload])
    again = ask(channel, WorkRequest(worker="w"))
    assert isinstance(again, WorkGrant)
    assert again.unit is not None
    assert (again.unit.id, again.unit.weights) == (grant.unit.id, grant.unit.weights)
    fetcher = WeightFetcher(wire, served.server.endpoints.weights)
    assert bytes(fetcher.fetch(grant.unit.weights, WAIT_S)) == bytes(
        served.published[grant.unit.weights.digest]
    )
    fetcher.close()


def test_a_run_that_is_over_says_so_but_takes_what_is_under_way(served: Served, channel: Channel) -> None:
    served.server.shutdown("done")
    assert isinstance(ask(channel, WorkRequest(worker="w")), Shutdown)
    message, payload = gradient(served)
    assert isinstance(ask(channel, message, [payload]), WorkAck)
    assert ask(channel, Measured(worker="w", unit_id="old", episodes=())) == WorkAck(
        unit_id="old", duplicate=True
    )


def test_a_client_asks_until_a_restarted_learner_answers(tmp_path: Path, wire: Wire) -> None:
    """Nobody is there at first; the gradient is applied once all the same."""
    probe = Served(tmp_path)
    control, weights = probe.server.endpoints.control, probe.server.endpoints.weights
    message, payload = gradient(probe)
    probe.server.close()
    answers: queue.Queue[Reject | None] = queue.Queue()
    client = MasterClient(wire, control, weights, "w", lambda: False)
    thread = threading.Thread(target=lambda: answers.put(client.send(message, [payload])), daemon=True)
    thread.start()
    again = AppoServer(Endpoints(control, "tcp://127.0.0.1:*", weights), None, "run")
    again.master = probe.master
    again.start()
    try:
        assert answers.get(timeout=WAIT_S) is None
        assert probe.master.progress.accepted == 1
    finally:
        again.close()
        thread.join(WAIT_S)
        client.close()


def test_a_learner_of_another_kind_is_told(wire: Wire) -> None:
    station = ServerBase(Endpoints(*["tcp://127.0.0.1:*"] * 3), None, "run")
    station.start()
    client = MasterClient(wire, station.endpoints.control, station.endpoints.weights, "w", lambda: False)
    try:
        with pytest.raises(ProtocolError, match="no work for workers that train: a WorkRequest"):
            client.work()
    finally:
        client.close()
        station.close()
