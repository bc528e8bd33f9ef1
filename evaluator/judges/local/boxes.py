"""Where text may stand on a screen: boxes around strokes that lie close together in a row.

Text is many steps of brightness side by side. Steps that are at most GAP pixels apart in a row of pixels
belong together, and so do rows that touch. What comes out are lines or words, and icons and switches besides,
which the reader (ocr.py) gives no text.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

WIDTH = 540
"""Screens are looked at so many pixels wide."""
STEP = 24
"""Neighbouring pixels that differ by more in brightness are a stroke's edge."""
GAP = 10
LARGE, SPACING = 28, 0.4
"""Boxes that are so high are one if they are at most so far apart, as a share of their height."""
MIN_HEIGHT, MAX_HEIGHT = 7, 100
MIN_WIDTH = 4
MIN_PROPORTION = 0.25

Box = tuple[int, int, int, int]
"""left, top, right, bottom in pixels; right and bottom are outside."""


def find_boxes(grey: NDArray[np.uint8]) -> list[Box]:
    """Boxes that may hold a line of text, from top to bottom.

    Args:
        grey: [height, width] brightness.
    """
    boxes = [box for box in _merged(_joined(_runs(_strokes(grey)))) if _may_be_text(box)]
    return sorted(boxes, key=lambda box: (box[1], box[0]))


def grey_of(picture: Image.Image) -> NDArray[np.uint8]:
    """[height, WIDTH] brightness of a screenshot."""
    grey = picture.convert("L")
    if grey.width != WIDTH:
        height = max(1, round(grey.height * WIDTH / grey.width))
        grey = grey.resize((WIDTH, height), Image.Resampling.BILINEAR)
    return np.asarray(grey)


def _merged(boxes: list[Box]) -> list[Box]:
    """The digits of a large clock and the like, which stand farther apart than GAP, as one."""
    merged: list[Box] = []
    for box in sorted(boxes):
        for place, other in enumerate(merged):
            if _are_one(other, box):
                left, top = min(other[0], box[0]), min(other[1], box[1])
                merged[place] = (left, top, max(other[2], box[2]), max(other[3], box[3]))
                break
        else:
            merged.append(box)
    return merged


def _are_one(one: Box, other: Box) -> bool:
    """Whether `other`, which begins no further left, stands close to `one` in its row, for their height."""
    higher = max(one[3] - one[1], other[3] - other[1])
    if not LARGE <= higher <= MAX_HEIGHT or other[0] - one[2] > SPACING * higher:
        return False
    return one[1] - 2 <= other[1] and other[3] <= one[3] + 2


def _may_be_text(box: Box) -> bool:
    width, height = box[2] - box[0], box[3] - box[1]
    return MIN_HEIGHT <= height <= MAX_HEIGHT and width >= max(MIN_WIDTH, MIN_PROPORTION * height)


def _strokes(grey: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """[height / 2, width] where brightness steps from a pixel to its right neighbour, in either row of a pair
    or just above, so that a letter's dot and its stem touch."""
    steps: NDArray[np.bool_] = np.zeros(grey.shape, dtype=np.bool_)
    change = np.abs(grey[:, 1:].astype(np.int16) - grey[:, :-1].astype(np.int16)) > STEP
    steps[:, 1:] = change
    steps[1:] |= steps[:-1].copy()
    if len(steps) % 2:
        steps = np.concatenate([steps, steps[-1:]])
    return steps[::2] | steps[1::2]


def _runs(steps: NDArray[np.bool_]) -> NDArray[np.int64]:
    """[N, 3] pair of rows, left, right (outside) of steps at most GAP apart, by row and left."""
    rows, columns = np.nonzero(steps)
    if not len(rows):
        return np.zeros((0, 3), dtype=np.int64)
    breaks = np.nonzero((np.diff(rows) != 0) | (np.diff(columns) > GAP))[0]
    first = np.concatenate([[0], breaks + 1])
    last = np.concatenate([breaks, [len(rows) - 1]])
    return np.stack([rows[first], columns[first], columns[last] + 1], axis=1)


def _joined(runs: NDArray[np.int64]) -> list[Box]:
    """Boxes around runs of neighbouring pairs of rows that overlap."""
    parents = list(range(len(runs)))

    def root(place: int) -> int:
        while parents[place] != place:
            parents[place] = parents[parents[place]]
            place = parents[place]
        return place

    entries = runs.tolist()
    before = 0  # the first run of the row above that may still overlap
    for place, (row, left, right) in enumerate(entries):
        while before < place and (
            entries[before][0] < row - 1 or (entries[before][0] == row - 1 and entries[before][2] < left)
        ):
            before += 1
        above = before
        while above < place and entries[above][0] == row - 1 and entries[above][1] <= right:
            parents[root(place)] = root(above)
            above += 1
    boxes: dict[int, Box] = {}
    for place, (row, left, right) in enumerate(entries):
        one = boxes.get(root(place), (left, row, right, row))
        boxes[root(place)] = (min(one[0], left), min(one[1], row), max(one[2], right), max(one[3], row + 1))
    return [(left, 2 * top, right, 2 * bottom) for left, top, right, bottom in boxes.values()]
