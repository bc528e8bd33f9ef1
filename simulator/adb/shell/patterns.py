"""Shell patterns: `*`, `?`, `[…]` against strings and against the file tree."""

from __future__ import annotations

import re

from distrl.simulator.adb.files import Files
from distrl.simulator.adb.shell import brackets

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


def regex(pieces: list[Piece]) -> str:
    """The pattern as a regular expression."""
    return "".join(_regex(text) if unquoted else re.escape(text) for text, unquoted in pieces)


def _regex(text: str) -> str:
    out, at = [], 0
    while at < len(text):
        char = text[at]
        if char == "*":
            out.append(".*")
        elif char == "?":
            out.append(".")
        elif char == "[" and (end := brackets.end_of(text, at, ("!", "^"))):
            out.append(_set(text[at:end]))
            at = end
            continue
        else:
            out.append(re.escape(char))
        at += 1
    return "".join(out)


def _set(text: str) -> str:
    """A bracket expression; one that makes no sense, such as `[z-a]`, stands for its own letters."""
    made = brackets.in_python(text, ("!", "^"))
    try:
        re.compile(made)
    except re.error:
        return re.escape(text)
    return made


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
