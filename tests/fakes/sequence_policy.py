"""A policy with Qwen's chat template that answers with given token ids and notes what it saw."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from chatml import END, IMAGE, chatml_tokenizer
from torch import Tensor

from distrl.core.policies import chat_template
from distrl.core.policies.base import Generated
from distrl.core.types import ChatMessage, ImagePart, Sampling


class SequencePolicy:
    """What an engine asks of a policy, without a model: each image has two tokens.

    Args:
        answers: Token ids of the answers, in turn, from the beginning again after the last.

    Attributes:
        seen: Of each completion the prompt's ids, the pictures, and how many tokens it might have.
    """

    max_context_tokens: int | None = None

    name = "sequence"
    device = torch.device("cpu")

    def __init__(self, *answers: Sequence[int]) -> None:
        self.tokenizer = chatml_tokenizer()
        self.end: int = self.tokenizer.convert_tokens_to_ids(END)
        self.image_token: int = self.tokenizer.convert_tokens_to_ids(IMAGE)
        self.end_ids = (self.end,)
        self.num_tokens = len(self.tokenizer)
        self.answers = itertools.cycle(answers)
        self.seen: list[tuple[tuple[int, ...], tuple[float, ...], int]] = []

    def prompt_ids(self, messages: Sequence[ChatMessage], images: object = ()) -> list[int]:
        return self._expanded(self.tokenise(self._render([_plain(message) for message in messages])))

    def continuation_ids(
        self, prefix: Sequence[int], messages: Sequence[ChatMessage], images: object = ()
    ) -> list[int]:
        new = [_plain(message) for message in messages]
        ids = chat_template.continuation_ids(self._render, self.tokenise, prefix, new, [self.end])
        return self._expanded(ids)

    def image(self, data: bytes) -> Tensor:
        return torch.tensor(float(sum(data)))

    def collate(self, prompts: Sequence[Sequence[int]], images: Sequence[Sequence[Tensor]]) -> Any:
        return list(zip(prompts, images, strict=True))

    def generate(self, batch: Any, sampling: Sequence[Sampling], generator: object) -> list[Generated]:
        found = []
        for (ids, images), how in zip(batch, sampling, strict=True):
            assert ids.count(self.image_token) == 2 * len(images)
            self.seen.append((tuple(ids), tuple(image.item() for image in images), how.max_new_tokens))
            answer = list(next(self.answers))[: how.max_new_tokens]
            found.append(Generated(answer, [-0.5] * len(answer)))
        return found

    def text(self, token_ids: Sequence[int], prompt_ids: Sequence[int] = ()) -> str:
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def tokenise(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _render(self, messages: Sequence[chat_template.Message]) -> str:
        return str(
            self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        )

    def _expanded(self, ids: Sequence[int]) -> list[int]:
        return [token for token in ids for _ in range(2 if token == self.image_token else 1)]


def _plain(message: ChatMessage) -> chat_template.Message:
    parts = [
        {"type": "image"} if isinstance(part, ImagePart) else {"type": "text", "text": part.text}
        for part in message.parts
    ]
    return {"role": message.role, "content": parts}
