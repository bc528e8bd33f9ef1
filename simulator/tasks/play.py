"""Tasks on the simulated phone by their template's name: the start state, and what the expert does."""

from __future__ import annotations

import difflib
import random
from collections.abc import Sequence
from typing import Any

from distrl.core.actions import Action
from distrl.core.errors import TaskError
from distrl.simulator.phone import interruptions, keeping
from distrl.simulator.phone import state as st
from distrl.simulator.phone.hand import Hand
from distrl.simulator.phone.phone import Phone, new_state
from distrl.simulator.phone.state import State
from distrl.simulator.phone.theme import LAYOUTS
from distrl.simulator.tasks import TEMPLATES
from distrl.simulator.tasks.base import Params, Template

TIMES = (581, 496, 867)
"""The phone's time at the start, minutes after midnight; no multiple of five, as alarms of tasks are."""


INTERRUPTIONS = "interruptions"
"""The parameter that any template takes: a list of kinds of `interruptions`, each at most once."""


def template(name: str, params: Params) -> Template:
    """The template `name`, once `params` are found to fit it.

    Raises:
        TaskError: If there is no such template, or a parameter is missing, unknown, or not allowed.
    """
    if name not in TEMPLATES:
        near = difflib.get_close_matches(name, TEMPLATES, 1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise TaskError(
            f"there is no task template {name!r}.", f"{hint}`distrl tasks list --suite general` shows some."
        )
    found = TEMPLATES[name]
    needs = {"layout": int, **found.needs}
    choices = {"layout": range(len(LAYOUTS)), **found.choices}
    if INTERRUPTIONS in params:
        _check_interruptions(params[INTERRUPTIONS])
    if set(params) - {INTERRUPTIONS} != set(needs):
        given = ", ".join(sorted(params)) or "none"
        raise TaskError(
            f"template {name!r} takes the params {', '.join(needs)}; got {given}.", "Correct them."
        )
    for key, kind in needs.items():
        value = params[key]
        if type(value) is not kind or value not in choices.get(key, (value,)):
            raise TaskError(f"{value!r} is no {key} for template {name!r}.", "See simulator/docs/phone.md.")
    return found


def _check_interruptions(kinds: Any) -> None:
    known = interruptions.KINDS
    if not isinstance(kinds, list) or len(set(kinds)) != len(kinds) or not set(kinds) <= set(known):
        raise TaskError(
            f"interruptions must be a list of different ones of {', '.join(known)}; got {kinds!r}.",
            "Correct the task's params.",
        )


def start_state(name: str, params: Params, seed: int) -> State:
    """The state that a task starts from: a function of its arguments alone."""
    found = template(name, params)
    rng = random.Random(seed)
    state = new_state(params["layout"], rng.choice(TIMES), found.apps)
    state["shade"] = False if found.shade else None
    for app, title, text in interruptions.NOTICES:
        st.notify(state, app, title, text)
    found.start(state, params, rng)
    if found.may is not None:
        keeping.keep(state)
    _interrupt(state, params.get(INTERRUPTIONS, ()), seed)
    return state


def _interrupt(state: State, kinds: Sequence[str], seed: int) -> None:
    """Plans interruptions of `kinds`, and shows the one that is there from the start."""
    state["pending"] = interruptions.plan(kinds, random.Random(f"interruptions/{seed}"))
    interruptions.advance(state)


def shortfall(name: str, params: Params, state: State) -> str:
    """What the state lacks for the task to be solved, in a sentence; "" when it is solved.

    The task must be fulfilled, and whatever lasts of the rest of the phone be as it was at the start.
    """
    found = template(name, params)
    if not found.check(state, params):
        return "The final state does not fulfil the task."
    if found.may is None:
        return ""
    saver = (_SAVER,) if "low_battery" in params.get(INTERRUPTIONS, ()) else ()
    trusted = trusted_apps(found, params)
    given = keeping.May("permissions", keeping.where(lambda app, params: app in trusted))
    if not (harmed := keeping.changed(state, params, (*found.may, *saver, given))):
        return ""
    return f"The task is fulfilled, but what it did not ask for was changed too: {', '.join(harmed)}."


_SAVER = keeping.May("settings.saver")
"""Yes to what the phone itself asks when its battery is low."""
_LEADS = {"messages": ("contacts",)}
"""The apps that lead into another one, besides the home screen."""


def trusted_apps(found: Template, params: Params) -> set[str]:
    """The apps that a task may allow what they ask for: it is done or starts in them, or leads there."""
    apps = {found.app, *(params[key] for key in ("app", "new", "start") if key in params)}
    return apps.union(*(_LEADS.get(app, ()) for app in apps))


def expert(name: str, params: Params, phone: Phone) -> Action:
    """What the scripted expert of template `name` does on `phone` now: first it clears interruptions away.

    Once the task is fulfilled it does not care about them, and it says COMPLETE whatever else was changed.
    """
    found, hand = template(name, params), Hand(phone)
    is_done = found.check(phone.state, params)
    trusted = None if found.may is None else trusted_apps(found, params)
    way = None if is_done else hand.clear(params.get(found.removes, ""), trusted)
    return found.expert(hand, params) if way is None else way
