"""The server with an engine that takes requests while others run, and answers from a thread of its own."""

import threading
from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

from held_engine import WAIT_S, HeldEngine, reply, send
from waiting import until

from distrl.core.errors import DistrlError, PolicyError
from distrl.core.messages import ActReply, Reject
from distrl.core.sockets import Wire
from distrl.workers.inference.server import InferenceServer


@pytest.fixture
def engine() -> HeldEngine:
    return HeldEngine()


@pytest.fixture
def server(serve: Callable[..., InferenceServer], engine: HeldEngine) -> InferenceServer:
    return serve(engine, version=1, max_batch=2, max_wait_ms=60_000.0)


def test_requests_run_as_they_come_and_no_more_than_max_batch(
    wire: Wire, engine: HeldEngine, server: InferenceServer
) -> None:
    channel = wire.connect_dealer(server.endpoint)
    send(channel, "a")
    until(lambda: "a" in engine.running, "a runs without waiting for a batch", WAIT_S)
    send(channel, "b", "c", "d")
    until(lambda: "b" in engine.running and server.snapshot()["queue"] == 2, "b runs beside it", WAIT_S)
    assert list(engine.running) == ["a", "b"]
    assert server.snapshot()["running"] == 2
    engine.version = 2
    engine.finish("b")
    first = reply(channel)
    assert isinstance(first, ActReply)
    assert (first.id, first.completion.weight_versions) == ("b", (1,))
    until(lambda: "c" in engine.running, "c takes its place", WAIT_S)
    engine.finish("a")
    until(lambda: "d" in engine.running, "d takes the other", WAIT_S)
    engine.finish("d", PolicyError("Not for this policy."))
    engine.finish("c")
    found = {one.id if isinstance(one, ActReply) else one.ref: one for one in (reply(channel) for _ in "adc")}
    assert isinstance(found["d"], Reject)
    assert found["d"].code.value == "malformed"
    assert isinstance(found["c"], ActReply)
    assert found["c"].completion.weight_versions == (2,)
    stats = server.snapshot()
    assert (stats["requests"], stats["rejected"], stats["running"], stats["adapters"]) == (3, 1, 0, 2)
    assert max(engine.submits) <= 2


@pytest.mark.parametrize("drain_s", [0.05, WAIT_S])
def test_a_server_that_closes_waits_for_what_ends_in_time(
    wire: Wire, engine: HeldEngine, server: InferenceServer, monkeypatch: pytest.MonkeyPatch, drain_s: float
) -> None:
    monkeypatch.setattr("distrl.workers.inference.server.DRAIN_S", drain_s)
    channel = wire.connect_dealer(server.endpoint)
    send(channel, "last")
    until(lambda: "last" in engine.running, "it runs", WAIT_S)
    closing = threading.Thread(target=server.close)
    closing.start()
    if drain_s == WAIT_S:
        engine.finish("last")
        assert isinstance(reply(channel), ActReply)
    else:
        refused = reply(channel)  # read while it closes: with the connection goes what was not read
        assert isinstance(refused, Reject)
        assert (refused.code.value, refused.ref) == ("internal", "last")
    closing.join(WAIT_S)


def test_a_dead_engine_ends_its_server(engine: HeldEngine, server: InferenceServer) -> None:
    server.check()
    engine.ended_by = DistrlError("The engine is gone.")
    with pytest.raises(DistrlError, match="gone"):
        server.check()
