"""Inputs of the trained judge: the goal, the last actions and what they touched, text, the last screen.

goal      up to MAX_WORDS words, each as hashed letter trigrams, so that no word is unknown
actions   the last MAX_ACTIONS: kind, points, the words typed or read where they touched, how many of them the
          goal has, and the piece of the screen around the point, before and after: what that did
lines     what was read on the last screen, and before it what has words of the goal
matches   which word of the goal is in the app's name, in which action and line
screen    the last screenshot, and the words of the app in front
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from distrl.core.actions import ActionKind
from distrl.core.policies.images import opened
from distrl.core.types import Observation, TimeStep, Trajectory
from distrl.evaluator.judges.base import acted, screens
from distrl.evaluator.judges.local.ocr import WIDTH, Line, TextReader

BUCKETS = 4096
UNKNOWN = 1
"""The bucket of words that are hidden in training."""
MAX_WORDS = 16
MAX_TRIGRAMS = 12
MAX_ACTIONS = 10
MAX_LINES = 32
MAX_EARLIER = 8
"""The number of these lines that are from earlier screens."""
KINDS = tuple(kind.value for kind in ActionKind)
CROP = (96, 32)
CROP_SHARE = 0.6
"""The width of a piece as a share of the screen's; it is a third as high: about a row of a list."""
REACH = 80.0
"""A touch refers to lines at most this far away, in pixels of a screen WIDTH wide."""
ACROSS = 0.2
"""The weight of distance along a row, whose other end still belongs to it."""
MIN_LENGTH = 5
"""Words with at least this many letters may differ in one that was misread."""
_EDGES = " .,;:!?\"'()[]…"


@dataclass(frozen=True)
class Features:
    """One episode.

    Attributes:
        words: [MAX_WORDS, MAX_TRIGRAMS] buckets of the goal; 0 is padding.
        kinds: [MAX_ACTIONS] 1 + index in KINDS; 0 is padding. The newest action is last.
        numbers: [MAX_ACTIONS, 6] both points in [0, 1] (−1 where there is none), the share of its words that
            the goal has, and how many were typed, in fives (−1 where none was).
        meant: [MAX_ACTIONS, MAX_TRIGRAMS] buckets of the words typed, else read where it touched.
        crops: [MAX_ACTIONS, 2, 32, 96] uint8 brightness: before and after, 128 where nothing was touched.
        lines: [MAX_LINES, MAX_TRIGRAMS] buckets of the words read.
        places: [MAX_LINES, 6] left, top, right, bottom in shares of the screen's width and height, the
            screen's age (0: the last; 1: ten before), its words that the goal has.
        matches: [MAX_WORDS, 1 + MAX_ACTIONS + MAX_LINES] uint8, whether the goal's word is in the app's name,
            in each action and line.
        app: [MAX_TRIGRAMS] buckets of the app in front.
        screen: [1, height, width] uint8 brightness.
    """

    words: Tensor
    kinds: Tensor
    numbers: Tensor
    meant: Tensor
    crops: Tensor
    lines: Tensor
    places: Tensor
    matches: Tensor
    app: Tensor
    screen: Tensor


def buckets(word: str) -> list[int]:
    """The hashed letter trigrams of a word, the word itself first; at most MAX_TRIGRAMS."""
    marked = f"<{word.lower()}>"
    grams = [marked, *(marked[i : i + 3] for i in range(len(marked) - 2))]
    return [2 + zlib.crc32(gram.encode()) % (BUCKETS - 2) for gram in grams[:MAX_TRIGRAMS]]


def words_of(text: str) -> list[str]:
    """Words and numbers in lower case, without the marks around them: "Wi-Fi", "7:15"."""
    return [word for part in re.split(r"\s+", text.lower()) if (word := part.strip(_EDGES))]


def app_words(app: str) -> list[str]:
    """The words in the name of an app or a package: "com.android.settings"."""
    return re.findall(r"[^\W_]+", app.lower())


def is_same(word: str, other: str) -> bool:
    """Whether two words are equal, or so long that one letter may have been misread."""
    if word == other:
        return True
    if min(len(word), len(other)) < MIN_LENGTH or abs(len(word) - len(other)) > 1 or not word.isalpha():
        return False
    shorter, longer = sorted((word, other), key=len)
    at = next((i for i, letter in enumerate(shorter) if letter != longer[i]), len(shorter))
    rest = shorter[at:] if len(longer) > len(shorter) else shorter[at + 1 :]
    return rest == longer[at + 1 :]


class Reader:
    """Reads episodes. Not for several threads at once.

    Args:
        size: (width, height) in pixels of the last screen as an input.
        text: Reads the screens' text.
    """

    def __init__(self, size: tuple[int, int], text: TextReader) -> None:
        self.size = size
        self._text = text

    def read(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> Features:
        """The features of an episode.

        Raises:
            PolicyError: A screenshot is not a valid image.
            KeyError: A screenshot is missing.
        """
        seen = _Screens(screens(trajectory), images, self._text)
        goal = words_of(trajectory.task.goal)[:MAX_WORDS]
        kinds, numbers, meant, crops, said = _actions(acted(trajectory), goal, seen)
        lines, places, read = _lines(goal, seen)
        app = app_words(seen.shown[-1].app)
        return Features(
            words=_rows([buckets(word) for word in goal], MAX_WORDS),
            kinds=kinds,
            numbers=numbers,
            meant=meant,
            crops=crops,
            lines=lines,
            places=places,
            matches=torch.from_numpy(_matches(goal, app, said, read)),
            app=_rows([_bag(app)], 1)[0],
            screen=_pixels(seen.picture(len(seen.shown) - 1).resize(self.size, Image.Resampling.BOX))[None],
        )


class _Screens:
    """The screens of an episode, in brightness, and their text."""

    def __init__(self, shown: Sequence[Observation], images: Mapping[str, bytes], text: TextReader) -> None:
        self.shown = shown
        self._images, self._text = images, text
        self._pictures: dict[str, Image.Image] = {}

    def picture(self, index: int) -> Image.Image:
        """A screen, decoded once."""
        digest = self.shown[index].image
        if digest not in self._pictures:
            with opened(self._images[digest]) as image:
                image.draft("L", image.size)
                self._pictures[digest] = image.convert("L")
        return self._pictures[digest]

    def lines(self, index: int) -> list[Line]:
        """Its text, from top to bottom."""
        return self._text.lines(self.shown[index].image, lambda: self.picture(index))

    def height(self, index: int) -> float:
        """In pixels of a screen that is WIDTH pixels wide."""
        return self.shown[index].height * WIDTH / self.shown[index].width


def _actions(
    steps: Sequence[TimeStep], goal: Sequence[str], seen: _Screens
) -> tuple[Tensor, Tensor, Tensor, Tensor, list[list[str]]]:
    """Kinds, numbers, meant, crops as in `Features`, and the words meant by each place."""
    kinds = torch.zeros(MAX_ACTIONS, dtype=torch.int64)
    numbers = torch.full((MAX_ACTIONS, 6), -1.0)
    crops = torch.full((MAX_ACTIONS, 2, CROP[1], CROP[0]), 128, dtype=torch.uint8)
    said: list[list[str]] = [[] for _ in range(MAX_ACTIONS)]
    first = max(0, len(steps) - MAX_ACTIONS)
    for index, step in enumerate(steps[first:], start=first):
        place, action = index - len(steps) + MAX_ACTIONS, step.action
        said[place] = words_of(action.text)
        if action.point is not None:
            after = min(index + 1, len(seen.shown) - 1)
            crops[place] = torch.stack([_piece(seen.picture(at), action.point) for at in (index, after)])
            said[place] = said[place] or _touched(seen.lines(index), action.point, seen.height(index))
        kinds[place] = 1 + KINDS.index(action.kind) if action.kind in KINDS else 0
        points = (*_point(action.point), *_point(action.to))
        numbers[place] = torch.tensor([*points, _share(said[place], goal), typed_count(action.text)])
    return kinds, numbers, _rows([_bag(words) for words in said], MAX_ACTIONS), crops, said


def _touched(lines: Sequence[Line], point: tuple[float, float], height: float) -> list[str]:
    """The words of the two lines nearest to a touch, if they are near."""
    x, y = point[0] * WIDTH, point[1] * height
    near = []
    for line in lines:
        left, top, right, bottom = line.box
        apart = max(top - y, y - bottom, 0.0) + ACROSS * max(left - x, x - right, 0.0)
        if apart <= REACH:
            near.append((apart, line.text))
    return [word for _, text in sorted(near)[:2] for word in words_of(text)]


def _lines(goal: Sequence[str], seen: _Screens) -> tuple[Tensor, Tensor, list[list[str]]]:
    """Lines and places as in `Features`, and the words of each."""
    last = len(seen.shown) - 1
    chosen = [(line, words_of(line.text), last) for line in seen.lines(last)[: MAX_LINES - MAX_EARLIER]]
    known = {(line.text, line.box) for line, _, _ in chosen}
    for index in range(last - 1, -1, -1):
        for line in seen.lines(index):
            words = words_of(line.text)
            if len(chosen) < MAX_LINES and (line.text, line.box) not in known and _share(words, goal) > 0:
                known.add((line.text, line.box))
                chosen.append((line, words, index))
    places = torch.zeros(MAX_LINES, 6)
    for row, (line, words, index) in enumerate(chosen):
        left, top, right, bottom = line.box
        height = seen.height(index)
        age = (last - index) / 10
        shares = (left / WIDTH, top / height, right / WIDTH, bottom / height, age, _share(words, goal))
        places[row] = torch.tensor(shares)
    read = [words for _, words, _ in chosen]
    return _rows([_bag(words) for words in read], MAX_LINES), places, read


def _matches(
    goal: Sequence[str], app: list[str], said: Sequence[list[str]], read: Sequence[list[str]]
) -> NDArray[np.uint8]:
    """`Features.matches`."""
    found = np.zeros((MAX_WORDS, 1 + MAX_ACTIONS + MAX_LINES), dtype=np.uint8)
    for column, words in enumerate([app, *said, *read]):
        for row, word in enumerate(goal):
            found[row, column] = any(is_same(word, other) for other in words)
    return found


def _piece(picture: Image.Image, point: tuple[float, float]) -> Tensor:
    """[32, 96] around `point`; beyond the edge it is black."""
    width = CROP_SHARE * picture.width
    height = width * CROP[1] / CROP[0]
    x, y = point[0] * picture.width, point[1] * picture.height
    left, top = round(x - width / 2), round(y - height / 2)
    piece = picture.crop((left, top, left + round(width), top + round(height)))
    return _pixels(piece.resize(CROP, Image.Resampling.BOX))


def _pixels(picture: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(picture))


def _point(point: tuple[float, float] | None) -> tuple[float, float]:
    return (-1.0, -1.0) if point is None else point


def typed_count(text: str) -> float:
    """How many words were typed, in fives; −1 for none."""
    return len(words_of(text)) / 5 or -1.0


def _share(words: Sequence[str], goal: Sequence[str]) -> float:
    """How many of the words the goal has: a share, −1 if there are none."""
    return sum(any(is_same(one, other) for other in goal) for one in words) / len(words) if words else -1.0


def _bag(words: Sequence[str]) -> list[int]:
    """Buckets of several words: whole words, then the first ones' trigrams as far as there is room."""
    parts = [buckets(word) for word in words]
    return [part[0] for part in parts] + [bucket for part in parts for bucket in part[1:]]


def _rows(rows: Sequence[Sequence[int]], count: int) -> Tensor:
    """[count, MAX_TRIGRAMS], padded and cut."""
    together = torch.zeros(count, MAX_TRIGRAMS, dtype=torch.int64)
    for place, ids in enumerate(rows[:count]):
        kept = list(ids)[:MAX_TRIGRAMS]
        together[place, : len(kept)] = torch.tensor(kept, dtype=torch.int64)
    return together
