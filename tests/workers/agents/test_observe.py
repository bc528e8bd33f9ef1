"""What chat agents show of a screen's elements, and actions that name one by its number."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agent_prompts import SCREEN, asked

from distrl.core.actions import Action, ActionKind
from distrl.core.types import ActionRecord, Chat, Completion, Element, Observation, TimeStep
from distrl.workers.agents.androidworld import AndroidWorldAgent
from distrl.workers.agents.chat_agent import CANNOT_LIST, LIST_CHARS, ChatAgent, Observe
from distrl.workers.agents.mobile_use import MobileUseAgent

LISTED: list[Observe] = ["elements", "both", "marks"]
ROW = Element(class_name="ViewGroup", resource_id="row", flags=("clickable",), bounds=(0.0, 0.1, 1.0, 0.2))
SWITCH = Element(
    text="Wi-Fi",
    description="a\nb",
    class_name="Switch",
    flags=("unchecked", "disabled", "clickable"),
    bounds=(0.8, 0.12, 0.9, 0.18),
    parent=0,
)
SLIDER = Element(class_name="SeekBar", flags=("clickable",), bounds=(0.1, 0.3, 0.9, 0.36))
LIST = Element(class_name="RecyclerView", flags=("scrollable",), bounds=(0.0, 0.4, 1.0, 0.9))
ELEMENTS = (ROW, SWITCH, SLIDER, LIST)


def seen(*elements: Element, **fields: Any) -> Observation:
    return SCREEN.model_copy(update={"elements": elements, **fields})


NOW = seen(*ELEMENTS, marked="beef")
AGENTS = [AndroidWorldAgent, MobileUseAgent]


def question(agent: ChatAgent, screen: Observation, *history: TimeStep) -> tuple[str, list[str]]:
    return asked(agent.prompt("go", screen, history).messages[-1])


def took(action: Action, screen: Observation) -> TimeStep:
    chat = Chat(messages=(), completion=Completion(text=""))
    record = ActionRecord(**action.model_dump(mode="json"))
    return TimeStep(observation=screen, chats=(chat,), action=record)


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize(
    ("observe", "pictures"),
    [("screenshot", ["f00d"]), ("elements", []), ("both", ["f00d"]), ("marks", ["beef"])],
)
def test_a_prompt_shows_the_list_the_picture_or_both(
    kind: type[AndroidWorldAgent | MobileUseAgent], observe: Observe, pictures: list[str]
) -> None:
    agent = kind(observe=observe)
    screen = NOW if observe == "marks" else seen(*ELEMENTS)
    text, shown = question(agent, screen)
    assert shown == pictures
    assert ("UI element 3: " in text) is (observe != "screenshot")
    assert (agent.needs_elements, agent.needs_marks) == (observe != "screenshot", observe == "marks")
    instructions = asked(agent.prompt("go", screen, []).messages[0])[0]
    assert ('"index"' in instructions) is (observe != "screenshot")
    assert "{see}" not in instructions
    assert "LISTED" not in instructions


def test_the_tool_of_a_list_is_json() -> None:
    for observe in ("screenshot", *LISTED):
        system = asked(MobileUseAgent(observe=observe).prompt("go", NOW, []).messages[0])[0]
        tool = json.loads(system.rpartition("<tools>")[2].partition("</tools>")[0])
        properties = tool["function"]["parameters"]["properties"]
        assert ("index" in properties) is (observe != "screenshot")


def test_lines_are_those_of_t3a_and_m3a() -> None:
    text, _ = question(AndroidWorldAgent(observe="both"), NOW)
    assert text.endswith(
        "Step 1. The screen now:\nUI elements:\n"
        'UI element 0: {"is_clickable": true}\n'
        'UI element 1: {"text": "Wi-Fi", "content_description": "a\\nb", "is_checked": false, '
        '"is_enabled": false, "is_clickable": true}\n'
        'UI element 2: {"is_clickable": true}\n'
        'UI element 3: {"is_scrollable": true}'
    )
    text, _ = question(AndroidWorldAgent(observe="elements", coordinates=[100, 200]), NOW)
    assert (
        'UI element 0: {"class_name": "ViewGroup", "resource_id": "row", "is_clickable": true, '
        '"bounds": [0, 20, 99, 40]}\n'
    ) in text


def test_a_screen_without_a_list_is_named_and_a_long_list_is_cut() -> None:
    agent = AndroidWorldAgent(observe="elements")
    text, pictures = question(agent, seen().model_copy(update={"elements": None}))
    assert (text.endswith(CANNOT_LIST), pictures) == (True, [])
    assert question(agent, seen())[0].endswith("UI elements:\nnone")
    many = seen(*[SWITCH.model_copy(update={"text": "x" * 1000})] * 300)
    text, _ = question(agent, many)
    assert len(text) < LIST_CHARS + 1000
    assert text.endswith(" more UI elements are not listed.")
    assert "x" * 201 not in text


def test_a_continued_sequence_lists_what_changed() -> None:
    agent = AndroidWorldAgent(mode="incremental", observe="both")
    on = SWITCH.model_copy(update={"flags": ("checked",)})
    for after, said in (
        (NOW, "The UI elements are as before."),
        (seen(ROW, on, SLIDER, LIST), 'that changed, of 4 now:\nUI element 1: {"text": "Wi-Fi", '),
        (seen(ROW, SWITCH, SLIDER), "UI elements that changed, of 3 now:\nnone"),
        (seen(on), "\nUI elements:\nUI element 0:"),
        (seen(), "\nUI elements:\nnone"),
    ):
        prompt = agent.prompt("go", after, [took(Action.tap(0.5, 0.5), NOW)])
        assert prompt.continues
        assert said in asked(prompt.messages[0])[0]
    unread = NOW.model_copy(update={"elements": None})
    assert CANNOT_LIST in question(agent, unread, took(Action.tap(0.5, 0.5), NOW))[0]
    assert "UI element 3" in question(agent, NOW, took(Action.tap(0.5, 0.5), unread))[0]


def test_a_summary_is_asked_for_with_the_list() -> None:
    agent = AndroidWorldAgent(observe="elements", summarise=True)
    text, pictures = question(agent, NOW, took(Action.tap(0.5, 0.5), NOW))
    assert "The screen after it:\nUI elements:\n" in text
    assert pictures == []


@pytest.mark.parametrize("kind", AGENTS)
def test_an_earlier_action_names_what_it_touched(kind: type[AndroidWorldAgent | MobileUseAgent]) -> None:
    text, _ = question(kind(observe="both"), NOW, took(Action.tap(0.85, 0.15), NOW))
    assert '"index": 1}' in text
    assert ' on Switch "Wi-Fi" ("a\\nb")' in text


CENTRES = {0: (0.5, 0.15), 1: (0.85, 0.15), 3: (0.5, 0.65)}


@pytest.mark.parametrize(
    ("fields", "action"),
    [
        ({"action_type": "click", "index": 1}, Action.tap(*CENTRES[1])),
        ({"action_type": "click", "index": "0"}, Action.tap(*CENTRES[0])),
        ({"action_type": "long_press", "index": 0}, Action(kind=ActionKind.LONG_PRESS, point=CENTRES[0])),
        (
            {"action_type": "input_text", "index": 0, "text": "hi"},
            Action(kind=ActionKind.TYPE, text="hi", point=CENTRES[0]),
        ),
        (
            {"action_type": "scroll", "direction": "down", "index": 3},
            Action.swipe(CENTRES[3], (0.5, 0.4)),
        ),
        ({"action_type": "click", "x": 500, "y": 150}, Action.tap(0.5005, 0.1505)),
        ({"action_type": "click", "index": 4}, "there is no UI element 4; 4 are listed"),
        ({"action_type": "click", "index": -1}, "there is no UI element -1"),
        ({"action_type": "click", "index": 1.5}, "there is no UI element 1.5"),
        ({"action_type": "click", "index": "row"}, "index is 'row', not a number"),
        ({"action_type": "click", "index": 1, "x": 5, "y": 5}, "index and a point"),
    ],
)
def test_json_by_index(fields: dict[str, Any], action: Action | str) -> None:
    read = AndroidWorldAgent(observe="marks").parse(f"Action: {json.dumps(fields)}", NOW)
    if isinstance(action, str):
        assert action in read.reason
    else:
        assert (read.kind, read.text) == (action.kind, action.text)
        for found, wanted in ((read.point, action.point), (read.to, action.to)):
            assert found == (wanted and pytest.approx(wanted))


def call(**arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': 'mobile_use', 'arguments': arguments})}</tool_call>"


def test_calls_by_index() -> None:
    agent = MobileUseAgent(observe="elements")
    assert agent.parse(call(action="click", index=1), NOW).point == pytest.approx(CENTRES[1])
    assert agent.parse(call(action="long_press", index=0, time=1), NOW).kind is ActionKind.LONG_PRESS
    for wrong in ({"index": 9}, {"index": "1"}, {"index": 1, "coordinate": [1, 1]}):
        assert agent.parse(call(action="click", **wrong), NOW).kind is ActionKind.INVALID
    without = MobileUseAgent().parse(call(action="click", index=1), NOW)
    assert "index must be the number of a listed UI element" in without.reason


@pytest.mark.parametrize("observe", LISTED)
@pytest.mark.parametrize(
    ("point", "number"),
    [
        ((0.82, 0.13), 1),
        ((0.3, 0.15), 0),
        ((0.3, 0.95), None),  # nothing is there
        ((0.3, 0.33), None),  # where a slider is touched matters
    ],
)
def test_demonstrations_name_the_element_under_the_point(
    observe: Observe, point: tuple[float, float], number: int | None
) -> None:
    for agent in (AndroidWorldAgent(observe=observe), MobileUseAgent(observe=observe)):
        text = agent.format(Action.tap(*point), NOW)
        assert (f'"index": {number}' in text) is (number is not None)
        read = agent.parse(text, NOW)
        wanted = point if number is None else CENTRES[number]
        assert read.point == pytest.approx(wanted, abs=0.001)


def test_an_element_whose_middle_is_another_is_no_target() -> None:
    around = Element(text="page", flags=("clickable",), bounds=(0.0, 0.0, 1.0, 1.0))
    button = Element(text="ok", flags=("clickable",), bounds=(0.4, 0.4, 0.6, 0.6))
    text = AndroidWorldAgent(observe="both").format(Action.tap(0.1, 0.1), seen(around, button))
    assert '"x": 100' in text


def test_a_swipe_in_a_list_scrolls_it() -> None:
    agent = AndroidWorldAgent(observe="elements")
    text = agent.format(Action.swipe((0.5, 0.8), (0.5, 0.5)), NOW)
    assert text == 'Action: {"action_type": "scroll", "direction": "down", "index": 3}'
    assert agent.format(agent.parse(text, NOW), NOW) == text


def test_an_unknown_way_to_observe_is_refused() -> None:
    with pytest.raises(ValueError, match="observe must be one of screenshot, elements, both, marks"):
        AndroidWorldAgent(observe="picture")  # type: ignore[arg-type]
