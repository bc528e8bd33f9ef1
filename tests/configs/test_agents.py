"""Agents and policies that do not fit are refused when the configuration is read."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from distrl.configs.schema import Config

HUB = {"kind": "hub", "model": "m"}
AUTOUI = {"kind": "autoui", "model": "m"}
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
    with pytest.raises(ValidationError, match=r"policy\.kind=autoui reads one prompt at a time"):
        read({"kind": kind, "options": options}, AUTOUI)


@pytest.mark.parametrize("policy", [{}, AUTOUI, HUB])
def test_the_agent_autoui_has_no_sequence_that_goes_on(policy: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"cannot extend one; remove mode, or set agent\.kind"):
        read({"kind": "autoui", "options": {"mode": "incremental"}}, policy)


def test_the_error_says_why_a_t5_cannot_continue_a_sequence() -> None:
    with pytest.raises(ValidationError, match="encoder of its T5 reads in both directions"):
        read({"kind": "mobile-use", "options": {"mode": "incremental"}}, AUTOUI)


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


@pytest.mark.parametrize("options", [{"notation": "autoui"}, {"images": 2}])
def test_the_embedded_policy_reads_one_screen_and_its_own_notation(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"policy\.kind=tiny supports only agent\.options\."):
        read({"kind": "autoui", "options": options}, {})
    read({"kind": "autoui", "options": options}, AUTOUI)
    read({"kind": "autoui", "options": {"notation": "compact", "images": 1}}, {})


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ({"kind": "autoui"}, "model"),
        ({**HUB, "image_features": "b"}, "image_features"),
        ({"attended_images": 2}, "attended_images"),
        ({**AUTOUI, "max_pixels": 9}, "max_pixels"),
        ({**AUTOUI, "lora": {"vision": True}}, r"lora\.vision needs policy\.kind 'hub'"),
    ],
)
def test_keys_of_other_policies_are_refused(policy: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        read({}, policy)
    read({}, {**AUTOUI, "image_features": "b", "attended_images": 3})
    read({}, {**AUTOUI, "image_size": [10, 20]})
