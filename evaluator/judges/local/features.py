"""What the trained judge looks at: the goal, the last actions with what they touched, the last screen.

goal      up to MAX_WORDS words, each as hashed letter trigrams, so that no word is unknown
actions   the last MAX_ACTIONS: kind, points, typed words, how many of them the goal has, and the piece of
          the screen around the point, before and after: what was touched, and what that did
screen    the last screenshot, and the words of the app in front
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from distrl.core.actions import ActionKind
from distrl.core.policies.images import opened, to_tensor
from distrl.core.types import Observation, TimeStep, Trajectory
from distrl.evaluator.judges.base import acted, screens

BUCKETS = 4096
MAX_WORDS = 20
MAX_TRIGRAMS = 10
MAX_ACTIONS = 6
KINDS = tuple(kind.value for kind in ActionKind)
CROP = (96, 32)
CROP_SHARE = 0.6
"""A piece is so much of the screen's width wide, and a third as high: about a row of a list."""
_WORDS = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Features:
    """One episode.

    Attributes:
        words: [MAX_WORDS, MAX_TRIGRAMS] buckets of the goal; 0 is padding.
        kinds: [MAX_ACTIONS] 1 + index in KINDS; 0 is padding. The newest action is last.
        numbers: [MAX_ACTIONS, 5] both points in [0, 1] (−1 where there is none), typed words in the goal.
        typed: [MAX_ACTIONS, MAX_TRIGRAMS] buckets of the last typed words.
        crops: [MAX_ACTIONS, 6, 32, 96] uint8: before and after, grey where nothing was touched.
        app: [MAX_TRIGRAMS] buckets of the app in front.
        screen: [3, height, width] uint8.
    """

    words: Tensor
    kinds: Tensor
    numbers: Tensor
    typed: Tensor
    crops: Tensor
    app: Tensor
    screen: Tensor


def buckets(text: str) -> list[int]:
    """The hashed letter trigrams of a word, the word itself first; at most MAX_TRIGRAMS."""
    marked = f"<{text.lower()}>"
    grams = [marked, *(marked[i : i + 3] for i in range(len(marked) - 2))]
    return [1 + zlib.crc32(gram.encode()) % (BUCKETS - 1) for gram in grams[:MAX_TRIGRAMS]]


def word_buckets(word: str) -> Tensor:
    """[MAX_TRIGRAMS] buckets of a word, padded."""
    return _padded(buckets(word))


def goal_words(goal: str) -> list[str]:
    """The words of a goal that are read."""
    return words_of(goal)[:MAX_WORDS]


def words_of(text: str) -> list[str]:
    """Words, numbers and marks in lower case."""
    return _WORDS.findall(text.lower())


class Reader:
    """Reads episodes.

    Args:
        size: (width, height) in pixels at which the last screen is looked at.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        self.size = size

    def read(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> Features:
        """The features of an episode.

        Raises:
            PolicyError: A screenshot is no picture.
            KeyError: A screenshot is missing.
        """
        goal = words_of(trajectory.task.goal)
        shown, steps = screens(trajectory), acted(trajectory)
        first = max(0, len(steps) - MAX_ACTIONS)
        steps, last = steps[first:], shown[-1]
        pictures: dict[str, Image.Image] = {}
        kinds = torch.zeros(MAX_ACTIONS, dtype=torch.int64)
        numbers = torch.full((MAX_ACTIONS, 5), -1.0)
        typed = torch.zeros(MAX_ACTIONS, MAX_TRIGRAMS, dtype=torch.int64)
        crops = torch.full((MAX_ACTIONS, 6, CROP[1], CROP[0]), 128, dtype=torch.uint8)
        for index, step in enumerate(steps, start=first):
            place, action = index - first + MAX_ACTIONS - len(steps), step.action
            kinds[place] = 1 + KINDS.index(action.kind)
            numbers[place] = torch.tensor([*_point(action.point), *_point(action.to), _share(step, goal)])
            typed[place] = _padded([bucket for word in words_of(action.text) for bucket in buckets(word)[:1]])
            if action.point is not None:
                around = [shown[index], shown[min(index + 1, len(shown) - 1)]]
                pieces = [_piece(_picture(one.image, images, pictures), action.point) for one in around]
                crops[place] = torch.cat(pieces)
        words = torch.stack([word_buckets(word) for word in goal[:MAX_WORDS]] or [_padded([])])
        return Features(
            words=torch.cat([words, words.new_zeros(MAX_WORDS - len(words), MAX_TRIGRAMS)]),
            kinds=kinds,
            numbers=numbers,
            typed=typed,
            crops=crops,
            app=_padded([bucket for word in words_of(last.app) for bucket in buckets(word)]),
            screen=self._whole(images, last),
        )

    def _whole(self, images: Mapping[str, bytes], shown: Observation) -> Tensor:
        with opened(images[shown.image]) as image:
            image.draft("RGB", (3 * self.size[0] // 2, 3 * self.size[1] // 2))
            return to_tensor(image.convert("RGB").resize(self.size, Image.Resampling.BOX))


def _picture(digest: str, images: Mapping[str, bytes], known: dict[str, Image.Image]) -> Image.Image:
    """A screenshot, decoded once, no smaller than its pieces need."""
    if digest not in known:
        with opened(images[digest]) as image:
            wanted = round(CROP[0] / CROP_SHARE)
            image.draft("RGB", (wanted, round(wanted * image.height / image.width)))
            known[digest] = image.convert("RGB")
    return known[digest]


def _piece(picture: Image.Image, point: tuple[float, float]) -> Tensor:
    """The piece of a screenshot around `point`; beyond the edge it is black."""
    width = CROP_SHARE * picture.width
    height = width * CROP[1] / CROP[0]
    x, y = point[0] * picture.width, point[1] * picture.height
    box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    left, top, right, bottom = map(round, box)
    return to_tensor(picture.crop((left, top, right, bottom)).resize(CROP, Image.Resampling.BOX))


def _point(point: tuple[float, float] | None) -> tuple[float, float]:
    return (-1.0, -1.0) if point is None else point


def _share(step: TimeStep, goal: Sequence[str]) -> float:
    """How many of the typed words the goal has: a share, −1 if nothing was typed."""
    typed = words_of(step.action.text)
    return sum(word in goal for word in typed) / len(typed) if typed else -1.0


def _padded(ids: Sequence[int]) -> Tensor:
    kept = list(ids)[:MAX_TRIGRAMS]
    return torch.tensor([*kept, *[0] * (MAX_TRIGRAMS - len(kept))], dtype=torch.int64)
