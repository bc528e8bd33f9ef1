"""Prompts, pictures and padded completions for tests of policies and inference servers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from distrl.core.types import ChatMessage, ImagePart, TextPart

if TYPE_CHECKING:
    from torch import Tensor

    from distrl.core.policies.base import Generated

WORDS = ["open", "red", "shoes", "settings", "alarm", "Wi-Fi"]


def chat(text: str, digest: str = "0" * 32) -> tuple[ChatMessage, ...]:
    return (ChatMessage(role="user", parts=(ImagePart(digest=digest), TextPart(text=text))),)


def png(seed: int, size: tuple[int, int] = (54, 120)) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def padded(generated: Sequence[Generated]) -> tuple[Tensor, Tensor, Tensor]:
    """Completions, mask and sampled log-probabilities, [B, L] each."""
    import torch

    length = max(len(one.token_ids) for one in generated)
    tokens = torch.zeros(len(generated), length, dtype=torch.int64)
    mask = torch.zeros(len(generated), length, dtype=torch.bool)
    logprobs = torch.zeros(len(generated), length)
    for row, one in enumerate(generated):
        tokens[row, : len(one.token_ids)] = torch.tensor(one.token_ids)
        mask[row, : len(one.token_ids)] = True
        logprobs[row, : len(one.token_ids)] = torch.tensor(one.logprobs)
    return tokens, mask, logprobs
