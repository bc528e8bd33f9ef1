"""Tasks of the settings: switches, levels, options, and pages to be shown."""

from __future__ import annotations

import random

from distrl.core.actions import Action
from distrl.core.errors import TaskError
from distrl.simulator.apps.settings_pages import CHOICES, PARENTS, SECTIONS, SLIDERS, TOGGLES
from distrl.simulator.phone import state as st
from distrl.simulator.phone.hand import BACK, Hand
from distrl.simulator.phone.keeping import May
from distrl.simulator.phone.state import State
from distrl.simulator.tasks.base import Params, Template, fresh
from distrl.simulator.tasks.moves import everyday, page


def _values(state: State) -> State:
    values: State = state["apps"]["settings"]
    return values


def _section(hand: Hand, name: str) -> Action | None:
    """What opens a section, by the one that links to it if need be; None when it is open."""
    at = page(hand, "settings")
    if at == ["section", name]:
        return None
    parent = PARENTS.get(name)
    if at[0] == "root":
        return hand.tap("section_" + (parent or name))
    return hand.tap("section_" + name) if parent and at == ["section", parent] else BACK


def _switch_start(state: State, params: Params, rng: random.Random) -> None:
    _values(state)[params["setting"]] = not params["on"]


def _switch_check(state: State, params: Params) -> bool:
    return bool(_values(state)[params["setting"]] == params["on"])


def _switch_way(hand: Hand, params: Params) -> Action:
    return _section(hand, TOGGLES[params["setting"]][0]) or hand.tap("switch_" + params["setting"])


def _level_start(state: State, params: Params, rng: random.Random) -> None:
    others = [percent for percent in range(0, 101, 10) if percent != params["percent"]]
    _values(state)[params["setting"]] = rng.choice(others)


def _level_check(state: State, params: Params) -> bool:
    return bool(_values(state)[params["setting"]] == params["percent"])


def _level_way(hand: Hand, params: Params) -> Action:
    way = _section(hand, SLIDERS[params["setting"]])
    return way or hand.tap(f"slider_{params['setting']}_{params['percent']}")


def _choice_start(state: State, params: Params, rng: random.Random) -> None:
    options = CHOICES[params["setting"]][1].options
    if params["option"] not in options:
        rule = f"{params['option']!r} is no option of the setting {params['setting']!r}."
        raise TaskError(rule, f"Options: {', '.join(options)}.")
    _values(state)[params["setting"]] = rng.choice([word for word in options if word != params["option"]])


def _choice_check(state: State, params: Params) -> bool:
    return bool(_values(state)[params["setting"]] == params["option"])


def _choice_way(hand: Hand, params: Params) -> Action:
    section, choice = CHOICES[params["setting"]]
    if page(hand, "settings") == ["choice", params["setting"]]:
        return hand.tap(f"option_{choice.options.index(params['option'])}")
    return _section(hand, section) or hand.tap("choice_" + params["setting"])


def _page_check(state: State, params: Params) -> bool:
    return bool(st.page(state, "settings") == ["section", params["section"]] and state["front"] == "settings")


def _page_way(hand: Hand, params: Params) -> Action:
    return _section(hand, params["section"]) or BACK


def _unless_flying(value: bool, params: Params) -> bool | None:
    """Wi-Fi and Bluetooth, which the airplane mode turns off."""
    return None if params["setting"] == "airplane" else value


_VALUE = (May("settings.{setting}"),)
_SWITCH = (May("settings.wifi", _unless_flying), May("settings.bluetooth", _unless_flying), *_VALUE)
_OPTIONS = {word for _, choice in CHOICES.values() for word in choice.options}

TEMPLATES: dict[str, Template] = {
    "setting_switch": everyday(
        "settings",
        {"setting": str, "on": bool},
        _switch_start,
        _switch_check,
        _switch_way,
        {"setting": TOGGLES},
        _SWITCH,
    ),
    "setting_level": everyday(
        "settings",
        {"setting": str, "percent": int},
        _level_start,
        _level_check,
        _level_way,
        {"setting": SLIDERS, "percent": range(0, 101, 10)},
        _VALUE,
    ),
    "setting_choice": everyday(
        "settings",
        {"setting": str, "option": str},
        _choice_start,
        _choice_check,
        _choice_way,
        {"setting": CHOICES, "option": _OPTIONS},
        _VALUE,
    ),
    "setting_page": everyday(
        "settings", {"section": str}, fresh, _page_check, _page_way, {"section": SECTIONS}
    ),
}
