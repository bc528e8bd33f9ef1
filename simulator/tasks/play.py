"""Playing tasks on the simulated phone: start states, what is missing at the end, and the scripted expert."""

from __future__ import annotations

import difflib
import random
from collections.abc import Container
from typing import Any

from distrl.core.actions import Action
from distrl.core.errors import TaskError
from distrl.core.types import Task
from distrl.simulator import apps
from distrl.simulator.apps import APPS, BUILT_IN, EVERYDAY
from distrl.simulator.device import SimDevice
from distrl.simulator.names import Names
from distrl.simulator.phone import interruptions
from distrl.simulator.phone import state as st
from distrl.simulator.phone.phone import Phone, new_state
from distrl.simulator.phone.state import State
from distrl.simulator.phone.theme import KNOWN_LAYOUTS
from distrl.simulator.tasks import grounding, open_app, state_diff
from distrl.simulator.tasks.base import May, Params, Template, where
from distrl.simulator.tasks.expert import BACK, WAIT, Expert

TEMPLATES: dict[str, Template] = {**open_app.TEMPLATES, **grounding.TEMPLATES, **apps.TEMPLATES}
"""Every template by name."""
PHONES = {"quickstart": BUILT_IN, "new": BUILT_IN, "store": (*BUILT_IN, "store"), "everyday": EVERYDAY}
"""The phones that tasks start on, and the apps on each.

"quickstart" has no notification shade, and nothing but a template's check is looked at. "everyday" is filled
with people, chats, notes, events, alarms and settings.
"""
TIMES = (581, 496, 867)
"""The phone's time at the start, minutes after midnight; no multiple of five, as alarms of tasks are."""
INTERRUPTIONS = "interruptions"
"""The parameter that any template takes: a list of kinds of `interruptions`, each at most once."""
_SAVER = May("settings.saver")
"""Changed by a yes to what the phone itself asks when its battery is low."""
_LEADS = {"messages": ("contacts",)}
"""The apps, other than the home screen, that lead into another one."""


def template(name: str, params: Params) -> Template:
    """The template `name`, after checking that `params` fit it. Raises TaskError."""
    if name not in TEMPLATES:
        near = difflib.get_close_matches(name, TEMPLATES, 1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise TaskError(
            f"there is no task template {name!r}.",
            f"{hint}A simulated phone, also behind adb, plays only the simulator's tasks: "
            "`distrl tasks list general` shows some.",
        )
    found = TEMPLATES[name]
    needs = {"layout": int, **found.needs}
    choices: dict[str, Container[Any]] = {"layout": KNOWN_LAYOUTS, **found.choices}
    if INTERRUPTIONS in params:
        _check_interruptions(params[INTERRUPTIONS])
    if set(params) - {INTERRUPTIONS} != set(needs):
        given = ", ".join(sorted(params)) or "none"
        raise TaskError(
            f"template {name!r} takes the params {', '.join(needs)}; got {given}.", "Correct them."
        )
    for key, kind in needs.items():
        value = params[key]
        if type(value) is not kind or value not in choices.get(key, (value,)) or not _is_typable(value):
            raise TaskError(
                f"{value!r} is not a valid {key} for template {name!r}.", "See simulator/docs/phone.md."
            )
    return found


def _is_typable(value: Any) -> bool:
    """False for a text that no field holds, because of its length, its white space or control characters."""
    is_text = isinstance(value, str)
    return not is_text or (value.isprintable() and value == " ".join(value.split())[: st.MAX_TEXT])


def _check_interruptions(kinds: Any) -> None:
    known = interruptions.KINDS
    if not isinstance(kinds, list) or len(set(kinds)) != len(kinds) or not set(kinds) <= set(known):
        raise TaskError(
            f"interruptions must be a list of different ones of {', '.join(known)}; got {kinds!r}.",
            "Correct the task's params.",
        )


def start_state(name: str, params: Params, seed: int) -> State:
    """The state that a task starts from: a function of its arguments alone. Odd seeds show held-out names.

    Raises TaskError if the parameters do not fit, or leave nothing to do.
    """
    found = template(name, params)
    rng = Names(seed)
    state = new_state(params["layout"], rng.choice(TIMES), PHONES[found.phone])
    state["shade"] = None if found.phone == "quickstart" else False
    for app, title, text in interruptions.NOTICES:
        st.notify(state, app, title, text)
    if found.phone == "everyday":
        for each in APPS.values():
            each.fill(state, rng)
    found.start(state, params, rng)
    if found.check(state, params):
        raise TaskError(f"template {name!r} is solved at its start with the params {params}.", "Change them.")
    if found.phone != "quickstart":
        state_diff.keep(state)
    state["pending"] = interruptions.plan(
        params.get(INTERRUPTIONS, ()), random.Random(f"interruptions/{seed}")
    )
    interruptions.advance(state)
    return state


def shortfall(name: str, params: Params, state: State) -> str:
    """What the state lacks for the task to be solved, in a sentence; "" when it is solved.

    The task must be fulfilled, and whatever lasts of the rest of the phone be as it was at the start.
    """
    found = template(name, params)
    if not found.check(state, params):
        return "The final state does not fulfil the task."
    if found.phone == "quickstart":
        return ""
    saver = (_SAVER,) if "low_battery" in params.get(INTERRUPTIONS, ()) else ()
    trusted = trusted_apps(found, params)
    given = May("permissions", where(lambda app, params: app in trusted))
    if not (harmed := state_diff.changed(state, params, (*found.may, *saver, given))):
        return ""
    return f"The task is fulfilled, but what it did not ask for was changed too: {', '.join(harmed)}."


def trusted_apps(found: Template, params: Params) -> set[str]:
    """The apps whose permission requests a task may grant: it is done or starts in them, or leads there."""
    named = {found.app, *(params[key] for key in ("app", "new", "start") if key in params)}
    return named.union(*(_LEADS.get(app, ()) for app in named))


def expert(name: str, params: Params, phone: Phone) -> Action:
    """What the scripted expert of template `name` does on `phone` now: first it dismisses interruptions.

    Once the check passes it ignores them and says COMPLETE, also where something else was changed, which it
    does not undo: the score is then 0.
    """
    found, helper = template(name, params), Expert(phone.state, phone.tree())
    if not found.check(phone.state, params):
        trusted = None if found.phone == "quickstart" else trusted_apps(found, params)
        if (step := dismiss(helper, params.get(found.removes, ""), trusted)) is not None:
            return step
    return found.expert(helper, params)


def dismiss(helper: Expert, removing: str = "", trusted: Container[str] | None = None) -> Action | None:
    """What removes an interruption, or the notification shade, from the screen; None when there is none.

    Permissions are granted to trusted apps, everything else is declined.

    Args:
        removing: The app that the phone may uninstall when it asks for confirmation.
        trusted: The apps whose permission requests are granted; None for all.
    """
    if helper.state["shade"]:
        return BACK
    overlay = helper.state["overlay"]
    if not overlay:
        return None
    if overlay["kind"] == "uninstall" and overlay["app"] == removing:
        return helper.tap("overlay_accept")
    if overlay["kind"] == "message":
        return helper.throw("heads_up")
    if overlay["kind"] == "ad":
        return helper.tap("overlay_close") if interruptions.closable(helper.state) else WAIT
    is_given = overlay["kind"] == "permission" and (trusted is None or overlay["app"] in trusted)
    return helper.tap("overlay_allow" if is_given else "overlay_dismiss")


class SimBackend:
    """The simulated phone's side of a task, for `PhoneEnv`."""

    def __init__(self, device: SimDevice) -> None:
        self.device = device

    def prepare(self, task: Task) -> None:
        """Puts the phone into the task's start state."""
        self.device.load(start_state(task.template, task.params, task.seed))

    def score(self, task: Task) -> float:
        """1 when the phone's state solves the task, else 0."""
        return float(not self.shortfall(task))

    def shortfall(self, task: Task) -> str:
        """What the phone's state lacks for the task to be solved, "" if nothing."""
        return shortfall(task.template, task.params, self.device.phone.state)

    def rehearse(self) -> SimBackend:
        """A backend on a copy of the phone: what is done on it leaves this one unchanged."""
        copy = SimDevice(*self.device.size)
        copy.phone.load(self.device.phone.dump())
        return SimBackend(copy)

    def wait(self) -> None:
        """Lets the phone's time pass, if something on it takes time."""
        self.device.phone.wait()

    def expert(self, task: Task) -> Action:
        """What the scripted expert does now."""
        return expert(task.template, task.params, self.device.phone)
