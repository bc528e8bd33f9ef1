"""From logits to sampled tokens and their log-probabilities, with parameters of each row's own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from distrl.core.types import Sampling

# Finite, so that a masked token has probability 0 and p·log p = 0 without NaN.
MASKED = -1e30


def sampling_temperature(sampling: Sequence[Sampling], device: torch.device) -> Tensor:
    """[B] temperatures of the distributions whose log-probabilities are reported; greedy (0) counts as 1."""
    return torch.tensor([s.temperature or 1.0 for s in sampling], dtype=torch.float32, device=device)


def token_log_probs(logits: Tensor, allowed: Tensor, temperature: Tensor) -> Tensor:
    """log softmax of the allowed tokens' logits at each row's temperature.

    Args:
        logits: [B, ..., V].
        allowed: Broadcastable to `logits`, bool.
        temperature: [B], above 0.
    """
    shape = (-1,) + (1,) * (logits.dim() - 1)
    scaled = logits.float() / temperature.to(logits.device).view(shape)
    return scaled.masked_fill(~allowed, MASKED).log_softmax(-1)


def truncate(log_probs: Tensor, sampling: Sequence[Sampling]) -> Tensor:
    """Renormalised log-probabilities after each row's top_k and top_p. [B, V] → [B, V]

    The most probable token always stays.
    """
    if all(s.top_k == 0 and s.top_p >= 1.0 for s in sampling):
        return log_probs
    size = log_probs.shape[-1]
    ordered, order = log_probs.sort(dim=-1, descending=True)
    top_k = torch.tensor([min(s.top_k or size, size) for s in sampling], device=log_probs.device)
    top_p = torch.tensor([s.top_p for s in sampling], device=log_probs.device)
    ranks = torch.arange(size, device=log_probs.device)
    before = ordered.exp().cumsum(-1) - ordered.exp()
    keep = (ranks < top_k[:, None]) & ((before < top_p[:, None]) | (top_p[:, None] >= 1.0))
    keep[:, 0] = True
    kept = torch.zeros_like(keep).scatter(1, order, keep)
    return log_probs.masked_fill(~kept, MASKED).log_softmax(-1)


def choose(
    log_probs: Tensor, sampling: Sequence[Sampling], generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """One token per row and its log-probability.

    Args:
        log_probs: [B, V], of the allowed tokens.
        sampling: One per row; temperature 0 takes the most probable token and ignores truncation.
        generator: Where randomness comes from.

    Returns:
        [B] int64 tokens and [B] log-probabilities under the distribution that was sampled from.
    """
    greedy = torch.tensor([s.temperature == 0.0 for s in sampling], device=log_probs.device)
    neutral = [Sampling() if s.temperature == 0.0 else s for s in sampling]
    final = truncate(log_probs, neutral)
    tokens = final.argmax(-1)
    if not bool(greedy.all()):
        drawn = torch.multinomial(final.exp(), 1, generator=generator).squeeze(1)
        tokens = torch.where(greedy, tokens, drawn)
    return tokens, final.gather(1, tokens[:, None]).squeeze(1)
