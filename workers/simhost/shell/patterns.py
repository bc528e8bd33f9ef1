"""Shell patterns: `*`, `?`, `[…]` against strings and against the file tree."""

from __future__ import annotations

import re

from distrl.workers.simhost.files import Files

Piece = tuple[str, bool]
"""Some text, and whether it was unquoted: only then its wildcards count."""
MAX_MATCHES = 20_000
"""Most files that one pattern stands for; beyond it the pattern stands for itself."""


def active(pieces: list[Piece]) -> bool:
    """Whether there is a wildcard that counts."""
    return any(unquoted and any(char in "*?[" for char in text) for text, unquoted in pieces)


def literal(pieces: list[Piece]) -> str:
    """The text itself."""
    return "".join(text for text, _ in pieces)


def regex(pieces: list[Piece], greedy: bool = True) -> str:
    """The pattern as a regular expression."""
    return "".join(_regex(text, greedy) if unquoted else re.escape(text) for text, unquoted in pieces)


def _regex(text: str, greedy: bool) -> str:
    out, at = [], 0
    while at < len(text):
        char = text[at]
        if char == "*":
            out.append(".*" if greedy else ".*?")
        elif char == "?":
            out.append(".")
        elif char == "[":
            end = text.find("]", at + 2)
            if end > 0:
                out.append(_set(text[at + 1 : end]))
                at = end
            else:
                out.append(r"\[")
        else:
            out.append(re.escape(char))
        at += 1
    return "".join(out)


_CLASSES = {
    "[:alpha:]": "a-zA-Z",
    "[:digit:]": "0-9",
    "[:alnum:]": "a-zA-Z0-9",
    "[:lower:]": "a-z",
    "[:upper:]": "A-Z",
    "[:space:]": r"\s",
}


def _set(inside: str) -> str:
    negated = inside[:1] in ("!", "^")
    body = inside[1:] if negated else inside
    for name, characters in _CLASSES.items():
        body = body.replace(name[1:-1], characters)
    escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", body)
    try:
        re.compile(f"[{escaped}]")
    except re.error:
        return re.escape(f"[{inside}]")
    return f"[{'^' if negated else ''}{escaped}]"


def matches(pieces: list[Piece], text: str) -> bool:
    """Whether all of `text` fits the pattern."""
    return re.fullmatch(regex(pieces), text, re.S) is not None


def paths(pieces: list[Piece], files: Files, cwd: str) -> list[str]:
    """The paths that the pattern stands for, in order; empty when there are none."""
    parts: list[list[Piece]] = [[]]
    for text, unquoted in pieces:
        for place, piece in enumerate(text.split("/")):
            if place:
                parts.append([])
            if piece:
                parts[-1].append((piece, unquoted))
    found = [""]
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        found = [path for base in found for path in _step(base, part, last, files, cwd)]
        if len(found) > MAX_MATCHES:
            return []
    return found


def _step(base: str, part: list[Piece], last: bool, files: Files, cwd: str) -> list[str]:
    """The paths that `part` adds to `base`, which ends in "/" or is empty."""
    end = "" if last else "/"
    if not part:
        return [base + end] if base or end else []
    if not active(part):
        path = base + literal(part)
        absolute = path if path.startswith("/") else f"{cwd}/{path}"
        return [path + end] if files.exists(absolute) else []
    folder = base if base.startswith("/") else f"{cwd}/{base}"
    try:
        entries = files.list(folder)
    except OSError:
        return []
    hidden = literal(part).startswith(".")
    names = [name for name, _ in entries if (hidden or not name.startswith(".")) and matches(part, name)]
    return [f"{base}{name}{end}" for name in names if last or _is_dir(files, f"{folder.rstrip('/')}/{name}")]


def _is_dir(files: Files, path: str) -> bool:
    try:
        return files.stat(path).is_dir
    except OSError:
        return False
