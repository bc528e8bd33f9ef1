"""How the trained judge reads: where text stands, what it remembers, and which words of the goal it finds."""

from __future__ import annotations

import io
import random
from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import numpy as np
import torch
from episode_factory import make_episode, make_task
from PIL import Image

from distrl.core.types import ActionRecord, Observation
from distrl.evaluator.judges.local import ocr
from distrl.evaluator.judges.local.features import (
    MAX_ACTIONS,
    Reader,
    app_words,
    is_same,
    typed_count,
    words_of,
)
from distrl.evaluator.judges.local.ocr import (
    ALPHABET,
    HEIGHT,
    WIDTHS,
    Box,
    Line,
    OcrModel,
    TextReader,
    decoded,
    find_boxes,
    fit_reader,
    grey_of,
    sample,
)
from distrl.simulator.phone import fonts


def screen(*texts: tuple[str, int, int], size: tuple[int, int] = (540, 1200)) -> Image.Image:
    """A dark screen with texts at (left, top)."""
    picture = Image.new("RGB", size, "#1d2233")
    for text, left, top in texts:
        mask, _ = fonts.text_mask(text, False, 21)
        picture.paste("#e8e8f0", (left, top), mask)
    return picture


def covers(box: Box, left: int, top: int, right: int, bottom: int) -> bool:
    return all(abs(a - b) <= 5 for a, b in zip(box, (left, top, right, bottom), strict=True))


def test_each_line_of_text_has_a_box() -> None:
    boxes = find_boxes(
        grey_of(screen(("Airplane mode", 40, 300), ("No wireless", 40, 340), ("Wi-Fi", 400, 300)))
    )
    assert len(boxes) == 3
    width = round(fonts.text_width("Airplane mode", False, 21))
    found = [box for box in boxes if covers(box, 40, 307, 40 + width, 327)]
    assert len(found) == 1, boxes


def test_boxes_do_not_depend_on_the_screens_size_or_theme() -> None:
    dark = screen(("Network", 40, 300), size=(540, 1200))
    light = Image.fromarray(255 - np.asarray(dark))
    large = dark.resize((1080, 2400), Image.Resampling.BILINEAR)
    (one,) = find_boxes(grey_of(dark))
    for picture in (light, large):
        (other,) = find_boxes(grey_of(picture))
        assert covers(other, *one)


def test_a_large_clock_is_one_box() -> None:
    mask, _ = fonts.text_mask("11:45", False, 60)
    picture = screen()
    picture.paste("#e8e8f0", (60, 200), mask)
    assert len(find_boxes(grey_of(picture))) == 1


def test_an_empty_screen_has_none() -> None:
    assert find_boxes(np.zeros((1200, 540), dtype=np.uint8)) == []


def test_repeated_letters_are_one_unless_parted() -> None:
    places = [0, 1, 1, 0, 1, 0, 2]
    logits = torch.nn.functional.one_hot(torch.tensor(places), 1 + len(ALPHABET)).float() * 50
    assert decoded(logits[None]) == [("aab", 1.0)]


def test_it_learns_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "TELL_EVERY", 40)
    losses: list[float] = []
    model = fit_reader(0, lambda line: losses.append(float(line.rpartition(" ")[2])), 80, 4)
    first, second = losses
    assert second < first / 2
    assert not model.training


def test_it_is_taught_what_it_will_be_asked() -> None:
    """Boxes of the reader's height and in its scale, with text that it has the letters for."""
    rng, noise = random.Random(1), np.random.default_rng(1)
    for _ in range(50):
        picture, text = sample(rng, noise)
        assert picture.shape[0] == HEIGHT
        assert picture.shape[1] <= WIDTHS[-1]
        assert 0.0 <= picture.min() <= picture.max() == 1.0
        assert set(text) <= set(ALPHABET)


def test_the_same_seed_gives_the_same_reader() -> None:
    first, second = (fit_reader(0, lambda line: None, 2, 4) for _ in range(2))
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_screen_is_read_once() -> None:
    reader, asked = TextReader(OcrModel()), []

    def picture(name: str) -> Callable[[], Image.Image]:
        return lambda: asked.append(name) or screen(("Wi-Fi", 40, 300))

    for name in ("a", "b", "a"):
        reader.lines(name, picture(name))
    assert asked == ["a", "b"]


def test_words() -> None:
    assert typed_count("blue blue ball") == pytest.approx(0.6)
    assert typed_count("") == -1.0
    assert app_words("com.android.settings") == ["com", "android", "settings"]
    assert words_of("Turn on Wi-Fi, at 7:15!") == ["turn", "on", "wi-fi", "at", "7:15"]
    assert is_same("bluetooth", "b1uetooth")
    assert is_same("keyboard", "keyboar")
    assert not is_same("keyboard", "keyboa")
    assert not is_same("7:15", "7:45")
    assert not is_same("10:30pm", "10:00pm"), "numbers are never misread silently"
    assert not is_same("red", "bed"), "too short to be sure"


class Told(TextReader):
    """Reads what it is told by digest."""

    def __init__(self, lines: dict[str, list[Line]]) -> None:
        self.told = lines

    def lines(self, digest: str, picture: Callable[[], Image.Image]) -> list[Line]:
        return self.told[digest]


def test_what_was_touched_and_what_was_read_before() -> None:
    """A tap on a switch means its row; a message that is gone is known to have been there."""
    trajectory, _ = make_episode(make_task(goal="Turn on Wi-Fi"), num_steps=2, success=True)
    data = io.BytesIO()
    screen().save(data, "PNG")
    shown = [Observation(image=name, width=540, height=1200, app="settings") for name in "abc"]
    tap = ActionRecord(kind="tap", point=(0.9, 0.25))
    first, second = (
        step.model_copy(update={"observation": one, "action": tap})
        for step, one in zip(trajectory.steps, shown, strict=False)
    )
    trajectory = trajectory.model_copy(update={"steps": (first, second), "final": shown[2]})
    rows = [Line("wi-fi", (40, 290, 90, 310)), Line("bluetooth", (40, 490, 140, 510))]
    told = Told(
        {"a": rows, "b": [Line("wi-fi is on", (40, 900, 140, 920))], "c": [Line("home", (1, 9, 50, 20))]}
    )
    features = Reader((36, 80), told).read(trajectory, dict.fromkeys("abc", data.getvalue()))
    taps = features.matches[:3, MAX_ACTIONS - 1].tolist()
    assert taps == [0, 0, 1], "the row's text stands far to the left of the switch"
    lines = features.matches[:3, MAX_ACTIONS + 1 : MAX_ACTIONS + 4].tolist()
    assert lines == [[0, 0, 0], [0, 1, 0], [0, 1, 1]], "home; then what has words of the goal, newest first"
    assert features.places[:3, 4].tolist() == pytest.approx([0.0, 0.1, 0.2])
