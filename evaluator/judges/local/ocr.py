"""Reads the text on screens: a small convolutional network with connectionist temporal classification.

    box ──► HEIGHT pixels high, light on dark ──► convolutions ──► a letter or none for every second column

It reads letters without regard to case (Graves et al. 2006). It is fitted to text drawn with the fonts of the
simulated phone, which are Android's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter
from torch import Tensor, nn

from distrl.simulator.phone import fonts

WIDTH = 540
"""The width to which screens are scaled, in pixels."""
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


ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789 :.,-'&$%+/!?()°@#"
HEIGHT = 20
MARGIN = 2
"""Pixels around a box that are read too, before scaling."""
MAX_WIDTH = 512
WIDTHS = (48, 96, 192, MAX_WIDTH)
"""Boxes are padded to the next of these widths, and read together."""
PICTURE_CHANNELS, COLUMN_CHANNELS = (12, 24, 32), 64
"""Of the network's convolutions over the picture and over its columns."""
SCREENS, BOXES = 4096, 16384
"""How many screens and boxes are remembered."""
LEAST_SURE = 0.5
"""Readings that are less sure are none: icons, pictures."""


@dataclass(frozen=True)
class Line:
    """A piece of text on a screen.

    Attributes:
        text: In lower case.
        box: left, top, right, bottom in pixels of a screen that is WIDTH pixels wide.
    """

    text: str
    box: Box


class OcrModel(nn.Module):
    """Boxes of text to letters."""

    def __init__(self) -> None:
        super().__init__()
        a, b, c = PICTURE_CHANNELS
        d = COLUMN_CHANNELS
        self.picture = nn.Sequential(
            *_block(nn.Conv2d(1, a, 3, padding=1, bias=False), nn.BatchNorm2d(a), nn.MaxPool2d(2)),
            *_block(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.MaxPool2d((2, 1))),
            *_block(nn.Conv2d(b, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.MaxPool2d((2, 1))),
        )
        self.columns = nn.Sequential(
            *_block(nn.Conv1d(c * (HEIGHT // 8), d, 5, padding=2, bias=False), nn.BatchNorm1d(d)),
            *_block(nn.Conv1d(d, d, 5, padding=2, bias=False), nn.BatchNorm1d(d)),
            nn.Conv1d(d, 1 + len(ALPHABET), 1),
        )

    def forward(self, pictures: Tensor) -> Tensor:
        """[B, HEIGHT, width] text in [0, 1] on 0 → [B, width / 2, 1 + letters] logits; 0: no letter."""
        features: Tensor = self.picture(pictures[:, None])
        found: Tensor = self.columns(features.flatten(1, 2))
        return found.transpose(1, 2)


def _block(*layers: nn.Module) -> list[nn.Module]:
    return [*layers[:2], nn.ReLU(), *layers[2:]]


def scaled(grey: NDArray[np.uint8], box: Box) -> NDArray[np.float32]:
    """[HEIGHT, width] of a box, its edge's brightness 0 and what differs most from that 1."""
    left, top, right, bottom = box
    piece = grey[max(0, top - MARGIN) : bottom + MARGIN, max(0, left - MARGIN) : right + MARGIN]
    width = min(MAX_WIDTH, max(4, round(piece.shape[1] * HEIGHT / piece.shape[0])))
    picture = Image.fromarray(piece).resize((width, HEIGHT), Image.Resampling.BILINEAR)
    return normalised(np.asarray(picture, dtype=np.float32))


def normalised(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """How far each pixel is from the edge's brightness, 1 for the farthest."""
    edge = np.median(np.concatenate([values[0], values[-1], values[:, 0], values[:, -1]]))
    apart = np.abs(values - edge)
    shown: NDArray[np.float32] = apart / max(float(apart.max()), 1.0)
    return shown


def padded(pictures: Sequence[NDArray[np.float32]], width: int) -> Tensor:
    """[B, HEIGHT, width] of several boxes."""
    together = np.zeros((len(pictures), HEIGHT, width), dtype=np.float32)
    for row, picture in enumerate(pictures):
        together[row, :, : picture.shape[1]] = picture
    return torch.from_numpy(together)


def decoded(logits: Tensor) -> list[tuple[str, float]]:
    """The likeliest letters of [B, T, 1 + letters] logits, and how sure they are on average, in [0, 1]."""
    probabilities, best = logits.softmax(-1).max(-1)
    readings = []
    for ids, shares in zip(best.tolist(), probabilities.tolist(), strict=True):
        letters, sure, before = [], [], 0
        for place, share in zip(ids, shares, strict=True):
            if place and place != before:
                letters.append(ALPHABET[place - 1])
                sure.append(share)
            before = place
        readings.append(("".join(letters).strip(), sum(sure) / max(1, len(sure))))
    return readings


class TextReader:
    """Reads screenshots, and remembers what it has read. Not for several threads at once.

    Args:
        model: Fitted.
    """

    def __init__(self, model: OcrModel) -> None:
        self._model = model.eval()
        self._screens: dict[str, list[Line]] = {}
        self._boxes: dict[bytes, str] = {}

    def lines(self, digest: str, picture: Callable[[], Image.Image]) -> list[Line]:
        """The text on a screenshot, from top to bottom; `picture` is called unless `digest` is remembered."""
        if digest not in self._screens:
            if len(self._screens) >= SCREENS:
                self._screens.clear()
            self._screens[digest] = self._read(grey_of(picture()))
        return self._screens[digest]

    def _read(self, grey: NDArray[np.uint8]) -> list[Line]:
        """The text in the screen's boxes, from what looked the same or by the network."""
        boxes = find_boxes(grey)
        pictures = [scaled(grey, box) for box in boxes]
        keys = [blake2b(picture.tobytes(), digest_size=16).digest() for picture in pictures]
        if len(self._boxes) >= BOXES:
            self._boxes.clear()
        self._boxes |= self._texts(
            {key: one for key, one in zip(keys, pictures, strict=True) if key not in self._boxes}
        )
        return [Line(text, box) for key, box in zip(keys, boxes, strict=True) if (text := self._boxes[key])]

    @torch.inference_mode()
    def _texts(self, pictures: Mapping[bytes, NDArray[np.float32]]) -> dict[bytes, str]:
        """What each says; "" if nothing, or not surely."""
        texts: dict[bytes, str] = {}
        shortest = 0
        for width in WIDTHS:
            some = {key: one for key, one in pictures.items() if shortest < one.shape[1] <= width}
            shortest = width
            if some:
                logits = self._model(padded(list(some.values()), width))
                for key, (text, sure) in zip(some, decoded(logits), strict=True):
                    texts[key] = text if sure >= LEAST_SURE else ""
        return texts


COMMON = "eeeeeeeetttttaaaaaoooooiiiiinnnnnssssrrrrhhhllldddccuummffppggwwyybbvk"
POOL = 8
"""Batches that are drawn at once."""
TELL_EVERY = 100
MAX_LETTERS = 10
SIZES = (14, 15, 16, 17, 18, 18, 19, 20, 21, 21, 21, 22, 24, 27, 30, 36, 48, 60)
"""Pixels to the em."""
MARKS = ":.,-'&$%+/!?()°@#"
ICONS = sorted(fonts.icons())
GROUND = 4
"""Pixels of ground around drawn text."""

LEARNING_RATE = 3e-3  # the highest
NO_TEXT = 0.12
"""The share of boxes that hold no text."""

Sample = tuple[NDArray[np.float32], str]
"""A box, and its text."""


def fit_reader(
    seed: int, report: Callable[[str], None], updates: int = 1000, batch_size: int = 48
) -> OcrModel:
    """A reader of text in the phone's fonts, fitted by AdamW in one cycle of the learning rate.

    Args:
        seed: Of weights and text.
        report: Receives lines of progress.
        updates, batch_size: How many, and boxes in each.
    """
    rng, noise = random.Random(f"reader/{seed}"), np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = OcrModel()
        optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=1e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, LEARNING_RATE, total_steps=updates, pct_start=0.2
        )
        losses: list[float] = []
        batches = _batches(batch_size, rng, noise)
        for update in range(updates):
            loss = _loss(model, next(batches))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            if (update + 1) % TELL_EVERY == 0:
                loss_now = sum(losses[-TELL_EVERY:]) / TELL_EVERY
                report(f"learning to read, update {update + 1} of {updates}: loss {loss_now:.3f}")
    return model.eval()


def _batches(batch_size: int, rng: random.Random, noise: np.random.Generator) -> Iterator[list[Sample]]:
    """Boxes of similar width together, so that little is spent on padding."""
    while True:
        samples = [sample(rng, noise) for _ in range(batch_size * POOL)]
        samples.sort(key=lambda one: one[0].shape[1])
        starts = list(range(0, len(samples), batch_size))
        rng.shuffle(starts)
        for start in starts:
            yield samples[start : start + batch_size]


def _loss(model: OcrModel, samples: list[Sample]) -> torch.Tensor:
    """Connectionist temporal classification, per letter."""
    pictures, texts = zip(*samples, strict=True)
    widest = max(picture.shape[1] for picture in pictures)
    logits = model(padded(pictures, widest + widest % 2))
    targets = torch.tensor([1 + ALPHABET.index(letter) for text in texts for letter in text])
    lengths = torch.tensor([len(text) for text in texts])
    columns = torch.full((len(texts),), logits.shape[1])
    loss: torch.Tensor = nn.functional.ctc_loss(
        logits.log_softmax(-1).transpose(0, 1), targets, columns, lengths, reduction="sum", zero_infinity=True
    )
    return loss / max(1, len(targets))


def sample(rng: random.Random, noise: np.random.Generator) -> Sample:
    """A box as the reader gets it, and its text: "" for an icon."""
    if rng.random() < NO_TEXT:
        text, mask = "", _no_text(rng)
    else:
        words = [_word(rng) for _ in range(rng.choice((1, 1, 2, 3)))]  # that mean nothing, numbers, prices
        text = " ".join(words)[:MAX_LETTERS].strip()
        mask, _ = fonts.text_mask(text, rng.random() < 0.4, rng.choice(SIZES))
    ground = Image.new("L", (mask.width + 2 * GROUND, mask.height + 2 * GROUND))
    ground.paste(mask, (GROUND, GROUND))
    left, top, right, bottom = ground.getbbox() or (0, 0, *ground.size)
    box = (left - MARGIN, top - MARGIN, right + MARGIN, bottom + MARGIN)
    left, top, right, bottom = (edge + rng.randint(-1, 1) for edge in box)
    piece = ground.crop((left, top, right, bottom))
    width = min(MAX_WIDTH, max(4, round(piece.width * HEIGHT / piece.height)))
    if rng.random() < 0.25:
        piece = piece.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 0.8)))
    values = np.asarray(piece.resize((width, HEIGHT), Image.Resampling.BILINEAR), dtype=np.float32)
    if rng.random() < 0.3:
        values = values + np.linspace(0, rng.uniform(-70, 70), HEIGHT, dtype=np.float32)[:, None]
    return normalised(
        values + noise.normal(0.0, rng.uniform(0.0, 12.0), values.shape).astype(np.float32)
    ), text.lower()


def _word(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.1:
        return f"{rng.randint(0, 23)}:{rng.randint(0, 59):02d}"
    if kind < 0.2:
        return rng.choice(
            ("{}", "{}", "{}%", "${}.99", "({})", "{}.5", "#{}", "{}°", "{}/5", "-{}", "+{}")
        ).format(rng.randint(0, 10 ** rng.randint(1, 4)))
    if kind < 0.25:
        return rng.choice(("AM", "PM", "am", "pm", "&", "-", "a", "i"))
    letters = ALPHABET[:26] if rng.random() < 0.4 else COMMON
    word = "".join(rng.choice(letters) for _ in range(rng.randint(1, 10)))
    if kind < 0.32:
        word += rng.choice(MARKS)
    elif kind < 0.42:
        cut = rng.randint(0, len(word))
        word = word[:cut] + rng.choice("-.'-") + word[cut:]
    case = rng.random()
    return word.upper() if case < 0.12 else word.capitalize() if case < 0.5 else word


def _no_text(rng: random.Random) -> Image.Image:
    """An icon or a plain shape."""
    if rng.random() < 0.7:
        return fonts.icon_mask(rng.choice(ICONS), rng.randint(16, 64))
    width, height = rng.randint(6, 80), rng.randint(MIN_HEIGHT, 60)
    mask = Image.new("L", (width, height), 0)
    draw = ImageDraw.Draw(mask)
    shape = draw.ellipse if rng.random() < 0.5 else draw.rounded_rectangle
    thick = rng.choice((0, 2, 3))
    shape((0, 0, width - 1, height - 1), fill=None if thick else 255, outline=255, width=thick or 1)
    return mask.crop((rng.randint(0, width // 2), 0, width, height))
