"""Tasks of one touch: tap what has a label, on a page of a random layout. Labels cost nothing here.

They are to be trained on before longer tasks: a policy that sees pixels has to learn what words look like.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import lru_cache

from distrl.core.actions import Action, ActionKind
from distrl.simulator.apps.contacts import person
from distrl.simulator.phone import nodes
from distrl.simulator.phone.nodes import WIDTH
from distrl.simulator.phone.phone import Phone, new_state
from distrl.simulator.phone.state import State
from distrl.simulator.tasks.base import Params, Template
from distrl.simulator.tasks.expert import COMPLETE, IMPOSSIBLE, Expert

CONTACTS = ["app_contacts"]
_SECTIONS = ("network", "devices", "display", "sound", "apps", "battery", "security", "about")
PATHS: tuple[list[str], ...] = (
    [],
    ["app_settings"],
    *(["app_settings", "section_" + section] for section in _SECTIONS),
    ["app_clock"],
    ["app_clock", "tab_timer"],
    ["app_clock", "add_alarm"],
    CONTACTS,
    [*CONTACTS, "contact_0"],
    ["app_messages"],
    ["app_browser"],
    ["app_browser", "site_market"],
    ["app_calculator"],
    ["app_notes"],
    ["app_weather"],
)
"""What is tapped one after the other to come to each page."""
WANTED = "wanted"
"""The part of a state that says what the touch has to lead to."""
_SKIPPED = (
    *("contact_", "nav_", "show_", "slider_", "timer_", "period_", "start_page", "city_"),
    *("calc_clear", "calc_delete", "calc_equals", "calc_percent", "calc_sign"),
)
"""How the ids begin of what has no label of its own, or changes nothing on some page."""
_PASSING = (
    *("elapsed_s", "scrolls", "toast", WANTED),
    *("pending", "overlay", "permissions", "notifications"),  # of interruptions
)


def _lasting(state: State) -> State:
    kept = {key: value for key, value in state.items() if key not in _PASSING}
    copied: State = json.loads(json.dumps(kept))
    return copied


def _tap(phone: Phone, rid: str) -> None:
    """Taps an element, after scrolling to it."""
    for _ in range(4):
        action = Expert(phone.state, phone.tree()).tap(rid)
        point = action.point or (0.0, 0.0)
        x, y = point[0] * WIDTH, point[1] * phone.height
        if action.kind is ActionKind.TAP:
            return phone.tap(x, y)
        if action.to is not None:
            phone.swipe(x, y, action.to[0] * WIDTH, action.to[1] * phone.height)
    return None


def _page(state: State, path: Sequence[str], book: Sequence[str]) -> Phone:
    """The phone on the page at the end of `path`, with the people of `book`."""
    state["shade"], state["time"] = None, 581
    state["apps"]["contacts"]["people"] = [person(name) for name in sorted(book)]
    phone = Phone(state)
    for rid in path:
        _tap(phone, rid)
    return phone


def _start(state: State, params: Params, rng: random.Random) -> None:
    touched = Phone({})
    touched.load(_page(state, params["path"], params["book"]).dump())
    _tap(touched, params["target"])
    state[WANTED] = _lasting(touched.state)


def _check(state: State, params: Params) -> bool:
    return bool(_lasting(state) == state[WANTED])


def _step(expert: Expert, params: Params) -> Action:
    if _check(expert.state, params):
        return COMPLETE
    return expert.tap(params["target"]) if expert.has(params["target"]) else IMPOSSIBLE


_NEEDS = {"path": list, "target": str, "book": list}
TEMPLATES = {"tap": Template(_NEEDS, _start, _check, _step, {"path": PATHS}, phone="quickstart")}


@lru_cache(maxsize=1)
def targets() -> list[tuple[list[str], str, str]]:
    """A path, an id and a label for each touch that is possible on every layout; no contacts."""
    found = []  # the first three layouts have the three pickers, and tabs at both places
    for path in PATHS:
        pages = [_labels(path, index) for index in (0, 1, 2)]
        found += [(path, *one) for one in sorted(set.intersection(*pages))]
    return found


def _labels(path: Sequence[str], index: int) -> set[tuple[str, str]]:
    """The ids and labels of what may be tapped on a page and is not chosen already."""
    phone = _page(new_state(index), path, ["Anna"])
    shown = [node for node in nodes.walk(phone.tree()) if node.clickable]
    labels = [node.desc or node.text or node.value for node in shown]
    return {
        (node.rid, label)
        for node, label in zip(shown, labels, strict=True)
        if labels.count(label) == 1 and not node.checked and not node.rid.startswith(_SKIPPED)
    }
