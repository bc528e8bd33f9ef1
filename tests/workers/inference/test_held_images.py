"""Images that a server has had are not sent to it again, and are when it has lost them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

from counting_env import CountingEnv, counting_task
from policy_fakes import chat, png
from sequence_policy import SequencePolicy
from waiting import until

from distrl.configs.schema import WorkerConfig
from distrl.core.errors import NetworkError, ProtocolError
from distrl.core.messages import ActRequest, Lease
from distrl.core.sockets import Wire
from distrl.core.types import Sampling, image_digest
from distrl.workers.act_client import MAX_HELD, ActClient
from distrl.workers.agents.androidworld import AndroidWorldAgent
from distrl.workers.episode import EpisodeRunner
from distrl.workers.inference.engine_hf import HFEngine
from distrl.workers.inference.server import HeldImages, InferenceServer

WAIT_S = 30.0
TAP = 'Reason: tap. Action: {"action_type": "click", "x": 1, "y": 1}'
A, B, C = (image_digest(blob) for blob in (b"a" * 10, b"b" * 10, b"c" * 10))
MakeServer = Callable[..., InferenceServer]


@pytest.fixture
def make_server(serve: MakeServer) -> MakeServer:
    def make(endpoint: str = "tcp://127.0.0.1:*") -> InferenceServer:
        policy = SequencePolicy()
        policy.answers = itertools.repeat(policy.tokenise(TAP))
        return serve(HFEngine(policy, 0), endpoint=endpoint)  # type: ignore[arg-type]

    return make


@pytest.fixture
def make_client(wire: Wire) -> Iterator[Callable[[str], ActClient]]:
    with ExitStack() as stack:

        def make(endpoint: str) -> ActClient:
            client = ActClient(wire, lambda: [endpoint], timeout_s=WAIT_S)
            stack.callback(client.close)
            return client

        yield make


def request(*images: str, held: tuple[str, ...] = ()) -> ActRequest:
    messages = tuple(message for digest in images for message in chat("red", digest))
    return ActRequest(id="r", messages=messages, images=images, held=held)


def ask(client: ActClient, number: int) -> None:
    data = png(number)
    digest = image_digest(data)
    client.act(chat("red", digest), {digest: data}, Sampling(max_new_tokens=8))


def image_bytes(server: InferenceServer) -> tuple[int, int]:
    """What came, and what did not have to."""
    numbers = server.snapshot()
    return int(numbers["image_bytes"]), int(numbers["image_bytes_spared"])


def test_what_was_sent_is_held_and_what_is_asked_for_stays_the_longest() -> None:
    held = HeldImages(max_bytes=20)
    assert held.of(request(A, B), [b"a" * 10, b"b" * 10]) == {A: b"a" * 10, B: b"b" * 10}
    assert held.of(request(A, held=(A,)), []) == {A: b"a" * 10}
    assert held.of(request(C, A, held=(A,)), [b"c" * 10]) == {C: b"c" * 10, A: b"a" * 10}
    with pytest.raises(ProtocolError, match="is not held here") as refused:
        held.of(request(B, held=(B,)), [])
    assert refused.value.code == "not-found"
    assert held.of(request(B), [memoryview(b"b" * 10)]) == {B: b"b" * 10}
    assert (held.num_received_bytes, held.num_spared_bytes) == (40, 20)


def test_what_a_refused_request_names_was_not_spared() -> None:
    held = HeldImages(max_bytes=20)
    held.of(request(A), [b"a" * 10])
    with pytest.raises(ProtocolError, match="not held"):
        held.of(request(A, B, held=(A, B)), [])
    assert (held.num_received_bytes, held.num_spared_bytes) == (10, 0)
    held.of(request(A, B, held=(A,)), [b"b" * 10])
    assert (held.num_received_bytes, held.num_spared_bytes) == (20, 10)


@pytest.mark.parametrize(
    ("message", "blobs", "code", "said"),
    [
        (
            request(A, B, held=(B,)),
            [b"a" * 10, b"b" * 10],
            "malformed",
            "1 images are to be sent but 2",
        ),
        (request(A), [], "malformed", "1 images are to be sent but 0 frames"),
        (request(A), [b"b" * 10], "digest", "has another digest"),
        (request(A).model_copy(update={"held": (B,)}), [b"a" * 10], "malformed", "not among the images"),
        (request(A, B).model_copy(update={"images": (A,)}), [b"a" * 10], "malformed", "was not sent"),
        (request(A).model_copy(update={"prefix_images": (A,)}), [b"a" * 10], "malformed", "no prefix"),
    ],
)
def test_what_does_not_fit_is_refused_and_not_held(
    message: ActRequest, blobs: list[bytes], code: str, said: str
) -> None:
    held = HeldImages()
    with pytest.raises(ProtocolError, match=said) as refused:
        held.of(message, blobs)
    assert refused.value.code == code
    with pytest.raises(ProtocolError, match="not held"):
        held.of(request(A, held=(A,)), [])


def test_an_episode_of_one_sequence_sends_each_screenshot_once(
    make_server: MakeServer, make_client: Callable[[str], ActClient]
) -> None:
    server = make_server()
    runner = EpisodeRunner(
        CountingEnv(), AndroidWorldAgent(mode="incremental"), make_client(server.endpoint), WorkerConfig()
    )
    lease = Lease(id="l", task=counting_task(max_steps=5), sampling=Sampling(max_new_tokens=500))
    episode = runner.run(lease)
    assert episode is not None
    trajectory, images = episode
    seen = [len(images[step.observation.image]) for step in trajectory.steps]
    assert len({step.observation.image for step in trajectory.steps}) == len(seen) == 5
    sent_whole = sum((5 - number) * size for number, size in enumerate(seen))
    assert image_bytes(server) == (sum(seen), sent_whole - sum(seen))
    again = runner.run(lease)
    assert again is not None
    assert image_bytes(server) == (sum(seen), 2 * sent_whole - sum(seen)), "the same screens come for nothing"


def test_a_restarted_server_gets_all_images_again(
    make_server: MakeServer, make_client: Callable[[str], ActClient]
) -> None:
    server = make_server()
    client = make_client(server.endpoint)
    for number in (0, 0):
        ask(client, number)
    assert image_bytes(server) == (len(png(0)), len(png(0)))
    server.close()
    started: list[InferenceServer] = []

    def start_another() -> bool:
        with suppress(NetworkError):  # the address becomes free a moment after the close
            started.append(make_server(server.endpoint))
        return bool(started)

    until(start_another, "the address is free")
    (another,) = started
    ask(client, 0)
    assert image_bytes(another) == (len(png(0)), 0)
    assert another.snapshot()["rejected"] == 0
    ask(client, 0)
    assert image_bytes(another) == (len(png(0)), len(png(0)))


def test_what_the_server_dropped_is_sent_again(
    make_server: MakeServer, make_client: Callable[[str], ActClient]
) -> None:
    server = make_server()
    server._images._images.max_bytes = len(png(0))
    client = make_client(server.endpoint)
    for number in (0, 1, 0):
        ask(client, number)
    assert image_bytes(server) == (2 * len(png(0)) + len(png(1)), 0)


def test_a_client_remembers_the_newest_only(
    make_server: MakeServer, make_client: Callable[[str], ActClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_HELD >= 100
    monkeypatch.setattr("distrl.workers.act_client.MAX_HELD", 1)
    server = make_server()
    client = make_client(server.endpoint)
    for number in (0, 1, 1, 0):
        ask(client, number)
    assert image_bytes(server) == (2 * len(png(0)) + len(png(1)), len(png(1)))
