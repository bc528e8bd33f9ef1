"""A policy client that asks an engine of its own process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distrl.core.policies.base import Policy
from distrl.core.types import NO_PREFIX, ChatMessage, Completion, Prefix, Sampling
from distrl.workers.inference.engine import HFEngine


class InProcess:
    """Completes chats by `policy`.

    Args:
        policy: Whose engine is asked.
        max_new_tokens: Of every answer; None: as many as the sampling says.
    """

    def __init__(self, policy: Policy, max_new_tokens: int | None = None) -> None:
        self.engine, self.max_new_tokens = HFEngine(policy, seed=0), max_new_tokens

    def act(
        self,
        messages: Sequence[ChatMessage],
        images: Mapping[str, bytes],
        sampling: Sampling,
        prefix: Prefix = NO_PREFIX,
    ) -> Completion:
        """The completion."""
        if self.max_new_tokens is not None:
            sampling = sampling.model_copy(update={"max_new_tokens": self.max_new_tokens})
        return self.engine.act([self.engine.prepare(messages, images, sampling, prefix)])[0]
