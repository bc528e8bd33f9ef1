"""The judge `rules`: the first rule that is for the task decides, and asks for all it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from episode_factory import make_episode, make_task

from distrl.configs.judge import RulesConfig
from distrl.core.errors import ConfigError
from distrl.core.types import Element, Trajectory, Verdict
from distrl.evaluator.judges.rules import RulesJudge


def episode(texts: tuple[str, ...] | None = None, app: str = "settings", goal: str = "") -> Trajectory:
    trajectory, _ = make_episode(make_task(goal=goal))
    assert trajectory.final is not None
    elements = None if texts is None else tuple(Element(text=text, bounds=(0, 0, 1, 1)) for text in texts)
    final = trajectory.final.model_copy(update={"elements": elements, "app": app})
    return trajectory.model_copy(update={"final": final})


def ask(trajectory: Trajectory, *rules: dict[str, Any]) -> Verdict:
    return RulesJudge(RulesConfig.model_validate({"rules": list(rules)})).judge(trajectory, {})


@pytest.mark.parametrize(
    ("rule", "success"),
    [
        ({"app": "^settings$"}, True),
        ({"app": "clock"}, False),
        ({"text": ["wi-fi", "on$"]}, True),
        ({"text": ["wi-fi", "off"]}, False),
        ({"not_text": ["error"]}, True),
        ({"not_text": ["wi-fi"]}, False),
        ({"tapped": [[0.4, 0.1, 0.6, 0.25]]}, True),
        ({"tapped": [[0.4, 0.1, 0.6, 0.25], [0.9, 0.9, 1.0, 1.0]]}, False),
        ({"last": ["tap", "complete"]}, True),
        ({"last": ["type", "complete"]}, False),
        ({"typed": ["hello"]}, False),
        ({"max_steps": 3}, True),
        ({"max_steps": 2}, False),
        ({}, True),
    ],
)
def test_all_that_a_rule_asks_for(rule: dict[str, Any], success: bool) -> None:
    verdict = ask(episode(("Wi-Fi", "On")), rule)
    assert verdict.is_decided
    assert verdict.success is success
    assert (verdict.score, verdict.judge) == (float(success), "rules")


def test_the_first_rule_for_the_task_decides() -> None:
    rules = ({"task": "other/*", "app": "x"}, {"template": "toggle", "app": "settings"}, {"app": "never"})
    assert ask(episode(), *rules).reason.startswith("Rule 2")


@pytest.mark.parametrize(
    ("rule", "texts", "goal", "success"),
    [
        (
            {"goal": r"on (?P<what>\w+)", "text": ["^{what} is on$"]},
            ("a", "WiFi is on"),
            "Turn on wifi",
            True,
        ),
        ({"text": ["^{switch} is on"]}, ("0 is on",), "", True),  # a parameter of the task
        ({"goal": r"open (?P<what>\S+)", "text": ["^{what}$"]}, ("aXc",), "Open a.c", False),  # no pattern
        ({"task": "other/*"}, (), "", None),
        ({"text": ["x"]}, None, "", None),
        ({"not_text": ["x"]}, None, "", None),
        ({"text": ["{nobody}"]}, ("x",), "", None),
    ],
)
def test_names_stand_for_themselves_and_what_is_not_known_is_undecided(
    rule: dict[str, Any], texts: tuple[str, ...] | None, goal: str, success: bool | None
) -> None:
    verdict = ask(episode(texts, goal=goal), rule)
    assert (verdict.success if verdict.is_decided else None) is success


def test_rules_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("- template: toggle\n  app: settings\n")
    assert RulesJudge(RulesConfig(path=str(file))).judge(episode(), {}).success


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- app: [", "rules.yaml, line 1"),
        ("[]", "has no rules"),
        ("app: x", "rules.yaml: Input should be a valid list."),
        ("- lst: [tap]", "rules.yaml: 0.lst: there is no such key. Did you mean 'last'?"),
        ("- last: [tapp]", "Rule 1: 'tapp' in `last` is not a kind of action. Did you mean 'tap'? Use tap,"),
        ("- goal: '('", "'(' is not a valid regular expression"),
        ("- not_text: ['{what}(']", "0.not_text.0: Value error, '{what}(' is not a valid regular"),
        ("- tapped: [[0.9, 0.9, 0.1, 0.1]]", "0.tapped.0: Value error, [0.9, 0.9, 0.1, 0.1] is not [left,"),
        ("- tapped: [[300, 10, 400, 90]]", "in shares of the screen"),
        ("- tapped: [[0.0, 0.0, 1.0, .nan]]", "in shares of the screen"),
        ("- tapped: [[0, 1]]", "in shares of the screen"),
        (None, "cannot be read"),
    ],
)
def test_wrong_rules_are_refused_where_they_are(text: str | None, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        RulesJudge(RulesConfig(path=str(file)))
    assert reason in str(caught.value)
