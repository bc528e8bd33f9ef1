"""When two instructions are the same: what is a matter of writing is folded, signs and marks are not."""

from __future__ import annotations

import re
import unicodedata

_QUOTES = str.maketrans(
    dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb", '"')
    | dict.fromkeys("\u2018\u2019\u201a\u201b", "'")
)
_INVISIBLE = str.maketrans("", "", "\u00ad\u200b\u200e\u200f\u2060\ufeff")
"""Soft hyphen, zero-width space, marks of direction, word joiner, byte order mark; no joiners of scripts."""
_QUOTED = re.compile(r"""(?<![^\s(\[])(["'])(?=\S)(.*?)(?<=\S)\1(?=[\s.,;:!?)\]]|$)""")
_END = re.compile(r"(?<=[^\s.,;:?!\u0964\u3002])(?:[.,;:?\u0964\u3002]|(?<!\d)!)+$")

_OTHER = ("<super>", "<sub>", "<fraction>", "<circle>")
"""What NFKC would make another number or name of: 5\u00b2 is not 52, and 1\u00bd not 11/2."""


def standard(text: str) -> str:
    """One spelling of each letter and sign: Unicode NFKC, but for raised and lowered signs and fractions."""
    kept = (
        c if unicodedata.decomposition(c).startswith(_OTHER) else unicodedata.normalize("NFKC", c)
        for c in text
    )
    return unicodedata.normalize("NFC", "".join(kept))


def folded(instruction: str) -> str:
    """What instructions have in common that differ in case, white space, quotes or punctuation at the end.

    All else makes a difference: signs ("-5", "C++"), marks of a script's vowels, emoji. So does what could
    be a sign: punctuation that stands alone at the end, and "!" after a digit.
    """
    text = standard(instruction.translate(_INVISIBLE)).casefold()
    text = " ".join(text.translate(_QUOTES).split())
    before = None
    while text != before:
        before = text
        text = _END.sub("", _QUOTED.sub(r"\2", text))
    return text


def says_something(instruction: str) -> bool:
    """Whether there is more than white space, punctuation and control characters."""
    return any(unicodedata.category(letter)[0] in "LMNS" for letter in instruction)


def words(goal: str) -> str:
    """A goal in lower case, words and numbers only."""
    kept = (c if c == "_" or c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in goal.lower())
    return " ".join("".join(kept).split())
