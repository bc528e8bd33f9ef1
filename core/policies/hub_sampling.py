"""What hub policies may write, and how their tokens are drawn inside of transformers' `generate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from distrl.core.errors import PolicyError
from distrl.core.policies.base import Generated
from distrl.core.policies.hub_loading import LoadedModel
from distrl.core.policies.sampling import choose, sampling_temperature, token_log_probs
from distrl.core.policies.slimming import OutputTokens, crop_output, kept_tokens
from distrl.core.types import Sampling


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


def set_aside_generation_settings(model: Any) -> Any:
    """Leaves a model no settings of its own that `generate` would mix in, and returns those it had.

    transformers takes from them whatever a caller does not say: Qwen2.5-VL's penalise repeated tokens, which
    changes the logits before `RowSampler` sees them, and `score` knows nothing of that.
    """
    settings = model.generation_config
    model.generation_config = type(settings)()
    return settings


def writable(loaded: LoadedModel, slim_vocabulary: Sequence[str]) -> tuple[Tensor, OutputTokens]:
    """Which columns of the logits may be sampled, and which tokens they are.

    All but special tokens that end no turn: sampled placeholders would break scoring. With a slim vocabulary
    the model's output layer is cropped to the tokens of those texts, and those that end a turn.

    Raises:
        PolicyError: There are no tokens of actions among them.
    """
    size = int(loaded.model.get_output_embeddings().weight.shape[0])
    allowed = torch.zeros(size, dtype=torch.bool)
    allowed[: min(size, len(loaded.tokenizer))] = True
    special = {*loaded.tokenizer.all_special_ids, loaded.image_token_id, loaded.pad_id}
    allowed[[index for index in special if 0 <= index < size]] = False
    allowed[list(loaded.end_ids)] = True
    if not slim_vocabulary:
        return allowed, OutputTokens(None, size)
    tokens = kept_tokens(loaded.tokenizer, slim_vocabulary, loaded.end_ids)
    kept = [token for token in tokens if bool(allowed[token])]
    if set(kept) <= set(loaded.end_ids):
        raise PolicyError(
            f"policy.slim_vocabulary {list(slim_vocabulary)} has no tokens of actions.",
            "Give the texts of the action tokens.",
        )
    crop_output(loaded.model, kept)
    return torch.ones(len(kept), dtype=torch.bool), OutputTokens(kept, size)
