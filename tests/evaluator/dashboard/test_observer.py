"""A dashboard that joins learners: kind ones, hostile ones, and ones that come and go."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
from counting_env import counting_task
from PIL import Image
from waiting import until

from distrl.cli.top import render
from distrl.configs.schema import Config
from distrl.core.actions import Action
from distrl.core.errors import NetworkError
from distrl.core.messages import (
    MAX_PICTURE_BYTES,
    PROTOCOL_VERSION,
    Lease,
    Reject,
    RejectCode,
    SlotReport,
    Status,
    Wall,
    encode,
)
from distrl.core.rundir import RunDir
from distrl.core.slot_view import Hand, SlotView, Touch
from distrl.core.sockets import Wire
from distrl.core.store import TrajectoryStore
from distrl.core.terminal import Console
from distrl.core.types import Observation
from distrl.evaluator.dashboard import observer as module
from distrl.evaluator.dashboard.curves import MAX_NAMES
from distrl.evaluator.dashboard.dashboard import Dashboard
from distrl.evaluator.dashboard.observer import Observer
from distrl.learner.server import Endpoints, LearnerServer
from distrl.workers import board as board_module
from distrl.workers.board import SlotBoard
from distrl.workers.client import LearnerLink
from distrl.workers.envs.base import Frame
from distrl.workers.episode import encode as encode_image

STATUS = Status(run_id="r", phase="training", metrics={"train/success": 0.25})
REPORT = SlotReport(worker="w", slots=(SlotView(slot=0, state="acting", task="t", goal="<b>"),))
GOOD = Wall(status=STATUS, reports=(REPORT,), ages_s=(0.5,), number=3, pictures=(("w", 0),))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.05)
    monkeypatch.setattr(module, "ANSWER_S", 0.3)
    monkeypatch.setattr(module, "LOST_S", 0.5)
    monkeypatch.setattr(board_module, "EVERY_S", 0.1)


class FakeLearner:
    """Answers every message with the same frames."""

    def __init__(self, address: str = "tcp://127.0.0.1:0") -> None:
        self.frames: list[bytes] = [encode(GOOD), b"jpeg"]
        self._wire = Wire()
        self._channel = self._wire.bind_router(address)
        self.address = self._channel.endpoint
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            received = self._channel.recv(0.05)
            if received is not None:
                self._channel.raw.send_multipart([received.peer, *self.frames])

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._channel.close()
        self._wire.close()


@pytest.fixture
def learner() -> Iterator[FakeLearner]:
    with contextlib.closing(FakeLearner()) as made:
        yield made


@pytest.fixture
def observer(learner: FakeLearner) -> Iterator[Observer]:
    with contextlib.closing(Observer(learner.address, None, lambda: ("pictures", ("w/0",)))) as made:
        yield made


def wall(**changes: Any) -> bytes:
    return msgpack.packb({**msgpack.unpackb(encode(GOOD)), **changes})


def test_status_slots_and_pictures_arrive(observer: Observer) -> None:
    until(lambda: observer.state == "joined", "the learner")
    assert observer.status == STATUS
    assert observer.pictures == {"w/0": (3, b"jpeg")}


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"\xc1"],
        [encode(GOOD)[:40]],
        [encode(GOOD)],  # without its picture
        [encode(GOOD), b"a", b"b"],
        [encode(GOOD), bytes(MAX_PICTURE_BYTES + 1)],
        [wall(v=PROTOCOL_VERSION + 1)],
        [wall(number=-1), b"a"],
        [wall(pictures=[["w", 0]] * 9999), b"a"],
        [wall(reports=[{"worker": "w", "slots": [{"slot": 0, "state": "dancing"}]}]), b"a"],
        [bytes(17 * 2**20)],
        [encode(Reject(code=RejectCode.FORBIDDEN, reason="no observers here"))],
    ],
)
def test_a_hostile_learner_is_named_and_survived(
    learner: FakeLearner, observer: Observer, frames: list[bytes]
) -> None:
    until(lambda: observer.state == "joined", "the learner")
    good, learner.frames = learner.frames, frames
    until(lambda: observer.state in ("refused", "lost"), "the complaint")
    assert observer.note
    learner.frames = good
    until(lambda: observer.state == "joined", "the learner again")


def test_another_run_is_not_shown(learner: FakeLearner) -> None:
    with contextlib.closing(Observer(learner.address, None, lambda: ("status", ()), "mine")) as made:
        until(lambda: made.state == "refused", "the refusal")
        assert "another run" in made.note
        assert made.status is None


def test_a_refused_command_says_why(learner: FakeLearner, observer: Observer) -> None:
    until(lambda: observer.state == "joined", "the learner")
    learner.frames = [encode(Reject(code=RejectCode.FORBIDDEN, reason="not the owner"))]
    with pytest.raises(NetworkError, match="not the owner"):
        observer.command("pause")


class Scheduler:
    """Grants nothing."""

    def grant(self, worker: str, count: int, limit: int | None, client: Any) -> list[Lease]:
        return []

    def tick(self) -> None:
        pass

    def release(self, worker: str, names: Any) -> None:
        pass


class World:
    """A run directory, a learner that can be killed, workers whose slots show something, and a dashboard."""

    def __init__(self, folder: Path) -> None:
        self.run = RunDir.create(Config.model_validate({"name": "r", "runs_dir": str(folder)}))
        self.stack = contextlib.ExitStack()
        self.control = self.broadcast = "tcp://127.0.0.1:0"
        self.learner = contextlib.ExitStack()
        self.workers: dict[str, LearnerLink] = {}
        self.boards: dict[str, SlotBoard] = {}
        self.dashboard = self.stack.enter_context(Dashboard(self.run.path, can_command=True))
        self.stack.enter_context(self.dashboard.viewing("pictures"))

    def start_learner(self) -> LearnerServer:
        store = TrajectoryStore(self.run.store)
        self.learner.callback(store.close)
        endpoints = Endpoints(self.control, self.broadcast, "tcp://127.0.0.1:0")
        scheduler: Any = Scheduler()
        server = LearnerServer(endpoints, None, store, scheduler, queue.Queue(), self.run.run_id(), 0.2)
        server.start()
        server.set_phase("training")
        self.learner.callback(server.close)
        self.control, self.broadcast = server.endpoints.control, server.endpoints.broadcast
        self.run.address.write_text(self.control)  # stays if the learner is killed
        return server

    def start_server(self) -> Callable[[], None]:
        """What a learner notices of an inference server."""
        stack, wire = contextlib.ExitStack(), Wire()
        stack.callback(wire.close)
        link = LearnerLink(
            wire, self.control, self.broadcast, "inference", "s", act_endpoint="tcp://127.0.0.1:9"
        )
        link.start()
        stack.callback(link.close)
        self.stack.callback(stack.close)
        return stack.close

    def start_worker(self, name: str) -> Callable[[], None]:
        board, wire = SlotBoard(name), Wire()
        self.boards[name] = board
        link = LearnerLink(wire, self.control, self.broadcast, "worker", name, slots=1, board=board)
        link.start()
        sign = board.sign(0)
        sign.begins(Lease(id="l", task=counting_task()), "")
        image = Image.new("RGB", (540, 1200), "blue")
        seen = Observation(image="d", width=540, height=1200)
        sign.shows(Frame.of(image), seen, encode_image(image, "jpeg"), is_drawn=True)
        sign.acts(Action.tap(0.5, 0.25))

        stack = contextlib.ExitStack()
        stack.callback(wire.close)
        stack.callback(link.close)
        self.stack.callback(stack.close)
        return stack.close

    def slots(self) -> dict[str, tuple[str, bool]]:
        """Each worker's slot: its state, and whether there is a picture of it."""
        return {one["worker"]: (one["state"], bool(one["screen"])) for one in now(self.dashboard)["slots"]}

    def state(self) -> str:
        return str(now(self.dashboard)["learner"]["state"])


def now(dashboard: Dashboard) -> Any:
    dashboard._made_at = float("-inf")
    return dashboard.snapshot()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.stack.close()
    made.learner.close()


def test_the_wall_comes_back_after_the_learner_and_a_worker_are_killed(world: World) -> None:
    assert world.state() == "none"
    world.start_learner()
    stop = world.start_worker("a")
    world.start_worker("b")
    shown = {"a": ("acting", True), "b": ("acting", True)}
    until(lambda: world.slots() == shown, "both slots", details=lambda: str(world.slots()))
    world.learner.close()
    until(lambda: world.state() == "lost", "the loss")
    world.start_learner()
    until(lambda: world.slots() == shown, "both slots again", details=lambda: str(world.slots()))
    stop()
    world.start_worker("a")
    until(lambda: world.slots() == shown, "the worker's slot again", details=lambda: str(world.slots()))


def test_a_server_that_is_killed_is_missed_until_it_is_back(world: World) -> None:
    learner = world.start_learner()
    world.start_worker("a")
    stop = world.start_server()

    def missing() -> bool:
        learner.set_metrics(learner.peer_metrics())
        return any("No inference server" in one["text"] for one in now(world.dashboard)["line"]["alarms"])

    def flows() -> bool:
        return not missing() and ["servers", "1"] in now(world.dashboard)["flow"]["stages"][1]["facts"]

    until(flows, "the server")
    stop()
    until(missing, "the alarm")
    until(lambda: world.slots() == {"a": ("acting", True)}, "the slot")
    world.start_server()
    until(flows, "the server again")


def test_a_learner_that_ended_in_order_is_not_lost(world: World) -> None:
    server = world.start_learner()
    with Dashboard(None, server.endpoints.control) as distant:
        until(lambda: world.state() == now(distant)["learner"]["state"] == "joined", "the learner")
        server.shutdown("the run is complete")
        until(lambda: now(distant)["line"]["phase"] == "done", "the end")
        world.learner.close()
        world.run.address.unlink()
        until(lambda: world.state() == now(distant)["learner"]["state"] == "none", "the end of the learner")
        assert (now(distant)["line"]["phase"], now(distant)["learner"]["note"]) == ("done", "")
        assert "learner" not in render(now(distant), Console()).renderables[0].plain


def test_a_learner_s_numbers_cannot_stop_the_page(learner: FakeLearner) -> None:
    """Whatever they are."""
    metrics = {
        "phase/total": 1e18,
        "train/success": 9.0,
        "episodes": -1e18,
        "eval/x/success": -3.0,
        "eval/x/episodes": -5.0,
        "time/update_s": 1e-320,
        **{f"eval/{number}/success": 0.5 for number in range(1000)},
        "weights/sent_bytes": 1e18,
        "workers/devices_quarantined": -7.0,
    }
    learner.frames = [wall(status={**msgpack.unpackb(encode(GOOD))["status"], "metrics": metrics}), b"jpeg"]
    with Dashboard(None, learner.address) as dashboard:
        until(lambda: now(dashboard)["learner"]["state"] == "joined", "the learner")
        json.dumps([now(dashboard), dashboard.metrics()], allow_nan=False)
        assert len(dashboard.files.rows[0]) <= MAX_NAMES + 2


def test_what_the_owner_does_reaches_the_slot(world: World) -> None:
    world.start_learner()
    until(lambda: world.state() == "joined", "the learner")
    world.start_worker("a")
    until(lambda: world.slots() == {"a": ("acting", True)}, "the slot")
    world.dashboard.command("play", Hand(slot="a/0", action=Touch(kind="tap", point=(0.5, 0.5))))
    sign = world.boards["a"].sign(0)
    until(lambda: sign.hand is not None, "a person's hand")
    assert sign.is_given_up, "the present episode ends"
    assert sign.wait_hand(0.0) == Action.tap(0.5, 0.5)
    world.dashboard.command("leave", Hand(slot="a/0"))
    until(lambda: sign.hand is None, "the slot's return")


def test_the_owner_pauses_and_resumes_from_the_dashboard(world: World) -> None:
    server = world.start_learner()
    until(lambda: world.state() == "joined", "the learner")
    world.dashboard.command("pause")
    assert server.status.is_held
    world.dashboard.command("resume")
    assert not server.status.is_held
    world.dashboard.command("checkpoint")
    assert server.takes_checkpoint()
