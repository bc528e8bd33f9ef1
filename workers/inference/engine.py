"""What inference engines have in common: how they read chats, write answers and count versions of weights.

A request goes through an engine like this:

    any thread: prepare ──► engine thread: submit ──► on_done, in the engine thread or one of the engine's own
                            engine thread: load, between two submits

`submit` gives a request the weights that are loaded at that moment, and it keeps them to its end.
"""

from __future__ import annotations

import logging
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from distrl.core.errors import ContextFull, DistrlError, PolicyError
from distrl.core.policies.base import Generated, Policy
from distrl.core.policies.images import ImageCache
from distrl.core.types import NO_PREFIX, ChatMessage, Completion, Prefix, Sampling, shown_images

_log = logging.getLogger(__name__)
NO_WEIGHTS = -1  # the version of an engine that has no weights of the learner's yet
MAX_TOKENS = 4096  # of an answer where nothing else limits it; a policy may make room for all at once
Result = Completion | Exception
OnDone = Callable[[int, Result], None]  # takes the result of the request at an index of `submit`'s requests


@dataclass(frozen=True)
class Prepared:
    """A request as the policy takes it.

    Attributes:
        prompt_ids: The whole sequence, up to where the completion starts.
        images: Decoded images in order of appearance.
        sampling: How the completion is drawn; it has no more tokens than the context leaves.
        num_prefix: How many of `prompt_ids` the request itself brought.
    """

    prompt_ids: tuple[int, ...]
    images: tuple[Tensor, ...]
    sampling: Sampling
    num_prefix: int = 0


class Engine(ABC):
    """Completes chats with the newest weights that it was given; the policy is in eval mode.

    Attributes:
        version: The weights that requests get which are submitted now, `NO_WEIGHTS` before the first.
        is_continuous: Whether it takes requests while others run; else a whole batch runs inside `submit`.
    """

    is_continuous = False

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.version = NO_WEIGHTS
        # Room for some 550 screenshots as a model reads them at 660,000 pixels: in mode `incremental`, where
        # each request shows all pictures of its episode, those of 36 slots at their fifteenth step.
        self._images = ImageCache(policy.image)

    def prepare(
        self,
        messages: Sequence[ChatMessage],
        images: Mapping[str, bytes | memoryview],
        sampling: Sampling,
        prefix: Prefix = NO_PREFIX,
    ) -> Prepared:
        """Tokenises a chat, or what comes after the prefix, and decodes its images. Any thread.

        `images` has the encoded bytes by digest, at least of those that the chat and the prefix show.

        Raises:
            ContextFull: The sequence is too long, or leaves no room for an answer.
            PolicyError: An image is unreadable, or the policy cannot continue the prefix.
        """
        digests = (*prefix.images, *shown_images(messages))
        found = self._images.get(digests, is_one_episode=True, load=lambda _: images)
        decoded, policy = tuple(found[digest] for digest in digests), self.policy
        new = decoded[len(prefix.images) :]
        if not prefix.token_ids:
            ids = tuple(policy.prompt_ids(messages, new))
        elif max(prefix.token_ids) >= policy.num_tokens:
            raise PolicyError(
                f"The prefix has the token {max(prefix.token_ids)}, but the policy's vocabulary has "
                f"{policy.num_tokens}.",
                "Use the same policy.model everywhere.",
            )
        else:
            ids = (*prefix.token_ids, *policy.continuation_ids(prefix.token_ids, messages, new))
        limit = policy.max_context_tokens or len(ids) + MAX_TOKENS
        sampling = within(limit, "policy.max_context_tokens", len(ids), sampling)
        return Prepared(ids, decoded, sampling, len(prefix.token_ids))

    @abstractmethod
    def submit(self, requests: Sequence[Prepared], on_done: OnDone) -> None:
        """Runs requests with the weights of now. The engine thread.

        `on_done` is called exactly once for each request, from any thread, with its completion or with why it
        failed; a `PolicyError` is the request's own fault.
        """

    def can_load(self) -> bool:
        """Whether `load` has room for other weights. The engine thread, repeatedly until it is True."""
        return True

    @abstractmethod
    def load(self, version: int, state: dict[str, Tensor]) -> None:
        """Replaces the weights; what is submitted from now on carries `version`. The engine thread.

        If it raises PolicyError, they are of another policy, and the old ones stay.
        """

    def completion(self, request: Prepared, generated: Generated, version: int) -> Completion:
        """What weights of one version answered; of the prompt what the request did not bring itself."""
        token_ids = generated.token_ids
        return Completion(
            text=self.policy.text(token_ids, request.prompt_ids),
            prompt_token_ids=request.prompt_ids[request.num_prefix :],
            token_ids=tuple(token_ids),
            logprobs=tuple(generated.logprobs),
            weight_versions=(version,) * len(token_ids),
            sampling=request.sampling,
            top_logprobs=tuple(generated.top) if request.sampling.top_logprobs else (),
        )

    @abstractmethod
    def check(self) -> None:
        """Raises what ended the engine, if anything did."""

    def stats(self) -> dict[str, float]:
        """Numbers of its own for heartbeats and Info. Any thread."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Frees what it holds; requests that still run fail. May be called twice."""


class HFEngine(Engine):
    """Whole batches of completions by a policy of transformers; `seed` is that of the sampling.

    `submit` runs its batch before it returns, in the thread of `load`, so that no batch mixes weights.
    """

    def __init__(self, policy: Policy, seed: int) -> None:
        super().__init__(policy)
        self._generator = torch.Generator(device=policy.device).manual_seed(seed)
        self._lost: str | None = None  # what the device said when it was lost

    def submit(self, requests: Sequence[Prepared], on_done: OnDone) -> None:
        """Runs a batch. If it fails, its halves are tried, so that only the requests at fault fail."""
        try:
            results = list(zip(range(len(requests)), self.act(requests), strict=True))
        except Exception as error:  # noqa: BLE001 - what fails must not end the service for everybody
            if isinstance(error, torch.AcceleratorError):  # after which nothing of this process runs there
                self._lost = str(error)
            if len(requests) == 1:
                on_done(0, error)
                return
            _log.warning("A batch of %d failed; trying its halves: %s", len(requests), traceback.format_exc())
        else:
            for index, completion in results:
                on_done(index, completion)
            return
        # Not in the handler: the error would hold the batch's tensors while the halves need the memory.
        if self.policy.device.type == "cuda" and self._lost is None:
            torch.cuda.empty_cache()
        middle = (len(requests) + 1) // 2
        self.submit(requests[:middle], on_done)
        self.submit(requests[middle:], lambda index, result: on_done(middle + index, result))

    def act(self, requests: Sequence[Prepared]) -> list[Completion]:
        """One completion for each request, all with the present weights."""
        batch = self.policy.collate([r.prompt_ids for r in requests], [r.images for r in requests])
        generated = self.policy.generate(batch, [r.sampling for r in requests], self._generator)
        return [
            self.completion(request, result, self.version)
            for request, result in zip(requests, generated, strict=True)
        ]

    def load(self, version: int, state: dict[str, Tensor]) -> None:
        self.policy.load_published(state)
        self.version = version

    def check(self) -> None:
        """Raises a DistrlError if the device is lost: another process may have it again."""
        if self._lost is not None:
            raise DistrlError(f"The device is lost: {self._lost}", "Start the server again.")

    def close(self) -> None:
        """Holds nothing that must be freed."""


def within(limit: int, key: str, length: int, sampling: Sampling) -> Sampling:
    """`sampling` with no more tokens than a sequence of `length` leaves of `limit`. Raises ContextFull."""
    if length >= limit:
        raise ContextFull(
            f"The sequence has {length} tokens, and {key} {limit} leaves no answer room.",
            "Raise it, lower policy.max_pixels, or set agent.options.mode to history.",
        )
    return sampling.model_copy(update={"max_new_tokens": min(sampling.max_new_tokens, limit - length)})
