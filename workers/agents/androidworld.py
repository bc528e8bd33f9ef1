"""An agent for AndroidWorld and other phones: it reasons in words, then acts by one JSON object.

    Reason: The contact has no number yet, so I tap the field for it.
    Action: {"action_type": "click", "x": 512, "y": 310}

Points are whole numbers from 0 to `coordinates` − 1 across and down, as many vision-language models write
them.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from typing import Any

from distrl.core.actions import Action, ActionKind
from distrl.core.types import Observation, TimeStep
from distrl.workers.agents.chat_agent import ChatAgent, Mode
from distrl.workers.agents.json_action import read, write
from distrl.workers.agents.notation import KEPT_CHARS, Grid, NoAction, encodable

MAX_TEXT_CHARS = 20_000
"""Longer model outputs are refused unread."""

INSTRUCTIONS = """You operate an Android phone for a user. At each step you see the phone's screen; answer \
with one action. Coordinates are whole numbers: x from 0 (left) to {max_x} (right), y from 0 (top) to \
{max_y} (bottom). The actions are:
- Tap: {{"action_type": "click", "x": <x>, "y": <y>}}; likewise "double_tap" and "long_press".
- Type: {{"action_type": "input_text", "text": <text>, "x": <x>, "y": <y>}} taps the field and types into \
it; without x and y it types where the cursor is.
- Press Enter: {{"action_type": "keyboard_enter"}}
- See more of the screen: {{"action_type": "scroll", "direction": <"up", "down", "left" or "right">}}; \
"down" shows what is further down. "swipe" goes across the whole screen; its "up" and "down" are the other \
way round.
- Go to the home screen: {{"action_type": "navigate_home"}}
- Go back: {{"action_type": "navigate_back"}}
- Open an app: {{"action_type": "open_app", "app_name": <name>}}
- Wait for the screen: {{"action_type": "wait"}}
- Tell the user the answer to a question: {{"action_type": "answer", "text": <answer>}}; do so before you \
finish.
- Finish: {{"action_type": "status", "goal_status": "complete"}}, or "infeasible" if it cannot be done.
Write the reason first, then the action, as in:
Reason: <why>
Action: <JSON>"""


class AndroidWorldAgent(ChatAgent):
    """Stateless agent that writes AndroidWorld's JSON actions.

    Args:
        mode: How earlier steps are told, "history" or "incremental"; see `ChatAgent`.
        coordinates: How many numbers an axis has, 1000 for 0 to 999; or [across, down], for a model that
            writes pixels of the screenshot.
        history: How many earlier steps are told at most in mode "history", the latest ones.
        reason_chars: How much of an earlier reason is repeated there.
    """

    def __init__(
        self,
        mode: Mode = "history",
        coordinates: int | Sequence[int] = 1000,
        history: int = 50,
        reason_chars: int = 200,
    ) -> None:
        super().__init__(mode, history, reason_chars)
        axes = [coordinates, coordinates] if isinstance(coordinates, int) else list(coordinates)
        if len(axes) != 2 or not all(isinstance(axis, int) and 2 <= axis <= 100_000 for axis in axes):
            raise ValueError(f"coordinates must be a number from 2 to 100000, or two, not {coordinates!r}")
        self.grid = Grid(*axes)
        self._instructions = INSTRUCTIONS.format(max_x=self.grid.columns - 1, max_y=self.grid.rows - 1)

    def system(self, screen: Observation) -> str:
        """The actions, and the form of an answer."""
        return self._instructions

    def question(self, goal: str, told: Sequence[str], number: int) -> str:
        """The goal and the earlier steps."""
        lines = "\n".join(told) if told else "Nothing yet."
        return f"Goal: {goal}\n\nWhat you have done so far:\n{lines}\n\nStep {number + 1}. The screen now:"

    def opening(self, goal: str) -> str:
        """The goal."""
        return f"Goal: {goal}\n\nStep 1. The screen:"

    def line(self, step: TimeStep) -> str:
        """The reason's start and the action, or why it was none."""
        action = Action(**step.action.model_dump())
        if action.kind is ActionKind.INVALID:
            return f"not an action ({action.reason})"
        reason = " ".join(reason_of(self.answer(step)).split())[: self.line_chars]
        done = json.dumps(write(action, self.grid), ensure_ascii=False)
        return f"{reason} {done}" if reason else done

    def parse(self, text: str, screen: Observation | None = None) -> Action:
        """The action in `text`; INVALID, with the reason and the text, for everything that is no action.

        It is the first JSON object behind the last "Action:", or in the whole text where that does not occur.
        A Python dictionary (single quotes) is read too.
        """
        try:
            return read(_object(text), self.grid)
        except NoAction as problem:
            return Action.invalid(encodable(text[:KEPT_CHARS]), encodable(str(problem)))

    def format(self, action: Action, screen: Observation | None = None) -> str:
        """The text of `action` without a reason; an INVALID action's own text is given back."""
        if action.kind is ActionKind.INVALID:
            return action.text
        return f"Action: {json.dumps(write(action, self.grid), ensure_ascii=False)}"


def reason_of(text: str) -> str:
    """What stands between "Reason:" and the last "Action:", "" if nothing does."""
    before, marker, _ = text.rpartition("Action:")
    return before.partition("Reason:")[2].strip() if marker else ""


def _object(text: str) -> dict[str, Any]:
    """The first JSON object behind the last "Action:"."""
    if len(text) > MAX_TEXT_CHARS:
        raise NoAction(f"the text has {len(text)} characters, more than {MAX_TEXT_CHARS}")
    _, marker, rest = text.rpartition("Action:")
    start = rest.find("{")
    if start < 0:
        raise NoAction("no JSON object behind Action:" if marker else "no JSON object")
    try:
        found = json.JSONDecoder(strict=False).raw_decode(rest, start)[0]
    except (ValueError, RecursionError):
        found = _literal(rest[start : rest.rfind("}") + 1])
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise NoAction("no JSON object with names as keys")
    return found


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise NoAction(f"malformed JSON {text[:40]!r}") from None
