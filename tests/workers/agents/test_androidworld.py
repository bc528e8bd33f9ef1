"""The AndroidWorld agent: JSON actions both ways, prompts in both modes, and any text whatever."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agent_prompts import SCREEN, asked, screen, step

from distrl.core.actions import Action, ActionKind
from distrl.workers.agents.androidworld import AndroidWorldAgent, reason_of, write_json
from distrl.workers.agents.notation import KEPT_CHARS, Grid

AGENT = AndroidWorldAgent()
CLICK = 'Reason: The button is there.\nAction: {"action_type": "click", "x": 512, "y": 80}'


@pytest.mark.parametrize(
    ("fields", "action"),
    [
        ({"action_type": "click", "x": 0, "y": 999}, Action.tap(0.0005, 0.9995)),
        ({"action_type": "click", "x": "500", "y": 500.9}, Action.tap(0.5005, 0.5005)),
        ({"action_type": "scroll", "direction": "down"}, Action.swipe((0.5, 0.5), (0.5, 0.0))),
        ({"action_type": "scroll", "direction": "right"}, Action.swipe((0.5, 0.5), (0.0, 0.5))),
        ({"action_type": "swipe", "direction": "down"}, Action.swipe((0.5, 0.0), (0.5, 1.0))),
        ({"action_type": "swipe", "direction": "left"}, Action.swipe((0.0, 0.5), (1.0, 0.5))),
        ({"action_type": "input_text", "text": 42}, Action.type_text("42")),
        ({"action_type": "wait", "index": None, "clear_text": False}, Action(kind=ActionKind.WAIT)),
        ({"action_type": "status", "goal_status": "complete"}, Action(kind=ActionKind.COMPLETE)),
        ({"action_type": "status", "goal_status": "infeasible"}, Action(kind=ActionKind.IMPOSSIBLE)),
    ],
)
def test_what_json_means(fields: dict[str, Any], action: Action) -> None:
    found = AGENT.parse(f"Action: {json.dumps(fields)}", SCREEN)
    assert found.kind is action.kind
    assert found.point == (action.point and pytest.approx(action.point))
    assert (found.to, found.text) == (action.to, action.text)


@pytest.mark.parametrize(
    ("action", "direction"),
    [
        (Action.swipe((0.5, 0.8), (0.5, 0.2)), "down"),
        (Action.swipe((0.5, 0.2), (0.45, 0.6)), "up"),
        (Action.swipe((0.9, 0.5), (0.1, 0.6)), "right"),
        (Action.swipe((0.1, 0.5), (0.3, 0.5)), "left"),
    ],
)
def test_any_other_gesture_is_the_nearest_scroll(action: Action, direction: str) -> None:
    assert write_json(action, AGENT.grid(SCREEN)) == {"action_type": "scroll", "direction": direction}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no JSON object"),
        ("Reason: done. Action: click it", "no JSON object behind Action:"),
        ("Action: {'action_type': ", "malformed JSON"),
        ("Action: {1: 2}", "no JSON object with names as keys"),
        ('Action: {"x": 1}', "no action_type"),
        ('Action: {"action_type": "fly"}', "unknown action_type 'fly'"),
        (
            'Action: {"action_type": "click", "x": 1000, "y": 0}',
            r"(1000, 0) is not within 0 to 999 and 0 to 999",
        ),
        ('Action: {"action_type": "click", "x": NaN, "y": 0}', "x is nan, not on any screen"),
        ('Action: {"action_type": "click", "index": 3}', "index is not supported without a list"),
        (
            'Action: {"action_type": "input_text", "text": "a", "clear_text": true}',
            "clear_text is not supported",
        ),
        ('Action: {"action_type": "input_text", "text": ""}', "input_text needs text"),
        ('Action: {"action_type": "scroll", "direction": "north"}', "direction is 'north'"),
        ('Action: {"action_type": "wait", "seconds": 3}', "wait has no 'seconds'"),
        ("x" * 30_000, "the text has 30000 characters, more than 20000"),
    ],
)
def test_an_invalid_action_says_why_and_keeps_the_text(text: str, reason: str) -> None:
    action = AGENT.parse(text, SCREEN)
    assert action.kind is ActionKind.INVALID
    assert reason in action.reason
    assert action.text == text[:KEPT_CHARS]


def test_the_last_action_counts_and_words_around_it_do_not() -> None:
    python = "Action: {'action_type': 'input_text', 'text': \"it's\"}"
    assert AGENT.parse(python, SCREEN) == Action.type_text("it's")
    text = f"Reason: I would Action: {{}}, but no.\n{CLICK}\nThat is all. {{}}"
    assert AGENT.parse(text, SCREEN) == Action.tap(0.5125, 0.0805)
    typed = 'Reason: A list.\nAction: {"action_type": "input_text", "text": "Action: buy milk"}'
    assert AGENT.parse(typed, SCREEN) == Action.type_text("Action: buy milk")
    assert reason_of(typed) == "A list."


def test_other_coordinates() -> None:
    pixels = AndroidWorldAgent(coordinates=[1080, 2400])
    action = pixels.parse('Action: {"action_type": "click", "x": 1079, "y": 2399}', SCREEN)
    assert action.point is not None
    assert Grid(1080, 2400).cell(action.point) == (1079, 2399)
    for agent, said in ((pixels, "from 0 (left) to 1079 (right)"), (AGENT, "to 999 (right)")):
        assert said in asked(agent.prompt("go", SCREEN, []).messages[0])[0]


def test_a_history_prompt_tells_reasons_and_actions_in_one_line_each() -> None:
    steps = [step(AGENT, text) for text in (CLICK, "Action: fly", 'Action: {"action_type": "wait"}')]
    system, user = AGENT.prompt("Add Ann", SCREEN, steps).messages
    assert system.role == "system"
    text, image = asked(user)
    assert image == ["f00d"]
    assert text == (
        "Goal: Add Ann\n\nWhat you have done so far:\n"
        'Step 1: The button is there. {"action_type": "click", "x": 512, "y": 80}\n'
        "Step 2: not an action (no JSON object behind Action:)\n"
        'Step 3: {"action_type": "wait"}\n\n'
        "Step 4. The screen now:"
    )


def test_a_history_prompt_begins_with_nothing_and_is_bounded() -> None:
    text, _ = asked(AGENT.prompt("go", SCREEN, []).messages[1])
    assert "Nothing yet.\n\nStep 1. The screen now:" in text
    short = AndroidWorldAgent(history=2)
    text, _ = asked(
        short.prompt("go", SCREEN, [step(AGENT, CLICK.replace("there", "there " * 99))] * 9).messages[1]
    )
    lines = [line.split(" {")[0] for line in text.splitlines() if "click" in line]
    assert [line[:20] for line in lines] == ["Step 8: The button i", "Step 9: The button i"]
    assert {len(line) for line in lines} == {len("Step 8: ") + 200}
    assert text.endswith("Step 10. The screen now:")


def test_an_incremental_prompt_goes_on_with_the_next_question_only() -> None:
    agent = AndroidWorldAgent(mode="incremental")
    steps = [step(AGENT, CLICK), step(AGENT, "what?")]
    first, second, third = (
        agent.prompt("Add Ann", screen(image), steps[:n]) for n, image in enumerate("abc")
    )
    assert [prompt.continues for prompt in (first, second, third)] == [False, True, True]
    assert [message.role for message in first.messages] == ["system", "user"]
    assert asked(first.messages[1]) == ("Goal: Add Ann\n\nStep 1. The screen:", ["a"])
    assert [asked(message) for message in second.messages] == [("Step 2. The screen now:", ["b"])]
    (message,) = third.messages
    problem = "Your last answer was not an action (no JSON object)."
    assert asked(message) == (f"{problem}\nStep 3. The screen now:", ["c"])
