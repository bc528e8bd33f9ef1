"""The trained judge's network: says what the episode has done, and whether that is what the goal asks for.

[ask] [actions with what they touched] ──► look at each other, at the last screen ──► what was done
                                                        │                                   │ word by word
[ask] [goal's words, each with how well what was done fits it] [actions] ──► look ──► [ask] ──► logit

What was done is learnt from solved episodes, where the goal's words say it; so a goal of known words can be
judged that was never seen as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import torch
from torch import Tensor, nn

from distrl.core.policies.vision import ConvStem
from distrl.core.types import Record
from distrl.evaluator.judges.local.features import BUCKETS, CROP, KINDS, MAX_ACTIONS, MAX_WORDS, Features

STEM_STRIDES = (4, 2, 2)
FITS = 10.0
"""Logits of words are cut here before they are compared with."""


class ModelSize(Record):
    """How large the network is. `width`, `height`: pixels of the last screen as it is looked at."""

    width: int = 108
    height: int = 240
    d_model: int = 64
    num_layers: int = 1
    num_heads: int = 4


class _Layer(nn.Module):
    """Tokens look at each other, then at the screen."""

    def __init__(self, d: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(3))
        self.own = nn.Linear(d, 3 * d)
        self.query, self.seen = nn.Linear(d, d), nn.Linear(d, 2 * d)
        self.outs = nn.ModuleList(nn.Linear(d, d) for _ in range(2))
        self.feed = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, tokens: Tensor, present: Tensor, screen: Tensor) -> Tensor:
        """[B, L, d] states; `present` is [B, L], `screen` [B, S, d]."""
        query, key, value = map(self._heads, self.own(self.norms[0](tokens)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, present[:, None, None])
        tokens = tokens + self.outs[0](mixed.transpose(1, 2).flatten(2))
        key, value = map(self._heads, self.seen(screen).chunk(2, -1))
        query = self._heads(self.query(self.norms[1](tokens)))
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        tokens = tokens + self.outs[1](mixed.transpose(1, 2).flatten(2))
        fed: Tensor = tokens + self.feed(self.norms[2](tokens))
        return fed

    def _heads(self, states: Tensor) -> Tensor:
        return states.view(*states.shape[:2], self.num_heads, -1).transpose(1, 2)


class JudgeModel(nn.Module):
    """A transformer over words and actions that looks at the last screen.

    Args:
        size: Its sizes.
    """

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.size = size
        d = size.d_model
        self.grams = nn.EmbeddingBag(BUCKETS, d, mode="mean", padding_idx=0)
        self.kinds = nn.Embedding(len(KINDS) + 1, d, padding_idx=0)
        self.numbers = nn.Sequential(nn.Linear(5, d), nn.ReLU(), nn.Linear(d, d))
        self.crop = _pieces(d)
        self.stem = ConvStem((size.width, size.height), (d // 3, 2 * d // 3, d), STEM_STRIDES)
        self.places = nn.Embedding(1 + MAX_WORDS + MAX_ACTIONS, d)
        self.read, self.compare = (
            nn.ModuleList(_Layer(d, size.num_heads) for _ in range(size.num_layers)) for _ in range(2)
        )
        self.ask = nn.Parameter(torch.randn(2, d) * 0.1)
        self.done = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d))
        self.frequency = nn.Linear(d, 1)
        self.fits = nn.Linear(1, d)
        self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 1))

    def forward(self, batch: Features, vocabulary: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What there is to say of B episodes, from features with a batch dimension in front.

        Args:
            batch: The episodes.
            vocabulary: [V, MAX_TRIGRAMS] words; None: none.

        Returns:
            [B] logits of success, and [B, V] of whether each word tells what was done.
        """
        count = len(batch.kinds)
        actions = self.kinds(batch.kinds) + self.numbers(batch.numbers) + self._bag(batch.typed)
        touched = batch.numbers[..., 0] >= 0
        actions = actions.index_put((touched,), self.crop(_scaled(batch.crops[touched])), accumulate=True)
        actions = actions + self.places.weight[1 + MAX_WORDS :]
        screen = self.stem(batch.screen).flatten(2).transpose(1, 2)
        always = torch.ones(count, 1, dtype=torch.bool)
        acted = batch.kinds != 0

        states = torch.cat([(self.ask[0] + self.grams(batch.app))[:, None], actions], dim=1)
        for layer in self.read:
            states = layer(states, torch.cat([always, acted], dim=1), screen)
        done = self.done(states[:, 0])

        words = self._bag(batch.words)
        fits = (words @ done[:, :, None] + self.frequency(words)).clamp(-FITS, FITS)
        words = words + self.fits(fits) + self.places.weight[1 : 1 + MAX_WORDS]
        tokens = torch.cat([self.ask[1].expand(count, 1, -1), words, states[:, 1:]], dim=1)
        present = torch.cat([always, batch.words[..., 0] != 0, acted], dim=1)
        for layer in self.compare:
            tokens = layer(tokens, present, screen)
        logits: Tensor = self.head(tokens[:, 0]).squeeze(1)

        if vocabulary is None:
            return logits, logits.new_zeros(count, 0)
        known = self.grams(vocabulary)
        return logits, done @ known.T + self.frequency(known).squeeze(1)

    def _bag(self, buckets: Tensor) -> Tensor:
        """[…, d] means of the embeddings of […, MAX_TRIGRAMS] buckets."""
        bags: Tensor = self.grams(buckets.flatten(0, -2))
        return bags.view(*buckets.shape[:-1], -1)


def _pieces(d: int) -> nn.Module:
    """[N, 6, height, width] pieces of screens, before and after, to [N, d]."""
    channels, layers, before = (d // 4, d // 2, d // 2), list[nn.Module](), 6
    for channel, kernel in zip(channels, (5, 3, 3), strict=True):
        layers += [nn.Conv2d(before, channel, kernel, stride=2, padding=kernel // 2), nn.ReLU()]
        before = channel
    cells = -(-CROP[0] // 8) * -(-CROP[1] // 8)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(before * cells, d))


def _scaled(pictures: Tensor) -> Tensor:
    return pictures.float() / 127.5 - 1.0


def collate(episodes: Sequence[Features]) -> Features:
    """One batch of several episodes."""
    names = [field.name for field in fields(Features)]
    return Features(**{name: torch.stack([getattr(one, name) for one in episodes]) for name in names})
