"""Settings: a root list with coloured icons, pages with switches, sliders, options, facts; their tasks."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial

from distrl.core.actions import Action
from distrl.core.errors import TaskError
from distrl.simulator.apps.base import App, Args
from distrl.simulator.apps.settings_pages import (
    CHOICES,
    PARENTS,
    SECTIONS,
    SLIDERS,
    TOGGLES,
    Choice,
    Entry,
    Fact,
    Link,
    Section,
    Slider,
    Toggle,
)
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, viewport
from distrl.simulator.phone.widgets import TOP
from distrl.simulator.tasks.base import (
    Check,
    Family,
    May,
    Params,
    Template,
    everyday,
    fresh,
    is_shown,
)
from distrl.simulator.tasks.expert import BACK, Expert

_ON = {
    *("wifi", "data", "nfc", "rotate", "vibrate", "location", "lock"),
    *("touch_sounds", "find", "camera", "mic"),
}
"""Switches that a new phone has on, in addition to every app's notifications."""


def data() -> State:
    """Values of all settings, as a new phone has them (dark mode is set by the layout)."""
    values: State = {key: key in _ON or key.startswith("notify_") for key in TOGGLES}
    words = {key: choice.options[0] for key, (_, choice) in CHOICES.items()}
    levels = {"brightness": 60, "volume": 40, "ring": 70, "alarm_volume": 80}
    return {"edition": 1} | values | words | levels


def view(ui: Ui) -> list[Node]:
    """The root list, one section, or the options of a choice."""
    top = st.page(ui.state, "settings")
    if top[0] == "choice":
        return _options(ui, CHOICES[str(top[1])][1])
    return _section(ui, SECTIONS[str(top[1])]) if top[0] == "section" else _root(ui)


def _root(ui: Ui) -> list[Node]:
    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes = [ui.text(24, y, 280, 72, "Settings", 32, rid="title")]
        y += 76
        rows: list[Node] = []
        for place, name in enumerate(ui.layout.settings):
            section = SECTIONS[name]
            top = y + place * widgets.ROW_H
            lead, tap, rid = (section.icon, section.color), ("settings", "section", name), "section_" + name
            title, note = section.title, section.note
            rows.append(widgets.row(ui, top, title, note, lead=lead, tap=tap, rid=rid, flat=True))
        height = widgets.ROW_H * len(rows)
        nodes.append(widgets.card(ui, y, height, rows))
        return nodes, y + height + 12

    return [viewport(ui, "settings.root", STATUS_H, ui.bottom, build)]


def _section(ui: Ui, section: Section) -> list[Node]:
    def build(y: float) -> tuple[Sequence[Node], float]:
        y += 8
        nodes: list[Node] = []
        for entry in section.entries:
            if entry.edition > ui.state["apps"]["settings"]["edition"]:
                continue
            nodes.append(_entry(ui, y, entry, section.color))
            y += nodes[-1].h + 8
        return nodes, y

    page = viewport(ui, "settings." + section.icon, TOP, ui.bottom, build)
    return [page, widgets.app_bar(ui, section.title)]


def _entry(ui: Ui, y: float, entry: Entry, color: str) -> Node:
    values = ui.state["apps"]["settings"]
    if isinstance(entry, Toggle):
        event = ("settings", "toggle", entry.key)
        on = values[entry.key]
        return widgets.switch_row(ui, y, entry.label, entry.note, on, event, "switch_" + entry.key)
    if isinstance(entry, Slider):
        return _slider(ui, y, entry, values[entry.key], color)
    if isinstance(entry, Fact):
        told = entry.value.format(installed=len(ui.state["installed"]))
        return widgets.row(ui, y, entry.label, told)
    if isinstance(entry, Link):
        below = SECTIONS[entry.section]
        return _opener(ui, y, below.title, below.note, below.icon, color, ("section", entry.section))
    return _opener(ui, y, entry.label, values[entry.key], entry.icon, color, ("choice", entry.key))


def _opener(ui: Ui, y: float, title: str, note: str, icon: str, color: str, target: tuple[str, str]) -> Node:
    """A row that opens a page: `target` is its kind, which is also its event, and its argument."""
    tap, rid = ("settings", *target), "_".join(target)
    return widgets.row(ui, y, title, note, lead=(icon, color), tap=tap, rid=rid, h=84)


def _options(ui: Ui, choice: Choice) -> list[Node]:
    chosen = ui.state["apps"]["settings"][choice.key]

    def row(y: float, place: int, option: str) -> Node:
        tap = ("settings", "choose", choice.key, option)
        return widgets.radio_row(ui, y, option, tap, f"option_{place}", option == chosen)

    listed = widgets.listing(ui, "settings.options", 70, choice.options, row, head=8)
    return [listed, widgets.app_bar(ui, choice.label)]


def _slider(ui: Ui, y: float, entry: Slider, value: int, color: str) -> Node:
    x, w = widgets.MARGIN + 64, WIDTH - 2 * widgets.MARGIN - 88
    track_y = y + 62
    parts = [
        ui.disc(widgets.MARGIN + 12, y + 42, 40, entry.icon, color),
        ui.text(widgets.MARGIN + 20, y + 8, 240, 28, f"{entry.label}: {value}%", 17),
        Node(x, track_y - 8, w, 16, fill=ui.theme.tint, radius=8),
        Node(x, track_y - 8, max(16.0, w * value / 100), 16, fill=ui.theme.primary, radius=8),
        Node(x + w * value / 100 - 2, track_y - 22, 5, 44, fill=ui.theme.primary, radius=2.5),
    ]
    for step in range(11):
        left, percent = x + w * step / 10 - w / 20, 10 * step
        rid, desc = f"slider_{entry.key}_{percent}", f"{entry.label} {percent}%"
        tap = ("settings", "slide", entry.key, percent)
        parts.append(Node(left, track_y - 24, w / 10, 48, "widget.SeekBar", rid, desc=desc, tap=tap))
    return widgets.card(ui, y, 100, parts, rid="slider_" + entry.key)


def act(state: State, verb: str, args: Args) -> None:
    """Opens a page, flips a switch, moves a slider or takes an option."""
    values = state["apps"]["settings"]
    key = str(args[0])
    if verb in ("section", "choice"):
        st.push(state, "settings", verb, key)
    elif verb == "toggle":
        values[key] = not values[key]
        if key == "airplane" and values[key]:
            values["grounded"] = [radio for radio in ("wifi", "bluetooth") if values[radio]]
            values["wifi"] = values["bluetooth"] = False
        elif key == "airplane":
            values |= dict.fromkeys(values.pop("grounded", ()), True)
        elif key in values.get("grounded", ()):
            values["grounded"].remove(key)
    elif verb in ("slide", "choose"):
        values[key] = args[1]


def fill(state: State, rng: random.Random) -> None:
    """The second edition, with switches and levels at random."""
    values = state["apps"]["settings"]
    values["edition"] = 2
    for key in TOGGLES:
        if key not in _KEPT:
            values[key] = rng.random() < 0.5
    for key in ("brightness", "volume", "ring", "alarm_volume"):
        values[key] = rng.randrange(0, 11) * 10


_KEPT = ("dark", "airplane", "wifi")
"""Switches that every task finds as on a new phone."""
APP = App(
    name="settings",
    label="Settings",
    icon="settings",
    color="#5b6472",
    data=data,
    view=view,
    act=act,
    keeps=("*",),
    fill=fill,
    permissions=("WRITE_SETTINGS", "WRITE_SECURE_SETTINGS"),
)
SHUFFLED = ("wifi", "airplane", "bluetooth", "night_light", "rotate", "hotspot", "nfc", "cast", "dnd", "data")
"""Settings that are on or off at random when a toggle task starts."""


def _toggle_start(state: State, params: Params, rng: random.Random) -> None:
    values = state["apps"]["settings"]
    for key in SHUFFLED:
        values[key] = rng.random() < 0.5
    values[params["setting"]] = not params["on"]


def _is(param: str) -> Check:
    """A check: the task's setting has the value that its parameter `param` asks for."""
    return lambda state, params: state["apps"]["settings"][params["setting"]] == params[param]


def _opened(expert: Expert, name: str) -> Action | None:
    at = expert.page("settings")
    if at == ["section", name]:
        return None
    parent = PARENTS.get(name)
    if at[0] == "root":
        return expert.tap("section_" + (parent or name))
    return expert.tap("section_" + name) if parent and at == ["section", parent] else BACK


def _switch_start(state: State, params: Params, rng: random.Random) -> None:
    state["apps"]["settings"][params["setting"]] = not params["on"]


def _switch_step(expert: Expert, params: Params) -> Action:
    return _opened(expert, TOGGLES[params["setting"]][0]) or expert.tap("switch_" + params["setting"])


def _level_start(state: State, params: Params, rng: random.Random) -> None:
    others = [percent for percent in range(0, 101, 10) if percent != params["percent"]]
    state["apps"]["settings"][params["setting"]] = rng.choice(others)


def _level_step(expert: Expert, params: Params) -> Action:
    setting, percent = params["setting"], params["percent"]
    return _opened(expert, SLIDERS[setting]) or expert.tap(f"slider_{setting}_{percent}")


def _choice_start(state: State, params: Params, rng: random.Random) -> None:
    options = CHOICES[params["setting"]][1].options
    if params["option"] not in options:
        rule = f"{params['option']!r} is not an option of the setting {params['setting']!r}."
        raise TaskError(rule, f"Options: {', '.join(options)}.")
    state["apps"]["settings"][params["setting"]] = rng.choice(
        [word for word in options if word != params["option"]]
    )


def _choice_step(expert: Expert, params: Params) -> Action:
    section, choice = CHOICES[params["setting"]]
    if expert.page("settings") == ["choice", params["setting"]]:
        return expert.tap(f"option_{choice.options.index(params['option'])}")
    return _opened(expert, section) or expert.tap("choice_" + params["setting"])


def _unless_flying(value: bool, params: Params) -> bool | None:
    """Wi-Fi and Bluetooth, which the airplane mode turns off."""
    return None if params["setting"] == "airplane" else value


_VALUE = (May("settings.{setting}"),)
_SWITCH = (May("settings.wifi", _unless_flying), May("settings.bluetooth", _unless_flying), *_VALUE)
_OPTIONS = {word for _, choice in CHOICES.values() for word in choice.options}


def _switch_words(params: Params) -> Mapping[str, object]:
    label = TOGGLES[params["setting"]][1].label
    return {"what": label, "on": "on" if params["on"] else "off", "do": "allow" if params["on"] else "block"}


def _choice_words(params: Params) -> Mapping[str, object]:
    what = CHOICES[params["setting"]][1].label.lower()
    if params["setting"] == "units":  # the weather app has one of its own
        what = "temperature unit of the phone"
    return {**params, "what": what}


def _level_words(params: Params) -> Mapping[str, object]:
    names = {"ring": "ring volume", "alarm_volume": "alarm volume", "volume": "media volume"}
    return {"what": names.get(params["setting"], "brightness"), "percent": params["percent"]}


_SWITCHES = (
    *("hotspot", "nfc", "cast", "data", "roaming", "data_saver", "saver", "percent", "adaptive", "raise"),
    *("dnd", "vibrate", "key_tones", "touch_sounds", "location", "lock", "fingerprint", "find", "vpn"),
)
_NOTICES = tuple(key for key in TOGGLES if key.startswith("notify_"))
_task = partial(everyday, "settings")
TEMPLATES: dict[str, Template] = {
    "toggle": _task(
        {"setting": str, "on": bool},
        _toggle_start,
        _is("on"),
        _switch_step,
        {
            "setting": [
                key for key, (section, one) in TOGGLES.items() if section not in PARENTS and one.edition == 1
            ]
        },
        phone="quickstart",
    ),
    "setting_switch": _task(
        {"setting": str, "on": bool}, _switch_start, _is("on"), _switch_step, {"setting": TOGGLES}, _SWITCH
    ),
    "setting_level": _task(
        {"setting": str, "percent": int},
        _level_start,
        _is("percent"),
        _level_step,
        {"setting": SLIDERS, "percent": range(0, 101, 10)},
        _VALUE,
    ),
    "setting_choice": _task(
        {"setting": str, "option": str},
        _choice_start,
        _is("option"),
        _choice_step,
        {"setting": CHOICES, "option": _OPTIONS},
        _VALUE,
    ),
    "setting_page": _task(
        {"section": str},
        fresh,
        lambda state, params: is_shown(state, "settings", "section", params["section"]),
        lambda expert, params: _opened(expert, params["section"]),
        {"section": SECTIONS},
    ),
}
FAMILIES = (
    Family("setting_switch", {"setting": _SWITCHES, "on": (True, False)}, _switch_words),
    Family("app_notices", {"setting": _NOTICES, "on": (True, False)}, _switch_words, "setting_switch"),
    Family(
        "setting_level",
        {"setting": ("brightness", "volume", "ring", "alarm_volume"), "percent": range(0, 101, 10)},
        _level_words,
    ),
    Family(
        "setting_choice",
        {"setting": tuple(CHOICES), "option": sorted(_OPTIONS)},
        _choice_words,
        fits=lambda params: params["option"] in CHOICES[params["setting"]][1].options,
    ),
    Family(
        "setting_page",
        {"section": tuple(SECTIONS)},
        lambda params: {"what": SECTIONS[params["section"]].title},
    ),
)
