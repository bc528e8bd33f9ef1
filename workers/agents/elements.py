"""The agent that reads: the screen's elements as text, and actions that name an element by its number.

A prompt has the goal, the last actions and a line for each element, and no picture:

    Goal: "Turn on Wi-Fi"
    Step 2, app settings, the last action changed nothing
    Last: tap ViewGroup "Network & internet" #row_network
    0 TextView "Network & internet" #title at 67 40 844 130
    1 ViewGroup ("Wi-Fi") #row_wifi [clickable] at 44 135 956 225
    2 Switch #switch_widget [unchecked] in 1 at 800 150 900 210

After a class come the text, in parentheses the description, the id, what is known of its state and use, the
number of the element around it, and left, top, right and bottom in thousandths of the screen. Answers are:

    tap 1 | long_press 1 | double_tap 1     the middle of an element
    swipe up 1 | swipe up                   a finger that moves over an element, or over the screen
    drag 1 2                                from the middle of one to the middle of the other
    slide 1 90                              a touch at 90% of a slider
    type "text" | open_app "name" | answer "text"
    back | home | enter | wait | complete | impossible

The functions without the agent are for other agents that name elements by their numbers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence

from distrl.core.actions import Action, ActionKind, Point
from distrl.core.errors import ConfigError
from distrl.core.types import Chat, ChatMessage, Element, Observation, TextPart, TimeStep
from distrl.workers.agents.base import Prompt
from distrl.workers.agents.notation import NoAction, read_action, whole

MAX_ELEMENTS = 256
"""Elements that a prompt lists, the first ones of the screen."""
MAX_CHARS = 80
"""How much of a text is shown."""
ON_ELEMENTS = {kind.value: kind for kind in (ActionKind.TAP, ActionKind.DOUBLE_TAP, ActionKind.LONG_PRESS)}
WITH_TEXT = {kind.value: kind for kind in (ActionKind.TYPE, ActionKind.OPEN_APP, ActionKind.ANSWER)}
PLAIN = {
    kind.value: kind
    for kind in (
        *(ActionKind.BACK, ActionKind.HOME, ActionKind.ENTER, ActionKind.WAIT),
        *(ActionKind.COMPLETE, ActionKind.IMPOSSIBLE),
    )
}
DIRECTIONS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
_SWIPED = 0.6  # the share of an element that a swipe crosses
_SCREEN = (0.0, 0.15, 1.0, 0.85)  # where a swipe over the screen is made, away from the system's edges
_CENTRED = 0.02  # a drag begins and ends this near to the middle of an element
_SLIDERS = ("SeekBar", "Slider")
_SLIDER_STEP = 10  # percent
_USABLE = frozenset({"clickable", "long_clickable", "editable"})
_NAME = re.compile(r"[^\w.:-]+")


# ---- elements and points ----


def centre(element: Element) -> Point:
    """The middle of an element."""
    left, top, right, bottom = element.bounds
    return (left + right) / 2, (top + bottom) / 2


def element_at(elements: Sequence[Element], point: Point) -> int | None:
    """The number of what a touch at `point` is meant for, None if nothing is there.

    It is the topmost element there that can be used, which a list has last; else the smallest one.
    """
    around = _around(elements, point)
    usable = [place for place in around if not _USABLE.isdisjoint(elements[place].flags)]
    return usable[-1] if usable else _smallest(elements, around)


def number_for(elements: Sequence[Element], point: Point) -> int | None:
    """The number of the element at `point`, if a touch of its middle means the same as one at `point`."""
    place = element_at(elements, point)
    if place is None or elements[place].class_name.endswith(_SLIDERS):
        return None
    return place if element_at(elements, centre(elements[place])) == place else None


def scrolling_at(elements: Sequence[Element], *points: Point) -> int | None:
    """The number of the smallest scrollable element with all `points`, None if there is none."""
    around = _around(elements, *points)
    return _smallest(elements, [place for place in around if "scrollable" in elements[place].flags])


def numbered(elements: Sequence[Element], number: float) -> Element:
    """The element with a number. Raises NoAction if there is none."""
    if not (0 <= number < len(elements) and number == int(number)):
        raise NoAction(f"there is no UI element {number:g}; {len(elements)} are listed")
    return elements[int(number)]


def _around(elements: Sequence[Element], *points: Point) -> list[int]:
    return [
        place
        for place, one in enumerate(elements)
        if all(one.bounds[0] <= x <= one.bounds[2] and one.bounds[1] <= y <= one.bounds[3] for x, y in points)
    ]


def _smallest(elements: Sequence[Element], places: Iterable[int]) -> int | None:
    def area(place: int) -> tuple[float, int]:
        left, top, right, bottom = elements[place].bounds
        return (right - left) * (bottom - top), -place

    return min(places, key=area, default=None)


def element_lines(elements: Sequence[Element]) -> list[str]:
    """A line for each element, see above."""
    return [f"{place} {_line(element)}" for place, element in enumerate(elements)]


def _line(element: Element) -> str:
    parts = [_identified(element)]
    if element.flags:
        parts.append(f"[{','.join(element.flags)}]")
    if element.parent >= 0:
        parts.append(f"in {element.parent}")
    left, top, right, bottom = (round(1000 * edge) for edge in element.bounds)
    return f"{' '.join(parts)} at {left} {top} {right} {bottom}"


def _identified(element: Element) -> str:
    name = _NAME.sub("_", element.resource_id)
    return f"{named(element)} #{name}" if name else named(element)


def named(element: Element) -> str:
    """Its class, text and description."""
    parts = [_NAME.sub("_", element.class_name) or "element"]
    if element.text:
        parts.append(_quoted(element.text[:MAX_CHARS]))
    if element.description:
        parts.append(f"({_quoted(element.description[:MAX_CHARS])})")
    return " ".join(parts)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


# ---- the agent ----


class ElementsAgent:
    """Stateless agent whose prompts list the elements of the screen.

    Args:
        history: How many previous actions the prompt names.
    """

    needs_elements = True

    def __init__(self, history: int = 3) -> None:
        if history < 0:
            raise ValueError(f"history must be 0 or more, not {history}")
        self.history = history

    def prompt(
        self, goal: str, screen: Observation, history: Sequence[TimeStep], said: Sequence[Chat] = ()
    ) -> Prompt:
        """One user message of text."""
        step = f"Step {len(history) + 1}"
        if screen.app:
            step += f", app {_NAME.sub('_', screen.app)}"
        if history and screen.elements and history[-1].observation.elements == screen.elements:
            step += ", the last action changed nothing"
        lines = [f"Goal: {_quoted(goal)}", step]
        lines += [f"Last: {self._remember(one)}" for one in history[max(0, len(history) - self.history) :]]
        lines += element_lines((screen.elements or ())[:MAX_ELEMENTS]) or ["This screen lists no elements."]
        part = TextPart(text="\n".join(lines))
        return Prompt((ChatMessage(role="user", parts=(part,)),))

    def _remember(self, step: TimeStep) -> str:
        """An earlier action with what it was done to."""
        action, elements = Action(**step.action.model_dump()), step.observation.elements or ()
        if action.kind is ActionKind.INVALID or action.kind.value in PLAIN:
            return action.kind.value
        if action.kind.value in WITH_TEXT:
            return f"{action.kind.value} {_quoted(action.text[: 2 * MAX_CHARS])}"
        kind, *words = self.format(action, step.observation).split()
        numbers = words[:1] if kind == "slide" else words
        names = [_identified(elements[int(word)]) if word.isdecimal() else word for word in numbers]
        return " ".join([kind, *names, *words[len(numbers) :]])

    def parse(self, text: str, screen: Observation) -> Action:
        """The action that `text` means on `screen`; INVALID, with the reason, for everything else."""
        return read_action(lambda text: _read(text, screen.elements or ()), text, kept_chars=200)

    def format(self, action: Action, screen: Observation) -> str:
        """The text of `action`, at the element that it touches; an INVALID action's own text is given back.

        A touch where there is no element is written without a number, which is not a valid answer. Raises
        ConfigError for a kind without a notation.
        """
        kind, elements = action.kind.value, screen.elements or ()
        if action.kind is ActionKind.INVALID:
            return action.text
        if kind in PLAIN:
            return kind
        if kind in WITH_TEXT:
            return f"{kind} {_quoted(action.text)}"
        if kind in ON_ELEMENTS and action.point is not None:
            place = element_at(elements, action.point)
            if place is None:
                return kind
            if kind == "tap" and elements[place].class_name.endswith(_SLIDERS):
                return f"slide {place} {_share(elements[place], action.point)}"
            return f"{kind} {place}"
        if action.kind is ActionKind.SWIPE and action.point is not None and action.to is not None:
            return _swipe_text(elements, action.point, action.to)
        raise ConfigError(
            f"The agent 'elements' has no action {kind!r}.", "Choose another agent, agent.kind."
        )


def _share(slider: Element, point: Point) -> int:
    """Where a slider is touched, in percent."""
    left, _, right, _ = slider.bounds
    return _SLIDER_STEP * round(100 / _SLIDER_STEP * (point[0] - left) / (right - left))


def _swipe_text(elements: Sequence[Element], start: Point, end: Point) -> str:
    """A swipe in a scrolling element, a drag between two elements, or a swipe of what it is made in."""
    x, y = end[0] - start[0], end[1] - start[1]
    direction = ("right" if x > 0 else "left") if abs(x) > abs(y) else ("down" if y > 0 else "up")
    place = scrolling_at(elements, start, end)
    ends = [
        _smallest(elements, [n for n in _around(elements, p) if math.dist(centre(elements[n]), p) < _CENTRED])
        for p in (start, end)
    ]
    if place is None and None not in ends and ends[0] != ends[1]:
        return f"drag {ends[0]} {ends[1]}"
    if place is None:
        place = _smallest(elements, _around(elements, start, end))
    return f"swipe {direction}" if place is None else f"swipe {direction} {place}"


def _read(text: str, elements: Sequence[Element]) -> Action:
    kind, _, rest = text.strip().partition(" ")
    if kind in PLAIN and not rest:
        return Action(kind=PLAIN[kind])
    if kind in WITH_TEXT:
        return Action(kind=WITH_TEXT[kind], text=_text(rest))
    words = rest.split()
    if kind in ON_ELEMENTS and len(words) == 1:
        return Action(kind=ON_ELEMENTS[kind], point=_middle(words[0], elements))
    if kind == "drag" and len(words) == 2:
        start, end = (_middle(word, elements) for word in words)
        return Action.swipe(start, end)
    if kind == "slide" and len(words) == 2:
        element = _element(words[0], elements)
        left, _, right, _ = element.bounds
        share = min(0.98, max(0.02, _number(words[1]) / 100))
        return Action.tap(left + share * (right - left), centre(element)[1])
    if kind == "swipe" and words and words[0] in DIRECTIONS and len(words) <= 2:
        return _swipe(DIRECTIONS[words[0]], _element(words[1], elements).bounds if words[1:] else _SCREEN)
    raise NoAction(f"{text[:40]!r} is not an action")


def _swipe(direction: tuple[int, int], bounds: tuple[float, float, float, float]) -> Action:
    left, top, right, bottom = bounds
    middle = (left + right) / 2, (top + bottom) / 2
    reach = direction[0] * (right - left) * _SWIPED / 2, direction[1] * (bottom - top) * _SWIPED / 2
    return Action.swipe(
        (middle[0] - reach[0], middle[1] - reach[1]), (middle[0] + reach[0], middle[1] + reach[1])
    )


def _number(word: str) -> int:
    if not word.isdecimal() or len(word) > 4:
        raise NoAction(f"{word[:20]!r} is not a number")
    return int(word)


def _element(word: str, elements: Sequence[Element]) -> Element:
    return numbered(elements, _number(word))


def _middle(word: str, elements: Sequence[Element]) -> Point:
    return centre(_element(word, elements))


def _text(quoted: str) -> str:
    try:
        text = json.loads(quoted, strict=False)
    except ValueError:
        text = None
    if not isinstance(text, str) or not text:
        raise NoAction(f"{quoted[:40]!r} is not a text in double quotes")
    return whole(text, "the text")
