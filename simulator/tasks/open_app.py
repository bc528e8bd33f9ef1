"""Tasks that open an app: from a new phone (`open_app`) and from one in daily use (`launch`)."""

from __future__ import annotations

import random
from collections.abc import Mapping

from distrl.core.actions import Action
from distrl.simulator.apps import APPS, BUILT_IN, EVERYDAY
from distrl.simulator.phone import state as st
from distrl.simulator.phone.state import State
from distrl.simulator.tasks.base import Family, Params, Template
from distrl.simulator.tasks.expert import COMPLETE, Expert


def _start(state: State, params: Params, rng: random.Random) -> None:
    st.show(state, params["start"])


def _check(state: State, params: Params) -> bool:
    return bool(state["front"] == params["app"])


def _step(expert: Expert, params: Params) -> Action:
    return expert.open(params["app"]) or COMPLETE


def _template(apps: tuple[str, ...], phone: str) -> Template:
    choices = {"app": apps, "start": ("launcher", *apps)}
    return Template({"app": str, "start": str}, _start, _check, _step, choices, phone)


def _words(params: Params) -> Mapping[str, object]:
    return {"app": APPS[params["app"]].label}


TEMPLATES = {"open_app": _template(BUILT_IN, "quickstart"), "launch": _template(EVERYDAY, "everyday")}
FAMILIES = (
    Family(
        "launch",
        {
            "app": ("calculator", "notes", "weather", "calendar", "settings", "clock", "contacts"),
            "start": ("launcher", "browser", "messages", "music"),
        },
        _words,
    ),
)
