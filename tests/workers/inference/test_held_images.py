"""Images that a server has had are not sent to it again, and are when it has lost them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

from counting_env import CountingEnv, counting_task
from policy_fakes import chat
from sequence_policy import SequencePolicy

from distrl.configs.schema import WorkerConfig
from distrl.core.errors import ProtocolError
from distrl.core.messages import ActRequest, Lease
from distrl.core.sockets import Wire
from distrl.core.types import Sampling, image_digest
from distrl.workers.act_client import ActClient
from distrl.workers.agents.androidworld import AndroidWorldAgent
from distrl.workers.episode import EpisodeRunner
from distrl.workers.inference.engine import HFEngine
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


def test_what_was_sent_is_held_and_what_is_asked_for_stays_the_longest() -> None:
    held = HeldImages(max_bytes=20)
    assert held.of(request(A, B), [b"a" * 10, b"b" * 10]) == {A: b"a" * 10, B: b"b" * 10}
    assert held.of(request(A, held=(A,)), []) == {A: b"a" * 10}
    assert held.of(request(C, A, held=(A,)), [b"c" * 10]) == {C: b"c" * 10, A: b"a" * 10}
    with pytest.raises(ProtocolError, match="is not held here") as refused:
        held.of(request(B, held=(B,)), [])
    assert refused.value.code == "not-found"
    assert held.of(request(B), [memoryview(b"b" * 10)]) == {B: b"b" * 10}


@pytest.mark.parametrize(
    ("message", "blobs", "code", "said"),
    [
        (request(A, B, held=(B,)), [b"a" * 10] * 2, "malformed", "1 images are to be sent but 2"),
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


def test_an_episode_of_one_sequence_sends_each_screenshot_once_and_again_to_a_server_that_lost_them(
    make_server: MakeServer, make_client: Callable[[str], ActClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    images_of = HeldImages.of

    def counted(held: HeldImages, request: ActRequest, blobs: Sequence[bytes | memoryview]) -> Any:
        sent.append(len(blobs))
        return images_of(held, request, blobs)

    monkeypatch.setattr(HeldImages, "of", counted)
    server = make_server()
    runner = EpisodeRunner(
        CountingEnv(), AndroidWorldAgent(mode="incremental"), make_client(server.endpoint), WorkerConfig()
    )
    lease = Lease(id="l", task=counting_task(max_steps=3), sampling=Sampling(max_new_tokens=500))
    assert runner.run(lease) is not None
    assert sent == [1, 1, 1]
    assert runner.run(lease) is not None
    assert sent[3:] == [0, 0, 0], "the same screens come for nothing"
    server._images = HeldImages()
    assert runner.run(lease) is not None
    assert sent[6:] == [0, 1, 1, 1], "the first request is repeated with its image"
