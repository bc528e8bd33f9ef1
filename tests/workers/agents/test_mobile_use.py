"""The agent that calls `mobile_use`: calls both ways, prompts, thinking, and any text whatever."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agent_prompts import SCREEN, asked, step
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.core.actions import Action, ActionKind
from distrl.core.model_points import Resize
from distrl.core.types import Chat, ChatMessage, Completion, TextPart, TimeStep
from distrl.workers.agents.mobile_use import MobileUseAgent
from distrl.workers.agents.notation import KEPT_CHARS

RELATIVE = MobileUseAgent()
ABSOLUTE = MobileUseAgent(coordinates="absolute", resize={"max_pixels": 12_845_056})
AGENTS = {"relative": RELATIVE, "absolute": ABSOLUTE}
BACK = Action(kind=ActionKind.BACK)
THOUGHT = "Thought: It is there.\nAction: Open the clock.\n"


def call(**arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': 'mobile_use', 'arguments': arguments})}\n</tool_call>"


CLICK = call(action="click", coordinate=[512, 80])


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        ({"action": "click", "coordinate": [0, 999]}, Action.tap(0.0005, 0.9995)),
        ({"action": "click", "coordinate": [500.9, 500]}, Action.tap(0.5005, 0.5005)),
        ({"action": "long_press", "coordinate": [0, 0], "time": 2}, ActionKind.LONG_PRESS),
        ({"action": "type", "text": "it's\n<b>"}, Action.type_text("it's\n<b>")),
        ({"action": "open", "text": "Clock"}, Action(kind=ActionKind.OPEN_APP, text="Clock")),
        ({"action": "key", "text": "KEYCODE_ENTER"}, ActionKind.ENTER),
        ({"action": "system_button", "button": "Home"}, ActionKind.HOME),
        ({"action": "wait", "time": 5}, ActionKind.WAIT),
        ({"action": "terminate", "status": "success"}, ActionKind.COMPLETE),
    ],
)
def test_what_a_call_means(arguments: dict[str, Any], action: Action | ActionKind) -> None:
    found = RELATIVE.parse(call(**arguments), SCREEN)
    if isinstance(action, ActionKind):
        assert found.kind is action
    else:
        assert found == action


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no <tool_call>"),
        (f"<think>{CLICK}", "the thinking does not end"),
        (CLICK + CLICK, "2 calls, and one was asked for"),
        (CLICK.removesuffix("</tool_call>"), "no </tool_call>"),
        ('<tool_call>{"name": "computer_use", "arguments": {}}</tool_call>', "not a call of mobile_use"),
        ('<tool_call>{"name": "mobile_use", "arguments": "{}"}</tool_call>', "are not a JSON object"),
        (call(), "no action"),
        (call(action="drag"), "unknown action 'drag'"),
        (call(action="click", x=3), "click has no 'x'"),
        (call(action="click"), "coordinate is None, not two numbers [x, y]"),
        (call(action="click", coordinate=[float("nan"), 2]), "not two numbers"),
        (call(action="click", coordinate=[1000, 0]), "(1000, 0) is not within 0 to 999 and 0 to 999"),
        (call(action="type"), "type needs text"),
        (call(action="type", text=7), "text is 7, not a text"),
        (call(action="key", text="volume_up"), "key is 'volume_up', not one of back, home, enter"),
        (call(action="system_button", button="Menu"), "button is 'Menu', not one of Back, Home, Enter"),
        (call(action="wait", time="long"), "time is 'long', not a number"),
        (call(action="terminate", status="done"), "status is 'done', not one of success, failure"),
        ("x" * 200_001, "the text has 200001 characters, more than 200000"),
    ],
)
def test_an_invalid_action_says_why_and_keeps_the_text(text: str, reason: str) -> None:
    action = RELATIVE.parse(text, SCREEN)
    assert action.kind is ActionKind.INVALID
    assert reason in action.reason
    assert action.text == text[:KEPT_CHARS]


def test_absolute_points_are_pixels_of_the_resized_picture() -> None:
    """1080x2400 becomes 1092x2408; the notebook of the model's authors has such a screen."""
    assert ABSOLUTE.parse(call(action="click", coordinate=[1091, 2407]), SCREEN).point == pytest.approx(
        (1091.5 / 1092, 2407.5 / 2408)
    )
    beyond = ABSOLUTE.parse(call(action="click", coordinate=[1092, 0]), SCREEN)
    assert "is not within 0 to 1091 and 0 to 2407" in beyond.reason
    turned = SCREEN.model_copy(update={"width": 2400, "height": 1080})
    assert ABSOLUTE.parse(call(action="click", coordinate=[1092, 0]), turned).kind is ActionKind.TAP
    assert ABSOLUTE.format(Action.tap(1.0, 1.0), turned) == call(action="click", coordinate=[2407, 1091])


@pytest.mark.parametrize(("name", "size"), [("relative", "999x999"), ("absolute", "1092x2408")])
def test_the_instructions_hold_the_schema_and_the_screens_size_in_model_space(name: str, size: str) -> None:
    text, _ = asked(AGENTS[name].prompt("go", SCREEN, []).messages[0])
    function = json.loads(text.partition("<tools>\n")[2].partition("\n</tools>")[0])["function"]
    assert function["name"] == "mobile_use"
    assert f"The screen's resolution is {size}." in function["description"]
    names = "key click long_press swipe type answer system_button open wait terminate"
    assert function["parameters"]["properties"]["action"]["enum"] == names.split()


def test_a_history_prompt_tells_each_step_by_the_models_own_summary() -> None:
    taken = [
        f"{THOUGHT}{CLICK}",
        f"<thinking>Action: no</thinking>{CLICK}<conclusion>I tapped\nit.</conclusion>",
        CLICK,
        "what?",
        f"Action: one\nAction: two\n{CLICK}\nAction: after the call",
        f"{CLICK}<conclusion>cut",
    ]
    steps = [step(RELATIVE, text) for text in taken]
    assert asked(RELATIVE.prompt("go", SCREEN, []).messages[1])[0] == "The user query: go\n"
    text, image = asked(RELATIVE.prompt("Add Ann", SCREEN, steps).messages[1])
    assert image == ["f00d"]
    assert text == (
        "The user query: Add Ann\n"
        "Task progress (You have done the following operation on the current device): "
        "Step 1: Open the clock.; Step 2: I tapped it.; "
        'Step 3: {"name": "mobile_use", "arguments": {"action": "click", "coordinate": [512, 80]}}; '
        "Step 4: not an action (no <tool_call>); Step 5: two; Step 6: cut; \n"
    )
    first = MobileUseAgent(mode="incremental").prompt("Add Ann", SCREEN, [])
    assert asked(first.messages[1]) == ("The user query: Add Ann\n", ["f00d"])


@pytest.mark.parametrize(
    ("reasoning", "in_system", "in_question"),
    [("action", True, False), ("conclusion", False, True), ("none", False, False)],
)
def test_the_reasoning_that_is_asked_for(reasoning: Any, in_system: bool, in_question: bool) -> None:
    system, user = MobileUseAgent(reasoning=reasoning).prompt("go", SCREEN, []).messages
    assert ("Thought: one concise sentence" in system.model_dump_json()) == in_system
    assert ("<conclusion></conclusion>" in user.model_dump_json()) == in_question


def answered(*texts: str) -> TimeStep:
    """A step of several chats."""
    one = step(RELATIVE, texts[-1])
    message = ChatMessage(role="user", parts=(TextPart(text="?"),))
    chats = tuple(Chat(messages=(message,), completion=Completion(text=text)) for text in texts)
    return one.model_copy(update={"chats": chats})


def test_with_summaries_the_first_question_of_a_step_is_for_one_and_the_second_tells_it() -> None:
    agent = MobileUseAgent(summarise=True)
    assert agent.prompt("go", SCREEN, []).is_action, "at first there is nothing to sum up"
    steps = [step(RELATIVE, f"{THOUGHT}{CLICK}")]
    asks = agent.prompt("go", SCREEN, steps)
    assert (asks.is_action, asks.continues) == (False, False)
    text, image = asked(asks.messages[1])
    assert (image, "before the last action: nothing was done." in text) == (["f00d"], True)
    assert "The last action, step 1: Open the clock." in text
    said = [Chat(messages=asks.messages, completion=Completion(text="<think>hm</think>The clock is open."))]
    acts = agent.prompt("go", SCREEN, steps, said)
    assert acts.is_action
    assert asked(acts.messages[1])[0].endswith("current device): The clock is open.\n")
    later = agent.prompt("go", SCREEN, [*steps, answered("<think>hm</think>The clock is open.", CLICK)])
    assert "before the last action: The clock is open.\n" in asked(later.messages[1])[0]


@pytest.mark.parametrize("nothing", ["", "  ", "<think>cut"])
def test_where_a_summary_says_nothing_the_steps_are_told(nothing: str) -> None:
    agent = MobileUseAgent(summarise=True)
    steps = [step(RELATIVE, f"{THOUGHT}{CLICK}"), answered(nothing, CLICK)]
    said = [Chat(messages=(), completion=Completion(text=nothing))]
    assert "Step 1: Open the clock.; " in asked(agent.prompt("go", SCREEN, steps[:1], said).messages[1])[0]
    text = asked(agent.prompt("go", SCREEN, steps).messages[1])[0]
    assert "before the last action: Step 1: Open the clock.;\n" in text


PROCESSORS = [
    Resize(),
    Resize(max_pixels=12_845_056),
    Resize(patch_size=16, min_pixels=65_536, max_pixels=16_777_216),
    Resize(max_pixels=200 * 28 * 28),
]


@pytest.mark.needs("torch", "transformers")
@settings(deadline=None)
@given(st.integers(1, 4000), st.integers(1, 4000), st.sampled_from(PROCESSORS))
def test_the_size_is_that_of_smart_resize(width: int, height: int, resize: Resize) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    if max(width, height) > 200 * min(width, height):
        return
    factor = resize.patch_size * resize.merge_size
    expected = smart_resize(height, width, factor, resize.min_pixels, resize.max_pixels)
    assert resize.size(width, height) == expected[::-1]
