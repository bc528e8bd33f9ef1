"""What a worker reports of its slots: states, touches, small pictures; nothing while nobody watches."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import Any

import pytest
from counting_env import CountingEnv, counting_task
from PIL import Image
from policy_of_counting import CountingPolicy
from waiting import until

from distrl.configs.schema import WorkerConfig
from distrl.core.actions import Action, ActionKind
from distrl.core.errors import EnvError
from distrl.core.messages import Lease, SlotReport, Status
from distrl.core.slot_view import Hand, Touch
from distrl.core.types import Observation, Outcome, Purpose, Task
from distrl.workers import board as module
from distrl.workers.agents.autoui import AutoUIAgent
from distrl.workers.board import LARGE, SMALL, SlotBoard
from distrl.workers.devices.device import Screen
from distrl.workers.envs.base import Frame
from distrl.workers.episode import BLANK, EpisodeRunner, encode

TASK = Task(id="s/t/1", suite="s", template="t", split="train", goal="Ünïcode " + "x" * 900, max_steps=9)
LEASE = Lease(id="l", task=TASK)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.2)


def watched(level: str = "pictures", *followed: str) -> Status:
    return Status.model_validate({"run_id": "r", "phase": "p", "watched": level, "followed": followed})


def shot(red: int, image_format: str = "jpeg") -> bytes:
    return encode(Image.new("RGB", (1080, 2400), (red, 0, 0)), image_format)


def look(board: SlotBoard, status: Status) -> tuple[SlotReport, list[bytes]]:
    found = []
    until(lambda: found.append(board.take(status)) or found[-1], "a report")
    return found[-1]


def frame(draw: Callable[[], Image.Image]) -> Frame:
    return Frame(Screen(draw, "key"))


def test_nothing_is_reported_unless_people_watch() -> None:
    board = SlotBoard("w")
    board.sign(0).begins(LEASE, "")
    assert board.take(watched("status")) is None
    assert board.sign(0).size() == 0


def test_a_report_says_what_the_slot_does() -> None:
    board = SlotBoard("w")
    sign = board.sign(3)
    sign.begins(LEASE, "emulator-5554")
    sign.thinks()
    sign.acts(Action(kind=ActionKind.TAP, point=(0.25, 0.5)))
    report, _ = look(board, watched("slots"))
    (view,) = report.slots
    assert (view.slot, view.state, view.device) == (3, "acting", "emulator-5554")
    assert (view.step, view.max_steps, view.task) == (1, 9, TASK.id)
    assert view.goal == TASK.goal[:500]
    assert view.touch is not None
    assert view.touch.point == (0.25, 0.5)
    sign.waits()
    (view,) = board.report()[0].slots
    assert (view.state, view.task, view.touch) == ("waiting", "", None)


@pytest.mark.parametrize("image_format", ["jpeg", "png"])
def test_pictures_are_small_and_sent_once(image_format: str) -> None:
    board = SlotBoard("w")
    for slot in (0, 1):
        seen = Observation(image=f"d{slot}", width=1080, height=2400)
        board.sign(slot).shows(frame(lambda: 1 / 0), seen, shot(slot, image_format), is_drawn=True)
    report, pictures = look(board, watched("pictures", "w/1"))
    assert report.pictures == (0, 1)
    sizes = [Image.open(io.BytesIO(data)).size for data in pictures]
    assert sizes == [(90, SMALL), (360, LARGE)]
    assert [(view.width, view.height) for view in report.slots] == sizes
    assert len(pictures[0]) < 6000
    assert look(board, watched("pictures", "w/1"))[0].pictures == ()  # nothing has changed
    board.sign(0).shows(frame(lambda: 1 / 0), Observation(image="new", width=9, height=9), shot(9), True)
    until(lambda: look(board, watched("pictures", "w/1"))[0].pictures == (0,), "the new picture")


def test_where_screens_are_not_encoded_the_slot_draws_one_if_it_is_watched() -> None:
    board, drawn = SlotBoard("w"), []

    def draw() -> Image.Image:
        drawn.append(1)
        return Image.new("RGB", (540, 1200))

    def shows(digest: str) -> None:
        seen = Observation(image=digest, width=BLANK[0], height=BLANK[1])
        board.sign(0).shows(frame(draw), seen, b"blank", is_drawn=False)

    shows("a")
    assert not drawn
    look(board, watched())
    shows("b")
    assert len(drawn) == 1
    report, pictures = look(board, watched())
    while not pictures:
        report, pictures = look(board, watched())
    assert report.slots[0].picture == "b"
    assert Image.open(io.BytesIO(pictures[0])).size == (90, SMALL)


def test_a_screen_that_cannot_be_drawn_does_not_end_the_episode() -> None:
    board = SlotBoard("w")
    look(board, watched())

    def fails() -> Image.Image:
        raise EnvError("The browser is gone.")

    board.sign(0).shows(frame(fails), Observation(image="a", width=16, height=36), b"", is_drawn=False)
    assert board.report()[1] == []


def test_an_episode_moves_its_sign() -> None:
    """The runner reports each step, with the screenshot that it has taken anyway."""
    board = SlotBoard("w")
    sign = board.sign(0)
    sign.begins(LEASE, "")
    env = CountingEnv()
    states = []
    step = env.step
    env.step = lambda action: (states.append((sign.state, sign.step)), step(action))[1]  # type: ignore[method-assign]
    EpisodeRunner(env, AutoUIAgent(), CountingPolicy(0), WorkerConfig(), sign=sign).run(LEASE)
    assert states == [("acting", number) for number in (1, 2, 3, 4)]
    assert sign.shown is not None


def hands(*given: Hand) -> Status:
    return Status(run_id="r", phase="p", hands=given)


def touch(kind: str, text: str = "") -> Touch:
    return Touch(kind=kind, point=(0.5, 0.5) if kind == "tap" else None, text=text)


class Played:
    """An episode that a person plays at slot 1, in a thread of its own."""

    def __init__(self, lease: Lease) -> None:
        self.board = SlotBoard("w")
        self.episode: Any = None
        self.sign = self.board.sign(1)
        self.sign.begins(lease, "")
        runner = EpisodeRunner(
            CountingEnv(), AutoUIAgent(), CountingPolicy(1), WorkerConfig(), "w", 1, sign=self.sign
        )

        def run() -> None:
            self.episode = runner.run(lease)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def does(self, number: int, action: Touch | None) -> None:
        self.board.take(hands(Hand(slot="w/1", number=number, action=action), Hand(slot="w/2")))

    def ended(self) -> Any:
        self._thread.join(20.0)
        assert not self._thread.is_alive()
        return self.episode


BY_HAND = Lease(id="l", task=counting_task(), purpose=Purpose.DEMO, by_hand=1)


def test_a_person_plays_an_episode_and_it_is_a_demonstration() -> None:
    played = Played(BY_HAND)
    until(lambda: played.sign.state == "played", "its turn")
    for number, kind in ((3, "tap"), (3, "tap"), (4, "tap"), (7, "tap"), (9, "complete")):
        played.does(number, touch(kind))
        until(lambda number=number: played.sign.view(1, None).hand == number or played.episode, "the action")
    trajectory, _ = played.ended()
    assert [step.action.kind for step in trajectory.steps] == ["tap", "tap", "tap", "complete"]
    assert (trajectory.purpose, trajectory.outcome) == (Purpose.DEMO, Outcome.SUCCESS)
    assert [step.chats[0].completion.token_ids for step in trajectory.steps] == [()] * 4
    assert trajectory.steps[0].chats[0].completion.text == AutoUIAgent().format(Action.tap(0.5, 0.5))


def test_what_cannot_be_done_is_said_to_the_person() -> None:
    played = Played(BY_HAND)
    for number, kind, why in ((1, "dance", "not an action"), (2, "answer", "has no action")):
        played.does(number, touch(kind))
        until(lambda why=why: why in played.sign.view(1, None).hint, "a hint")
    played.does(3, touch("impossible"))
    assert played.ended()[0].outcome is Outcome.IMPOSSIBLE_CLAIMED


def test_an_episode_ends_without_a_trace_when_a_person_takes_the_slot_or_leaves_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LEFT_S", 0.2)
    assert Played(BY_HAND).ended() is None
    board = SlotBoard("w")
    board.sign(1).begins(LEASE, "")
    board.take(hands(Hand(slot="w/1")))
    runner = EpisodeRunner(
        CountingEnv(), AutoUIAgent(), CountingPolicy(1), WorkerConfig(), "w", 1, sign=board.sign(1)
    )
    assert runner.run(LEASE) is None
