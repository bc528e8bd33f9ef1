"""Leakage between splits: tasks, goals and wordings that evaluation shares with training."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from distrl.core.types import Task

RULES: dict[str, str] = {
    "tasks": "the same template and parameters",
    "goals": "the same goal, up to case, quotes and punctuation at its end",
    "params": "the same template and parameters on another layout",
    "phrasings": "the same wording of a goal",
}
"""What two sets of tasks can share, and its description."""
DEFAULT_RULES = ("tasks", "goals")
PLACE_PARAMS = frozenset({"layout", "interruptions"})
"""Parameters of a task's setting, not of its content."""
_GRAM = 3

Phrasing = Callable[[Task], str]


@dataclass(frozen=True)
class Pair:
    """An evaluation task, a training task, and the similarity of their goals (1: the same)."""

    measured: Task
    trained: Task
    similarity: float = 1.0


@dataclass(frozen=True)
class Leakage:
    """Tasks that evaluation shares with training.

    Attributes:
        shared: For each of `RULES`, evaluation tasks that share it, each with a training task.
        near: Evaluation tasks whose goal is similar to a training goal, the most similar first.
    """

    shared: Mapping[str, list[Pair]]
    near: list[Pair]

    def broken(self, rules: Iterable[str]) -> list[str]:
        """The broken ones of `rules`; near-duplicates break none."""
        return [rule for rule in rules if self.shared[rule]]


def masked(task: Task) -> str:
    """A goal's wording: parameter values and numbers are replaced by a star."""
    wording = words(task.goal)
    texts = [words(str(value)) for key, value in task.params.items() if key not in PLACE_PARAMS]
    for text in sorted(filter(None, texts), key=len, reverse=True):
        wording = re.sub(rf"(?<!\S){re.escape(text)}(?!\S)", "*", wording)
    return re.sub(r"\b\d+\b", "*", wording)


def _keys(rule: str, phrasing: Phrasing) -> Callable[[Task], str]:
    """A task's key under a rule, as text: two tasks must not have the same."""

    def params_of(task: Task, without: frozenset[str]) -> str:
        kept = {key: value for key, value in task.params.items() if key not in without}
        return json.dumps([task.template, kept], sort_keys=True)

    return {
        "tasks": lambda task: params_of(task, frozenset()),
        "goals": lambda task: folded(task.goal),
        "params": lambda task: params_of(task, PLACE_PARAMS),
        "phrasings": phrasing,
    }[rule]


def find(
    trained: Sequence[Task],
    measured: Sequence[Task],
    similar: float = 0.9,
    phrasing: Phrasing = masked,
) -> Leakage:
    """Compares two sets of tasks.

    Args:
        similar: Minimum similarity of goals to report as near-duplicates, in (0, 1].
        phrasing: A task's wording without its parameters.
    """
    shared: dict[str, list[Pair]] = {}
    for rule in RULES:
        key = _keys(rule, phrasing)
        known: dict[str, Task] = {}
        for task in trained:
            if _compares(rule, task):
                known.setdefault(key(task), task)
        shared[rule] = [
            Pair(task, known[key(task)]) for task in measured if _compares(rule, task) and key(task) in known
        ]
    return Leakage(shared, _near(trained, measured, similar))


def _compares(rule: str, task: Task) -> bool:
    """Whether a rule applies: tasks without parameters are compared by their goals only."""
    return rule in ("goals", "phrasings") or bool(set(task.params) - PLACE_PARAMS)


def _grams(text: str) -> frozenset[str]:
    padded = f" {text} "
    return frozenset(padded[at : at + _GRAM] for at in range(len(padded) - _GRAM + 1))


def _near(trained: Sequence[Task], measured: Sequence[Task], similar: float) -> list[Pair]:
    """Pairs of different goals by the Dice coefficient of letter triples: the most similar for each task."""
    goals = list({folded(task.goal): task for task in trained}.items())
    grams = [_grams(text) for text, _ in goals]
    holders: dict[str, list[int]] = {}
    for place, found in enumerate(grams):
        for gram in found:
            holders.setdefault(gram, []).append(place)
    pairs = []
    for task in measured:
        text = folded(task.goal)
        asked = _grams(text)
        common = Counter(place for gram in asked for place in holders.get(gram, ()))
        best, at = 0.0, -1
        for place, count in common.items():
            alike = 2 * count / (len(asked) + len(grams[place]))
            if alike > best and goals[place][0] != text:
                best, at = alike, place
        if best >= similar:
            pairs.append(Pair(task, goals[at][1], best))
    return sorted(pairs, key=lambda pair: -pair.similarity)


_QUOTES = str.maketrans(
    dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb", '"')
    | dict.fromkeys("\u2018\u2019\u201a\u201b", "'")
)
_INVISIBLE = str.maketrans("", "", "\u00ad\u200b\u200e\u200f\u2060\ufeff")
"""Soft hyphen, zero-width space, marks of direction, word joiner, byte order mark; no joiners of scripts."""
_QUOTED = re.compile(r"""(?<![^\s(\[])(["'])(?=\S)(.*?)(?<=\S)\1(?=[\s.,;:!?)\]]|$)""")
_END = re.compile(r"(?<=[^\s.,;:?!\u0964\u3002])(?:[.,;:?\u0964\u3002]|(?<!\d)!)+$")

_OTHER = ("<super>", "<sub>", "<fraction>", "<circle>")
"""Characters that NFKC would turn into another number or name: 5\u00b2 is not 52, and 1\u00bd not 11/2."""


def standard(text: str) -> str:
    """One spelling of each character: Unicode NFKC, except for superscripts, subscripts and fractions."""
    kept = (
        c if unicodedata.decomposition(c).startswith(_OTHER) else unicodedata.normalize("NFKC", c)
        for c in text
    )
    return unicodedata.normalize("NFC", "".join(kept))


def folded(instruction: str) -> str:
    """A normal form: the same for instructions that differ only in case, space, quotes or final punctuation.

    Everything else makes a difference: signs ("-5", "C++"), vowel marks, emoji. So does anything that could
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
    """Whether there are letters, digits or symbols, not just space, punctuation and control characters."""
    return any(unicodedata.category(letter)[0] in "LMNS" for letter in instruction)


def words(goal: str) -> str:
    """A goal in lower case, words and numbers only."""
    kept = (c if c == "_" or c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in goal.lower())
    return " ".join("".join(kept).split())
