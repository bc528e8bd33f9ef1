"""Agents of published GUI models: answers as in the models' public repositories, and what they mean."""

from __future__ import annotations

import re
from typing import Any

import pytest
from agent_prompts import SCREEN, asked, step

from distrl.configs.agents import GUI_MODELS, AgentConfig
from distrl.configs.load import load_config
from distrl.core.actions import Action, ActionKind
from distrl.core.errors import ConfigError
from distrl.core.published import coordinates_of, published
from distrl.workers.agents import build_agent
from distrl.workers.agents.base import Agent
from distrl.workers.agents.gui_models import GuiModelAgent

K = ActionKind
LARGE = {"resize": {"min_pixels": 78_400, "max_pixels": 12_845_056}}  # SCREEN becomes 1092x2408


def agent_of(kind: str, **options: Any) -> Agent:
    return build_agent(AgentConfig(kind=kind, options=options))


def tars(call: str) -> str:
    return f"Thought: I can see it. Action: is needed.\nAction: {call}"


def tars_2(call: str) -> str:
    return f"<thinkt>I'll click it, <point>5 5</point>.</thinkt><seed:tool_call>\n{call}\n</seed:tool_call>"


def glm(call: str) -> str:
    return f"<think>The app is open.</think><answer>{call}</answer>"


def venus(call: str) -> str:
    return f"<think>It is there.</think>\n<action>{call}</action>"


def mai(arguments: str) -> str:
    call = f'{{"name": "mobile_use", "arguments": {arguments}}}'
    return f"<thinking>\nA plan.\n</thinking>\n<tool_call>\n{call}\n</tool_call>"


def holo(call: str, inside: str = "tool_call") -> str:
    return f'{{"note": null, "thought": "Go on.", "{inside}": {call}}}'


Meaning = tuple[ActionKind, Any, Any]
"""A kind, where, and where to or which text."""

TRANSCRIPTS: list[tuple[str, dict[str, Any], str, Meaning]] = [
    # bytedance/UI-TARS: README_v1.md, README_coordinates.md, codes/tests/action_parser_test.py; its client
    # (README_deploy.md) puts box tokens back that decoding has dropped.
    (
        "ui-tars",
        LARGE,
        tars("click(start_box='<|box_start|>(546,1204)<|box_end|>')"),
        (K.TAP, (0.5, 0.5), ""),
    ),
    ("ui-tars", LARGE, tars("click(start_box='(546,1204)')"), (K.TAP, (0.5, 0.5), "")),
    ("ui-tars", LARGE, tars("long_press(start_box='(0,0)', time='')"), (K.LONG_PRESS, (0, 0), "")),
    ("ui-tars", LARGE, tars("click(start_box='[500, 1100, 592, 1308]')"), (K.TAP, (0.5, 0.5), "")),
    (
        *("ui-tars", LARGE),
        tars("scroll(start_box='<|box_start|>(546,1204)<|box_end|>', end_box='(546,602)')"),
        (K.SWIPE, (0.5, 0.5), (0.5, 0.25)),
    ),
    (
        "ui-tars",
        LARGE,
        tars("drag(start_box='(546,1204)', end_box='(0,1204)')"),
        (K.SWIPE, (0.5, 0.5), (0, 0.5)),
    ),
    (
        "ui-tars",
        LARGE,
        tars("scroll(start_box='(546,1204)', direction='down')"),
        (K.SWIPE, (0.5, 0.5), (0.5, 0.2)),
    ),
    ("ui-tars", {}, tars(r"type(content='it\'s \"milk\"\n')"), (K.TYPE, None, 'it\'s "milk"\n')),
    ("ui-tars", {}, tars("type(content='it's \"milk\"')"), (K.TYPE, None, 'it\'s "milk"')),
    ("ui-tars", {}, tars("open_app(app_name='Clock')"), (K.OPEN_APP, None, "Clock")),
    ("ui-tars", {}, tars("press_home()"), (K.HOME, None, "")),
    ("ui-tars", {}, tars("finished(content='done')"), (K.COMPLETE, None, "")),
    # UI-TARS of Qwen2-VL: action_parser.py divides by a factor of 1000.
    ("ui-tars", {"version": 1}, tars("click(start_box='(500,1000)')"), (K.TAP, (0.5, 1), "")),
    # codes/README.md and codes/ui_tars/prompt.py, MOBILE_USE_DOUBAO
    (
        "ui-tars",
        {"version": "points"},
        tars("click(point='<point>200 300</point>')"),
        (K.TAP, (0.2, 0.3), ""),
    ),
    (
        *("ui-tars", {"version": "points"}),
        tars("drag(start_point='<point>200 300</point>', end_point='<point>200 100</point>')"),
        (K.SWIPE, (0.2, 0.3), (0.2, 0.1)),
    ),
    # bytedance/UI-TARS-desktop: multimodal/gui-agent/action-parser/test/xmlParser.test.ts; a point is divided
    # by 1000 in multimodal/omni-tars/gui-agent/src/GUIAgentT5Adapter.ts
    *(
        ("ui-tars", {"version": 2}, tars_2(call) if call.startswith("<function") else call, meaning)
        for call, meaning in [
            (
                "<function=click>\n<parameter=point><point>17 58</point></parameter>\n</function>",
                (K.TAP, (0.017, 0.058), ""),
            ),
            (
                "<function=left_double>\n<parameter=point><point>18 58</point></parameter>\n</function>",
                (K.DOUBLE_TAP, (0.018, 0.058), ""),
            ),
            (
                "<function=type>\n<parameter=content>shrimp and crab recipes</parameter>\n</function>",
                (K.TYPE, None, "shrimp and crab recipes"),
            ),
            (
                "<function=scroll>\n<parameter=direction>up</parameter>\n"
                "<parameter=point><point>500 500</point></parameter>\n</function>",
                (K.SWIPE, (0.5, 0.5), (0.5, 0.8)),
            ),
            ("<function=wait>\n</function>", (K.WAIT, None, "")),
            ("<function=navigate_back>\n</function>", (K.BACK, None, "")),
            ("<thinkt>It is there.</thinkt>The answer to 1+1 is 2.", (K.COMPLETE, None, "")),
            (
                "<thinkt>Back.</thinkt>\n<function=navigate_back>\n</function>",
                (K.BACK, None, ""),
            ),  # unwrapped
        ]
    ),
    # zai-org/Open-AutoGLM: phone_agent/config/prompts_en.py, phone_agent/model/client.py
    ("autoglm", {}, glm('do(action="Tap", element=[499,999])'), (K.TAP, (0.5, 1), "")),
    ("autoglm", {}, glm('do(action="Tap", element=[499,999], message="pay")'), (K.TAP, (0.5, 1), "")),
    ("autoglm", {}, 'I will go back. do(action="Back")', (K.BACK, None, "")),
    ("autoglm", {}, glm('do(action="Double Tap", element=[0,0])'), (K.DOUBLE_TAP, (0, 0), "")),
    ("autoglm", {}, glm('do(action="Long Press", element=[0,0])'), (K.LONG_PRESS, (0, 0), "")),
    (
        "autoglm",
        {},
        glm('do(action="Swipe", start=[500,800], end=[500,200])'),
        (K.SWIPE, (0.5, 0.8), (0.5, 0.2)),
    ),
    ("autoglm", {}, glm('do(action="Type", text="say "hi" (now)\n")'), (K.TYPE, None, 'say "hi" (now)\n')),
    ("autoglm", {}, glm('do(action="Launch", app="Settings")'), (K.OPEN_APP, None, "Settings")),
    ("autoglm", {}, glm('do(action="Wait", duration="2 seconds")'), (K.WAIT, None, "")),
    ("autoglm", {}, glm('finish(message="Task completed.")'), (K.COMPLETE, None, "")),
    # Tongyi-MAI/MAI-UI: src/prompt.py; /999 in src/mai_naivigation_agent.py, which takes boxes, too
    ("mai-ui", {}, mai('{"action": "click", "coordinate": [499, 0]}'), (K.TAP, (0.5, 0), "")),
    ("mai-ui", {}, mai('{"action": "click", "coordinate": [400, 0, 598, 998]}'), (K.TAP, (0.5, 0.5), "")),
    (
        "mai-ui",
        {},
        "A plan.</think>" + mai('{"action": "wait"}').partition("</thinking>")[2],
        (K.WAIT, None, ""),
    ),
    ("mai-ui", {}, mai('{"action": "swipe", "direction": "up"}'), (K.SWIPE, (0.5, 0.5), (0.5, 0.25))),
    (
        *("mai-ui", {}),
        mai('{"action": "swipe", "direction": "left", "coordinate": [100, 499]}'),
        (K.SWIPE, (0.1, 0.5), (0, 0.5)),
    ),
    (
        *("mai-ui", {}),
        mai('{"action": "drag", "start_coordinate": [0, 0], "end_coordinate": [999, 999]}'),
        (K.SWIPE, (0, 0), (1, 1)),
    ),
    ("mai-ui", {}, mai('{"action": "system_button", "button": "enter"}'), (K.ENTER, None, "")),
    ("mai-ui", {}, mai('{"action": "terminate", "status": "fail"}'), (K.IMPOSSIBLE, None, "")),
    ("mai-ui", {}, mai('{"action": "answer", "text": "7"}'), (K.ANSWER, None, "7")),
    # X-PLUG/MobileAgent: android_world_v3.5 and android_world_v3 (of Qwen2.5-VL), agents/gui_owl.py
    (
        "gui-owl",
        {},
        "Action: Tap it.\n" + mai('{"action": "click", "coordinate": [499, 0]}'),
        (K.TAP, (0.5, 0), ""),
    ),
    (
        "gui-owl",
        {"version": 1, **LARGE},
        mai('{"action": "click", "coordinate": [546, 0]}'),
        (K.TAP, (0.5, 0), ""),
    ),
    ("gui-owl", {}, mai('{"action": "terminate", "status": "failure"}'), (K.IMPOSSIBLE, None, "")),
    # hub.hcompany.ai/agent-loop (3, 3.1)
    (
        *("holo", {}),
        holo('{"tool_name": "click", "element": "Continue button", "x": 932, "y": 1000}'),
        (K.TAP, (0.932, 1), ""),
    ),
    ("holo", {}, "<think>{</think>" + holo('{"tool_name": "write", "content": "a"}'), (K.TYPE, None, "a")),
    ("holo", {}, holo('{"tool_name": "answer", "content": "done"}'), (K.COMPLETE, None, "")),
    # hcompai/hai-cookbook: utils/navigation.py (1, 1.5)
    (
        *("holo", {"version": 1, **LARGE}),
        holo('{"action": "click_element", "element": "the search bar", "x": 546, "y": 1204}', "action"),
        (K.TAP, (0.5, 0.5), ""),
    ),
    (
        *("holo", {"version": 1, **LARGE}),
        holo('{"action": "write_element_abs", "content": "Rome", "element": "to", "x": 0, "y": 0}', "action"),
        (K.TYPE, (0, 0), "Rome\n"),  # "Write content …, then press Enter."
    ),
    (
        "holo",
        {"version": 1},
        holo('{"action": "scroll", "direction": "down"}', "action"),
        (K.SWIPE, (0.5, 0.5), (0.5, 0.2)),
    ),
    # inclusionAI/UI-Venus: models/mobile/examples/example_output.json (2), models/navigation/utils.py (1),
    # Venus_framework/processor/uivenus_processor.py (1.5: 0 to 999)
    ("ui-venus", {}, venus("LaunchApp(app='酷我音乐')"), (K.OPEN_APP, None, "酷我音乐")),
    ("ui-venus", {}, venus("Click(point=(897, 937))"), (K.TAP, (0.897, 0.937), "")),
    ("ui-venus", {}, venus("Swipe(start=(500, 800), end=(500, 200))"), (K.SWIPE, (0.5, 0.8), (0.5, 0.2))),
    ("ui-venus", {}, venus("Answer(content='7')"), (K.ANSWER, None, "7")),
    ("ui-venus", {"version": 1.5}, venus("Click(box=(897,937))"), (K.TAP, (0.897, 0.937), "")),
    ("ui-venus", {"version": 1, **LARGE}, venus("Click(box=(546, 1204))"), (K.TAP, (0.5, 0.5), "")),
    (
        *("ui-venus", {"version": 1, **LARGE}),
        venus("Scroll(start=(546,1204), end=(546,602), direction='')"),
        (K.SWIPE, (0.5, 0.5), (0.5, 0.25)),
    ),
    ("ui-venus", {"version": 1}, venus("CallUser(content='7')"), (K.ANSWER, None, "7")),
    (
        "ui-venus",
        {"version": 1},
        venus("PressEnter()") + "<conclusion>Sent.</conclusion>",
        (K.ENTER, None, ""),
    ),
]


@pytest.mark.parametrize(("kind", "options", "text", "meaning"), TRANSCRIPTS)
def test_what_a_published_answer_means(
    kind: str, options: dict[str, Any], text: str, meaning: Meaning
) -> None:
    found = agent_of(kind, **options).parse(text, SCREEN)
    assert (found.kind, found.reason) == (meaning[0], "")
    assert found.point == (meaning[1] and pytest.approx(meaning[1], abs=0.0011))
    assert (found.to or found.text) == (pytest.approx(meaning[2], abs=0.0011) if found.to else meaning[2])


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("ui-tars", tars("hover(start_box='(1,1)')"), "none of the calls click"),
        ("ui-tars", tars("click(start_box='(1)')"), "not the two numbers of a point"),
        ("ui-tars", tars("click('(1,1)')"), "malformed arguments of click"),
        ("ui-tars", tars("click(start_box='(1,1)', button='left')"), "click has no 'button'"),
        ("ui-tars", tars("type(content='')"), "type needs content"),
        ("ui-tars", tars("click(start_box='(1092,1)')"), "is not within"),
        ("ui-tars 2", tars_2("<function=mouse_up>\n</function>"), "none of the calls click, left_double"),
        ("ui-tars 2", tars_2("<function=wait>\n</function>\n" * 2), "several calls"),
        ("ui-tars 2", "<thinkt>It is", "the thinking does not end"),
        ("ui-tars 2", "<thinkt>It is</thinkt>\n", "none of the calls"),
        ("autoglm", glm('do(action="Take_over", message="log in")'), "is not supported"),
        ("ui-tars", tars("click(start_box='(9,9)')\n\nclick(start_box='(1,1)')"), "several calls"),
        ("autoglm", glm('do(action="Type", text="a")\ndo(action="Back")'), "several calls"),
        ("autoglm", glm('do(action="Back")') + glm('do(action="Home")').partition("</think>")[2], "2 calls"),
        ("mai-ui", mai('{"action": "wait"}') + "<tool_call>", "2 calls, and one was asked for"),
        ("autoglm", glm('do(action="Tap", element=[-0.4, 6])'), "is not within"),
        ("autoglm", glm('do(action="Tap", element=[True, 5, 6])'), "not the two numbers of a point"),
        ("autoglm", "<think>do(action=", "the thinking does not end"),
        ("mai-ui", mai('{"action": "ask_user", "text": "which?"}'), "action is 'ask_user', not one of click"),
        ("mai-ui", mai('{"action": "system_button", "button": "menu"}'), "is not supported"),
        ("mai-ui", mai("{").replace("mobile_use", "computer_use"), "malformed JSON"),
        ("holo", holo('{"tool_name": "click", "x": 1}'), "x y is [1, None], not the two numbers"),
        ("holo", holo('{"tool_name": "wait"}') * 2, "not just one JSON object"),
        ("ui-venus", venus("Click(point={1, 2})"), "not the two numbers of a point"),
    ],
)
def test_nothing_else_is_guessed(kind: str, text: str, reason: str) -> None:
    name, _, version = kind.partition(" ")
    options = {"version": version} if version else LARGE if name == "ui-tars" else {}
    found = agent_of(name, **options).parse(text, SCREEN)
    assert found.kind is K.INVALID
    assert reason in found.reason


def test_the_enter_that_a_call_includes_is_not_written_into_its_text() -> None:
    agent = agent_of("holo", version=1, **LARGE)
    written = agent.format(Action(kind=K.TYPE, point=(0.5, 0.5), text="Rome\n"), SCREEN)
    assert '"content": "Rome"' in written
    assert agent.parse(written, SCREEN).text == "Rome\n"


DIALECTS = [
    (kind, version)
    for kind in GUI_MODELS
    if isinstance(agent := agent_of(kind), GuiModelAgent)
    for version in agent.dialects
]


@pytest.mark.parametrize(("kind", "version"), DIALECTS)
def test_a_prompt_lists_the_calls_and_each_can_be_read(kind: str, version: str) -> None:
    agent = agent_of(kind, version=version)
    system, user = agent.prompt("Add Ann", SCREEN, []).messages
    text = asked(system)[0] + asked(user)[0]
    assert asked(user)[1] == ["f00d"]
    assert "Add Ann" in asked(user)[0]
    assert not re.search(r"{(actions|goal|progress|inside|doing|places)}", text)
    assert isinstance(agent, GuiModelAgent)
    dialect, shown = agent.dialects[version], 0
    for verb in dialect.verbs:
        written = dialect.syntax.write(verb, ((1, 2), (3, 4))[: len(verb.places)], "xxx")
        assert agent.parse(written, SCREEN).kind is verb.kind
        shown += verb.shown is not None
    places = (("x1", "y1"), ("x2", "y2"))
    lines = [
        re.sub(r'"([xy]\d)"', r"\1", dialect.syntax.call(v.as_shown, places[: len(v.places)], "xxx"))
        for v in dialect.verbs
        if v.shown is not None
    ]
    assert [line for line in lines if line in text] == lines


def test_earlier_steps_are_told_by_thought_and_call() -> None:
    agent = agent_of("ui-tars", **LARGE)
    others = [step(agent, Action(kind=kind)) for kind in (K.WAIT, K.ENTER)]
    steps = [step(agent, tars("press_back()")), step(agent, "what?"), *others]
    text, _ = asked(agent.prompt("go", SCREEN, steps).messages[1])
    told = text.partition("## Action History\n")[2].splitlines()
    assert told[0] == "Step 1: I can see it. Action: is needed. Action: press_back()"
    assert told[1].startswith("Step 2: not an action (none of the calls click, long_press, ")
    assert told[2:] == ["Step 3: Action: wait()", "Step 4: enter"]


def test_a_conclusion_that_is_cut_off_is_told() -> None:
    agent = agent_of("ui-venus", version=1)
    said = step(agent, venus("PressBack()") + "<conclusion>Went back")
    text, _ = asked(agent.prompt("go", SCREEN, [said]).messages[1])
    assert "Step 1: Went back <action>PressBack()" in text


def test_gui_owl_is_asked_as_published() -> None:
    system, user = agent_of("gui-owl").prompt("go", SCREEN, []).messages
    assert "The screen's resolution is 1000x1000." in asked(system)[0]
    assert asked(user)[0].endswith("Instruction: go\n\nPrevious actions:\nNo previous action.\n")
    system, user = agent_of("gui-owl", version=1, **LARGE).prompt("go", SCREEN, []).messages
    assert "The screen's resolution is 1092x2408." in asked(system)[0]
    assert "<conclusion></conclusion>" in asked(user)[0]


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"version must be one of 1\.5, 1, points, 2, not 3"):
        agent_of("ui-tars", version=3)


@pytest.mark.parametrize(
    ("model", "kind", "coordinates"),
    [
        ("ByteDance-Seed/UI-TARS-1.5-7B", "ui-tars", "absolute"),
        ("ByteDance-Seed/UI-TARS-7B-DPO", "ui-tars", "relative"),
        ("their/UI-TARS-2", "ui-tars", "relative"),
        ("zai-org/AutoGLM-Phone-9B-Multilingual", "autoglm", "relative"),
        ("Tongyi-MAI/MAI-UI-8B", "mai-ui", "relative"),
        ("mPLUG/GUI-Owl-7B", "gui-owl", "absolute"),
        ("mPLUG/GUI-Owl-1.5-8B-Instruct", "gui-owl", "relative"),
        ("Hcompany/Holo1.5-7B", "holo", "absolute"),
        ("Hcompany/Holo3-35B-A3B", "holo", "relative"),
        ("inclusionAI/UI-Venus-Navi-7B", "ui-venus", "absolute"),
        ("inclusionAI/UI-Venus-1.5-8B", "ui-venus", "relative"),
        ("Qwen/Qwen2.5-VL-3B-Instruct", "mobile-use", "absolute"),
        ("Qwen/Qwen3-VL-2B-Instruct", "mobile-use", "relative"),
        ("Qwen/Qwen3.5-9B", "mobile-use", "relative"),
        ("zai-org/GLM-4.6V-Flash", "androidworld", "scale"),
        ("/models/qwen3-vl/checkpoints/MAI-UI-2B", "mai-ui", "relative"),
        ("/cache/models--mPLUG--GUI-Owl-7B/snapshots/0a1b", "gui-owl", "absolute"),
    ],
)
def test_auto_is_the_agent_of_the_model(model: str, kind: str, coordinates: str) -> None:
    policy = f"policy={{kind: hub, model: {model}, max_pixels: 660000}}"
    prompted = ["evaluate.prompted.agent.kind=auto", "evaluate.prompted.model=ByteDance-Seed/UI-TARS-1.5-7B"]
    config = load_config(
        "quickstart-pixels", ["agent={kind: auto, options: {history: 7}}", policy, *prompted]
    )
    assert config.evaluate.prompted.agent.kind == "ui-tars"
    assert config.agent.kind == kind
    assert config.agent.options["history"] == 7
    assert coordinates_of(config.agent) == coordinates
    resize = config.agent.options.get("resize")
    assert resize == ({"max_pixels": 660_000} if coordinates == "absolute" else None)
    build_agent(config.agent)
    assert config.hub_policy.own_tokens == (["<|box_start|>", "<|box_end|>"] if kind == "ui-tars" else [])


@pytest.mark.parametrize("name", ["Holo2-8B", "Holo-30B", "UI-Venus-Ground-7B", "UI-Venus-2B"])
def test_auto_knows_no_other_model(name: str) -> None:
    assert published(f"their/{name}") is None


def test_auto_keeps_a_version_and_resizes_as_it_reads() -> None:
    policy = "policy={kind: hub, model: their/UI-Venus-1.5-8B, max_pixels: 660000}"
    config = load_config("quickstart-pixels", ["agent={kind: auto, options: {version: 1}}", policy])
    assert config.agent.options == {"version": 1, "resize": {"max_pixels": 660_000}}
