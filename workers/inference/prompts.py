"""A request's token ids: a chat that begins, or what is added to a sequence that goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from distrl.core.errors import PolicyError
from distrl.core.policies.base import Policy
from distrl.core.types import ChatMessage, Sampling


@dataclass(frozen=True)
class TokenisedPrompt:
    """What the policy completes.

    Attributes:
        ids: The whole sequence, up to where the completion starts.
        num_prefix: How many of them were there before; they are those of the request, unchanged.
        sampling: How the completion is drawn.
    """

    ids: tuple[int, ...]
    num_prefix: int
    sampling: Sampling


def tokenise(
    policy: Policy,
    messages: Sequence[ChatMessage],
    sampling: Sampling,
    images: Sequence[Tensor] = (),
    prefix: Sequence[int] = (),
) -> TokenisedPrompt:
    """The token ids of a request; the prefix's are taken as they are.

    Args:
        policy: Whose tokens.
        messages: The chat, or what comes after the prefix.
        sampling: How its completion is drawn.
        images: The pictures of `messages`, as `policy.image` gives them.
        prefix: The token ids of the sequence that it goes on from.

    Raises:
        PolicyError: The chat is too long, or the policy cannot go on from the prefix.
    """
    if not prefix:
        return TokenisedPrompt(tuple(policy.prompt_ids(messages, images)), 0, sampling)
    if max(prefix) >= policy.num_tokens:
        raise PolicyError(
            f"The prefix has the token {max(prefix)}, but the policy's vocabulary has {policy.num_tokens}.",
            "Use the same policy.model everywhere.",
        )
    new = policy.continuation_ids(prefix, messages, images)
    return TokenisedPrompt((*prefix, *new), len(prefix), sampling)
