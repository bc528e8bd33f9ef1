"""Vocabulary slimming (AcceRL §5.1): an output layer that has the tokens of actions only.

For models whose actions are a fixed set of tokens. Cropping the layer saves its memory, gradients and time,
and no probability can leak to other tokens: π over the kept tokens is the full model's, renormalised,

    log π_slim(a) = z_a − log Σ_{b kept} exp z_b = log π_full(a) − log Σ_{b kept} π_full(b)

Token ids stay those of the tokenizer everywhere outside; only the logits' columns are fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from distrl.core.errors import PolicyError


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
