"""What the local judge reads of an episode, in words.

    goal     the goal's words, each with its place: `turn qa on qb bluetooth qc`
    app      the words of the app in front
    actions  the last ones: kind, and the words typed, or of the element touched and its state then
    screen   the elements of the last screen with their states
    earlier  elements of earlier screens that share a word with the goal

A word of the goal is written as its place wherever else it appears, and words that are in few tasks are left
out (`Vocabulary`). So what counts of a name is where it appears, and goals never seen before can be judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase

from distrl.core.types import Element, TimeStep, Trajectory
from distrl.evaluator.judges.base import acted, screens

PLACES = tuple(f"q{letter}" for letter in ascii_lowercase)
"""The places in the goal, as words that no language has."""
UNKNOWN = "xx"
"""Words that are in few tasks."""
MAX_ACTIONS = 10
MAX_LINES = 32
MAX_EARLIER = 8
MAX_LINE_WORDS = 12
MAX_OTHER_WORDS = 4
"""Words of a line that has none of the goal's."""
REACH = 0.1
"""A touch outside of all elements is of one at most this far away, as a share of the screen."""
ROW = 0.25
"""The largest share of the screen that a row takes; something larger is a container of rows."""
_STATES = {"checked": "checked", "unchecked": "unchecked", "selected": "selected", "focused": "focused"}
_STATES |= {"disabled": "disabled", "editable": "field"}
_EDGES = " .,;:!?\"'()[]…"


def words_of(text: str) -> list[str]:
    """Words and numbers in lower case, without the marks around them: "wi-fi", "7:15"."""
    return [word for part in text.lower().split() if (word := part.strip(_EDGES))]


@dataclass
class _Line:
    """An element with those inside it, such as a row of a list with its title, its summary and its switch."""

    box: tuple[float, float, float, float]
    texts: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)

    def add(self, element: Element) -> None:
        if element.label and element.label not in self.texts:
            self.texts.append(element.label)
        self.states += [_STATES[flag] for flag in element.flags if flag in _STATES]

    @property
    def words(self) -> list[str]:
        return [word for text in self.texts for word in words_of(text)]

    @property
    def area(self) -> float:
        left, top, right, bottom = self.box
        return (right - left) * (bottom - top)

    def distance(self, x: float, y: float) -> float:
        """How far a point is from the box; 0 inside it."""
        left, top, right, bottom = self.box
        return max(left - x, x - right, 0.0) + max(top - y, y - bottom, 0.0)


def _lines(elements: Sequence[Element] | None) -> list[_Line]:
    """The rows of a screen in its order."""
    found: list[_Line] = []
    for element in elements or ():
        if not element.label and _STATES.keys().isdisjoint(element.flags):
            continue
        left, top, right, bottom = element.bounds
        x, y = (left + right) / 2, (top + bottom) / 2
        around = [line for line in found if line.distance(x, y) == 0.0 and line.area <= ROW]
        if not around:
            found.append(_Line(element.bounds))
        (min(around, key=lambda line: line.area) if around else found[-1]).add(element)
    return found


def read_words(trajectory: Trajectory) -> list[str]:
    """The words of an episode; see the module's head."""
    goal = words_of(trajectory.task.goal)[: len(PLACES)]
    places = dict(reversed([*zip(goal, PLACES, strict=False)]))  # of a word that is there twice, the first
    shown = screens(trajectory)
    lines = [_lines(screen.elements) for screen in shown]
    steps = acted(trajectory)
    first = max(0, len(steps) - MAX_ACTIONS)
    app = re.findall(r"[^\W_]+", shown[-1].app.lower())
    found = ["goal", *(one for word in goal for one in (places[word], word)), "app", *_placed(app, places)]
    for index in range(first, len(steps)):
        found += ["action", steps[index].action.kind, *_placed(_meant(steps[index], lines[index]), places)]
    found.append("screen")
    last = sorted(lines[-1], key=lambda line: places.keys().isdisjoint(line.words))[:MAX_LINES]
    for line in lines[-1]:
        if line in last:
            found += _written(line, places)
    found.append("earlier")
    return found + [word for line in _earlier(lines, places) for word in _written(line, places)]


def _earlier(lines: Sequence[Sequence[_Line]], places: dict[str, str]) -> Iterator[_Line]:
    """The newest lines before the last screen that have a word of the goal and were different then."""
    known, count = {(*line.texts, *line.states) for line in lines[-1]}, 0
    for line in (line for screen in reversed(lines[:-1]) for line in screen):
        key = (*line.texts, *line.states)
        if count < MAX_EARLIER and key not in known and not places.keys().isdisjoint(line.words):
            known.add(key)
            count += 1
            yield line


def _meant(step: TimeStep, lines: Sequence[_Line]) -> list[str]:
    """The words typed, else the words and states of what was touched."""
    action = step.action
    if action.text or action.point is None:
        return words_of(action.text)
    near = [(line.distance(*action.point), line.area, at) for at, line in enumerate(lines)]
    distance, _, at = min(near, default=(1.0, 1.0, 0))
    return [*lines[at].words[:MAX_LINE_WORDS], *lines[at].states] if distance <= REACH else []


def _written(line: _Line, places: dict[str, str]) -> list[str]:
    words = line.words
    most = MAX_OTHER_WORDS if places.keys().isdisjoint(words) else MAX_LINE_WORDS
    return ["line", *_placed(words[:most], places), *line.states]


def _placed(words: Iterable[str], places: dict[str, str]) -> list[str]:
    """The words, those of the goal as their places in it."""
    return [places.get(word, word) for word in words]


class Vocabulary:
    """The words that a judge reads. Others are UNKNOWN, once for several in a row; after their place in the
    goal they are left out."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(sorted({*words, *PLACES, UNKNOWN}))
        self._known = frozenset(self.words)

    @classmethod
    def of(cls, episodes: Iterable[tuple[str, Sequence[str]]], least: int, most: int) -> Vocabulary:
        """The `most` words that most tasks have, and at least `least`; of pairs of a task and its words."""
        tasks: dict[str, set[str]] = {}
        for task, words in episodes:
            for word in words:
                tasks.setdefault(word, set()).add(task)
        ordered = sorted(tasks, key=lambda word: (-len(tasks[word]), word))
        return cls(word for word in ordered[:most] if len(tasks[word]) >= least)

    def text(self, words: Sequence[str]) -> str:
        """The prompt of an episode with these words."""
        found = [""]
        for word in words:
            if word in self._known:
                found.append(word)
            elif found[-1] != UNKNOWN and found[-1] not in PLACES:
                found.append(UNKNOWN)
        return " ".join(found[1:])
