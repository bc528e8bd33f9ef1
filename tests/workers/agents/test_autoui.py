"""The AutoUI notation: canonical texts, round trips, and any text whatever."""

import math

import pytest
from agent_prompts import SCREEN, step
from agent_prompts import asked as asked_in
from hypothesis import given
from hypothesis import strategies as st

from distrl.core.actions import Action, ActionKind
from distrl.workers.agents.autoui import REMEMBERED_CHARS, TAP_DISTANCE, AutoUIAgent, vocabulary

AGENT = AutoUIAgent()
TAP = (
    '"action_type": "DUAL_POINT", "touch_point": "[0.31, 0.52]", '
    '"lift_point": "[0.31, 0.52]", "typed_text": ""'
)
NOWHERE = '"touch_point": "[-1.0, -1.0]", "lift_point": "[-1.0, -1.0]"'

fractions = st.floats(0.0, 1.0)
points = st.tuples(fractions, fractions)
plain_kinds = st.sampled_from(
    [ActionKind(k) for k in ["home", "back", "enter", "wait", "complete", "impossible"]]
)
actions = st.one_of(
    st.builds(lambda p: Action.tap(*p), points),
    st.builds(lambda p: Action(kind=ActionKind.LONG_PRESS, point=p), points),
    st.builds(Action.swipe, points, points).filter(
        lambda a: math.dist(a.point or (0, 0), a.to or (0, 0)) > TAP_DISTANCE + 0.02
    ),
    st.builds(Action.type_text, st.text(min_size=1, max_size=80)),
    st.builds(lambda kind: Action(kind=kind), plain_kinds),
)


def asked(agent: AutoUIAgent, goal: str, taken: list[Action]) -> str:
    (message,) = agent.prompt(goal, SCREEN, [step(agent, action) for action in taken]).messages
    return asked_in(message)[0]


def test_the_canonical_texts() -> None:
    assert AGENT.format(Action.tap(0.52, 0.31)) == TAP
    assert AGENT.parse(TAP) == Action.tap(0.52, 0.31)
    assert AGENT.format(Action.type_text("red shoes")) == (
        f'"action_type": "TYPE", {NOWHERE}, "typed_text": "red shoes"'
    )
    assert AGENT.format(Action(kind=ActionKind.COMPLETE)) == (
        f'"action_type": "STATUS_TASK_COMPLETE", {NOWHERE}, "typed_text": ""'
    )
    assert AGENT.format(Action.swipe((0.5, 0.8), (0.5, 0.2))) == (
        '"action_type": "DUAL_POINT", "touch_point": "[0.80, 0.50]", '
        '"lift_point": "[0.20, 0.50]", "typed_text": ""'
    )


def test_touch_and_lift_close_together_are_a_tap_at_the_touch_point() -> None:
    text = '"action_type": "DUAL_POINT", "touch_point": "[0.50, 0.50]", "lift_point": "[0.53, 0.50]"'
    assert AGENT.parse(text) == Action.tap(0.5, 0.5)
    assert AGENT.parse(text.replace("0.53", "0.55")) == Action.swipe((0.5, 0.5), (0.5, 0.55))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no action_type"),
        ("I would tap the button", "no action_type"),
        ('"action_type": "FLY"', "unknown action_type 'FLY'"),
        ('"action_type": "DUAL_POINT", "touch_point": "[0.5, 0.5]"', "no lift_point"),
        (TAP.replace("0.31", "1.2"), "touch_point '[1.2, 0.52]' is not on the screen"),
        (TAP.replace("0.31", "nan"), "touch_point '[nan, 0.52]' is not on the screen"),
        (TAP.replace("0.31", "9e999"), "touch_point '[9e999, 0.52]' is not on the screen"),
        (TAP.replace("0.31", "top"), "touch_point '[top, 0.52]' holds no numbers"),
        (TAP.replace("[0.31, 0.52]", "[0.31]"), "touch_point '[0.31]' is not [y, x]"),
        ('"action_type": "TYPE", "typed_text": ""', "TYPE with an empty typed_text"),
        ('"action_type": "TYPE", "typed_text": "unfinished', "no typed_text"),
        ('"action_type": "TYPE", "typed_text": "\\ud800"', "typed_text holds half a surrogate pair"),
        ("x" * 30_000, "the text has 30000 characters, more than 20000"),
    ],
)
def test_an_invalid_action_says_why(text: str, reason: str) -> None:
    action = AGENT.parse(text)
    assert (action.kind, action.reason) == (ActionKind.INVALID, reason)


def test_the_prompt_shows_the_screens_the_step_the_last_actions_and_the_goal() -> None:
    tap, back = Action.tap(0.52, 0.31), Action(kind=ActionKind.BACK)
    agent = AutoUIAgent(history=2, images=3)
    taken = ((tap, "a"), (tap, "b"), (back, "c"), (tap, "d"))
    steps = [step(agent, action, image) for action, image in taken]
    (message,) = agent.prompt("Turn on Wi-Fi", SCREEN, steps).messages
    text = f"step 4 last {AGENT.format(back)} {TAP} Goal: turn on wi-fi"
    assert asked_in(message) == (text, ["c", "d", "f00d"])
    assert asked_in(agent.prompt("go", SCREEN, []).messages[0])[1] == ["f00d"]


@given(st.lists(actions.filter(lambda a: not a.is_terminal), min_size=1, max_size=5))
def test_the_prompt_names_earlier_actions_as_the_agent_writes_them(taken: list[Action]) -> None:
    known = [action.model_copy(update={"text": action.text[:REMEMBERED_CHARS]}) for action in taken[-2:]]
    said = " ".join(AGENT.format(action) for action in known)
    text = asked(AutoUIAgent(2), "go", taken)
    assert text == f"step {len(taken)} last {said} Goal: go"


def test_prompts_without_an_action_to_name() -> None:
    invalid = [AGENT.parse("Goal: something else")]  # its text stays out of the prompt
    assert asked(AutoUIAgent(1), "go", invalid) == "step 1 last invalid Goal: go"
    assert asked(AutoUIAgent(1), "go", []) == "step 0 last none Goal: go"
    assert asked(AutoUIAgent(0), "go", []) == "step 0 Goal: go"


def test_the_vocabulary_covers_every_prompt_around_its_actions() -> None:
    words = set(vocabulary())
    taken = [Action.tap(0.5, 0.5), Action.invalid("?", "no action_type"), Action(kind=ActionKind.WAIT)] * 20
    for length in range(len(taken)):
        text = asked(AutoUIAgent(3), "", taken[:length])
        for action in taken:
            text = text.replace(AGENT.format(action), "") if action.kind is not ActionKind.INVALID else text
        assert set(text.split()) <= words


AUTOUI, DIGIRL = AutoUIAgent(8, "autoui"), AutoUIAgent(1, "digirl")


def test_prompts_as_the_data_of_autoui_has_them() -> None:
    taken = [
        Action.swipe((0.5, 0.8), (0.5, 0.2)),
        Action.type_text('a "red"\\  shoe\'s'),
        Action.tap(0.70894, 0.77611),
    ]
    swipe = (
        '"action_type": "DUAL_POINT", "touch_point": "[0.8, 0.5]", '
        '"lift_point": "[0.2, 0.5]", "typed_text": ""'
    )
    typed = f'"action_type": "TYPE", {NOWHERE}, "typed_text": "a red shoes"'
    tap = (
        '"action_type": "DUAL_POINT", "touch_point": "[0.7761, 0.7089]", '
        '"lift_point": "[0.7761, 0.7089]", "typed_text": ""'
    )
    assert asked(AUTOUI, "Open\n the  Settings", taken) == (
        f"Previous Actions: {swipe} {typed} {tap} Goal: Open the Settings"
    )
    assert asked(AUTOUI, "Go", []) == "Previous Actions: Goal: Go"
    assert asked(AutoUIAgent(0, "autoui"), "Go", taken) == "Goal: Go"


def test_prompts_as_digirl_writes_them() -> None:
    point = "[0.5000, 0.1000]"
    assert asked(DIGIRL, "Go", [Action(kind=ActionKind.HOME), Action.tap(0.1, 0.5)]) == (
        f'Previous Actions: "action_type": "DUAL_POINT", "touch_point": "{point}", "lift_point": "{point}", '
        '"typed_text": "" Goal: Go</s>'
    )


def test_an_answer_of_autoui_is_an_action() -> None:
    text = (
        'Action Plan: [DUAL_POINT,TYPE,PRESS_ENTER,STATUS_TASK_COMPLETE] ; Action Decision: "action_type": '
        '"DUAL_POINT", "touch_point": "[0.7761, 0.7089]", "lift_point": "[0.7761, 0.7089]", "typed_text": ""'
    )
    assert AUTOUI.parse(text) == Action.tap(0.7089, 0.7761)
    assert DIGIRL.format(AUTOUI.parse(text)) == text.replace(",TYPE,PRESS_ENTER,STATUS_TASK_COMPLETE", "")
    assert AUTOUI.parse(AUTOUI.format(Action.type_text('a "red" shoe'))) == Action.type_text("a red shoe")
    cut = AUTOUI.parse(text[:-40])
    assert (cut.kind, cut.reason, cut.text) == (ActionKind.INVALID, "no lift_point", text[:-40])
