"""The critic: how likely success is from a screen and a goal. It shares nothing with the policy.

A critic on the policy's own trunk ruins the policy while the values are still wrong; a small network of its
own learns from the same batches without that risk.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from distrl.core.errors import PolicyError
from distrl.core.policies.base import Critic, Policy, PromptBatch
from distrl.core.policies.options import PolicyOptions
from distrl.core.policies.vision import ConvStem

MAX_STEPS = 64
WIDTH = 96
TEXT_WIDTH = 64


class ConvCritic(Critic):
    """Convolutions over the screen, modulated by the goal's words (FiLM), pooled, with a step embedding.

    Args:
        config: Image size and prompt length.
        policy: Whose tokens it reads.
        seed: Seed of the initial weights.
    """

    def __init__(self, config: PolicyOptions, policy: Policy, seed: int) -> None:
        super().__init__()
        num_tokens = getattr(policy, "num_tokens", None)
        if num_tokens is None:
            raise PolicyError(
                f"The convolutional critic needs the vocabulary size of policy {policy.name!r}.",
                "Give that class a `num_tokens` attribute.",
            )
        self._placeholders = sorted(getattr(policy, "placeholder_ids", ()))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.stem = ConvStem(config.image_size, (48, 64, WIDTH), (4, 2, 2))
            self.words = TokenSummary(num_tokens, config.max_prompt_tokens)
            self.film = nn.Linear(TEXT_WIDTH, 2 * WIDTH)
            self.look = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
            self.steps = nn.Embedding(MAX_STEPS, TEXT_WIDTH)
            features = 2 * WIDTH + 2 * TEXT_WIDTH
            self.value = _head(features)
            self.actions = TokenSummary(num_tokens, MAX_STEPS)
            self.outcome = _head(features + TEXT_WIDTH)

    def values(self, batch: PromptBatch, steps: Tensor) -> Tensor:
        """Logits of V(s_t), [B]."""
        logits: Tensor = self.value(self._features(batch, steps)).squeeze(-1)
        return logits

    def trajectory_values(
        self, batch: PromptBatch, steps: Tensor, completions: Tensor, mask: Tensor
    ) -> Tensor:
        """Logits of V_traj(s, a), [B]; the action is read as its tokens."""
        features = torch.cat([self._features(batch, steps), self.actions(completions, mask)], dim=-1)
        logits: Tensor = self.outcome(features).squeeze(-1)
        return logits

    def _features(self, batch: PromptBatch, steps: Tensor) -> Tensor:
        is_word = batch.attention_mask.bool()
        for placeholder in self._placeholders:
            is_word = is_word & (batch.input_ids != placeholder)
        goal = self.words(batch.input_ids, is_word)
        scale, shift = self.film(goal).chunk(2, dim=-1)
        seen = self.stem(batch.images) * (1.0 + scale[..., None, None]) + shift[..., None, None]
        seen = torch.relu(self.look(torch.relu(seen))).flatten(2)
        step = self.steps(steps.clamp(0, MAX_STEPS - 1))
        return torch.cat([seen.amax(-1), seen.mean(-1), goal, step], dim=-1)


class TokenSummary(nn.Module):
    """A vector for a short token sequence: each token with its position through a layer, then the mean.

    Args:
        vocabulary_size: Number of tokens.
        max_length: Longest sequence; later positions share the last embedding.
    """

    def __init__(self, vocabulary_size: int, max_length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary_size, TEXT_WIDTH)
        self.positions = nn.Embedding(max_length, TEXT_WIDTH)
        self.mix = nn.Sequential(
            nn.Conv1d(TEXT_WIDTH, TEXT_WIDTH, 3, padding=1), nn.ReLU(), nn.Conv1d(TEXT_WIDTH, TEXT_WIDTH, 1)
        )

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """[B, L] int64 ids and bool mask → [B, TEXT_WIDTH]."""
        places = torch.arange(ids.shape[1], device=ids.device).clamp(max=self.positions.num_embeddings - 1)
        keep = mask[..., None].float()
        embedded = (self.tokens(ids) + self.positions(places)) * keep
        mixed = self.mix(embedded.transpose(1, 2)).transpose(1, 2) * keep
        summary: Tensor = mixed.sum(1) / keep.sum(1).clamp(min=1.0)
        return summary


def _head(features: int) -> nn.Sequential:
    last = nn.Linear(128, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(features, 128), nn.ReLU(), last)
