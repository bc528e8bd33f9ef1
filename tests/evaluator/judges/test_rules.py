"""The judge `rules`: the first rule that is for the task decides, and asks for all it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from episode_factory import make_episode, make_task

from distrl.configs.judge import RulesConfig
from distrl.core.errors import ConfigError
from distrl.core.types import Trajectory, Verdict
from distrl.evaluator.judges.rules import RulesJudge


def episode(texts: tuple[str, ...] | None = None, app: str = "settings", goal: str = "") -> Trajectory:
    trajectory, _ = make_episode(make_task(goal=goal))
    assert trajectory.final is not None
    final = trajectory.final.model_copy(update={"texts": texts, "app": app})
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


def test_names_of_the_goal_and_of_the_params() -> None:
    rule = {"goal": r"turn on (?P<what>\w+)", "text": ["^{what} is on$"]}
    shown = episode(("a.b is on", "WiFi is on"), goal="Turn on wifi")
    assert ask(shown, rule).success
    assert ask(episode(("0 is on",)), {"text": ["^{switch} is on"]}).success  # of the task's params


def test_a_name_stands_for_itself_and_is_no_pattern() -> None:
    rule = {"goal": r"open (?P<what>\S+)", "text": ["^{what}$"]}
    assert not ask(episode(("aXc",), goal="Open a.c"), rule).success


@pytest.mark.parametrize(
    ("rule", "texts"),
    [
        ({"task": "other/*"}, ()),
        ({"text": ["x"]}, None),
        ({"not_text": ["x"]}, None),
        ({"text": ["{nobody}"]}, ("x",)),
    ],
)
def test_undecided(rule: dict[str, Any], texts: tuple[str, ...] | None) -> None:
    assert not ask(episode(texts), rule).is_decided


def test_rules_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("- template: toggle\n  app: settings\n")
    assert RulesJudge(RulesConfig(path=str(file))).judge(episode(), {}).success


@pytest.mark.parametrize("text", ["- app: [", "- apps: x", "app: x", "- goal: '('", "- text: ['(']", "[]"])
def test_wrong_rules_are_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        RulesJudge(RulesConfig(path=str(file)))


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (
            {"last": ["tapp"]},
            "'tapp' in `last` is not a kind of action. Did you mean 'tap'? Use tap, double_tap",
        ),
        ({"last": ["tap", "Complete"]}, "Did you mean 'complete'?"),
        ({"tapped": [[0.9, 0.9, 0.1, 0.1]]}, "is not a valid box"),
        ({"tapped": [[0.1, 0.9, 0.9, 0.1]]}, "is not a valid box"),
        ({"tapped": [[300, 10, 400, 90]]}, "is not a valid box"),
        ({"tapped": [[-0.1, 0.0, 1.0, 1.0]]}, "is not a valid box"),
        ({"tapped": [[0.0, 0.0, 1.0, float("nan")]]}, "is not a valid box"),
        ({"not_text": ["{what}("]}, "not_text"),
    ],
)
def test_what_could_never_come_true_is_refused(rule: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RulesJudge(RulesConfig.model_validate({"rules": [{}, rule]}))
    assert told in str(caught.value)
    assert "Rule 2: " in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("app: x", "rules.yaml: Input should be a valid list."),
        ("- lst: [tap]", "rules.yaml: 0.lst: there is no such key. Did you mean 'last'?"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_where_it_is(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        RulesJudge(RulesConfig(path=str(file)))
    assert told in str(caught.value)


def test_a_missing_file_is_told() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        RulesJudge(RulesConfig(path="/nowhere/rules.yaml"))
