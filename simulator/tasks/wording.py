"""Wordings of goals, made by a small grammar and chosen by a seed.

`wordings.txt` has the lines of each family of tasks. "[delete|remove] [the|my] note {title}" stands for four
wordings: brackets hold alternatives, of which one may be empty and which may hold brackets themselves; names
in braces are filled in later and never capitalised, because they may have to be typed. A line that begins
with a small letter is a command, which is also said with one of `FRAMES` around it: "Can you delete my ...?".
"""

from __future__ import annotations

import random
import re
from functools import lru_cache
from pathlib import Path

FRAMES: dict[bool, tuple[str, ...]] = {
    False: (
        *["%s"] * 6,
        "please %s",
        "%s, please",
        "%s now",
        "%s for me",
        "%s, that is all",
        "can you %s?",
        "will you %s for me?",
        "would you please %s?",
        "I want you to %s",
        "I need you to %s",
        "your task is to %s",
        "next, %s",
        "go and %s",
        "help me to %s",
        "the first thing is to %s",
        "my hands are full, so %s",
        "the {thing} is broken, so please %s",
        "I can not find my {thing}, so %s",
        "it is for the {thing}, so could you %s?",
        "I always forget the {thing}, so please %s",
        "I keep dropping my {thing}, so %s",
        "before I get the {thing}, %s",
        "while I look for my {thing}, %s",
        "%s, because I need the {thing}",
        "%s before the {thing} arrives",
        "my {thing} is too old, so %s",
        "now that the {thing} is here, %s",
        "there is no {thing} here, so please %s",
        "the {thing} is for my sister, and now %s",
        "%s, the {thing} can wait",
    ),
    True: ("%s", "%s", "%s", "I would like you to %s", "could you please %s?", "now %s", "you should %s"),
}
"""What is said around a command, in training (False) and where wordings are held out (True).

A {thing} is any: the task is not about it.
"""
_CHOICE = re.compile(r"\[([^\[\]]*)\]")


@lru_cache(maxsize=1)
def _lines() -> dict[str, dict[bool, list[str]]]:
    """The lines of each family: those to train on, and those that are held out."""
    found: dict[str, dict[bool, list[str]]] = {}
    short: dict[str, str] = {}
    family = ""
    for line in Path(__file__).with_name("wordings.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        line = re.sub(r"\$(\w+)\b(?! =)", lambda match: short[match[1]], line)
        if line.startswith("$"):
            name, _, text = line[1:].partition(" = ")
            short[name] = text
        elif line.startswith(" "):
            found[family][line.startswith("  ~")].append(line.lstrip(" ~"))
        elif line:
            family = line
            found[family] = {False: [], True: []}
    return found


def say(family: str, is_held_out: bool, rng: random.Random) -> str:
    """A wording of a family's goals, with the parameters' names in braces."""
    text = rng.choice(_lines()[family][is_held_out])
    while found := _CHOICE.search(text):
        text = text[: found.start()] + rng.choice(found[1].split("|")) + text[found.end() :]
    return _framed(text, rng.choice(FRAMES[is_held_out]))


def _framed(text: str, frame: str) -> str:
    text = re.sub(r" (?=[,:?])", "", " ".join(text.split()))
    if text[0].islower() or text.startswith("{do}"):
        text = frame % text
    return text[0].upper() + text[1:]
