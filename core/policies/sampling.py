"""From logits to sampled tokens and their log-probabilities, with sampling parameters for each row.

`RowSampler` does this inside transformers' `generate`. `OutputTokens` is vocabulary slimming (AcceRL §5.1):
an output layer that has the tokens of actions only. Cropping it saves its memory, gradients and time, and no
probability can leak to other tokens: π over the kept tokens is the full model's, renormalised,

    log π_slim(a) = z_a − log Σ_{b kept} exp z_b = log π_full(a) − log Σ_{b kept} π_full(b)

Token ids stay those of the tokenizer everywhere outside; only the logits' columns are fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from distrl.core.errors import PolicyError
from distrl.core.policies.base import Generated
from distrl.core.types import Sampling

# Finite, so that a masked token has probability 0 and p·log p = 0 without NaN.
MASKED = -1e30

MAX_LOGITS = 2**26
"""A quarter of a gigabyte in float32, some 400 tokens of a vocabulary of 150,000. While log-probabilities and
entropies are made of them, it takes five times that."""


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
    return torch.where(allowed, scaled, MASKED).log_softmax(-1)


def token_statistics(
    output: Callable[[Tensor], Tensor],
    hidden: Tensor,
    tokens: Tensor,
    allowed: Tensor,
    temperature: Tensor,
    max_logits: int = MAX_LOGITS,
) -> tuple[Tensor, Tensor]:
    """log π and entropy of M tokens, in pieces: the logits of all of them are never there at once.

    In a backward pass each piece is computed again, unless there is only one.

    Args:
        output: The output layer, [m, d] → [m, V].
        hidden: [M, d] states from which the tokens were written.
        tokens: [M] int64 columns of the logits.
        allowed: [V] bool.
        temperature: [M], above 0.
        max_logits: How many logits there may be at once.

    Returns:
        [M] and [M], float32.
    """

    def piece(states: Tensor, columns: Tensor, temperatures: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = token_log_probs(output(states), allowed, temperatures)
        chosen = log_probs.gather(1, columns[:, None]).squeeze(1)
        return chosen, -(log_probs.exp() * log_probs).sum(-1)

    size = max(1, max_logits // allowed.shape[-1])
    if len(tokens) <= size:
        return piece(hidden, tokens, temperature)
    pieces = [
        (hidden[i : i + size], tokens[i : i + size], temperature[i : i + size])
        for i in range(0, len(tokens), size)
    ]
    if torch.is_grad_enabled():
        parts = [checkpoint(piece, *one, use_reentrant=False) for one in pieces]
    else:
        parts = [piece(*one) for one in pieces]
    return torch.cat([chosen for chosen, _ in parts]), torch.cat([entropy for _, entropy in parts])


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
        generator: Where randomness comes from.

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
        ends: Tokens that end a completion.
        sampling: One per row.
        generator: Where randomness comes from.
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


class OutputTokens(nn.Module):
    """Which token each column of the logits stands for.

    Args:
        kept: Ids of the kept tokens, ascending; None for all.
        size: Number of tokens of the full vocabulary.
    """

    def __init__(self, kept: Sequence[int] | None, size: int) -> None:
        super().__init__()
        self.size, self.is_slim = size, kept is not None
        ids = torch.arange(size) if kept is None else torch.tensor(list(kept))
        places = torch.full((size,), -1, dtype=torch.int64)
        places[ids] = torch.arange(len(ids))
        self.register_buffer("_ids", ids, persistent=False)
        self.register_buffer("_places", places, persistent=False)

    def ids(self, columns: Tensor) -> Tensor:
        """Token ids of columns."""
        ids: Tensor = self._ids[columns]  # type: ignore[index]
        return ids

    def columns(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Columns of token ids; 0 where `mask` is False.

        Raises:
            PolicyError: A real token has none.
        """
        if not self.is_slim:
            return ids
        columns: Tensor = torch.where(mask, self._places[ids], 0)  # type: ignore[index]
        if bool((columns < 0).any()):
            token = int(ids[columns < 0][0])
            raise PolicyError(
                f"Token {token} of an action is not among those that policy.slim_vocabulary keeps.",
                "Add a text that has it.",
            )
        return columns


def kept_tokens(tokenizer: Any, texts: Sequence[str], end_ids: Sequence[int]) -> list[int]:
    """The tokens of `texts` and those that end a turn, ascending."""
    tokens = [token for text in texts for token in tokenizer(text, add_special_tokens=False)["input_ids"]]
    return sorted({*tokens, *end_ids})


def crop_output(model: Any, kept: Sequence[int]) -> None:
    """Replaces the model's output layer by one that has the rows of `kept` only.

    A layer that shared its weights with the input embedding has its own afterwards.
    """
    full = model.get_output_embeddings()
    rows = torch.tensor(list(kept), device=full.weight.device)
    slim = nn.Linear(full.weight.shape[1], len(rows), bias=getattr(full, "bias", None) is not None)
    slim.to(device=full.weight.device, dtype=full.weight.dtype)
    with torch.no_grad():
        slim.weight.copy_(full.weight[rows])
        if slim.bias is not None:
            slim.bias.copy_(full.bias[rows])
    model.set_output_embeddings(slim)
    for config in (model.config, model.config.get_text_config()):
        config.tie_word_embeddings = False


class RowSampler:
    """A logits processor that draws each row's next token itself and leaves only that one.

    Args:
        allowed: [V] bool, over the logits' columns.
        output: Which tokens the columns are.
        sampling: One per row.
        generator: Where randomness comes from.
    """

    def __init__(
        self,
        allowed: Tensor,
        output: OutputTokens,
        sampling: Sequence[Sampling],
        generator: torch.Generator | None,
    ) -> None:
        self._allowed, self._output, self._sampling, self._generator = allowed, output, sampling, generator
        self._tokens: list[Tensor] = []
        self._logprobs: list[Tensor] = []
        self._top: list[list[tuple[tuple[int, float], ...]]] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores that leave one token per row, [B, all tokens]."""
        temperature = sampling_temperature(self._sampling, scores.device)
        log_probs = token_log_probs(scores, self._allowed, temperature)
        columns, logprobs, top = choose(log_probs, self._sampling, self._generator)
        tokens = self._output.ids(columns)
        self._top.append([self._named(row) for row in top])
        self._tokens.append(tokens)
        self._logprobs.append(logprobs)
        # As wide as the full vocabulary: what generation takes the largest of is a token's id.
        only = scores.new_full((len(scores), self._output.size), float("-inf"))
        return only.scatter(1, tokens[:, None], 0.0)

    def is_at_limit(self, input_ids: Tensor, scores: object) -> Tensor:
        """[B] bool, which rows have their own `max_new_tokens`; a stopping criterion of `generate`."""
        limits = torch.tensor([s.max_new_tokens for s in self._sampling], device=input_ids.device)
        return limits <= len(self._tokens)

    def results(self, end_ids: Sequence[int]) -> list[Generated]:
        """What was drawn in each row, up to its end or its `max_new_tokens`."""
        tokens: list[list[int]] = torch.stack(self._tokens, dim=1).tolist()
        logprobs: list[list[float]] = torch.stack(self._logprobs, dim=1).tolist()
        return [
            _cut(row, values, top, end_ids, sampling.max_new_tokens)
            for row, values, top, sampling in zip(
                tokens, logprobs, zip(*self._top, strict=True), self._sampling, strict=True
            )
        ]

    def _named(self, top: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
        """The most probable columns as tokens."""
        ids = self._output.ids(torch.tensor([column for column, _ in top], dtype=torch.long)).tolist()
        return tuple(zip(ids, (value for _, value in top), strict=True))


def _cut(
    tokens: list[int],
    logprobs: list[float],
    top: Sequence[tuple[tuple[int, float], ...]],
    end_ids: Sequence[int],
    limit: int,
) -> Generated:
    ends = [index + 1 for index, token in enumerate(tokens) if token in end_ids]
    length = min([limit, len(tokens), *ends])
    return Generated(tokens[:length], logprobs[:length], list(top[:length]))
