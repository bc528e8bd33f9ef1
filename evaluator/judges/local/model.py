"""The trained judge's network: does what the screen shows, after these actions, fulfil this goal?

    [ask] [goal words] [actions with what they touched]   ──► self-attention ─┐ × layers ──► [ask] ──► logit
    last screen ──► convolutions ──► grid of features     ──► cross-attention ┘

An episode can be asked for several goals; its pictures are then looked at once.
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


class ModelSize(Record):
    """How large the network is. `width`, `height`: pixels of the last screen as it is looked at."""

    width: int = 108
    height: int = 240
    d_model: int = 64
    num_layers: int = 2
    num_heads: int = 4


class _Layer(nn.Module):
    """Words and actions look at each other, then at the screen."""

    def __init__(self, d: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(3))
        self.own = nn.Linear(d, 3 * d)
        self.query, self.seen = nn.Linear(d, d), nn.Linear(d, 2 * d)
        self.outs = nn.ModuleList(nn.Linear(d, d) for _ in range(2))
        self.feed = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, tokens: Tensor, present: Tensor, screen: Tensor, owner: Tensor) -> Tensor:
        """[P, L, d] states; `present` is [P, L], `screen` [B, S, d], `owner` the screen of each row."""
        query, key, value = map(self._heads, self.own(self.norms[0](tokens)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, present[:, None, None])
        tokens = tokens + self.outs[0](mixed.transpose(1, 2).flatten(2))
        key, value = (self._heads(part[owner]) for part in self.seen(screen).chunk(2, -1))
        query = self._heads(self.query(self.norms[1](tokens)))
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        tokens = tokens + self.outs[1](mixed.transpose(1, 2).flatten(2))
        fed: Tensor = tokens + self.feed(self.norms[2](tokens))
        return fed

    def _heads(self, states: Tensor) -> Tensor:
        return states.unflatten(2, (self.num_heads, -1)).transpose(1, 2)


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
        self.layers = nn.ModuleList(_Layer(d, size.num_heads) for _ in range(size.num_layers))
        self.ask = nn.Parameter(torch.randn(d) * 0.1)
        self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 1))

    def forward(self, batch: Features, goals: Tensor | None = None, owner: Tensor | None = None) -> Tensor:
        """Logits of success, from features with a batch dimension in front.

        Args:
            batch: B episodes.
            goals: [P, MAX_WORDS, MAX_TRIGRAMS]: goals to ask for; None: each episode's own.
            owner: [P] the episode that each is asked of, with `goals`.

        Returns:
            [P], or [B] without `goals`.
        """
        if goals is None or owner is None:
            goals, owner = batch.words, torch.arange(len(batch.kinds))
        actions = self.kinds(batch.kinds) + self.numbers(batch.numbers) + self._bag(batch.typed)
        touched = batch.numbers[..., 0] >= 0
        actions = actions.index_put((touched,), self.crop(_scaled(batch.crops[touched])), accumulate=True)
        screen = self.stem(batch.screen).flatten(2).transpose(1, 2)
        ask = (self.ask + self.grams(batch.app))[:, None]
        states = torch.cat([ask[owner], self._bag(goals), actions[owner]], dim=1) + self.places.weight
        always = torch.ones(len(owner), 1, dtype=torch.bool)
        present = torch.cat([always, goals[..., 0] != 0, batch.kinds[owner] != 0], dim=1)
        for layer in self.layers:
            states = layer(states, present, screen, owner)
        logits: Tensor = self.head(states[:, 0]).squeeze(1)
        return logits

    def _bag(self, buckets: Tensor) -> Tensor:
        """[…, d] means of the embeddings of […, MAX_TRIGRAMS] buckets."""
        bags: Tensor = self.grams(buckets.flatten(0, -2)).unflatten(0, buckets.shape[:-1])
        return bags


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
