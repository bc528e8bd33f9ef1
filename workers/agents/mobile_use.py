"""The agent of Qwen2.5-VL and Qwen3-VL for phones: it calls the function `mobile_use`, and may think before.

    Thought: The alarm is set in the clock.
    Action: Open the clock.
    <tool_call>
    {"name": "mobile_use", "arguments": {"action": "open", "text": "Clock"}}
    </tool_call>

The format is that of the models' cookbooks (QwenLM/Qwen3-VL, cookbooks/mobile_agent.ipynb and
utils/agent_function_call.py). What stands in <think> or <thinking> is part of the text that is stored and
learnt, and is skipped when the call is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from distrl.core.actions import Action, ActionKind
from distrl.core.errors import ConfigError
from distrl.core.image_sizes import Resize
from distrl.core.types import Observation, TimeStep
from distrl.workers.agents import mobile_use_tool as tool
from distrl.workers.agents.chat_agent import ChatAgent, Mode
from distrl.workers.agents.model_space import Coordinates, ModelSpace
from distrl.workers.agents.notation import KEPT_CHARS, NoAction, encodable, spoken

MAX_TEXT_CHARS = 200_000
"""Longer model outputs are refused unread; thinking may be long."""

Reasoning = Literal["action", "conclusion", "none"]

SYSTEM = """You are a helpful assistant.

# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> \
XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""

FORMAT = """

# Response format

Response format for every step:
1) Thought: one concise sentence explaining the next move (no multi-step reasoning).
2) Action: a short imperative describing what to do in the UI.
3) A single <tool_call>...</tool_call> block containing only the JSON: {"name": <function-name>, \
"arguments": <args-json-object>}.

Rules:
- Output exactly in the order: Thought, Action, <tool_call>.
- Be brief: one sentence for Thought, one for Action.
- Do not output anything else outside those three parts.
- If finishing, use action=terminate in the tool call."""

CONCLUDE = """Before answering, explain your reasoning step-by-step in <thinking></thinking> tags, and \
insert them before the <tool_call></tool_call> XML tags.
After answering, summarize your action in <conclusion></conclusion> tags, and insert them after the \
<tool_call></tool_call> XML tags.
"""

_CONCLUSION = re.compile(r"<conclusion>(.*?)(?:</conclusion>|\Z)", re.DOTALL)
_ACTION_LINE = re.compile(r"^[ \t]*Action:(.*)$", re.MULTILINE)
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


class MobileUseAgent(ChatAgent):
    """Stateless agent that calls `mobile_use`.

    Args:
        mode: How earlier steps are told, "history" or "incremental"; see `ChatAgent`.
        coordinates: What points are written in: "relative", 0 to 999 across and down (Qwen3-VL), or
            "absolute", pixels of the resized picture (Qwen2.5-VL).
        resize: For "absolute", the values of the model's image processor that differ from the defaults:
            `patch_size`, `merge_size`, `min_pixels`, `max_pixels`; see `Resize`.
        reasoning: What is asked for beside the call: "action", a thought and a line `Action: …` before it
            (Qwen3-VL); "conclusion", <thinking> before it and a <conclusion> after it (Qwen2.5-VL); "none".
        history: How many earlier steps are told at most in mode "history", the latest ones.
        line_chars: How much of an earlier step's summary is repeated there.
        summarise: Whether the model sums up what has happened before each action; mode "history" only.
    """

    line_end = "; "

    def __init__(
        self,
        mode: Mode = "history",
        coordinates: Coordinates = "relative",
        resize: Mapping[str, int] | None = None,
        reasoning: Reasoning = "action",
        history: int = 50,
        line_chars: int = 200,
        summarise: bool = False,
    ) -> None:
        super().__init__(mode, history, line_chars, summarise)
        if coordinates not in get_args(Coordinates):
            raise ValueError(f"coordinates must be relative or absolute, not {coordinates!r}")
        if reasoning not in get_args(Reasoning):
            raise ValueError(f"reasoning must be one of {', '.join(get_args(Reasoning))}, not {reasoning!r}")
        try:
            self.space = ModelSpace(coordinates, Resize(**(resize or {})))
        except TypeError as error:
            raise ValueError(
                f"resize has patch_size, merge_size, min_pixels and max_pixels: {error}"
            ) from None
        self.reasoning = reasoning

    def system(self, screen: Observation) -> str:
        """The tool's signature for a screen of this size, and the format of an answer."""
        grid = self.space.grid(screen)
        # Qwen3-VL's own prompt calls 0 to 999 a screen of 999x999.
        size = (999, 999) if self.space.coordinates == "relative" else (grid.columns, grid.rows)
        tools = json.dumps(tool.schema(*size), ensure_ascii=False)
        return SYSTEM.format(tools=tools) + (FORMAT if self.reasoning == "action" else "")

    def question(self, goal: str, told: str, number: int) -> str:
        """The goal and, as progress, what was done."""
        text = f"The user query: {goal}\n"
        if told:
            text += f"Task progress (You have done the following operation on the current device): {told}\n"
        return text + (CONCLUDE if self.reasoning == "conclusion" else "")

    def opening(self, goal: str) -> str:
        """The goal."""
        return self.question(goal, "", 0)

    def line(self, step: TimeStep) -> str:
        """What the model called its action, else the action's call; of an INVALID one, why it was none."""
        action = Action(**step.action.model_dump())
        if action.kind is ActionKind.INVALID:
            return f"not an action ({action.reason})"
        summary = " ".join(summary_of(self.answer(step)).split())[: self.line_chars]
        if summary or action.kind not in tool.KINDS:
            return summary or action.kind.value
        return tool.dumps(
            {"name": tool.NAME, "arguments": tool.write(action, self.space.grid(step.observation))}
        )

    def parse(self, text: str, screen: Observation) -> Action:
        """The action of the one call in `text`, behind any thinking.

        INVALID, with the reason and the text, for everything else: no call, several, another function,
        arguments that the tool does not have, a point that is not on the screen.
        """
        try:
            return tool.read(call_in(text), self.space.grid(screen))
        except NoAction as problem:
            return Action.invalid(encodable(text[:KEPT_CHARS]), encodable(str(problem)))

    def format(self, action: Action, screen: Observation) -> str:
        """The call of `action`; an INVALID action's own text is given back.

        Raises:
            ConfigError: The tool has no such action.
        """
        if action.kind is ActionKind.INVALID:
            return action.text
        if action.kind not in tool.KINDS:
            raise ConfigError(
                f"The tool mobile_use has no action {action.kind.value!r}.",
                "Choose another agent, agent.kind.",
            )
        call = {"name": tool.NAME, "arguments": tool.write(action, self.space.grid(screen))}
        return f"{_OPEN}\n{tool.dumps(call)}\n{_CLOSE}"


def call_in(text: str) -> dict[str, Any]:
    """The arguments of the one call of `mobile_use` in `text`.

    Raises:
        NoAction: There is none, or more than one, or it is not well formed.
    """
    if len(text) > MAX_TEXT_CHARS:
        raise NoAction(f"the text has {len(text)} characters, more than {MAX_TEXT_CHARS}")
    _, *blocks = spoken(text).split(_OPEN)
    if len(blocks) != 1:
        raise NoAction(f"{len(blocks)} calls, and one was asked for" if blocks else f"no {_OPEN}")
    body, closed, _ = blocks[0].partition(_CLOSE)
    if not closed:
        raise NoAction(f"no {_CLOSE}")
    try:
        call = json.loads(body, strict=False)
    except (ValueError, RecursionError):
        raise NoAction(f"malformed JSON {body.strip()[:40]!r}") from None
    if not isinstance(call, dict) or call.get("name") != tool.NAME:
        raise NoAction(f"not a call of {tool.NAME}")
    arguments = call.get("arguments")
    if not isinstance(arguments, dict):
        raise NoAction("arguments are no JSON object")
    return arguments


def summary_of(text: str) -> str:
    """How the model itself called its action: the conclusion, else the last line `Action: …`, else ""."""
    try:
        said = spoken(text)
    except NoAction:
        return ""
    if found := _CONCLUSION.search(said):
        return found[1].strip()
    lines = _ACTION_LINE.findall(said.partition(_OPEN)[0])
    return str(lines[-1]).strip() if lines else ""
