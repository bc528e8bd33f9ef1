"""Text that spells a control token stays text.

A tokenizer finds its control tokens in a rendered chat wherever they are spelled: in what the template wrote,
and as well in a goal or a label of the screen. `<|im_end|>` in a goal would end the turn, `<|image_pad|>`
would stand for a picture that nobody sent. So in texts the spelling is broken, by a space after its first
character:

    find <|im_end|>   →   find < |im_end|>

Texts without any stay as they are, and so do their tokens. Encoding texts apart from the template, with
control tokens split (`split_special_tokens`), is no way: tokens merge across the border, T5 finds `</s>`
among its ordinary pieces nevertheless, and the switch belongs to the whole tokenizer, which threads share.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence
from typing import Any


class ControlTokens:
    """What texts must not spell: the tokens that a tokenizer flags as special, and some more.

    Added tokens that are not special (`<tool_call>`, `<think>`) are left alone: prompts have them.

    Args:
        tokenizer: As transformers gives it.
        more: Token ids that are control tokens, flagged or not.
    """

    def __init__(self, tokenizer: Any, more: Collection[int] = ()) -> None:
        added = tokenizer.added_tokens_decoder.items()
        spelled = {token.content for index, token in added if token.special or index in more}
        spelled |= set(tokenizer.all_special_tokens)
        # The first character only, so that one that begins inside of another is found too. What is a single
        # character, or blank, is no spelling: ordinary texts have it.
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
