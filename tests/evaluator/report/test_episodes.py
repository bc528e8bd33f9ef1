"""The view of an episode: what a step's card says beside the picture."""

from __future__ import annotations

import base64
import io
import re

import pytest
from episode_factory import screen
from PIL import Image

from distrl.core.actions import ActionKind
from distrl.core.types import (
    ActionRecord,
    Element,
    Observation,
    Outcome,
    Task,
    TimeStep,
    Timing,
    Trajectory,
    Verdict,
)
from distrl.evaluator.report.episodes import Picture, describe, episode_view, mark, picture, touched


def step(kind: str, guard: str = "", reason: str = "", **timing: float) -> TimeStep:
    return TimeStep(
        observation=Observation(image="0" * 32, width=9, height=20),
        chats=(),
        action=ActionRecord(kind=kind, text="Clock", reason=reason, point=(0.5, 0.5)),
        timing=Timing(**timing),
        guard=guard,
    )


def test_a_card_tells_of_the_guard_of_settling_and_of_new_kinds_of_action() -> None:
    steps = (
        step("tap", guard="call: com.android.dialer/com.android.dialer.Main", act_s=0.5, settle_s=1.5),
        step("open_app"),
        step("double_tap"),
        step("answer"),
        step("invalid", reason="no JSON object"),
    )
    trajectory = Trajectory(
        id="t",
        task=Task(id="s/t/1", suite="s", template="t", split="test", goal="Go"),
        steps=steps,
        outcome=Outcome.UNJUDGED,
    )
    view = episode_view(trajectory, {}, Verdict(success=False, score=0.0, reason="?"), 100)
    assert view.verdict == "not judged"
    cards = view.steps
    assert cards[0].detail == "the guard left call: com.android.dialer/com.android.dialer.Main"
    assert [card.action for card in cards[1:4]] == ["Open “Clock”", "Double tap 50%, 50%", "Answer “Clock”"]
    assert cards[2].mark.kind == "tap"
    assert cards[4].detail == "no JSON object"


def decoded(shot: Picture) -> Image.Image:
    data = base64.b64decode(shot.uri.removeprefix("data:image/jpeg;base64,"))
    return Image.open(io.BytesIO(data))


def test_large_screenshots_shrink_and_small_ones_stay() -> None:
    assert decoded(picture(screen(0, (540, 1200)), 540, 1200, 270)).size == (270, 600)
    assert decoded(picture(screen(0, (160, 210)), 160, 210, 270)).size == (160, 210)


def test_a_tap_is_marked_in_the_units_of_the_overlay() -> None:
    shot = Picture("", 200.0)
    made = mark(ActionRecord(kind="tap", point=(0.25, 0.5)), shot)
    assert (made.kind, made.x, made.y) == ("tap", 25.0, 100.0)


def test_an_arrow_ends_where_the_swipe_ends() -> None:
    made = mark(ActionRecord(kind="swipe", point=(0.5, 0.9), to=(0.5, 0.1)), Picture("", 200.0))
    assert made.arrow.startswith("M50.0 180.0L50.0 20.0")
    assert len(re.findall("M50.0 20.0L", made.arrow)) == 2


@pytest.mark.parametrize("kind", [kind.value for kind in ActionKind])
def test_every_action_has_words(kind: str) -> None:
    action = ActionRecord(kind=kind, point=(0.1, 0.2), to=(0.1, 0.8), text="hello")
    words = describe(action)
    assert words
    assert words[0].isupper()
    if kind == "type":
        assert "hello" in words
    if kind == "swipe":
        assert words == "Swipe down"


ROW = Element(text="Wi-Fi", flags=("clickable",), bounds=(0.0, 0.1, 1.0, 0.2))
FIELD = Element(class_name="EditText", flags=("focused", "editable"), bounds=(0.0, 0.3, 1.0, 0.4))
LIST = Element(flags=("scrollable",), bounds=(0.0, 0.5, 1.0, 1.0))


@pytest.mark.parametrize(
    ("action", "number"),
    [
        (ActionRecord(kind="tap", point=(0.5, 0.15)), 0),
        (ActionRecord(kind="tap", point=(0.5, 0.45)), None),
        (ActionRecord(kind="type", text="a", point=(0.5, 0.15)), 0),
        (ActionRecord(kind="type", text="a"), 1),
        (ActionRecord(kind="swipe", point=(0.5, 0.9), to=(0.5, 0.6)), 2),
        (ActionRecord(kind="swipe", point=(0.5, 0.9), to=(0.5, 0.1)), None),
        (ActionRecord(kind="back"), None),
    ],
)
def test_the_element_that_an_action_touches(action: ActionRecord, number: int | None) -> None:
    assert touched(action, (ROW, FIELD, LIST)) == number
    assert touched(action, ()) is None
