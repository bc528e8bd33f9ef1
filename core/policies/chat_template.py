"""The tokens that continue a chat, by its model's chat template, without tokenising anything twice.

A sequence that continues is what the policy saw and sampled before, token by token. Rendering the whole chat
again would not reproduce it: a tokenizer may cut the sampled text differently, and templates change earlier
answers (some leave out their thinking). So only what follows the last answer is rendered: with a stand-in for
that answer, everything up to the stand-in's end cut off.

    template of (question, stand-in, new messages):   … stand-in<|im_end|>\\n<|im_start|>user\\n…assistant\\n
    what continues the sequence:                                <|im_end|>\\n<|im_start|>user\\n…assistant\\n

without its end of turn, if that was sampled.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from distrl.core.errors import PolicyError
from distrl.core.types import ChatMessage, ImagePart, TextPart

Message = dict[str, Any]
"""A message as chat templates take it: `role`, and `content` as a list of parts."""


def continuation_ids(
    render: Callable[[Sequence[Message]], str],
    tokenise: Callable[[str], list[int]],
    prefix: Sequence[int],
    messages: Sequence[Message],
    end_ids: Sequence[int],
) -> list[int]:
    """The token ids that follow `prefix` when `messages` come next.

    Args:
        render: The template with the prompt for another answer at the end.
        prefix: The sequence so far; it ends with an answer, and with the end of its turn if that was sampled.

    Raises:
        PolicyError: The template does not show an earlier answer as it was given.
    """
    said = repr(messages)
    stand_in = next(word for n in itertools.count() if (word := f"answer{n}") not in said)
    rendered = render([_says("user", "question"), _says("assistant", stand_in), *messages])
    before, found, text = rendered.rpartition(stand_in)
    if not found or stand_in in before:
        raise PolicyError(
            "The model's chat template does not show an earlier answer exactly once: no chat can continue.",
            "Set agent.options.mode to history.",
        )
    if prefix and prefix[-1] in end_ids:
        ids = tokenise(text.lstrip())
        return ids[1:] if ids[:1] == [prefix[-1]] else ids
    return tokenise(text)


def _says(role: str, text: str) -> Message:
    return {"role": role, "content": [{"type": "text", "text": text}]}


def as_template(message: ChatMessage, apart: Callable[[Sequence[str]], list[str]]) -> Message:
    """A message as chat templates of transformers take it."""
    texts = iter(apart([part.text for part in message.parts if isinstance(part, TextPart)]))
    content = [
        {"type": "image"} if isinstance(part, ImagePart) else {"type": "text", "text": next(texts)}
        for part in message.parts
    ]
    return {"role": message.role, "content": content}


class ControlTokens:
    """What texts must not spell: the tokens that a tokenizer flags as special, and some more.

    Added tokens that are not special (`<tool_call>`, `<think>`) are left alone: prompts have them.

    Args:
        more: Token ids that are control tokens, flagged or not.
        kept: Token ids that are none, though flagged.
    """

    def __init__(self, tokenizer: Any, more: Collection[int] = (), kept: Collection[int] = ()) -> None:
        added = tokenizer.added_tokens_decoder.items()
        spelled = {token.content for index, token in added if token.special or index in more}
        spelled |= set(tokenizer.all_special_tokens)
        spelled -= {token.content for index, token in added if index in kept}
        # The first character only, so that one that begins inside of another is found too. What is a single
        # character, or blank, is not a spelling: ordinary texts contain it.
        starts = [f"{re.escape(t[0])}(?={re.escape(t[1:])})" for t in sorted(spelled) if len(t.strip()) > 1]
        self._starts = re.compile("|".join(starts) or "(?!)")
        self._normaliser = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)

    def apart(self, texts: Sequence[str]) -> list[str]:
        """The texts of one message without control tokens, also where one reaches from a text into the next.

        Where a token is spelled only after the tokenizer's own normalisation (`＜/s＞` for T5), the texts are
        normalised.
        """
        broken = self._broken(texts)
        if self._normaliser is None:
            return broken
        normal = [self._normaliser.normalize_str(text) for text in broken]
        return self._broken(normal) if self._starts.search("".join(normal)) else broken

    def _broken(self, texts: Sequence[str]) -> list[str]:
        starts = {match.start() for match in self._starts.finditer("".join(texts))}
        if not starts:
            return list(texts)
        places = itertools.count()
        return ["".join(one + " " * (next(places) in starts) for one in text) for text in texts]
