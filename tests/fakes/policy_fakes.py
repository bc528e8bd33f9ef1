"""Prompts, pictures and padded completions for tests of policies and inference servers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from distrl.core.types import ChatMessage, ImagePart, Sampling, TextPart

if TYPE_CHECKING:
    from torch import Tensor

    from distrl.core.policies.base import Generated, Policy, PromptBatch

WORDS = ["open", "red", "shoes", "settings", "alarm", "Wi-Fi"]


def chat(text: str, digest: str = "0" * 32) -> tuple[ChatMessage, ...]:
    return (ChatMessage(role="user", parts=(ImagePart(digest=digest), TextPart(text=text))),)


def png(seed: int, size: tuple[int, int] = (54, 120)) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def png_without_palette(size: tuple[int, int]) -> bytes:
    """A picture of a palette's colours without the palette, at which Pillow fails by an assertion."""
    out = io.BytesIO()
    Image.new("P", size).save(out, "PNG", transparency=0)
    data, name = out.getvalue(), out.getvalue().index(b"PLTE")
    return data[: name - 4] + data[name + 8 + int.from_bytes(data[name - 4 : name]) :]


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


def check_agreement(
    policy: Policy,
    batch: PromptBatch,
    temperatures: Sequence[float] = (1.0, 0.0, 0.6),
    limits: Sequence[int] = (12, 12, 4),
) -> set[int]:
    """Checks that scoring gives the log-probabilities of sampling. Returns the tokens that were sampled."""
    import torch

    pairs = zip(temperatures, limits, strict=True)
    sampling = [Sampling(temperature=t, max_new_tokens=most) for t, most in pairs]
    generated = policy.generate(batch, sampling, torch.Generator().manual_seed(0))
    assert all(0 < len(one.token_ids) <= most for one, most in zip(generated, limits, strict=True))
    tokens, mask, logprobs = padded(generated)
    with torch.no_grad():
        scores = policy.score(batch, tokens, mask, torch.tensor(temperatures))
    torch.testing.assert_close(scores.logprobs, logprobs, atol=1e-4, rtol=0)
    assert not scores.logprobs[~mask].any()
    assert not scores.entropy[~mask].any()
    return {token for one in generated for token in one.token_ids}


def swap(policy: Policy) -> None:
    """Gives a policy other weights, as an inference server gets them."""
    import torch

    from distrl.core.policies import weights_io

    state = {name: x + 0.02 * torch.randn_like(x) for name, x in policy.published_state().items()}
    policy.load_published(weights_io.from_bytes(weights_io.to_bytes(state, policy.published_metadata())))
