"""Agents and policies that do not fit are refused when the configuration is read."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from distrl.configs.schema import Config

HUB = {"kind": "hub", "model": "m"}
ABSOLUTE = {"coordinates": "absolute"}


def read(agent: dict[str, Any], policy: dict[str, Any]) -> Config:
    return Config.model_validate({"agent": agent, "policy": policy})


@pytest.mark.parametrize("kind", ["mobile-use", "androidworld"])
def test_the_embedded_policy_reads_one_prompt_at_a_time(kind: str) -> None:
    options = {"mode": "incremental"}
    with pytest.raises(ValidationError, match=r"set agent\.options\.mode to history"):
        read({"kind": kind, "options": options}, {})
    read({"kind": kind, "options": options}, HUB)
    read({"kind": kind, "options": {"mode": "history"}}, {})
    read({"import_path": "somebody:Else", "options": options}, {})


@pytest.mark.parametrize("resize", [None, {"max_pixels": 1000}, {"min_pixels": 900}])
def test_points_are_read_at_the_size_at_which_the_model_sees_the_picture(resize: Any) -> None:
    options = {**ABSOLUTE, "resize": resize}
    with pytest.raises(ValidationError, match=r"policy\.max_pixels=900 .*resize\.max_pixels=.*set both"):
        read({"kind": "mobile-use", "options": options}, {**HUB, "max_pixels": 900})


def test_the_same_size_on_both_sides_is_fine() -> None:
    options = {**ABSOLUTE, "resize": {"max_pixels": 900}}
    read({"kind": "mobile-use", "options": options}, {**HUB, "max_pixels": 900})
    read({"kind": "mobile-use", "options": ABSOLUTE}, HUB)
    read({"kind": "mobile-use", "options": {"coordinates": "relative"}}, {**HUB, "max_pixels": 900})
