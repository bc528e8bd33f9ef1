"""Tasks on the simulated phone by their template's name: the start state, and what the expert does."""

from __future__ import annotations

import random

from distrl.core.actions import Action
from distrl.core.errors import TaskError
from distrl.workers.simphone.hand import Hand
from distrl.workers.simphone.phone import Phone, new_state
from distrl.workers.simphone.state import State
from distrl.workers.simphone.templates import TEMPLATES
from distrl.workers.simphone.templates.base import Params, Template
from distrl.workers.simphone.theme import LAYOUTS

TIMES = (581, 496, 867)
"""The phone's time at the start, minutes after midnight; no multiple of five, as alarms of tasks are."""


def template(name: str, params: Params) -> Template:
    """The template `name`, once `params` are found to fit it.

    Raises:
        TaskError: If there is no such template, or a parameter is missing, unknown, or not allowed.
    """
    if name not in TEMPLATES:
        raise TaskError(f"there is no task template {name!r}.", f"Templates: {', '.join(TEMPLATES)}.")
    found = TEMPLATES[name]
    needs = {"layout": int, **found.needs}
    choices = {"layout": range(len(LAYOUTS)), **found.choices}
    if set(params) != set(needs):
        given = ", ".join(sorted(params)) or "none"
        raise TaskError(
            f"template {name!r} takes the params {', '.join(needs)}; got {given}.", "Correct them."
        )
    for key, kind in needs.items():
        value = params[key]
        if type(value) is not kind or value not in choices.get(key, (value,)):
            raise TaskError(f"{value!r} is no {key} for template {name!r}.", "See docs/simphone.md.")
    return found


def start_state(name: str, params: Params, seed: int) -> State:
    """The state that a task starts from: a function of its arguments alone."""
    found = template(name, params)
    rng = random.Random(seed)
    state = new_state(params["layout"], rng.choice(TIMES), found.apps)
    found.start(state, params, rng)
    return state


def expert(name: str, params: Params, phone: Phone) -> Action:
    """What the scripted expert of template `name` does on `phone` now."""
    return template(name, params).expert(Hand(phone), params)
