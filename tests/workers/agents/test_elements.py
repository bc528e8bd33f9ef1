"""The agent `elements`: a screen as lines, and actions that name an element by its number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.configs.agents import AgentConfig
from distrl.core.actions import Action, ActionKind
from distrl.core.types import ActionRecord, Element, Observation, TextPart, TimeStep
from distrl.evaluator.suites import load_suite
from distrl.workers.agents import build_agent
from distrl.workers.agents.elements import ElementsAgent, element_at
from distrl.workers.envs.phone import PhoneEnv

AGENT = ElementsAgent()
ROW = Element(
    description="Wi-Fi", class_name="ViewGroup", resource_id="row wifi", flags=("clickable",),
    bounds=(0.0, 0.1, 1.0, 0.2),
)  # fmt: skip
TITLE = Element(text='My "Wi-Fi"', class_name="TextView", bounds=(0.1, 0.1, 0.5, 0.2), parent=0)
SWITCH = Element(class_name="Switch", flags=("unchecked",), bounds=(0.8, 0.12, 0.9, 0.18), parent=0)
SLIDER = Element(description="Brightness", class_name="SeekBar", bounds=(0.2, 0.3, 0.8, 0.4))
LIST = Element(class_name="RecyclerView", flags=("scrollable",), bounds=(0.0, 0.5, 1.0, 0.9))
CARD = Element(text="Card", class_name="View", bounds=(0.1, 0.6, 0.3, 0.7), parent=4)
LEFT = Element(text="a", class_name="li", bounds=(0.1, 0.95, 0.2, 0.99))
RIGHT = Element(text="b", class_name="li", bounds=(0.6, 0.95, 0.7, 0.99))
ELEMENTS = (ROW, TITLE, SWITCH, SLIDER, LIST, CARD, LEFT, RIGHT)
SCREEN = Observation(image="i", width=100, height=200, app="settings", elements=ELEMENTS)
EMPTY = Observation(image="i", width=100, height=200)


def text_of(goal: str, screen: Observation, *history: tuple[Action, Observation]) -> str:
    steps = [
        TimeStep(observation=seen, chats=(), action=ActionRecord(**action.model_dump(mode="json")))
        for action, seen in history
    ]
    (message,) = AGENT.prompt(goal, screen, steps).messages
    (part,) = message.parts
    assert isinstance(part, TextPart)
    return part.text


def test_a_prompt_has_the_goal_the_last_actions_and_a_line_for_each_element() -> None:
    last = [
        (Action.tap(0.5, 0.15), SCREEN),
        (Action.type_text("abc"), SCREEN),
        (Action.tap(0.5, 0.35), SCREEN),
    ]
    assert text_of('Turn on "Wi-Fi"', SCREEN, (Action(kind=ActionKind.BACK), SCREEN), *last).splitlines() == [
        'Goal: "Turn on \\"Wi-Fi\\""',
        "Step 5, app settings, the last action changed nothing",
        'Last: tap ViewGroup ("Wi-Fi") #row_wifi',
        'Last: type "abc"',
        'Last: slide SeekBar ("Brightness") 50',
        '0 ViewGroup ("Wi-Fi") #row_wifi [clickable] at 0 100 1000 200',
        '1 TextView "My \\"Wi-Fi\\"" in 0 at 100 100 500 200',
        "2 Switch [unchecked] in 0 at 800 120 900 180",
        '3 SeekBar ("Brightness") at 200 300 800 400',
        "4 RecyclerView [scrollable] at 0 500 1000 900",
        '5 View "Card" in 4 at 100 600 300 700',
        '6 li "a" at 100 950 200 990',
        '7 li "b" at 600 950 700 990',
    ]


@pytest.mark.parametrize("count", range(6))
def test_the_last_three_actions_are_named(count: int) -> None:
    lines = text_of("x", SCREEN, *((Action.tap(0.3, 0.15), EMPTY) for _ in range(count))).splitlines()
    assert sum(line.startswith("Last: ") for line in lines) == min(3, count)


def test_a_long_text_in_an_earlier_action_is_cut_inside_its_quotes() -> None:
    line = text_of("x", SCREEN, (Action.type_text("oat milk " * 40), SCREEN)).splitlines()[2]
    assert line == f'Last: type "{("oat milk " * 40)[:160]}"'


def test_a_screen_without_elements_says_so() -> None:
    lines = text_of("x", EMPTY, (Action.tap(0.5, 0.5), SCREEN)).splitlines()
    assert lines == ['Goal: "x"', "Step 2", "Last: tap RecyclerView", "This screen lists no elements."]
    lines = text_of("x", EMPTY, (Action.tap(0.5, 0.5), EMPTY)).splitlines()
    assert lines[1] == "Step 2"  # something may have changed


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("tap 0", Action.tap(0.5, 0.15)),
        ("long_press 2", Action(kind=ActionKind.LONG_PRESS, point=(0.85, 0.15))),
        ("double_tap 1", Action(kind=ActionKind.DOUBLE_TAP, point=(0.3, 0.15))),
        ("slide 3 90", Action.tap(0.74, 0.35)),
        ("swipe up 4", Action.swipe((0.5, 0.82), (0.5, 0.58))),
        ("swipe right 5", Action.swipe((0.14, 0.65), (0.26, 0.65))),
        ("swipe down", Action.swipe((0.5, 0.29), (0.5, 0.71))),
        ("drag 6 7", Action.swipe((0.15, 0.97), (0.65, 0.97))),
        ('type "say \\"hi\\""', Action.type_text('say "hi"')),
        ('open_app "Clock"', Action(kind=ActionKind.OPEN_APP, text="Clock")),
        ("complete", Action(kind=ActionKind.COMPLETE)),
    ],
)
def test_answers_are_actions_at_the_middle_of_an_element(text: str, action: Action) -> None:
    found = AGENT.parse(text, SCREEN)
    assert (found.kind, found.text) == (action.kind, action.text)
    for one, other in ((found.point, action.point), (found.to, action.to)):
        assert one == (None if other is None else pytest.approx(other))


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (Action.tap(0.3, 0.15), "tap 0"),  # the row that can be used, and not its title, which is smaller
        (Action.tap(0.2, 0.65), "tap 5"),  # nothing there can be used: the smallest
        (Action.tap(0.5, 0.02), "tap"),  # nothing is there
        (Action.tap(0.74, 0.35), "slide 3 90"),
        (Action.swipe((0.5, 0.8), (0.5, 0.6)), "swipe up 4"),
        (Action.swipe((0.2, 0.65), (0.25, 0.65)), "swipe right 4"),
        (Action.swipe((0.3, 0.15), (0.9, 0.15)), "swipe right 0"),
        (Action.swipe((0.2, 0.03), (0.2, 0.97)), "swipe down"),
        (Action.swipe((0.15, 0.97), (0.65, 0.97)), "drag 6 7"),
        (Action(kind=ActionKind.ANSWER, text="né"), 'answer "né"'),
        (Action.invalid("what", "no"), "what"),
    ],
)
def test_an_action_is_written_with_the_element_that_it_is_meant_for(action: Action, text: str) -> None:
    assert AGENT.format(action, SCREEN) == text


def test_of_two_elements_at_one_place_the_topmost_is_meant() -> None:
    below, above = (Element(text=text, bounds=(0, 0, 1, 1)) for text in "ab")
    assert element_at([below, above], (0.5, 0.5)) == 1
    pop_up = above.model_copy(update={"flags": ("clickable",)})
    key = pop_up.model_copy(update={"bounds": (0.4, 0.4, 0.6, 0.6)})
    assert element_at([key, pop_up], (0.5, 0.5)) == 1, "although the button below is smaller"
    assert element_at([], (0.5, 0.5)) is None


@given(
    st.sampled_from(
        [
            "tap 8",
            "tap -1",
            "tap",
            "tap 0 1",
            "swipe 4",
            "drag 6",
            "slide 3",
            "type abc",
            'type ""',
            "type " + "[" * 10_000,
            "home now",
            "",
        ]
    )
    | st.text(max_size=20)
)
def test_everything_else_is_invalid_and_says_why(text: str) -> None:
    found = AGENT.parse(text, SCREEN)
    assert found.kind is ActionKind.INVALID
    assert found.reason


def test_an_action_without_a_notation_is_refused() -> None:
    with pytest.raises(ValueError, match="history must be 0 or more"):
        ElementsAgent(-1)
    assert build_agent(AgentConfig(kind="elements", options={"history": 1})).history == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("suite", ["quickstart", "general", "webshop", "install"])
def test_whatever_the_expert_does_can_be_written(suite: str) -> None:
    """One task of each template, solved by the expert's actions as this agent writes and reads them."""
    env = PhoneEnv()
    for task in {task.template: task for task in load_suite(suite)}.values():
        frame = env.reset(task)
        for _ in range(task.max_steps):
            screen = EMPTY.model_copy(update={"elements": env.elements(), "app": frame.app})
            action = AGENT.parse(AGENT.format(env.expert_action(), screen), screen)
            if action.is_terminal:
                break
            frame = env.step(action).frame
        assert (env.evaluate(), action.kind) == (1.0, ActionKind.COMPLETE), task.id
