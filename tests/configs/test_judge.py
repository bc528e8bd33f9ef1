"""The section `judge`: what does not fit together is told, with the key to set."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from distrl.configs.schema import Config


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"worker": {"rewards": {"source": "judge"}}}, "judge.kind"),
        (
            {"worker": {"rewards": {"source": "judge"}}, "judge": {"kind": "ground_truth"}},
            "is the environment's own check",
        ),
        ({"judge": {"kind": "local", "when": "steps"}}, "require_complete to false"),
        ({"judge": {"kind": "vlm", "votes": 3}}, "temperature"),
        ({"judge": {"kind": "vlm", "max_cost": 1.0}}, "price_input"),
        ({"judge": {"kind": "local", "min_confidence": 0.3}}, "min_confidence"),
        ({"judge": {"kind": "rules", "rules": [{"tapped": [[0, 1]]}]}}, "tapped"),
    ],
)
def test_refused(data: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Config.model_validate(data)


def test_the_shown_configuration_names_the_variable_and_not_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRL_JUDGE_KEY", "sk-secret")
    shown = Config.model_validate({"judge": {"kind": "vlm", "model": "m"}}).to_yaml()
    assert "DISTRL_JUDGE_KEY" in shown
    assert "sk-secret" not in shown
    assert "calls_per_minute" in shown


def test_the_name_of_a_judge() -> None:
    for judge, name in (("rules", "rules"), ({"import_path": "a.b:Mine"}, "Mine")):
        found = Config.model_validate({"judge": judge}).judge
        assert found is not None
        assert found.name == name
    assert Config().judge is None
