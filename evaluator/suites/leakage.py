"""What tasks to be measured share with tasks that are trained on, and goals that read almost the same."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from distrl.core.types import Task
from distrl.evaluator.suites.wording import folded, words

RULES: dict[str, str] = {
    "tasks": "the same template and parameters",
    "goals": "the same goal, up to case, quotes and punctuation at its end",
    "params": "the same template and parameters on another layout",
    "phrasings": "the same wording of a goal",
}
"""What two sets of tasks can share, and how it is said."""
DEFAULT_RULES = ("tasks", "goals")
PLACE_PARAMS = frozenset({"layout", "interruptions"})
"""Parameters that say where a task is set and not what it is."""
_GRAM = 3

Phrasing = Callable[[Task], str]


@dataclass(frozen=True)
class Pair:
    """A task to be measured, one that is trained on, and how alike their goals are (1: the same)."""

    measured: Task
    trained: Task
    similarity: float = 1.0


@dataclass(frozen=True)
class Leakage:
    """What was found.

    Attributes:
        shared: For each of `RULES`, the measured tasks that share it, each with one that is trained on.
        near: Measured tasks whose goal reads almost like one that is trained on, most alike first.
    """

    shared: Mapping[str, list[Pair]]
    near: list[Pair]

    def broken(self, rules: Iterable[str]) -> list[str]:
        """Those of `rules` that are broken; near-duplicates alone break none."""
        return [rule for rule in rules if self.shared[rule]]


def masked(task: Task) -> str:
    """A goal's wording: what its parameters say, and every number, replaced by a star."""
    wording = words(task.goal)
    texts = [words(str(value)) for key, value in task.params.items() if key not in PLACE_PARAMS]
    for text in sorted(filter(None, texts), key=len, reverse=True):
        wording = re.sub(rf"(?<!\S){re.escape(text)}(?!\S)", "*", wording)
    return re.sub(r"\b\d+\b", "*", wording)


def _keys(rule: str, phrasing: Phrasing) -> Callable[[Task], str]:
    """What a task must not share with another under a rule, as text."""

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
        similar: Least similarity of goals that are reported as near-duplicates, in (0, 1].
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
    """Tasks without parameters have nothing but their goal to be compared by."""
    return rule in ("goals", "phrasings") or bool(set(task.params) - PLACE_PARAMS)


def _grams(text: str) -> frozenset[str]:
    padded = f" {text} "
    return frozenset(padded[at : at + _GRAM] for at in range(len(padded) - _GRAM + 1))


def _near(trained: Sequence[Task], measured: Sequence[Task], similar: float) -> list[Pair]:
    """Pairs of different goals by the Dice coefficient of their letter triples, the nearest of each."""
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
