"""Random and damaged frames at live servers: nothing breaks, refusals are typed, service goes on."""

import random
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest
import zmq
from small_learner import SmallLearner

from distrl.core.messages import (
    MESSAGE_TYPES,
    PROTOCOL_VERSION,
    ActRequest,
    ChunkRequest,
    Heartbeat,
    Hello,
    Info,
    InfoRequest,
    LeaseRelease,
    LeaseRequest,
    Reject,
    Status,
    StatusRequest,
    Submit,
    decode,
    encode,
)
from distrl.core.packing import MAX_TRAJECTORY_BYTES, unpack
from distrl.core.sockets import Wire
from distrl.core.types import (
    ActionRecord,
    ChatMessage,
    ImagePart,
    Observation,
    Record,
    Task,
    TextPart,
    TimeStep,
    Trajectory,
    image_digest,
)
from distrl.learner.server import LearnerServer

WAIT_S = 30.0
NUM_ROUNDS = 600
TASK = Task(id="q/t/1", suite="q", template="t", split="train", goal="Do it")


def samples() -> list[list[bytes]]:
    """Well-formed messages to damage, and some that are only just well-formed."""
    pixels = b"pixels"
    step = TimeStep(
        observation=Observation(image=image_digest(pixels), width=1, height=1),
        chats=(),
        action=ActionRecord(kind="back"),
    )
    trajectory = Trajectory(id="fuzz", task=TASK, steps=(step,))
    picture = image_digest(pixels)
    shown, hidden = ImagePart(digest=picture), ImagePart(digest="another")
    chats = [
        ChatMessage(role="user", parts=parts) for parts in ((shown,), (hidden,), (TextPart(text="a"),), ())
    ]
    good = [
        [encode(Hello(role="inference", name="n", act_endpoint="tcp://127.0.0.1:9"))],
        [encode(Heartbeat(role="worker", name="n", stats={"a": 1.0}))],
        [encode(StatusRequest())],
        [encode(LeaseRequest(worker="w", count=3))],
        [encode(ChunkRequest(digest="d", offset=2**53, length=1))],
        [encode(Submit.of(trajectory, (image_digest(pixels),))), pixels],
        [encode(Status(run_id="r", phase="training"))],
        [encode(InfoRequest())],
        [encode(LeaseRelease(worker="w", lease_ids=("l",)))],
        *[[encode(ActRequest(id="r", messages=(chat,), images=(picture,))), pixels] for chat in chats],
    ]
    envelope = msgpack.unpackb(good[5][0])
    marked = unpack(envelope["body"])
    marked["task"]["params"] = {"mark": "MARK"}
    # Very deep, and deeper than msgpack unpacks.
    bodies = [
        msgpack.packb(marked).replace(msgpack.packb("MARK"), b"\x81\xa1d" * depth + b"\x80")
        for depth in (600, 5000)
    ]
    strange = unpack(envelope["body"])
    strange["task"]["params"] = {"ext": msgpack.ExtType(7, b"x"), "bytes": b"\xff", "n": 2**64 - 1}
    strange["id"] = "strange"
    bodies += [msgpack.packb(strange), bytes(MAX_TRAJECTORY_BYTES + 1)]
    packed = [zlib.compress(body) for body in bodies]
    packed += [packed[2][:-9], packed[2] + b"more"]
    mystery = [msgpack.packb({"v": PROTOCOL_VERSION, "type": "mystery"})]
    return [*good, mystery, *[[msgpack.packb({**envelope, "body": body}), pixels] for body in packed]]


def damaged(rng: random.Random, frames: list[bytes]) -> list[bytes]:
    """The frames with one kind of damage."""
    frames = list(frames)
    index = rng.randrange(len(frames))
    frame = bytearray(frames[index])
    kind = rng.randrange(7)
    if kind == 0 and frame:
        frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        frame = frame[: rng.randrange(len(frame) + 1)]
    elif kind == 2:
        frame += rng.randbytes(rng.randrange(1, 50))
    elif kind == 3:
        return [*frames, *[rng.randbytes(rng.randrange(20)) for _ in range(rng.randrange(1, 1100))]]
    elif kind == 4:
        return [b"", *frames]
    elif kind == 5:
        return [rng.randbytes(rng.randrange(200)) for _ in range(rng.randrange(1, 4))]
    elif kind == 6:
        body = {"v": rng.choice([0, 1, 2, "1", None]), "type": rng.choice([*MESSAGE_TYPES, "x", 7, None])}
        frame = bytearray(msgpack.packb(body))
    frames[index] = bytes(frame)
    return frames


def fuzz(endpoint: str, num_rounds: int, seed: int) -> dict[str, int]:
    """Throws damaged messages at a ROUTER. Returns how often each type of answer came; all must decode."""
    rng = random.Random(seed)
    answers: dict[str, int] = {}
    context = zmq.Context()
    raw = context.socket(zmq.DEALER)
    raw.linger = 0
    raw.connect(endpoint)
    pool = samples()
    for round_number in range(num_rounds):
        frames = rng.choice(pool)
        raw.send_multipart(damaged(rng, frames) if rng.random() < 0.9 else frames)
        # The last rounds wait a little, so that most answers are seen.
        while raw.poll(200 if round_number > num_rounds - 5 else 0):
            message = decode(raw.recv_multipart()[0])
            name = message.code.value if isinstance(message, Reject) else message.type
            answers[name] = answers.get(name, 0) + 1
    raw.close()
    context.term()
    return answers


def throw_noise(endpoint: str, seed: int) -> None:
    """Bytes that are not even ZeroMQ's own protocol."""
    host, port = endpoint.removeprefix("tcp://").rsplit(":", 1)
    rng = random.Random(seed)
    greeting = b"\xff" + b"\x00" * 8 + b"\x7f\x03"
    for noise in (b"GET / HTTP/1.1\r\n\r\n", rng.randbytes(5000), greeting + rng.randbytes(500)):
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
            connection.sendall(noise)


def ask(endpoint: str, request: Record) -> Record:
    """A good request, on a fresh connection."""
    with Wire() as wire:
        channel = wire.connect_dealer(endpoint)
        channel.send(request)
        received = channel.recv(WAIT_S)
        assert received is not None, "no answer any more"
        return received.message


@pytest.fixture
def learner(tmp_path: Path) -> Iterator[LearnerServer]:
    with SmallLearner([], tmp_path) as learner:
        yield learner.server
        learner.server.check()


def test_the_learner_survives_control_noise(learner):
    endpoint = learner.endpoints.control
    throw_noise(endpoint, 1)
    answers = fuzz(endpoint, NUM_ROUNDS, 1)
    assert answers.keys() >= {
        "malformed",
        "version",
        "unknown-type",
        "unexpected",
        "welcome",
        "status",
        "ack",
    }
    assert "internal" not in answers
    assert ask(endpoint, StatusRequest()).run_id == "run-1"


def test_the_learner_survives_noise_at_its_weights(learner):
    throw_noise(learner.endpoints.weights, 3)
    answers = fuzz(learner.endpoints.weights, NUM_ROUNDS, 3)
    assert answers.keys() >= {"malformed", "version", "unexpected"}
    assert "internal" not in answers
    request = ChunkRequest(digest="d", offset=0, length=1)
    assert ask(learner.endpoints.weights, request).code.value == "not-found"


@pytest.mark.needs("torch")
def test_an_inference_server_survives_noise():
    from distrl.configs.schema import Config
    from distrl.workers.inference.serve import build_engine
    from distrl.workers.inference.server import InferenceServer

    sizes = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1, "image_size": [24, 40]}
    config = Config.model_validate({"policy": {"device": "cpu", **sizes}})
    with Wire() as wire:
        engine = build_engine(config, ["tap"], "fuzzed")
        server = InferenceServer(wire, "tcp://127.0.0.1:0", engine, config.inference, "fuzzed")
        server.start()
        throw_noise(server.endpoint, 4)
        answers = fuzz(server.endpoint, NUM_ROUNDS, 4)
        assert answers.keys() >= {"malformed", "version", "unexpected", "info"}
        assert "internal" not in answers
        assert isinstance(ask(server.endpoint, InfoRequest()), Info)
        server.check()
        server.close()


def test_a_peer_that_behaves_is_served_amid_noise(learner):
    with Wire() as wire:
        channel = wire.connect_dealer(learner.endpoints.control)
        for seed in range(3):
            fuzz(learner.endpoints.control, 50, seed)
            channel.send(StatusRequest())
            assert channel.recv(WAIT_S).message.run_id == "run-1"
