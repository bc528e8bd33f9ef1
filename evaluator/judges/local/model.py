"""The trained judge's network: compares the goal's words with the actions and the text on the screen.

[ask: app and last screen] [goal's words] [actions with what they touched] [lines of text]
   └── attend to each other, more where they share a word ──► [ask] ──► logit

Where a word of the goal appears is an input, so the network need not know the word: it learns where which
kind of word has to appear, and can judge goals that were never seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Literal

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from distrl.core.errors import CheckpointError, JudgeError
from distrl.core.files import write_atomically, write_bytes_atomically, writing
from distrl.core.policies import weights_io
from distrl.core.types import Number, Record
from distrl.evaluator.judges.local.data import HoldOut
from distrl.evaluator.judges.local.features import BUCKETS, CROP, KINDS, MAX_ACTIONS, MAX_WORDS, Features
from distrl.evaluator.judges.local.ocr import OcrModel

SCREEN_STRIDES = (3, 2, 2)
CROP_STRIDES = (2, 2, 2)


class ModelSize(Record):
    """The network's sizes. `width`, `height`: pixels of the last screen as the network sees it."""

    width: int = 54
    height: int = 120
    d_model: int = 64
    num_layers: int = 2
    num_heads: int = 4
    dropout: float = 0.1


class _Layer(nn.Module):
    """Self-attention that is stronger between tokens with a common word."""

    def __init__(self, d: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(2))
        self.own, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.same = nn.Parameter(torch.linspace(0.0, 3.0, num_heads))
        self.feed = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        self.drop = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, hidden: Tensor, same: Tensor) -> Tensor:
        """[B, L, d] states; `hidden` is [B, L], −inf where none is, `same` [B, L, L] common words."""
        query, key, value = map(self._heads, self.own(self.norms[0](tokens)).chunk(3, -1))
        bias = hidden[:, None, None] + self.same[:, None, None] * same[:, None]
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, bias)
        tokens = tokens + self.drop(self.out(mixed.transpose(1, 2).flatten(2)))
        fed: Tensor = tokens + self.drop(self.feed(self.norms[1](tokens)))
        return fed

    def _heads(self, states: Tensor) -> Tensor:
        return states.view(*states.shape[:2], self.num_heads, -1).transpose(1, 2)


class JudgeModel(nn.Module):
    """A transformer over the last screen, words, actions and lines of text.

    Args:
        size: Its sizes.
    """

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        d = size.d_model
        self.grams = nn.EmbeddingBag(BUCKETS, d, mode="mean", padding_idx=0)
        self.kinds = nn.Embedding(len(KINDS) + 1, d, padding_idx=0)
        self.numbers, self.places, self.found = _small_net(6, d), _small_net(6, d), _small_net(4, d)
        self.crop = _picture_net(2, CROP_STRIDES, CROP, d)
        self.screen = _picture_net(1, SCREEN_STRIDES, (size.width, size.height), d)
        self.word_roles = nn.Parameter(torch.randn(MAX_WORDS, d) * 0.1)
        self.action_roles = nn.Parameter(torch.randn(MAX_ACTIONS, d) * 0.1)
        self.layers = nn.ModuleList(_Layer(d, size.num_heads, size.dropout) for _ in range(size.num_layers))
        self.drop = nn.Dropout(size.dropout)
        self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU(), nn.Linear(d, 1))

    def forward(self, batch: Features) -> Tensor:
        """[B] logits of success, from features with a batch dimension in front."""
        batch = _trimmed(batch)
        num_words, count = batch.words.shape[1], len(batch.kinds)
        matches = batch.matches.float()
        words = self._bag(batch.words) + self.found(_where(batch, matches))
        actions = self.kinds(batch.kinds) + self.numbers(batch.numbers) + self._bag(batch.meant)
        touched = batch.numbers[..., 0] >= 0
        actions = actions.index_put((touched,), self.crop(_scaled(batch.crops[touched])), accumulate=True)
        lines = self._bag(batch.lines) + self.places(batch.places)
        ask = self._bag(batch.app[:, None]) + self.screen(_scaled(batch.screen))[:, None]
        words, actions = words + self.word_roles[:num_words], actions + self.action_roles
        tokens = torch.cat([ask, words, actions, lines], dim=1)

        always = torch.ones(count, 1, dtype=torch.bool)
        is_there = torch.cat(
            [always, batch.words[..., 0] != 0, batch.kinds != 0, batch.lines[..., 0] != 0], dim=1
        )
        hidden = torch.zeros(is_there.shape).masked_fill(~is_there, -torch.inf)
        same = matches.new_zeros(count, tokens.shape[1], tokens.shape[1])
        same[:, 1 : 1 + num_words, 0] = matches[:, :, 0]
        same[:, 1 : 1 + num_words, 1 + num_words :] = matches[:, :, 1:]
        same = same + same.transpose(1, 2)
        tokens = self.drop(tokens)
        for layer in self.layers:
            tokens = layer(tokens, hidden, same)
        logits: Tensor = self.head(tokens[:, 0]).squeeze(1)
        return logits

    def _bag(self, buckets: Tensor) -> Tensor:
        """[…, d] means of the embeddings of […, MAX_TRIGRAMS] buckets."""
        bags: Tensor = self.grams(buckets.flatten(0, -2))
        return bags.view(*buckets.shape[:-1], -1)


def _trimmed(batch: Features) -> Features:
    """Without the words and lines that no episode of the batch has, but for one of each."""
    num_words, num_lines = (
        max(1, int((one[..., 0] != 0).sum(1).max())) for one in (batch.words, batch.lines)
    )
    return replace(
        batch,
        words=batch.words[:, :num_words],
        lines=batch.lines[:, :num_lines],
        places=batch.places[:, :num_lines],
        matches=batch.matches[:, :num_words, : 1 + MAX_ACTIONS + num_lines],
    )


def _where(batch: Features, matches: Tensor) -> Tensor:
    """[B, words, 4] whether each word is in the app's name, an action, the last screen, an earlier one."""
    first = 1 + MAX_ACTIONS
    app, actions, lines = matches[:, :, :1], matches[:, :, 1:first], matches[:, :, first:]
    is_earlier = (batch.places[:, None, :, 4] > 0).float()
    parts = (app, actions, lines * (1.0 - is_earlier), lines * is_earlier)
    return torch.stack([part.amax(2) for part in parts], dim=2)


def _small_net(inputs: int, d: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, d), nn.ReLU(), nn.Linear(d, d))


def _picture_net(inputs: int, strides: tuple[int, ...], size: tuple[int, int], d: int) -> nn.Module:
    """[N, inputs, height, width] pictures of `size` (width, height) to [N, d]."""
    layers, before, (width, height) = list[nn.Module](), inputs, size
    for channel, stride in zip((d // 8, d // 4, 3 * d // 8), strides, strict=True):
        layers += [nn.Conv2d(before, channel, 2 * stride - 1, stride=stride, padding=stride - 1), nn.ReLU()]
        before, width, height = channel, -(-width // stride), -(-height // stride)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(before * width * height, d))


def _scaled(pictures: Tensor) -> Tensor:
    return pictures.float() / 127.5 - 1.0


def collate(episodes: Sequence[Features]) -> Features:
    """One batch of several episodes."""
    names = [field.name for field in fields(Features)]
    return Features(**{name: torch.stack([getattr(one, name) for one in episodes]) for name in names})


CARD_FILE = "judge.json"
WEIGHTS_FILE = "judge.safetensors"


class JudgeCard(Record):
    """What a trained judge is, and how it came about.

    Attributes:
        size: The network's.
        temperature: Its logits are divided by this to be probabilities (Guo et al. 2017).
        threshold: From this probability on an episode counts as a success.
        seed: Of its weights and of the split.
        sources: The stores that it was fitted to.
        hold_out: What the parts of the split do not share.
        num_broken: Episodes that were left out because a screenshot of theirs is not a valid image.
        agreement: Share of the held-out episodes on which it agrees with ground truth.
    """

    version: Literal[3] = 3
    size: ModelSize
    temperature: Number
    threshold: Number
    seed: int
    sources: tuple[str, ...]
    num_fitted: int
    num_calibration: int
    num_held_out: int
    hold_out: HoldOut
    num_broken: int = 0
    agreement: Number


def write_judge(directory: Path, model: JudgeModel, reader: OcrModel, card: JudgeCard) -> None:
    """Writes a trained judge and its reader; the card comes last.

    Raises:
        RunDirectoryError: The disk is full, or the directory not writable.
    """
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    weights = weights_io.to_bytes(_state(model, reader))
    write_bytes_atomically(directory / WEIGHTS_FILE, weights, is_durable=True)
    write_atomically(directory / CARD_FILE, card.model_dump_json(indent=2))


def read_judge(directory: Path) -> tuple[JudgeModel, OcrModel, JudgeCard]:
    """A trained judge, ready to judge, and its reader.

    Raises:
        JudgeError: There is none, or it is damaged.
    """
    if not (directory / CARD_FILE).is_file():
        raise JudgeError(
            f"{directory} holds no trained judge ({CARD_FILE} is missing).",
            "Train one with distrl train-judge, and set judge.path to its directory.",
        )
    try:
        card = JudgeCard.model_validate_json((directory / CARD_FILE).read_text(encoding="utf-8"))
        model, reader = JudgeModel(card.size), OcrModel()
        weights_io.load_into(_state(model, reader), directory / WEIGHTS_FILE)
    except (ValidationError, CheckpointError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise JudgeError(f"The judge in {directory} cannot be read: {reason}.", "Train it again.") from error
    return model.eval(), reader.eval(), card


def _state(model: JudgeModel, reader: OcrModel) -> dict[str, Tensor]:
    parts = {"judge": model, "reader": reader}
    return {
        f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()
    }
