"""From logits to sampled tokens and their log-probabilities, with sampling parameters for each row.

`RowSampler` does this inside transformers' `generate`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from distrl.core.policies.base import Generated
from distrl.core.types import Sampling

# Finite, so that a masked token has probability 0 and p·log p = 0 without NaN.
MASKED = -1e30

MAX_LOGITS = 2**26
"""A quarter of a gigabyte in float32, some 400 tokens of a vocabulary of 150,000. While log-probabilities and
entropies are made of them, it takes five times that."""


def sampling_temperature(sampling: Sequence[Sampling], device: torch.device) -> Tensor:
    """[B] temperatures, 0 where the most probable token is taken."""
    return torch.tensor([s.temperature for s in sampling], dtype=torch.float32, device=device)


def token_log_probs(logits: Tensor, allowed: Tensor, temperature: Tensor) -> Tensor:
    """log softmax of the allowed tokens' logits at each row's temperature.

    Args:
        logits: [B, ..., V].
        allowed: Broadcastable to `logits`, bool.
        temperature: [B]; 0 (greedy) counts as 1, and others below 0.01 as 0.01: quotients stay finite.
    """
    shape = (-1,) + (1,) * (logits.dim() - 1)
    divisor = temperature.where(temperature > 0, 1.0).clamp(min=0.01).to(logits.device)
    scaled = logits.float() / divisor.view(shape)
    return torch.where(allowed, scaled, MASKED).log_softmax(-1)


def score_tokens(
    output: nn.Module,
    hidden: Tensor,
    completions: Tensor,
    mask: Tensor,
    allowed: Tensor,
    temperature: Tensor,
    max_logits: int | None = None,
) -> tuple[Tensor, Tensor]:
    """[B, L] log π and [B, L] entropy of padded completions, float32, 0 where `mask` is False.

    The M real tokens are scored in pieces, so that the logits of all of them are never there at once. In a
    backward pass each piece is computed again, unless there is only one.

    All pieces are in one call of the output layer: where its weights are sharded over ranks, a call gathers
    them, and ranks have different numbers of pieces.

    Args:
        output: The output layer, [m, d] → [m, V].
        hidden: [M, d] states from which the real tokens were written, row by row.
        completions: [B, L] int64.
        mask: [B, L] bool, True at real tokens.
        allowed: [V] bool.
        temperature: [B] sampling temperatures; 0 (greedy) counts as 1.
        max_logits: How many there may be at once; None: `MAX_LOGITS`.
    """
    logits = output.forward
    real = mask.nonzero(as_tuple=True)
    size = max(1, (max_logits or MAX_LOGITS) // allowed.shape[-1])

    def piece(states: Tensor, columns: Tensor, temperatures: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = token_log_probs(logits(states), allowed, temperatures)
        chosen = log_probs.gather(1, columns[:, None]).squeeze(1)
        return chosen, -(log_probs.exp() * log_probs).sum(-1)

    def scored(hidden: Tensor) -> tuple[Tensor, Tensor]:
        columns = (hidden, completions[real], temperature[real[0]])
        split = (column.split(size) for column in columns)  # type: ignore[no-untyped-call]
        pieces = list(zip(*split, strict=True))
        if len(pieces) > 1 and torch.is_grad_enabled():
            parts = [checkpoint(piece, *one, use_reentrant=False) for one in pieces]
        else:
            parts = [piece(*one) for one in pieces]
        chosen, entropy = (torch.cat(found) for found in zip(*parts, strict=True))
        return chosen, entropy

    output.forward = scored
    try:
        chosen, entropy = output(hidden)
    finally:
        del output.forward
    zero = chosen.new_zeros(mask.shape)
    return zero.index_put(real, chosen), zero.index_put(real, entropy)


def writable_tokens(tokenizer: Any, size: int, end_ids: Sequence[int], others: Sequence[int] = ()) -> Tensor:
    """[size] bool: all of the tokenizer's tokens but `others` and the special ones that end nothing."""
    allowed = torch.arange(size) < len(tokenizer)
    allowed[[token for token in (*tokenizer.all_special_ids, *others) if token < size]] = False
    allowed[list(end_ids)] = True
    return allowed


def truncate(log_probs: Tensor, sampling: Sequence[Sampling]) -> Tensor:
    """Renormalised log-probabilities after each row's top_k, then top_p of what that leaves. [B, V] → [B, V]

    The order is that of transformers and vLLM. The most probable token always stays.
    """
    if all(s.top_k == 0 and s.top_p >= 1.0 for s in sampling):
        return log_probs
    size = log_probs.shape[-1]
    ordered, order = log_probs.sort(dim=-1, descending=True)
    top_k = torch.tensor([min(s.top_k or size, size) for s in sampling], device=log_probs.device)
    top_p = torch.tensor([s.top_p for s in sampling], device=log_probs.device)
    ranks = torch.arange(size, device=log_probs.device)
    is_among = ranks < top_k[:, None]
    left = ordered.masked_fill(~is_among, MASKED).softmax(-1)
    before = left.cumsum(-1) - left
    keep = is_among & ((before < top_p[:, None]) | (top_p[:, None] >= 1.0))
    keep[:, 0] = True
    kept = torch.zeros_like(keep).scatter(1, order, keep)
    return log_probs.masked_fill(~kept, MASKED).log_softmax(-1)


def choose(
    log_probs: Tensor, sampling: Sequence[Sampling], generator: torch.Generator | None
) -> tuple[Tensor, Tensor, list[tuple[tuple[int, float], ...]]]:
    """One token per row, its log-probability, and the most probable tokens.

    Args:
        log_probs: [B, V], of the allowed tokens.
        sampling: One per row; temperature 0 takes the most probable token and ignores truncation.

    Returns:
        [B] int64 tokens, [B] log-probabilities under the distribution that was sampled from, and for each
        row its `top_logprobs` most probable tokens with theirs.
    """
    greedy = [s.temperature == 0.0 for s in sampling]
    final = truncate(log_probs, [Sampling() if s.temperature == 0.0 else s for s in sampling])
    if all(greedy):
        tokens = final.argmax(-1)
    else:
        tokens = torch.multinomial(final.exp(), 1, generator=generator).squeeze(1)
    if any(greedy) and not all(greedy):
        tokens = torch.where(torch.tensor(greedy, device=tokens.device), final.argmax(-1), tokens)
    return tokens, final.gather(1, tokens[:, None]).squeeze(1), _top(final, sampling)


def _top(log_probs: Tensor, sampling: Sequence[Sampling]) -> list[tuple[tuple[int, float], ...]]:
    most = max(s.top_logprobs for s in sampling)
    if not most:
        return [()] * len(sampling)
    values, tokens = log_probs.topk(min(most, log_probs.shape[-1]))
    rows = zip(tokens.tolist(), values.tolist(), sampling, strict=True)
    pairs = [(zip(ids, found, strict=True), s.top_logprobs) for ids, found, s in rows]
    return [tuple((token, value) for token, value in row if value > MASKED / 2)[:most] for row, most in pairs]


def decode(
    next_log_probs: Callable[[Tensor], Tensor],
    first: Tensor,
    ends: Collection[int],
    sampling: Sequence[Sampling],
    generator: torch.Generator | None,
) -> list[Generated]:
    """Samples token by token until every row has ended or has its `max_new_tokens`.

    Args:
        next_log_probs: From the last token of each row, [B], to the log-probabilities of the next, [B, V]; it
            is asked once for each position, in order, and keeps its caches itself.
        first: [B] int64, what stands before the completions.
    """
    results = [Generated([], []) for _ in sampling]
    running, last = list(range(len(sampling))), first
    while running:
        last, chosen, top = choose(next_log_probs(last), sampling, generator)
        rows = zip(range(len(sampling)), last.tolist(), chosen.tolist(), top, strict=True)
        for row, token, log_prob, most in rows:
            if row in running:
                results[row].top.append(most)
                results[row].token_ids.append(token)
                results[row].logprobs.append(log_prob)
                if token in ends or len(results[row].token_ids) >= sampling[row].max_new_tokens:
                    running.remove(row)
    return results


class RowSampler:
    """A logits processor that draws each row's next token itself and leaves only that one.

    Args:
        allowed: [V] bool.
    """

    def __init__(
        self, allowed: Tensor, sampling: Sequence[Sampling], generator: torch.Generator | None
    ) -> None:
        self._allowed, self._sampling, self._generator = allowed, sampling, generator
        self._tokens: list[Tensor] = []
        self._logprobs: list[Tensor] = []
        self._top: list[list[tuple[tuple[int, float], ...]]] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores that leave one token per row, [B, all tokens]."""
        temperature = sampling_temperature(self._sampling, scores.device)
        log_probs = token_log_probs(scores, self._allowed, temperature)
        tokens, logprobs, top = choose(log_probs, self._sampling, self._generator)
        self._tokens.append(tokens)
        self._logprobs.append(logprobs)
        self._top.append(top)
        return torch.full_like(scores, float("-inf")).scatter(1, tokens[:, None], 0.0)

    def is_at_limit(self, input_ids: Tensor, scores: object) -> Tensor:
        """[B] bool, which rows have their own `max_new_tokens`; a stopping criterion of `generate`."""
        limits = torch.tensor([s.max_new_tokens for s in self._sampling], device=input_ids.device)
        return limits <= len(self._tokens)

    def results(self, end_ids: Sequence[int]) -> list[Generated]:
        """What was drawn in each row, up to its end or its `max_new_tokens`."""
        tokens: list[list[int]] = torch.stack(self._tokens, dim=1).tolist()
        logprobs: list[list[float]] = torch.stack(self._logprobs, dim=1).tolist()
        found = []
        rows = zip(tokens, logprobs, zip(*self._top, strict=True), self._sampling, strict=True)
        for ids, values, top, sampling in rows:
            ends = [index + 1 for index, token in enumerate(ids) if token in end_ids]
            length = min([sampling.max_new_tokens, len(ids), *ends])
            found.append(Generated(ids[:length], values[:length], list(top[:length])))
        return found
