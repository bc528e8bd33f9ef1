"""Leakage between splits: tasks, goals and wordings that evaluation shares with training."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Sequence

from distrl.core.types import Task

RULES: dict[str, str] = {
    "tasks": "the same template and parameters",
    "goals": "the same goal, up to case, quotes and punctuation at its end",
    "params": "the same template and parameters on another layout",
    "phrasings": "the same wording of a goal",
    "names": "a name or text that the goal is about",
}
"""What two sets of tasks can share, and its description."""
DEFAULT_RULES = ("tasks", "goals")
PLACE_PARAMS = frozenset({"layout", "interruptions"})
"""Parameters of a task's setting, not of its content."""

Phrasing = Callable[[Task], str]
Named = Callable[[Task], Collection[str]]


def nameless(task: Task) -> Collection[str]:
    """For suites that do not say which names a task is about."""
    return ()


def without(text: str, names: Collection[str], mark: str = " ") -> str:
    """A text with `mark` in place of each of `names`, where it is not a part of a word."""
    for name in sorted(filter(None, names), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", mark, text)
    return text


def masked(task: Task) -> str:
    """A goal's wording: parameter values and numbers are replaced by a star."""
    values = [words(str(value)) for key, value in task.params.items() if key not in PLACE_PARAMS]
    return re.sub(r"\b\d+\b", "*", without(words(task.goal), values, "*"))


def _keys(rule: str, phrasing: Phrasing, names: Named) -> Callable[[Task], Collection[str]]:
    """A task's keys under a rule: two tasks must not share one."""

    def params_of(task: Task, skipped: frozenset[str]) -> str:
        kept = {key: value for key, value in task.params.items() if key not in skipped}
        return json.dumps([task.template, kept], sort_keys=True)

    return {
        "tasks": lambda task: [params_of(task, frozenset())],
        "goals": lambda task: [folded(task.goal)],
        "params": lambda task: [params_of(task, PLACE_PARAMS)],
        "phrasings": lambda task: [phrasing(task)],
        "names": names,
    }[rule]


def find(
    trained: Sequence[Task],
    measured: Sequence[Task],
    phrasing: Phrasing = masked,
    names: Named = nameless,
) -> dict[str, list[tuple[Task, Task]]]:
    """For each of `RULES`: the measured tasks that share it, each with a training task.

    Args:
        phrasing: A task's wording without its parameters.
        names: The names that a task is about.
    """
    shared = {}
    for rule in RULES:
        keys = _keys(rule, phrasing, names)
        # Tasks without parameters are compared by their goals only.
        first, then = (
            [task for task in tasks if rule not in ("tasks", "params") or set(task.params) - PLACE_PARAMS]
            for tasks in (trained, measured)
        )
        known = {key: task for task in reversed(first) for key in keys(task)}
        pairs = ((task, [known[key] for key in keys(task) if key in known]) for task in then)
        shared[rule] = [(task, like[0]) for task, like in pairs if like]
    return shared


_QUOTES = str.maketrans(
    dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb", '"')
    | dict.fromkeys("\u2018\u2019\u201a\u201b", "'")
)
_INVISIBLE = str.maketrans("", "", "\u00ad\u200b\u200e\u200f\u2060\ufeff")
"""Soft hyphen, zero-width space, marks of direction, word joiner, byte order mark; no joiners of scripts."""
_QUOTED = re.compile(r"""(?<![^\s(\[])(["'])(?=\S)(.*?)(?<=\S)\1(?=[\s.,;:!?)\]]|$)""")
_END = re.compile(r"(?<=[^\s.,;:?!\u0964\u3002\u2026])(?:[.,;:?\u0964\u3002\u2026]|(?<!\d)!)+$")


def folded(instruction: str) -> str:
    """A normal form: the same for instructions that differ only in case, space, quotes or final punctuation.

    Everything else makes a difference: signs ("-5", "C++"), vowel marks, emoji. So does anything that could
    be a sign: punctuation that stands alone at the end, and "!" after a digit.
    """
    text = unicodedata.normalize("NFC", instruction.translate(_INVISIBLE)).casefold()
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
