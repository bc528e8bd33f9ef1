"""Trajectories that a buggy or hostile worker could send to a learner that trains: none is committed."""

from __future__ import annotations

import io
import itertools
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

from PIL import Image

from distrl.configs.schema import Config
from distrl.core.messages import (
    PROTOCOL_VERSION,
    Ack,
    Hello,
    Lease,
    LeaseRequest,
    Reject,
    StatusRequest,
    Submit,
)
from distrl.core.rundir import RunDir
from distrl.core.sockets import Channel, Wire
from distrl.core.types import (
    ActionRecord,
    Chat,
    ChatMessage,
    Completion,
    ImagePart,
    Observation,
    Outcome,
    Record,
    Task,
    TextPart,
    TimeStep,
    Trajectory,
    image_digest,
)
from distrl.learner.build import TaskSets, open_learner
from distrl.learner.learner import Learner

WAIT_S = 60.0
MAX_PROMPT, MAX_NEW = 24, 8
TASKS = [
    Task(id=f"q/t/{i}", suite="q", template="t", split="train", goal="Tap it", max_steps=3, seed=i)
    for i in range(4)
]
Body = dict[str, Any]
_names = itertools.count()


def picture() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (24, 40), (10, 20, 30)).save(buffer, "PNG")
    return buffer.getvalue()


PIXELS = picture()


@contextmanager
def learning(folder: Path, resume: bool = False) -> Iterator[Learner]:
    """A whole learner that trains in a thread; its end without an error is checked."""
    config = Config.model_validate(
        {
            "runs_dir": str(folder),
            "network": dict.fromkeys(("control", "broadcast", "weights"), "tcp://127.0.0.1:*"),
            "policy": {
                "d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1, "image_size": [24, 40],
                "device": "cpu", "max_prompt_tokens": MAX_PROMPT,
            },
            "learner": {
                "demonstrations": {"episodes": 0, "updates": 0, "critic_updates": 0},
                "episodes": 10_000, "min_replay": 4, "batch_trajectories": 4, "updates_per_episode": 0.5,
                "max_staleness": 1000, "max_new_tokens": MAX_NEW, "eval_every": 0, "keep_best": False,
            },
        }
    )  # fmt: skip
    stop, errors = threading.Event(), []

    def run() -> None:
        try:
            learner.run()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    run_dir = RunDir.create_or_open(config, resume)
    with open_learner(config, run_dir, TaskSets(TASKS, [], ["tap", "it"]), stop) as learner:
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield learner
            assert not errors, f"the learner ended: {errors[0]!r}"
            assert thread.is_alive()
        finally:
            stop.set()
            thread.join(WAIT_S)


class Client:
    """A worker that says and sends what it likes."""

    def __init__(self, wire: Wire, learner: Learner) -> None:
        self.channel: Channel = wire.connect_dealer(learner.context.server.endpoints.control)

    def ask(self, message: Record, blobs: Sequence[bytes] = ()) -> Any:
        self.channel.send(message, blobs)
        return self.answer()

    def answer(self) -> Any:
        received = self.channel.recv(WAIT_S)
        assert received is not None, "no answer"
        return received.message

    def lease(self, worker: str = "honest") -> Lease:
        deadline = time.monotonic() + WAIT_S
        self.ask(Hello(role="worker", name=worker, slots=1000))
        while time.monotonic() < deadline:
            leases = self.ask(LeaseRequest(worker=worker)).leases
            if leases:
                return leases[0]
            threading.Event().wait(0.05)
        raise AssertionError("no lease")

    def send(self, body: Body) -> Any:
        """Sends a trajectory as it is, whatever is in it."""
        packed = zlib.compress(msgpack.packb(body))
        envelope = {"v": PROTOCOL_VERSION, "type": "submit", "body": packed, "images": [image_digest(PIXELS)]}
        self.channel.raw.send_multipart([msgpack.packb(envelope), PIXELS])
        return self.answer()

    def submit(self, trajectory: Trajectory) -> Any:
        return self.ask(Submit.of(trajectory, (image_digest(PIXELS),)), [PIXELS])


def honest(lease: Lease, worker: str = "honest") -> Trajectory:
    """Two steps as an inference server and an environment would make them."""
    screen = Observation(image=image_digest(PIXELS), width=24, height=40)
    message = ChatMessage(role="user", parts=(TextPart(text="Tap it"), ImagePart(digest=screen.image)))
    completion = Completion(
        text="tap",
        prompt_token_ids=(1, 2),
        token_ids=(3, 1),
        logprobs=(-1.0, -0.5),
        weight_versions=(1, 1),
        sampling=lease.sampling,
        server="tcp://127.0.0.1:9",
    )
    step = TimeStep(
        observation=screen,
        chats=(Chat(messages=(message,), completion=completion),),
        action=ActionRecord(kind="tap", point=(0.5, 0.5)),
    )
    return Trajectory(
        id=f"t{next(_names)}",
        task=lease.task,
        lease_id=lease.id,
        worker=worker,
        steps=(step, step),
        final=screen,
        outcome=Outcome.FAILURE,
        duration_s=1.0,
    )


def completion(body: Body) -> Body:
    return body["steps"][0]["chats"][0]["completion"]


def answer_with(**changes: Any) -> Callable[[Body, Learner], None]:
    return lambda body, learner: completion(body).update(changes)


def tokens(values: list[int]) -> dict[str, Any]:
    return {"token_ids": values, "logprobs": [-1.0] * len(values), "weight_versions": [1] * len(values)}


def reward(**parts: float) -> Callable[[Body, Learner], object]:
    return lambda body, learner: [step["reward"].update(parts) for step in body["steps"]]


def at(path: str, value: Any) -> Callable[[Body, Learner], None]:
    """A change of one value; a value that is a function is called with the body and the learner."""

    def change(body: Body, learner: Learner) -> None:
        found = value(body, learner) if callable(value) else value
        *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
        for part in parents:
            body = body[part]
        body[last] = found

    return change


def unknown_tokens(body: Body, learner: Learner) -> list[int]:
    return [learner.context.train_step.policy.num_tokens]


def beyond_vocabulary(body: Body, learner: Learner) -> None:
    completion(body).update(tokens(unknown_tokens(body, learner)))


def from_the_future(body: Body, learner: Learner) -> list[int]:
    return [1, learner.context.publisher.version + 1000]  # the learner publishes meanwhile


def forged_lease(body: Body, learner: Learner) -> str:
    return body["lease_id"].rpartition("-")[0] + "-" + "0" * 32


def task_with_more_steps(body: Body, learner: Learner) -> None:
    body["task"]["max_steps"] = 10_000
    body["steps"] = body["steps"][:1] * 500


def other_temperature(body: Body, learner: Learner) -> None:
    for step in body["steps"]:
        step["chats"][0]["completion"]["sampling"]["temperature"] = 0.3


def another_task(body: Body, learner: Learner) -> Body:
    return next(task for task in TASKS if task.id != body["task"]["id"]).model_dump()


def long_continuation(body: Body, learner: Learner) -> None:
    chat = body["steps"][0]["chats"][0]
    answer = chat["completion"] | {"prompt_token_ids": [1] * (MAX_PROMPT + MAX_NEW)}
    body["steps"][0]["chats"].append(chat | {"completion": answer, "continues": True})


COMPLETION = "steps.0.chats.0.completion"
ELEMENT = {"text": "On", "bounds": [0.0, 0.0, 1.0, 0.1], "class_name": "Switch", "flags": ["checked"]}
ELEMENTS = "steps.0.observation.elements"
MOTION = "steps.0.action.motion"
VERDICT = {"success": False, "score": 0.0, "reason": "no"}
HOSTILE = {
    "a reward whose sum overflows": (reward(outcome=1.7e308), "limit"),
    "a reward that is infinite as float32": (reward(outcome=1e308), "limit"),
    "a reward that outweighs all others": (reward(shaping=1e30), "limit"),
    "rewards that only together are too large": (reward(outcome=600.0), "limit"),
    "rewards that cancel": (reward(outcome=900.0, repetition=-900.0), "limit"),
    "a reward that is no number": (reward(outcome=float("nan")), "limit"),
    "a version beyond 64 bits": (answer_with(weight_versions=[2**64 - 1, 1]), "limit"),
    "a version from the future": (at(f"{COMPLETION}.weight_versions", from_the_future), "limit"),
    "a token beyond the vocabulary": (beyond_vocabulary, "limit"),
    "a prompt beyond the vocabulary": (at(f"{COMPLETION}.prompt_token_ids", unknown_tokens), "limit"),
    "a negative token": (answer_with(**tokens([-1])), "limit"),
    "a token beyond 64 bits": (answer_with(**tokens([2**64 - 1])), "limit"),
    "a log-probability of e^100000": (answer_with(logprobs=[1e5, -1.0]), "limit"),
    "a long prompt": (answer_with(prompt_token_ids=[1] * (MAX_PROMPT + 1)), "limit"),
    "a long answer": (answer_with(**tokens([3] * (MAX_NEW + 1))), "limit"),
    "a long text of an answer": (answer_with(text="t" * 200_000), "limit"),
    "a long continuation": (long_continuation, "limit"),
    "a token without a log-probability": (answer_with(logprobs=[-1.0]), "limit"),
    "a token without a version": (answer_with(weight_versions=[1]), "limit"),
    "a token that no version sampled": (answer_with(weight_versions=[1, -1]), "limit"),
    "too many steps": (at("steps", lambda body, _: body["steps"][:1] * 4), "limit"),
    "too many chats": (at("steps.0.chats", lambda body, _: body["steps"][0]["chats"] * 9), "limit"),
    "a long name": (at("worker", "w" * 201), "limit"),
    "a name that drives a terminal": (at("worker", "w\x1b[2J"), "limit"),
    "a long id": (at("id", "t" * 100_000), "limit"),
    "a long lease": (at("lease_id", "l" * 100_000), "limit"),
    "an unknown action": (at("steps.0.action.kind", "reboot"), "limit"),
    "a point beyond the screen": (at("steps.0.action.point", [7.0, 0.5]), "limit"),
    "a motion of too many rows": (at(MOTION, [[0.0]] * 65), "limit"),
    "a motion of too many axes": (at(MOTION, [[0.0] * 33]), "limit"),
    "a motion without axes": (at(MOTION, [[]]), "limit"),
    "a motion beyond the arm": (at(MOTION, [[0.0, -1.5]]), "limit"),
    "a motion that is no number": (at(MOTION, [[float("nan")]]), "limit"),
    "a motion of rows of different lengths": (at(MOTION, [[0.0, 0.0], [0.0]]), "limit"),
    "a motion of texts": (at(MOTION, [["far"]]), "malformed"),
    "a long state": (at("final.state", [0.0] * 257), "limit"),
    "a state that overflows sums": (at("steps.0.observation.state", [1.7e308]), "limit"),
    "a state that is no number": (at("steps.0.observation.state", [float("inf")]), "limit"),
    "too many elements": (at(ELEMENTS, [ELEMENT] * 513), "limit"),
    "a long text of an element": (at(ELEMENTS, [ELEMENT | {"text": "t" * 1001}]), "limit"),
    "too many flags of an element": (at(ELEMENTS, [ELEMENT | {"flags": ["checked"] * 10}]), "limit"),
    "a parent beyond the list": (at(ELEMENTS, [ELEMENT | {"parent": 1}]), "limit"),
    "an element beyond the screen": (at("final.elements", [ELEMENT | {"bounds": [0, 0, 7, 1]}]), "limit"),
    "a long server address": (answer_with(server="tcp://" + "a" * 1000), "limit"),
    "a success beyond 1": (at("success", 1e18), "limit"),
    "a duration that overflows sums": (at("duration_s", 1.7e308), "limit"),
    "a time that overflows sums": (at("steps.0.timing.act_s", -1.7e308), "limit"),
    "a verdict whose cost overflows sums": (at("verdict", VERDICT | {"cost": 1.7e308}), "limit"),
    "a verdict that took too many calls": (at("verdict", VERDICT | {"calls": 2**63}), "limit"),
    "a long goal": (at("task.goal", "g" * 200_000), "limit"),
    "a long fault": (at("fault_detail", "f" * 200_000), "limit"),
    "another task": (at("task", another_task), "lease-mismatch"),
    "an unknown task": (at("task.id", "q/t/99"), "lease-mismatch"),
    "another seed": (at("task.seed", 99), "lease-mismatch"),
    "a task with another step limit": (task_with_more_steps, "lease-mismatch"),
    "parameters that are no data": (at("task.params", {"bytes": b"\xff"}), "lease-mismatch"),
    "another purpose": (at("purpose", "eval"), "lease-mismatch"),
    "another group": (at("group_id", "g1"), "lease-mismatch"),
    "another temperature": (other_temperature, "lease-mismatch"),
    "two temperatures": (at(f"{COMPLETION}.sampling.temperature", 0.3), "lease-mismatch"),
    "a forged lease": (at("lease_id", forged_lease), "lease-mismatch"),
    "a lease of another run": (at("lease_id", "0123456789ab-1-" + "f" * 32), "lease-mismatch"),
    "no lease": (at("lease_id", ""), "lease-mismatch"),
}  # fmt: skip


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Learner]:
    with learning(tmp_path_factory.mktemp("hostile")) as learner:
        yield learner


@pytest.fixture
def client(learner: Learner) -> Iterator[Client]:
    with Wire() as wire:
        client = Client(wire, learner)
        client.lease()  # training has begun, and the first weights are published
        yield client


def num_rejected(learner: Learner, code: str) -> float:
    return learner.context.server.peer_metrics().get(f"rejected/{code}", 0.0)


@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_rejected_and_an_honest_one_after_it_is_taken(
    learner: Learner, client: Client, name: str
) -> None:
    change, code = HOSTILE[name]
    good, worker = honest(client.lease()), f"hostile-{name}"
    with Wire() as wire:  # a connection of its own, whose rejections count for no other worker
        hostile = Client(wire, learner)
        body = honest(hostile.lease(worker), worker).model_dump(mode="json")
        change(body, learner)
        stored, counted = learner.context.store.count(), num_rejected(learner, code)
        answer = hostile.send(body)
    assert isinstance(answer, Reject), "it was committed"
    assert (answer.code.value, answer.ref) == (code, body["id"][:500])
    assert learner.context.store.count() == stored
    assert num_rejected(learner, code) == counted + 1
    assert client.submit(good) == Ack(trajectory_id=good.id)
    learner.context.server.check()


def test_a_lease_is_fulfilled_once(learner: Learner, client: Client) -> None:
    lease = client.lease()
    first, second = honest(lease), honest(lease)
    assert isinstance(client.submit(first), Ack)
    assert client.submit(second).code.value == "lease-mismatch"
    assert client.submit(first).duplicate


def test_it_goes_on_training_after_all_of_that(learner: Learner, client: Client) -> None:
    before, deadline = learner.progress.updates, time.monotonic() + WAIT_S
    while learner.progress.updates <= before + 1 and time.monotonic() < deadline:
        trajectory = honest(client.lease())
        client.submit(trajectory)
    assert learner.progress.updates > before + 1
    assert client.ask(StatusRequest()).phase == "training"


def test_what_was_spooled_before_a_restart_is_taken_after_it(tmp_path: Path) -> None:
    with learning(tmp_path) as learner, Wire() as wire:
        client = Client(wire, learner)
        spooled, stored, forged = (honest(client.lease()) for _ in range(3))
        assert isinstance(client.submit(stored), Ack)
    with learning(tmp_path, resume=True) as learner, Wire() as wire:
        client = Client(wire, learner)
        assert client.submit(spooled) == Ack(trajectory_id=spooled.id)
        assert client.submit(stored).duplicate
        forged = forged.model_copy(update={"task": forged.task.model_copy(update={"seed": 77})})
        assert client.submit(forged).code.value == "lease-mismatch"
