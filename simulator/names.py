"""Names of people, towns, events, files and texts, drawn from a seed: thousands of each of most kinds.

What they are made of is in `names.txt`, whose words are either trained on or held out: a name that evaluation
draws is new as a whole, and so is at least one of its words.
"""

from __future__ import annotations

import random
import re
from collections.abc import Container
from functools import lru_cache
from pathlib import Path

_HELD_OUT = 5
"""Every so many-th word is held out."""
_PART = re.compile(r"\{(\^?)(\w+)\}")
_ARTICLE = re.compile(r"\ba (?=[aeio])")


@lru_cache(maxsize=1)
def _kinds() -> dict[str, tuple[list[str], list[str]]]:
    """The entries of each kind: those of training, and those that are held out."""
    listed: dict[str, list[str]] = {}
    kind = ""
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            listed[kind] += [entry for entry in map(str.strip, line.split(",")) if entry]
        elif line and not line.startswith("#"):
            kind = line
            listed[kind] = []
    made: dict[str, tuple[list[str], list[str]]] = {}
    held: dict[str, bool] = {}
    for kind, entries in listed.items():
        sides: tuple[list[str], list[str]] = [], []
        for place, entry in enumerate(entries):
            if "{" in entry or kind.endswith("*"):
                sides[0].append(entry)
                sides[1].append(entry)
            else:
                is_held = held.setdefault(entry.lower(), place % _HELD_OUT == _HELD_OUT - 1)
                sides[is_held].append(entry)
        made[kind.rstrip("*")] = sides
    return made


class Names(random.Random):
    """A seeded generator that draws names too.

    Odd seeds draw held-out ones, even seeds those of training: so a task's seed also decides of which its
    phone is full.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.is_held_out = seed % 2 == 1

    def name(self, kind: str, without: Container[str] = ()) -> str:
        """A name of a kind of `names.txt`, none of `without`."""
        while (text := self._made(kind)) in without:
            pass
        return text

    def names(self, kind: str, count: int, without: Container[str] = ()) -> list[str]:
        """So many different names."""
        found: dict[str, None] = {}
        while len(found) < count:
            found[self.name(kind, without)] = None
        return list(found)

    def _made(self, kind: str) -> str:
        text = self.choice(_kinds()[kind][self.is_held_out])
        while part := _PART.search(text):
            made = self._made(part[2])
            made = made.capitalize() if part[1] else made
            text = text[: part.start()] + made + text[part.end() :]
        return _ARTICLE.sub("an ", text)
