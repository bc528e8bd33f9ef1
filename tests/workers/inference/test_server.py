"""The inference server over real sockets."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

from policy_fakes import chat, png
from torch import Tensor
from waiting import until

from distrl.configs.schema import Config
from distrl.core.errors import CheckpointError, ConfigError, PolicyError, ProtocolError
from distrl.core.messages import ActReply, ActRequest, Info, InfoRequest, LeaseRequest, Reject
from distrl.core.policies import build_policy
from distrl.core.policies.images import ImageCache
from distrl.core.sockets import Channel, Wire
from distrl.core.types import Completion, Record, Sampling, image_digest
from distrl.workers.act_client import ActClient
from distrl.workers.inference import server as server_module
from distrl.workers.inference.engine import HFEngine, Prepared
from distrl.workers.inference.serve import advertised_endpoint, build_engine, serve_checkpoint
from distrl.workers.inference.server import InferenceServer

MakeConfig = Callable[..., Config]


MakeServer = Callable[..., InferenceServer]
WAIT_S = 30.0
PICTURE = png(0)
DIGEST = image_digest(PICTURE)


@pytest.fixture
def make_server(serve: MakeServer, words: list[str], make_config: MakeConfig) -> MakeServer:
    def make(
        wrap: Callable[[HFEngine], HFEngine] = lambda engine: engine, **options: object
    ) -> InferenceServer:
        return serve(wrap(build_engine(make_config(), words, "a")), **options)

    return make


def ask(channel: Channel, message: Record, blobs: list[bytes] | None = None) -> Record:
    channel.send(message, blobs or [], timeout_s=WAIT_S)
    received = channel.recv(WAIT_S)
    assert received is not None
    return received.message


def request(
    request_id: str = "r", images: tuple[str, ...] = (DIGEST,), text: str = "open settings"
) -> ActRequest:
    return ActRequest(id=request_id, messages=chat(text, DIGEST), images=images, sampling=Sampling())


def client(wire: Wire, endpoints: list[str], name: str = "w/0") -> ActClient:
    return ActClient(wire, lambda: endpoints, name=name, timeout_s=WAIT_S)


def test_many_clients_are_served_in_batches(wire: Wire, make_server: MakeServer) -> None:
    server = make_server(max_batch=8, max_wait_ms=20.0)

    def one_client(number: int) -> list[Completion]:
        act = client(wire, [server.endpoint], f"w/{number}")
        try:
            return [act.act(chat("red shoes", DIGEST), {DIGEST: PICTURE}, Sampling()) for _ in range(5)]
        finally:
            act.close()

    with ThreadPoolExecutor(16) as pool:
        completions = [one for many in pool.map(one_client, range(16)) for one in many]
    assert len(completions) == 80
    assert {version for one in completions for version in one.weight_versions} == {3}
    stats = server.snapshot()
    assert {one.batch for one in completions} == set(range(1, int(stats["batches"]) + 1))
    assert all(one.run_s > 0.0 and one.queue_s >= 0.0 for one in completions)
    assert stats["requests"] == 80
    assert stats["batches"] < 80
    assert stats["tokens"] == sum(len(one.token_ids) for one in completions)


@pytest.mark.parametrize(
    ("message", "blobs", "code"),  # more of images in test_held_images
    [
        (request(images=()), [], "malformed"),
        (request(), [png(1)], "digest"),
        (request(text="red " * 200), [PICTURE], "context-full"),
        (LeaseRequest(worker="w"), [], "unexpected"),
    ],
)
def test_bad_requests_get_a_typed_reject_and_service_goes_on(
    wire: Wire,
    make_server: MakeServer,
    monkeypatch: pytest.MonkeyPatch,
    message: Record,
    blobs: list[bytes],
    code: str,
) -> None:
    monkeypatch.setattr("distrl.workers.inference.server.MAX_QUEUE", 1)  # no place is lost
    channel = wire.connect_dealer(make_server().endpoint)
    reject = ask(channel, message, blobs)
    assert isinstance(reject, Reject)
    assert reject.code.value == code
    assert isinstance(ask(channel, request("next"), [PICTURE]), ActReply)


def test_others_are_served_while_the_pictures_of_one_request_are_decoded(
    wire: Wire, make_server: MakeServer
) -> None:
    is_decoding, goes_on = threading.Event(), threading.Event()

    def slow(engine: HFEngine) -> HFEngine:
        decode = engine.policy.image

        def image(data: bytes) -> Tensor:
            if data != PICTURE:
                is_decoding.set()
                assert goes_on.wait(WAIT_S)
            return decode(data)

        engine._images = ImageCache(image)
        return engine

    server = make_server(wrap=slow, max_wait_ms=0.0)
    large, other = png(1), wire.connect_dealer(server.endpoint)
    digest = image_digest(large)
    message = ActRequest(id="large", messages=chat("red", digest), images=(digest,), sampling=Sampling())
    channel = wire.connect_dealer(server.endpoint)
    channel.send(message, [large], timeout_s=WAIT_S)
    assert is_decoding.wait(WAIT_S)
    assert isinstance(ask(other, InfoRequest()), Info)
    assert isinstance(ask(other, request("other"), [PICTURE]), ActReply)
    goes_on.set()
    received = channel.recv(WAIT_S)
    assert received is not None
    assert isinstance(received.message, ActReply)


class Gate:
    """Holds an engine's batches up until the test opens it; fails each batch with a guilty request.

    Attributes:
        guilty: What a request raises, by its `max_new_tokens`.
        sizes: Of the batches.
    """

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        self.guilty: dict[int, Exception] = {}
        self.sizes: list[int] = []

    def wrap(self, engine: HFEngine) -> HFEngine:
        act = engine.act

        def gated(requests: list[Prepared]) -> list[Completion]:
            self.entered.set()
            assert self.opened.wait(WAIT_S)
            self.sizes.append(len(requests))
            for one in requests:
                if one.sampling.max_new_tokens in self.guilty:
                    raise self.guilty[one.sampling.max_new_tokens]
            return act(requests)

        engine.act = gated  # type: ignore[assignment, method-assign]
        return engine


def test_a_full_queue_is_busy(wire: Wire, make_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_QUEUE", 2)
    gate = Gate()
    server = make_server(wrap=gate.wrap, max_batch=1, max_wait_ms=0.0)
    channel = wire.connect_dealer(server.endpoint)
    channel.send(request("running"), [PICTURE], timeout_s=WAIT_S)
    assert gate.entered.wait(WAIT_S)
    for number in range(4):
        channel.send(request(f"r{number}"), [PICTURE], timeout_s=WAIT_S)
    rejects = [received.message for received in (channel.recv(WAIT_S), channel.recv(WAIT_S)) if received]
    assert [(r.code.value, r.ref) for r in rejects if isinstance(r, Reject)] == [
        ("busy", "r2"),
        ("busy", "r3"),
    ]
    gate.opened.set()
    replies = [received.message for received in [channel.recv(WAIT_S) for _ in range(3)] if received]
    assert {reply.id for reply in replies if isinstance(reply, ActReply)} == {"running", "r0", "r1"}


def answers(channel: Channel, count: int) -> dict[str, Record]:
    """The next replies and rejects, by the request that they answer."""
    found: dict[str, Record] = {}
    for _ in range(count):
        received = channel.recv(WAIT_S)
        assert received is not None
        assert isinstance(received.message, (ActReply, Reject))
        is_reply = isinstance(received.message, ActReply)
        found[received.message.id if is_reply else received.message.ref] = received.message
    return found


def test_only_the_guilty_request_of_a_batch_is_rejected(
    wire: Wire, make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    server = make_server(wrap=gate.wrap, max_batch=4, max_wait_ms=60_000.0)
    gate.guilty = {7: PolicyError("Not for this policy."), 8: RuntimeError("the accelerator is gone")}
    gate.opened.set()
    channel = wire.connect_dealer(server.endpoint)
    for name, length in (("a", 32), ("refused", 7), ("poison", 8), ("b", 32)):
        message = request(name).model_copy(update={"sampling": Sampling(max_new_tokens=length)})
        channel.send(message, [PICTURE], timeout_s=WAIT_S)
    found = answers(channel, 4)
    assert (gate.sizes[0], max(gate.sizes[1:])) == (4, 2), "halves, whatever the order of the requests"
    assert isinstance(found["a"], ActReply)
    assert isinstance(found["b"], ActReply)
    refused, failed = found["refused"], found["poison"]
    assert isinstance(refused, Reject)
    assert (refused.code.value, refused.reason) == ("malformed", "Not for this policy.")
    assert isinstance(failed, Reject)
    assert failed.code.value == "internal"
    assert "the accelerator is gone" in caplog.text
    stats = server.snapshot()
    assert (stats["requests"], stats["rejected"], stats["failed"]) == (2, 1, 1)


def test_what_waits_when_a_server_closes_is_refused_at_once(wire: Wire, make_server: MakeServer) -> None:
    gate = Gate()
    server = make_server(wrap=gate.wrap, max_batch=1, max_wait_ms=0.0)
    channel = wire.connect_dealer(server.endpoint)
    channel.send(request("running"), [PICTURE], timeout_s=WAIT_S)
    assert gate.entered.wait(WAIT_S)
    channel.send(request("waiting"), [PICTURE], timeout_s=WAIT_S)
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(server.complete, chat("red", DIGEST), {DIGEST: PICTURE}, Sampling(), 2 * WAIT_S)
        until(lambda: server.snapshot()["queue"] == 2, "both wait", WAIT_S)
        closing = pool.submit(server.close)
        until(server._stopping.is_set, "it closes", WAIT_S)
        gate.opened.set()
        found = answers(channel, 2)
        closing.result(WAIT_S)
        with pytest.raises(ProtocolError, match="stopped") as refused:
            asked.result(WAIT_S)
    assert refused.value.code == "not-ready"
    assert isinstance(found["running"], ActReply)
    assert isinstance(found["waiting"], Reject)
    assert found["waiting"].code.value == "not-ready"
    with pytest.raises(ProtocolError, match="stopped"):
        server.complete(chat("red", DIGEST), {DIGEST: PICTURE}, Sampling(), WAIT_S)


def test_a_checkpoint_is_served_with_its_own_words(
    wire: Wire, make_config: MakeConfig, words: list[str], tmp_path: Path
) -> None:
    config = make_config()
    saved = build_policy(config.policy, words, 11)
    directory = tmp_path / "step_40" / "policy"
    saved.save(directory)
    with serve_checkpoint(config, ["other", "words"], directory, wire) as server:
        act = client(wire, [server.endpoint])
        found = act.act(chat("red", DIGEST), {DIGEST: PICTURE}, Sampling(temperature=0.0))
        act.close()
    batch = saved.collate([saved.prompt_ids(chat("red", DIGEST))], [[saved.image(PICTURE)]])
    assert list(found.token_ids) == saved.generate(batch, [Sampling(temperature=0.0)])[0].token_ids
    assert set(found.weight_versions) == {40}, "the checkpoint's step"
    file = directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(CheckpointError), serve_checkpoint(config, words, directory, wire):
        pass


@pytest.mark.parametrize(
    ("bound", "advertise", "expected"),
    [
        ("tcp://127.0.0.1:7000", None, "tcp://127.0.0.1:7000"),
        ("tcp://0.0.0.0:7000", "tcp://gpu1:*", "tcp://gpu1:7000"),
        ("tcp://0.0.0.0:7000", "tcp://gpu1:9", "tcp://gpu1:9"),
        ("ipc:///tmp/act", None, "ipc:///tmp/act"),
        ("tcp://0.0.0.0:7000", None, "network.advertise"),
    ],
)
def test_the_address_that_workers_are_told(bound: str, advertise: str | None, expected: str) -> None:
    if expected.startswith("network"):
        with pytest.raises(ConfigError, match=expected):
            advertised_endpoint(bound, advertise)
    else:
        assert advertised_endpoint(bound, advertise) == expected
