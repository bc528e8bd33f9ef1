"""Teaching the reader its letters: text drawn with the phone's fonts, and things that are no text."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter
from torch import nn

from distrl.core.types import Record
from distrl.evaluator.judges.local.boxes import MIN_HEIGHT
from distrl.evaluator.judges.local.ocr import (
    ALPHABET,
    HEIGHT,
    MARGIN,
    MAX_WIDTH,
    OcrModel,
    OcrSize,
    normalised,
    padded,
)
from distrl.simulator.phone import fonts

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

Sample = tuple[NDArray[np.float32], str]
"""A box, and what it says."""


class OcrRecipe(Record):
    """How the reader is fitted.

    Attributes:
        updates: Of AdamW.
        batch_size: Boxes in an update.
        learning_rate: The highest; one cycle.
        no_text: The share of boxes that hold none.
        seed: Of weights and text.
    """

    updates: int = 1000
    batch_size: int = 48
    learning_rate: float = 3e-3
    no_text: float = 0.12
    seed: int = 0


def fit_reader(recipe: OcrRecipe, size: OcrSize, tell: Callable[[str], None]) -> OcrModel:
    """A reader of text in the phone's fonts.

    Args:
        recipe: How.
        size: The network's.
        tell: Told how far it is, a line at a time.
    """
    rng, noise = random.Random(f"reader/{recipe.seed}"), np.random.default_rng(recipe.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = OcrModel(size)
        optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=1e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, recipe.learning_rate, total_steps=recipe.updates, pct_start=0.2
        )
        losses: list[float] = []
        batches = _batches(recipe, rng, noise)
        for update in range(recipe.updates):
            loss = _loss(model, next(batches))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            if (update + 1) % TELL_EVERY == 0:
                loss_now = sum(losses[-TELL_EVERY:]) / TELL_EVERY
                tell(f"learning to read, update {update + 1} of {recipe.updates}: loss {loss_now:.3f}")
    return model.eval()


def _batches(recipe: OcrRecipe, rng: random.Random, noise: np.random.Generator) -> Iterator[list[Sample]]:
    """Boxes of like width together, so that little is spent on what they are padded with."""
    while True:
        samples = [sample(rng, noise, recipe.no_text) for _ in range(recipe.batch_size * POOL)]
        samples.sort(key=lambda one: one[0].shape[1])
        starts = list(range(0, len(samples), recipe.batch_size))
        rng.shuffle(starts)
        for start in starts:
            yield samples[start : start + recipe.batch_size]


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


def sample(rng: random.Random, noise: np.random.Generator, no_text: float) -> Sample:
    """A box as the reader gets it, and what it says: "" for an icon."""
    if rng.random() < no_text:
        text, mask = "", _no_text(rng)
    else:
        text = some_text(rng)
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


def some_text(rng: random.Random) -> str:
    """Up to MAX_LETTERS of words that mean nothing, numbers, times and prices."""
    words = [_word(rng) for _ in range(rng.choice((1, 1, 2, 3)))]
    return " ".join(words)[:MAX_LETTERS].strip()


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


__all__ = ["HEIGHT", "OcrRecipe", "fit_reader", "sample", "some_text"]
