"""A request's token ids: a chat that begins, or what is added to a sequence that goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from distrl.core.errors import ContextFull, PolicyError
from distrl.core.policies.base import Policy
from distrl.core.types import ChatMessage, Sampling


@dataclass(frozen=True)
class TokenisedPrompt:
    """What the policy completes.

    Attributes:
        ids: The whole sequence, up to where the completion starts.
        num_prefix: How many of them were there before; they are those of the request, unchanged.
        sampling: How the completion is drawn; it has no more tokens than the context leaves.
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
        ContextFull: The sequence is too long, or leaves no room for an answer.
        PolicyError: The chat is too long, or the policy cannot go on from the prefix.
    """
    if not prefix:
        ids = policy.prompt_ids(messages, images)
        return TokenisedPrompt(tuple(ids), 0, _within_context(policy, len(ids), sampling))
    if max(prefix) >= policy.num_tokens:
        raise PolicyError(
            f"The prefix has the token {max(prefix)}, but the policy's vocabulary has {policy.num_tokens}.",
            "Use the same policy.model everywhere.",
        )
    new = policy.continuation_ids(prefix, messages, images)
    sampling = _within_context(policy, len(prefix) + len(new), sampling)
    return TokenisedPrompt((*prefix, *new), len(prefix), sampling)


def _within_context(policy: Policy, length: int, sampling: Sampling) -> Sampling:
    limit = policy.max_context_tokens
    return sampling if limit is None else within(limit, "policy.max_context_tokens", length, sampling)


def within(limit: int, key: str, length: int, sampling: Sampling) -> Sampling:
    """`sampling` with no more new tokens than a sequence of `length` tokens leaves of `limit`.

    Raises:
        ContextFull: It leaves none; names `key`, where the limit is from.
    """
    if length >= limit:
        raise ContextFull(
            f"The sequence has {length} tokens, and {key} {limit} leaves no answer room.",
            "Raise it, lower policy.max_pixels, or set agent.options.mode to history.",
        )
    return sampling.model_copy(update={"max_new_tokens": min(sampling.max_new_tokens, limit - length)})


def single_placeholders(ids: Sequence[int], placeholders: frozenset[int], counts: Sequence[int]) -> list[int]:
    """`ids` with one placeholder for each picture, also where no token is between two.

    Args:
        ids: A sequence with as many placeholders as `counts` says, as `Policy.verify` makes sure.
        placeholders: The tokens that stand for parts of pictures.
        counts: How many each picture has, in order of appearance.
    """
    firsts = {sum(counts[:number]) for number in range(len(counts))}
    kept, place = [], 0
    for token in ids:
        if token not in placeholders:
            kept.append(token)
            continue
        if place in firsts:
            kept.append(token)
        place += 1
    return kept
