"""A T5 decoder that writes token by token: transformers' weights and equations, without its wrappers.

A step of a small T5 is a few hundred microseconds of arithmetic and, in transformers, several times that of
Python: masks, caches and checks that are made again for each token and layer. Here they are made once per
batch. Layers that an adapter wraps are called as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Layer = Callable[[Tensor], Tensor]


class T5Decoding:
    """Hidden states of the next token, for a batch whose rows all have as many tokens so far. No gradients.

    Args:
        decoder: The decoder of `T5ForConditionalGeneration`, in eval mode.
        states: [N, S, d] what the decoder attends to.
        mask: [N, S], 1 where a position is real.
    """

    def __init__(self, decoder: Any, states: Tensor, mask: Tensor, num_tokens: int) -> None:
        attention = decoder.block[0].layer[0].SelfAttention
        self._shape = (len(states), attention.n_heads, 1, attention.key_value_proj_dim)
        self._embed = decoder.embed_tokens.weight
        self._bias = attention.compute_bias(num_tokens, 1).transpose(2, 3)  # by distance, not by pair
        self._norm = _norm(decoder.final_layer_norm)
        hidden = torch.zeros(mask.shape, dtype=states.dtype, device=states.device)
        self._mask = hidden.masked_fill_(mask == 0, torch.finfo(states.dtype).min)[:, None, None]
        self._blocks = [_Block(block, states, self._shape, num_tokens) for block in decoder.block]
        self._num_written = 0

    def __call__(self, last: Tensor) -> Tensor:
        """[N, d] from the last token of each row, [N]; asked once for each position, in order."""
        place = self._num_written
        self._num_written += 1
        bias = self._bias[..., : place + 1].flip(-1)
        hidden = F.embedding(last, self._embed)
        for block in self._blocks:
            hidden = block(hidden, place, bias, self._mask)
        return self._norm(hidden)


class _Block:
    """A block of the decoder with the keys and values of a batch."""

    def __init__(self, block: Any, states: Tensor, shape: tuple[int, int, int, int], num_tokens: int) -> None:
        own, cross, feed = block.layer
        self._shape = shape
        self._norms = [_norm(part.layer_norm) for part in block.layer]
        attention = own.SelfAttention
        self._q, self._k, self._v, self._o = (
            _layer(one) for one in (attention.q, attention.k, attention.v, attention.o)
        )
        size, heads, _, width = shape
        self._keys = states.new_empty(size, heads, num_tokens, width)
        self._values = torch.empty_like(self._keys)
        attention = cross.EncDecAttention
        self._cross_q, self._cross_o = _layer(attention.q), _layer(attention.o)
        split = (size, -1, heads, width)
        self._cross_keys = attention.k(states).view(split).transpose(1, 2).contiguous()
        self._cross_values = attention.v(states).view(split).transpose(1, 2).contiguous()
        self._feed = _feed_forward(feed.DenseReluDense)

    def __call__(self, hidden: Tensor, place: int, bias: Tensor, mask: Tensor) -> Tensor:
        """The block's output, [N, d], for the token at `place`."""
        normed = self._norms[0](hidden)
        self._keys[:, :, place : place + 1] = self._k(normed).view(self._shape)
        self._values[:, :, place : place + 1] = self._v(normed).view(self._shape)
        keys, values = self._keys[:, :, : place + 1], self._values[:, :, : place + 1]
        hidden = hidden + self._o(self._attend(self._q(normed), keys, values, bias))
        query = self._cross_q(self._norms[1](hidden))
        hidden = hidden + self._cross_o(self._attend(query, self._cross_keys, self._cross_values, mask))
        return hidden + self._feed(self._norms[2](hidden))

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        """[N, heads · width]; T5 does not scale the scores."""
        found = F.scaled_dot_product_attention(
            query.view(self._shape), keys, values, attn_mask=bias, scale=1.0
        )
        return found.reshape(len(found), -1)


def _layer(layer: nn.Module) -> Layer:
    """A linear layer as a function, which saves a call of a module; an adapter's stays a module."""
    return partial(F.linear, weight=layer.weight) if type(layer) is nn.Linear else layer


def _norm(layer: Any) -> Layer:
    """T5's layer norm as one operation, where no precision is lost on the way."""
    if layer.weight.dtype is not torch.float32:
        return layer  # type: ignore[no-any-return]
    return partial(
        F.rms_norm, normalized_shape=layer.weight.shape, weight=layer.weight, eps=layer.variance_epsilon
    )


def _feed_forward(dense: Any) -> Layer:
    """The two plain layers of a small T5 as functions; others as they are."""
    if not hasattr(dense, "wi") or not isinstance(dense.act, nn.ReLU):
        return dense  # type: ignore[no-any-return]
    inner, outer = _layer(dense.wi), _layer(dense.wo)
    return lambda hidden: outer(inner(hidden).relu_())
