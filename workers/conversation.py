"""What the policy is asked in one episode, and the token sequence that its chats go on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from distrl.core.types import NO_PREFIX, Chat, ChatMessage, Completion, Prefix, Sampling, shown_images
from distrl.workers.agents.base import Prompt


class PolicyClient(Protocol):
    """Whoever completes chats: an `ActClient`, or a ten-line fake."""

    def act(
        self,
        messages: Sequence[ChatMessage],
        images: Mapping[str, bytes],
        sampling: Sampling,
        prefix: Prefix = NO_PREFIX,
    ) -> Completion:
        """The completion; see `ActClient.act`.

        Raises:
            ContextFull: The sequence is too long, or leaves no room for an answer.
            InferenceUnavailable: Nobody answered in time.
            ProtocolError: The request itself was refused.
        """
        ...


class Conversation:
    """The chats of one episode with one policy.

    Args:
        policy: Completes them.
        images: Bytes by digest of the screenshots that were taken so far; it grows with the episode.
        sampling: How tokens are drawn.
    """

    def __init__(self, policy: PolicyClient, images: Mapping[str, bytes], sampling: Sampling) -> None:
        self._policy, self._images, self._sampling = policy, images, sampling
        self._sequence = NO_PREFIX

    def ask(self, prompt: Prompt) -> Chat:
        """Completes `prompt`, from where the chat before it ended if it continues.

        Raises:
            ContextFull: The sequence is too long, or leaves no room for an answer.
            InferenceUnavailable: Nobody answered in time.
            ProtocolError: The request itself was refused.
        """
        prefix = self._sequence if prompt.continues else NO_PREFIX
        shown = dict.fromkeys((*prefix.images, *shown_images(prompt.messages)))
        images = {digest: self._images[digest] for digest in shown}
        completion = self._policy.act(prompt.messages, images, self._sampling, prefix)
        chat = Chat(messages=prompt.messages, completion=completion, continues=prompt.continues)
        self._sequence = self._sequence.after(chat)
        return chat
