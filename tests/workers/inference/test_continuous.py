"""The server with an engine that takes requests while others run, and answers from a thread of its own."""

import threading
from collections.abc import Callable, Sequence

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

from policy_fakes import chat
from torch import Tensor
from waiting import until

from distrl.core.errors import DistrlError, PolicyError
from distrl.core.messages import ActReply, ActRequest, Reject
from distrl.core.sockets import Channel, Wire
from distrl.core.types import ChatMessage, Completion, Sampling, TextPart
from distrl.workers.inference.engine import OnDone
from distrl.workers.inference.server import InferenceServer

WAIT_S = 30.0


class HeldEngine:
    """Keeps requests until the test ends them, by the text of their chats.

    Attributes:
        running: What ends a request, by its text, in the order of submission.
        submits: How many requests each submit brought.
        ended_by: What `check` raises.
    """

    version, is_continuous = 1, True

    def __init__(self) -> None:
        self.running: dict[str, Callable[[Exception | None], None]] = {}
        self.submits: list[int] = []
        self.ended_by: DistrlError | None = None

    def prepare(self, messages: Sequence[ChatMessage], *_: object) -> str:
        part = messages[0].parts[-1]
        assert isinstance(part, TextPart)
        return part.text

    def submit(self, requests: Sequence[str], on_done: OnDone) -> None:
        self.submits.append(len(requests))
        for index, text in enumerate(requests):
            self.running[text] = self._end(index, text, on_done)

    def _end(self, index: int, text: str, on_done: OnDone) -> Callable[[Exception | None], None]:
        versions = (self.version,)

        def end(error: Exception | None) -> None:
            completion = Completion(text=text, token_ids=(1,), logprobs=(0.0,), weight_versions=versions)
            thread = threading.Thread(target=on_done, args=(index, error or completion))
            thread.start()
            thread.join()

        return end

    def finish(self, text: str, error: Exception | None = None) -> None:
        self.running.pop(text)(error)

    def load(self, version: int, state: dict[str, Tensor]) -> None:
        self.version = version

    def check(self) -> None:
        if self.ended_by is not None:
            raise self.ended_by

    def stats(self) -> dict[str, float]:
        return {"adapters": 2.0}

    def close(self) -> None:
        for text in list(self.running):
            self.finish(text, RuntimeError("closed"))


@pytest.fixture
def engine() -> HeldEngine:
    return HeldEngine()


@pytest.fixture
def server(serve: Callable[..., InferenceServer], engine: HeldEngine) -> InferenceServer:
    return serve(engine, version=1, max_batch=2, max_wait_ms=60_000.0)


def send(channel: Channel, *texts: str) -> None:
    for text in texts:
        part = TextPart(text=text)
        messages = (chat("")[0].model_copy(update={"parts": (part,)}),)
        channel.send(ActRequest(id=text, messages=messages, images=(), sampling=Sampling()), timeout_s=WAIT_S)


def reply(channel: Channel) -> ActReply | Reject:
    received = channel.recv(WAIT_S)
    assert received is not None
    assert isinstance(received.message, (ActReply, Reject))
    return received.message


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
