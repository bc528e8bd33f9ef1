"""What an inference server asks of an engine: transformers here, vLLM in a process of its own, or another.

A request goes through it like this:

    any thread: prepare ──► engine thread: submit ──► on_done, in the engine thread or one of the engine's own
                            engine thread: load, between two submits

`submit` gives a request the weights that are loaded at that moment, and it keeps them to its end. An engine
that holds only so many versions at a time is also `Bounded`: what it has no room for waits, but no request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from torch import Tensor

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
