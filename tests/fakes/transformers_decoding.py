"""Writing with a T5 token by token through transformers, with its cache: the slow way, for comparison."""

from __future__ import annotations

from typing import Any

from torch import Tensor


class TransformersDecoding:
    """As `T5Decoding`."""

    def __init__(self, decoder: Any, states: Tensor, mask: Tensor, num_tokens: int) -> None:
        self._decoder, self._states, self._mask, self._cache = decoder, states, mask, None

    def __call__(self, last: Tensor) -> Tensor:
        """As `T5Decoding`."""
        out = self._decoder(
            input_ids=last[:, None],
            encoder_hidden_states=self._states,
            encoder_attention_mask=self._mask,
            past_key_values=self._cache,
            use_cache=True,
        )
        self._cache = out.past_key_values
        hidden: Tensor = out.last_hidden_state[:, -1]
        return hidden
