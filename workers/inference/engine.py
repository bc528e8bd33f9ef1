"""What an inference server asks of an engine: transformers here, vLLM in a process of its own, or another.

A request goes through it like this:

    any thread: prepare ──► engine thread: submit ──► on_done, in the engine thread or one of the engine's own
                            engine thread: load, between two submits

`submit` gives a request the weights that are loaded at that moment, and it keeps them to its end. An engine
that holds only so many versions at a time is also `Bounded`: what it has no room for waits, but no request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from torch import Tensor

from distrl.core.errors import ContextFull, PolicyError
from distrl.core.policies.base import Policy
from distrl.core.types import NO_PREFIX, ChatMessage, Completion, Prefix, Sampling

NO_WEIGHTS = -1
"""The version of an engine that has no weights of the learner's yet."""

Result = Completion | Exception
OnDone = Callable[[int, Result], None]
"""Takes the result of the request at an index of `submit`'s requests."""

P = TypeVar("P")


class Engine(Protocol[P]):
    """Completes chats with the newest weights that it was given.

    Attributes:
        name: The policy's, e.g. "hub".
        published_kind: What weights it takes, "full" or "adapter".
        version: The weights that requests get which are submitted now, `NO_WEIGHTS` before the first.
        is_continuous: Whether it takes requests while others run; else a whole batch runs inside `submit`.
    """

    version: int

    @property
    def name(self) -> str:
        """See above."""
        ...

    @property
    def published_kind(self) -> str:
        """See above."""
        ...

    @property
    def is_continuous(self) -> bool:
        """See above."""
        ...

    def prepare(
        self,
        messages: Sequence[ChatMessage],
        images: Mapping[str, bytes | memoryview],
        sampling: Sampling,
        prefix: Prefix = NO_PREFIX,
    ) -> P:
        """Tokenises a chat and decodes its images. Any thread.

        Args:
            messages: The chat, or what comes after the prefix.
            images: Encoded bytes by digest, at least of the images that the chat and the prefix show.
            sampling: How its completion is drawn.
            prefix: The sequence that the chat goes on from; its token ids stay as they are.

        Raises:
            PolicyError: The chat is too long, or an image is unreadable.
        """
        ...

    def submit(self, requests: Sequence[P], on_done: OnDone) -> None:
        """Runs requests with the weights of now. The engine thread.

        Args:
            requests: What `prepare` gave.
            on_done: Called exactly once for each request, from any thread, with its completion or with why
                it failed; a `PolicyError` is the request's own fault.
        """
        ...

    def load(self, version: int, state: dict[str, Tensor]) -> None:
        """Replaces the weights; what is submitted from now on carries `version`. The engine thread.

        Raises:
            PolicyError: The weights are of another policy; the old ones stay.
        """
        ...

    def text(self, token_ids: Sequence[int]) -> str:
        """The text of sampled tokens. Any thread."""
        ...

    def token_bytes(self, token_id: int) -> bytes | None:
        """What it adds to a text, in UTF-8; None where that cannot be told. Any thread."""
        ...

    @property
    def end_ids(self) -> Sequence[int]:
        """The tokens that end a completion. Any thread."""
        ...

    def check(self) -> None:
        """Raises what ended the engine, if anything did."""
        ...

    def stats(self) -> dict[str, float]:
        """Numbers of its own for heartbeats and Info. Any thread."""
        ...

    def close(self) -> None:
        """Frees what it holds; requests that still run fail. May be called twice."""
        ...


@runtime_checkable
class Bounded(Protocol):
    """What an engine has besides that cannot always load."""

    def can_load(self) -> bool:
        """Whether `load` takes weights now, which are there. The engine thread; asked until it does.

        Raises:
            DistrlError: They have waited for too long.
        """
        ...


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


def single_placeholders(ids: Sequence[int], placeholder: int, counts: Sequence[int]) -> list[int]:
    """`ids` with one placeholder for each picture, also where no token is between two.

    Args:
        ids: A sequence with as many placeholders as `counts` says, as `Policy.verify` makes sure.
        placeholder: The token that stands for a part of a picture.
        counts: How many each picture has, in order of appearance.
    """
    firsts = {sum(counts[:number]) for number in range(len(counts))}
    kept, place = [], 0
    for token in ids:
        if token != placeholder:
            kept.append(token)
            continue
        if place in firsts:
            kept.append(token)
        place += 1
    return kept
