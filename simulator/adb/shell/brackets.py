"""Bracket expressions such as `[^a-z[:digit:]_]`, which the shell's patterns and grep's share."""

from __future__ import annotations

import re

_CLASSES = {
    "[:alpha:]": "a-zA-Z",
    "[:digit:]": "0-9",
    "[:alnum:]": "a-zA-Z0-9",
    "[:lower:]": "a-z",
    "[:upper:]": "A-Z",
    "[:space:]": r"\s",
    "[:punct:]": r"!-/:-@\[-`{-~",
    "[:blank:]": r" \t",
    "[:xdigit:]": "0-9a-fA-F",
}


def end_of(pattern: str, at: int, negations: tuple[str, ...]) -> int | None:
    """Where the bracket expression ends, behind its `]`; None if it has none.

    Args:
        pattern: The text that it is part of.
        at: Where its `[` is.
        negations: What stands for "none of these" behind that: `^`, in the shell also `!`.
    """
    end = at + 1
    end += pattern.startswith(negations, end)
    end += pattern.startswith("]", end)
    while end < len(pattern) and pattern[end] != "]":
        closing = pattern.find(":]", end + 2) if pattern.startswith("[:", end) else -1
        end = closing + 2 if closing > 0 else end + 1
    return end + 1 if end < len(pattern) else None


def in_python(text: str, negations: tuple[str, ...]) -> str:
    """The bracket expression `text`, all of it, as Python's regular expressions have it."""
    is_negated = text.startswith(negations, 1)
    parts = re.split(r"(\[:\w+:\])", text[1 + is_negated : -1])
    made = "".join(_CLASSES.get(part) or re.sub(r"([\\\[\]&~|^])", r"\\\1", part) for part in parts)
    return f"[{'^' if is_negated else ''}{made}]"
