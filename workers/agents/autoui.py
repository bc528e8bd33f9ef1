"""The AutoUI agent: the prompt and the action text of AutoUI, DigiRL and DistRL.

An action is written as four quoted fields; points are `[y, x]` fractions of the screen, y first, and −1 where
an action has none:

    "action_type": "DUAL_POINT", "touch_point": "[0.31, 0.52]", "lift_point": "[0.31, 0.52]", "typed_text": ""

A DUAL_POINT is a tap when touch and lift are less than `TAP_DISTANCE` apart, else a swipe. The other types
are TYPE, PRESS_BACK, PRESS_HOME, PRESS_ENTER, STATUS_TASK_COMPLETE, STATUS_TASK_IMPOSSIBLE and, beyond
AutoUI, LONG_PRESS (at the touch point) and WAIT. Typed text is escaped as in JSON.

Prompts and answers are written in one of three notations, and answers are read in all of them:

    compact   step 1 last ACTION Goal: turn on wi-fi                        ACTION, points with two decimals
    autoui    Previous Actions: ACTION ACTION Goal: Turn on Wi-Fi           Action Plan: [TYPE] ; Action
                                                                            Decision: ACTION, four decimals
    digirl    the same with zeros up to four decimals, </s> at the end      the same

The last two are what the checkpoints of Auto-UI and of DigiRL were trained on (`load_data` of cooelf/Auto-UI,
`autoui_prepare_prompt` of DigiRL-agent/digirl). Their typed text has neither quotes nor backslashes. The plan
of a demonstration is its one action: what comes after it is not known when it is written.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence

from distrl.core.actions import Action, ActionKind
from distrl.core.errors import ConfigError
from distrl.core.types import Chat, ChatMessage, ImagePart, Observation, TextPart, TimeStep
from distrl.workers.agents.base import Prompt
from distrl.workers.agents.notation import NoAction, read_action, whole

TAP_DISTANCE = 0.04
"""Touch and lift closer than this are a tap (Euclidean, in fractions of the screen; AitW's threshold)."""

LAST_STEP_WORD = 40  # later steps are called by this number, so that the prompt's vocabulary is finite
REMEMBERED_CHARS = 24  # how much of a typed text the prompt repeats
NO_ACTION = "none"

NOTATIONS = ("compact", "autoui", "digirl")

_UNTYPED = str.maketrans("", "", "\\\"'")  # what AutoUI's data leaves out of typed text
_KINDS = {
    "PRESS_BACK": ActionKind.BACK,
    "PRESS_HOME": ActionKind.HOME,
    "PRESS_ENTER": ActionKind.ENTER,
    "STATUS_TASK_COMPLETE": ActionKind.COMPLETE,
    "STATUS_TASK_IMPOSSIBLE": ActionKind.IMPOSSIBLE,
    "WAIT": ActionKind.WAIT,
}
_TYPE_NAMES = {kind: name for name, kind in _KINDS.items()} | {
    ActionKind.TAP: "DUAL_POINT",
    ActionKind.SWIPE: "DUAL_POINT",
    ActionKind.LONG_PRESS: "LONG_PRESS",
    ActionKind.TYPE: "TYPE",
}
KINDS = frozenset(_TYPE_NAMES)  # the kinds of actions that this notation has words for
_PLAN = re.compile(r"\s*Action Plan:.*?Action Decision:", re.DOTALL)
_FIELD = re.compile(r'"(\w+)"\s*:\s*"((?:[^"\\]|\\.)*)"', re.DOTALL)
_POINT = re.compile(r"\s*\[\s*([^,\s]+)\s*,\s*([^,\s]+)\s*\]\s*")


class AutoUIAgent:
    """Stateless agent in AutoUI's notation.

    The compact prompt is short for small policies: the number of the step, the last few actions in full
    (oldest first; AutoUI's "Previous Actions") and the goal in lower case.

    Args:
        history: How many previous actions the prompt names; 0 leaves them out.
        notation: How prompts and answers are written, see above.
        images: How many screenshots the prompt shows at most: the present one, last, and those before it.
    """

    def __init__(self, history: int = 1, notation: str = "compact", images: int = 1) -> None:
        if history < 0:
            raise ValueError(f"history must be 0 or more, not {history}")
        if notation not in NOTATIONS:
            raise ValueError(f"notation must be one of {', '.join(NOTATIONS)}, not {notation!r}")
        if images < 1:
            raise ValueError(f"images must be 1 or more, not {images}")
        self.history, self.notation, self.images = history, notation, images

    def prompt(
        self, goal: str, screen: Observation, history: Sequence[TimeStep], said: Sequence[Chat] = ()
    ) -> Prompt:
        """One user message: the screenshots, then the previous actions and the goal."""
        earlier = history[len(history) - min(len(history), self.images - 1) :]
        shown = [*(step.observation.image for step in earlier), screen.image]
        told = [self._remember(step) for step in history[-self.history :]] if self.history else []
        text = (
            self._compact(goal, len(history), told) if self.notation == "compact" else self._asked(goal, told)
        )
        parts = (*(ImagePart(digest=digest) for digest in shown), TextPart(text=text))
        return Prompt((ChatMessage(role="user", parts=parts),))

    def _compact(self, goal: str, step: int, told: Sequence[str]) -> str:
        words = ["step", str(min(step, LAST_STEP_WORD))]
        if self.history:
            words += ["last", *(told or [NO_ACTION])]
        return f"{' '.join(words)} Goal: {goal.lower()}"

    def _asked(self, goal: str, told: Sequence[str]) -> str:
        """AutoUI's prompt; it has no line breaks, and words are one space apart."""
        previous = ["Previous Actions:", *told] if self.history else []
        end = "</s>" if self.notation == "digirl" else ""
        return " ".join(" ".join([*previous, "Goal:", goal]).split()) + end

    def _remember(self, step: TimeStep) -> str:
        """What the prompt says of an earlier action: of an invalid one that; compact, of a text its start."""
        action = Action(**step.action.model_dump())
        if action.kind is ActionKind.INVALID:
            return ActionKind.INVALID.value
        if self.notation == "compact":
            action = action.model_copy(update={"text": action.text[:REMEMBERED_CHARS]})
        return self._fields(action)

    def parse(self, text: str, screen: Observation | None = None) -> Action:
        """The action that `text` means; INVALID, with the reason, for everything that is not an action.

        A leading plan is skipped, and so are unknown fields; of fields given twice the first counts.
        """
        return read_action(_read, text, kept_chars=200)

    def format(self, action: Action, screen: Observation | None = None) -> str:
        """The canonical text of `action`; an INVALID action's own text is given back.

        A swipe shorter than `TAP_DISTANCE` reads as a tap. Raises ConfigError for a kind without a notation.
        """
        if action.kind is ActionKind.INVALID:
            return action.text
        if action.kind not in KINDS:
            raise ConfigError(
                f"AutoUI's notation has no action {action.kind.value!r}.", "Choose another agent, agent.kind."
            )
        if self.notation == "compact":
            return self._fields(action)
        return f"Action Plan: [{_TYPE_NAMES[action.kind]}] ; Action Decision: {self._fields(action)}"

    def _fields(self, action: Action) -> str:
        touch = lift = (-1.0, -1.0)
        if action.point is not None:
            touch, lift = action.point, action.to or action.point
        typed = action.text if action.kind is ActionKind.TYPE else ""
        fields = {
            "action_type": _TYPE_NAMES[action.kind],
            "touch_point": self._point_text(touch),
            "lift_point": self._point_text(lift),
            "typed_text": typed if self.notation == "compact" else typed.translate(_UNTYPED),
        }
        return ", ".join(
            f'"{name}": {json.dumps(value, ensure_ascii=False)}' for name, value in fields.items()
        )

    def _point_text(self, point: tuple[float, float]) -> str:
        if point == (-1.0, -1.0):
            return "[-1.0, -1.0]"
        x, y = point
        if self.notation == "autoui":
            return f"[{round(y, 4)}, {round(x, 4)}]"
        places = 2 if self.notation == "compact" else 4
        return f"[{y:.{places}f}, {x:.{places}f}]"


def vocabulary() -> list[str]:
    """The words that the prompt adds beyond the goal's, for tokenizers that are built from word lists."""
    numbers = [str(number) for number in range(LAST_STEP_WORD + 1)]
    return ["step", "last", "Goal:", NO_ACTION, ActionKind.INVALID.value, *numbers]


def _read(text: str) -> Action:
    plan = _PLAN.match(text)
    fields: dict[str, str] = {}
    for match in _FIELD.finditer(text, plan.end() if plan else 0):
        fields.setdefault(match[1], match[2])
    name = _required(fields, "action_type")
    if name in _KINDS:
        return Action(kind=_KINDS[name])
    if name == "TYPE":
        return Action.type_text(_typed_text(fields))
    if name == "LONG_PRESS":
        return Action(kind=ActionKind.LONG_PRESS, point=_point(fields, "touch_point"))
    if name == "DUAL_POINT":
        touch, lift = _point(fields, "touch_point"), _point(fields, "lift_point")
        if math.dist(touch, lift) < TAP_DISTANCE:
            return Action.tap(*touch)
        return Action.swipe(touch, lift)
    raise NoAction(f"unknown action_type {name[:40]!r}")


def _required(fields: dict[str, str], name: str) -> str:
    if name not in fields:
        raise NoAction(f"no {name}")
    return fields[name]


def _typed_text(fields: dict[str, str]) -> str:
    raw = _required(fields, "typed_text")
    try:
        typed = json.loads(f'"{raw}"', strict=False)
    except ValueError:
        typed = raw  # A lone backslash that is no JSON escape stands for itself.
    if not typed:
        raise NoAction("TYPE with an empty typed_text")
    return whole(str(typed), "typed_text")


def _point(fields: dict[str, str], name: str) -> tuple[float, float]:
    raw = _required(fields, name)
    match = _POINT.fullmatch(raw)
    if match is None:
        raise NoAction(f"{name} {raw[:40]!r} is not [y, x]")
    try:
        y, x = float(match[1]), float(match[2])
    except ValueError:
        raise NoAction(f"{name} {raw[:40]!r} holds no numbers") from None
    if not (0.0 <= y <= 1.0 and 0.0 <= x <= 1.0):
        raise NoAction(f"{name} {raw[:40]!r} is not on the screen")
    return x, y
