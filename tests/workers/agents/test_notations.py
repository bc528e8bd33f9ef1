"""Every notation reads what it writes, and takes any text whatever."""

from __future__ import annotations

import math
import sys

import pytest
from agent_prompts import SCREEN as PLAIN_SCREEN
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from distrl.core.actions import Action, ActionKind
from distrl.core.errors import ConfigError
from distrl.core.types import Element
from distrl.workers.agents.androidworld import GESTURES, AndroidWorldAgent
from distrl.workers.agents.autoui import TAP_DISTANCE, AutoUIAgent
from distrl.workers.agents.base import Agent
from distrl.workers.agents.elements import ElementsAgent
from distrl.workers.agents.gui_models import (
    AutoGLMAgent,
    GUIOwlAgent,
    HoloAgent,
    MAIUIAgent,
    UITarsAgent,
    UIVenusAgent,
)
from distrl.workers.agents.mobile_use import MobileUseAgent

TEXTS = "left", "right"
SCREEN = PLAIN_SCREEN.model_copy(  # elements on its left and right, and none at its top and bottom
    update={
        "elements": tuple(
            Element(text=text, flags=("clickable",), bounds=(n / 2, 0.2, n / 2 + 0.5, 0.8))
            for n, text in enumerate(TEXTS)
        )
    }
)
AGENTS: dict[str, Agent] = {
    "autoui": AutoUIAgent(),
    "androidworld": AndroidWorldAgent(),
    "androidworld pixels": AndroidWorldAgent(coordinates=[1080, 2400]),
    "androidworld by index": AndroidWorldAgent(observe="marks"),
    "mobile-use": MobileUseAgent(),
    "mobile-use by index": MobileUseAgent(observe="elements"),
    "mobile-use pixels": MobileUseAgent(coordinates="absolute", resize={"max_pixels": 12_845_056}),
    "gui-owl": GUIOwlAgent(),
    "mai-ui": MAIUIAgent(),
    "autoglm": AutoGLMAgent(),
    **{f"ui-tars {version}": UITarsAgent(version) for version in UITarsAgent.dialects},
    **{f"ui-venus {version}": UIVenusAgent(version) for version in UIVenusAgent.dialects},
    **{f"holo {version}": HoloAgent(version) for version in HoloAgent.dialects},
}
LACKS = {
    **dict.fromkeys(("autoui", "mobile-use", "gui-owl"), "double_tap answer open_app"),
    "autoglm": "answer enter impossible",
    "ui-tars": "answer double_tap enter impossible long_press home open_app",
    "ui-venus": "impossible",
    "holo": "impossible answer double_tap long_press swipe type home enter open_app",
}
THOUGHTS = "<thinking><tool_call></thinking>Thought: so.\nAction: Open the clock.\n"

points = st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
tags = st.sampled_from(
    ["</tool_call>", "<think>", "</thinking>", "<conclusion>", "Action: no", "Action Plan:"]
)
texts = st.one_of(st.text(min_size=1, max_size=80), tags)
pointed = st.sampled_from([ActionKind.TAP, ActionKind.DOUBLE_TAP, ActionKind.LONG_PRESS])
worded = st.sampled_from([ActionKind.TYPE, ActionKind.ANSWER, ActionKind.OPEN_APP])
plain = st.sampled_from([ActionKind(k) for k in ["home", "back", "enter", "wait", "complete", "impossible"]])
actions = st.one_of(
    st.builds(lambda kind, at: Action(kind=kind, point=at), pointed, points),
    st.builds(Action.swipe, points, points),
    st.sampled_from([Action.swipe(*gesture) for gesture in GESTURES.values()]),
    st.builds(lambda kind, text: Action(kind=kind, text=text), worded, texts),
    st.builds(lambda kind: Action(kind=kind), plain),
)


@pytest.mark.parametrize("name", AGENTS)
@settings(deadline=None)
@given(action=actions)
def test_parse_reads_what_format_writes(name: str, action: Action) -> None:
    agent = AGENTS[name]
    assume(action.to is None or math.dist(action.point or (0, 0), action.to) > TAP_DISTANCE + 0.02)
    try:
        text = agent.format(action, SCREEN)
    except ConfigError:  # the notation lacks it
        assert action.kind.value in LACKS[name.partition(" ")[0]].split()
        return
    read = agent.parse(text, SCREEN)
    assert (read.kind, read.text) == (action.kind, action.text)
    assert agent.format(read, SCREEN) == text
    is_named = not action.to or (action.point, action.to) in GESTURES.values()
    is_exact = is_named or not name.startswith("androidworld")  # which scrolls in four directions only
    if is_exact and '"index"' not in text:
        for found, wanted in ((read.point, action.point), (read.to, action.to)):
            assert found == (wanted and pytest.approx(wanted, abs=0.0051))
    if name.startswith("mobile-use"):
        assert (
            agent.parse(text.join((THOUGHTS[0] + THOUGHTS[1], "<conclusion>x</conclusion>")), SCREEN) == read
        )


PIECES = r"""
" \ [ ] { } ' , : nan NaN inf 1e999 \ud800 \u12 512 ]}} DUAL_POINT TYPE Action: Reason: "action" "arguments":{
<tool_call> </tool_call> <think> </think> <conclusion> "action_type":" "touch_point":"[ "typed_text":"
{"action_type":"click","x": {"name":"mobile_use","arguments":{"action":"click","coordinate":[
"""
fragments = st.sampled_from(
    [
        *PIECES.split(),
        *(" ", "Action Plan: [", "Action Decision: ", "\ud800", "[" * 5000, "9" * 5000),
        *(agent.format(Action.tap(0.5, 0.1), SCREEN) for agent in AGENTS.values()),
    ]
)


numbers = st.sampled_from(["0 ", "1 ", "9" * 5000, "-1", "٣", "²", "right", '"a"'])
said = st.one_of(
    st.text(),
    st.lists(st.one_of(fragments, st.text(max_size=5)), max_size=25).map("".join),
    st.builds(
        "{} {}{}".format, st.sampled_from(["tap", "slide", "swipe up", "drag", "type"]), numbers, numbers
    ),
)


@settings(deadline=None)
@given(said)
def test_parse_takes_any_text(text: str) -> None:
    for agent in (*AGENTS.values(), ElementsAgent()):
        action = agent.parse(text, SCREEN)
        assert (action.kind is ActionKind.INVALID) == bool(action.reason)
        Action.model_validate_json(action.model_dump_json())  # what comes out can be recorded


def test_a_value_that_python_reads_and_cannot_show_is_not_an_action() -> None:
    """Values of all depths around the limit: reading one takes fewer frames than showing it."""
    limit = sys.getrecursionlimit()
    for depth in range(limit - 200, limit):
        direction = '{"a":' * depth + "1" + "}" * depth
        text = f'Action: {{"action_type": "scroll", "direction": {direction}}}'
        assert AndroidWorldAgent().parse(text, SCREEN).kind is ActionKind.INVALID
