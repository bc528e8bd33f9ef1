"""Templates about the app store: install, update, uninstall, open and sign in to apps.

`others` are apps of the store that are on the phone from the start, besides those that the task is about.
"""

from __future__ import annotations

import random
from collections.abc import Container
from typing import Any

from distrl.core.actions import Action
from distrl.simulator.apps import BUILT_IN, store_catalog
from distrl.simulator.apps.extras import password_field, user_field
from distrl.simulator.apps.store import QUERY
from distrl.simulator.apps.store_catalog import ENTRIES
from distrl.simulator.phone import state as st
from distrl.simulator.phone.hand import BACK, COMPLETE, ENTER, WAIT, Hand
from distrl.simulator.phone.keeping import May, where
from distrl.simulator.phone.state import State
from distrl.simulator.tasks.base import Params, Template, is_open

APPS = (*BUILT_IN, "store")


class _Lists:
    """Lists of apps of the store."""

    def __contains__(self, value: object) -> bool:
        return isinstance(value, list) and all(name in ENTRIES for name in value)


def _install_others(state: State, params: Params, rng: random.Random) -> None:
    for name in params["others"]:
        store_catalog.install(state, name)


def _install_app_too(state: State, params: Params, rng: random.Random) -> None:
    _install_others(state, params, rng)
    if params.get("present", True):
        store_catalog.install(state, params["app"])


def _offer_updates(state: State, params: Params, rng: random.Random) -> None:
    """An update for the app, if the task is about one, and for two others."""
    if "app" in params:
        _install_app_too(state, params, rng)
    else:
        _install_others(state, params, rng)
    named = [params["app"]] if "app" in params else []
    updates = named + rng.sample(params["others"], min(2, len(params["others"])))
    state["apps"]["store"]["updates"] = sorted(updates, key=lambda name: ENTRIES[name].label)


def _find(hand: Hand, app: str) -> Action | None:
    """What opens the app's page in the store, by a search if it is not in sight; None when it is open."""
    if (way := hand.open("store")) is not None:
        return way
    state, label = hand.phone.state, ENTRIES[app].label
    page = st.page(state, "store")
    if state["focus"] == QUERY:
        typed = st.text(state, QUERY)
        if not label.startswith(typed):
            return BACK
        return ENTER if typed == label else Action.type_text(label[len(typed) :])
    if page[:2] == ["app", app]:
        return None
    if state["focus"] or page[0] in ("app", "category"):
        return BACK
    if hand.phone.tree_has("row_" + app):
        return hand.tap("row_" + app)
    if page[0] == "results" and state["apps"]["store"]["query"] == label:
        return hand.tap("row_" + app)
    searchable = page[0] == "results" or state["apps"]["store"]["tab"] == 0
    return hand.tap("store_search" if searchable else "tab_apps")


def _manage(hand: Hand, app: str) -> Action | None:
    """What opens the page of an installed app in the store; None when it is open."""
    if (way := hand.open("store")) is not None:
        return way
    state = hand.phone.state
    page = st.page(state, "store")
    if page == ["app", app]:
        return None
    if page[0] != "root" or state["focus"]:
        return BACK
    return hand.tap("row_" + app if state["apps"]["store"]["tab"] == 2 else "tab_manage")


def _get(hand: Hand, app: str) -> Action | None:
    """What brings an app onto the phone; None when it is there."""
    state = hand.phone.state
    if app in state["installed"]:
        return None
    if (way := _find(hand, app)) is not None:
        return way
    if app in state["apps"]["store"]["downloads"]:
        return WAIT
    return hand.tap("accept" if len(st.page(state, "store")) > 2 else "install")


def _remove(hand: Hand, app: str) -> Action | None:
    """What takes an app off the phone, up to the question whether it shall; None when it is gone."""
    if app not in hand.phone.state["installed"]:
        return None
    return _manage(hand, app) or hand.tap("uninstall")


def _launch(hand: Hand, app: str) -> Action | None:
    """What brings an app to the front, after installing it if need be; None when it is there."""
    if (way := _get(hand, app)) is not None:
        return way
    state = hand.phone.state
    if state["front"] == "store" and st.page(state, "store") == ["app", app]:
        return hand.tap("open")
    return hand.open(app)


def _install_check(state: State, params: Params) -> bool:
    """The app is there, and what looks like it is neither there nor on its way."""
    here = {*state["installed"], *state["apps"]["store"]["downloads"]}
    return params["app"] in state["installed"] and params.get("decoy") not in here


def _install_expert(hand: Hand, params: Params) -> Action:
    decoy, state = params.get("decoy", ""), hand.phone.state
    if decoy in state["apps"]["store"]["downloads"]:
        page = st.page(state, "store")
        return hand.tap("cancel_download") if page == ["app", decoy] else _find(hand, decoy) or BACK
    return _remove(hand, decoy) or _get(hand, params["app"]) or COMPLETE


def _update_check(state: State, params: Params) -> bool:
    """Everything that there was an update for is still there, and new."""
    updates = state["apps"]["store"]["updates"]
    wanted = [params["app"]] if "app" in params else params["others"]
    return all(name in state["installed"] and name not in updates for name in wanted)


def _update_expert(hand: Hand, params: Params) -> Action:
    state, app = hand.phone.state, params["app"]
    if _update_check(state, params):
        return COMPLETE
    if (way := _get(hand, app) or _manage(hand, app)) is not None:
        return way
    return WAIT if app in state["apps"]["store"]["downloads"] else hand.tap("update")


def _update_all_expert(hand: Hand, params: Params) -> Action:
    store = hand.phone.state["apps"]["store"]
    if _update_check(hand.phone.state, params):
        return COMPLETE
    gone = [name for name in params["others"] if name not in hand.phone.state["installed"]]
    if gone and (way := _get(hand, gone[0])) is not None:
        return way
    if set(store["updates"]) <= set(store["downloads"]):
        return WAIT
    if (way := hand.open("store")) is not None:
        return way
    if st.page(hand.phone.state, "store")[0] != "root" or hand.phone.state["focus"]:
        return BACK
    return hand.tap("update_all" if store["tab"] == 2 else "tab_manage")


def _uninstall_check(state: State, params: Params) -> bool:
    """The app is gone, and nothing else is."""
    installed = state["installed"]
    return params["app"] not in installed and set(params["others"]) <= set(installed)


def _uninstall_expert(hand: Hand, params: Params) -> Action:
    gone = [name for name in params["others"] if name not in hand.phone.state["installed"]]
    back = _get(hand, gone[0]) if gone else None
    return back or _remove(hand, params["app"]) or COMPLETE


def _replace_check(state: State, params: Params) -> bool:
    return params["new"] in state["installed"] and _uninstall_check(state, params)


def _replace_expert(hand: Hand, params: Params) -> Action:
    way = _uninstall_expert(hand, params)
    return way if way != COMPLETE else _get(hand, params["new"]) or COMPLETE


def _open_expert(hand: Hand, params: Params) -> Action:
    return _launch(hand, params["app"]) or COMPLETE


def _sign_in_page_check(state: State, params: Params) -> bool:
    app = params["app"]
    if state["front"] != app or st.page(state, app) != ["sign_in"]:
        return False
    return not state["apps"][app]["user"]


def _sign_in_page_expert(hand: Hand, params: Params) -> Action:
    if (way := _launch(hand, params["app"])) is not None:
        return way
    app, state = params["app"], hand.phone.state
    if _sign_in_page_check(state, params):
        return COMPLETE
    page = st.page(state, app)[0]
    return hand.tap("sign_out") if page == "sign_in" else hand.tap("account") if page == "root" else BACK


def _sign_in_check(state: State, params: Params) -> bool:
    """User name and password are in their fields, or have been sent."""
    app, wanted = params["app"], [params["user"], params["password"]]
    if app not in state["installed"]:
        return False
    sent = [state["apps"][app]["user"], state["apps"][app]["password"]]
    typed = [st.text(state, field) for field in (user_field(app), password_field(app))]
    return sent == wanted or (typed == wanted and st.page(state, app) == ["sign_in"])


def _sign_in_expert(hand: Hand, params: Params) -> Action:
    if _sign_in_check(hand.phone.state, params):
        return COMPLETE
    if (way := _sign_in_page_expert(hand, params)) != COMPLETE:
        return way
    app = params["app"]
    user = hand.type_into(user_field(app), "user_name", params["user"])
    return user or hand.type_into(password_field(app), "password", params["password"]) or COMPLETE


def _is_asked(app: str, params: Params) -> bool:
    return app in (params["app"], params.get("new"))


def _is_to_update(app: str, params: Params) -> bool:
    return app == params["app"] if "app" in params else app in params["others"]


_APP = (
    May("installed", where(_is_asked)),
    May("store.downloads", where(lambda download, params: _is_asked(download[0], params))),
    May("store.updates", where(_is_asked)),
)
"""Only what the task is about comes or goes, and with an app its update."""
_UPDATES = (
    May("store.downloads", where(lambda download, params: _is_to_update(download[0], params))),
    May("store.updates", where(_is_to_update)),
)
_SIGNED_IN = (*_APP, May("{app}.user"), May("{app}.password"))
_CHOICES: dict[str, Container[Any]] = {"app": ENTRIES, "decoy": ENTRIES, "new": ENTRIES, "others": _Lists()}
TEMPLATES: dict[str, Template] = {
    "store_install": Template(
        {"app": str, "others": list},
        _install_others,
        _install_check,
        _install_expert,
        _CHOICES,
        APPS,
        may=_APP,
    ),
    "store_lookalike": Template(
        {"app": str, "decoy": str, "others": list},
        _install_others,
        _install_check,
        _install_expert,
        _CHOICES,
        APPS,
        removes="decoy",
        may=_APP,
    ),
    "store_update": Template(
        {"app": str, "others": list},
        _offer_updates,
        _update_check,
        _update_expert,
        _CHOICES,
        APPS,
        may=_UPDATES,
    ),
    "store_update_all": Template(
        {"others": list}, _offer_updates, _update_check, _update_all_expert, _CHOICES, APPS, may=_UPDATES
    ),
    "store_uninstall": Template(
        {"app": str, "others": list},
        _install_app_too,
        _uninstall_check,
        _uninstall_expert,
        _CHOICES,
        APPS,
        removes="app",
        may=_APP,
    ),
    "store_replace": Template(
        {"app": str, "new": str, "others": list},
        _install_app_too,
        _replace_check,
        _replace_expert,
        _CHOICES,
        APPS,
        removes="app",
        may=_APP,
    ),
    "store_open": Template(
        {"app": str, "present": bool, "others": list},
        _install_app_too,
        is_open,
        _open_expert,
        _CHOICES,
        APPS,
        may=_APP,
    ),
    "store_sign_in_page": Template(
        {"app": str, "present": bool, "others": list},
        _install_app_too,
        _sign_in_page_check,
        _sign_in_page_expert,
        _CHOICES,
        APPS,
        may=_APP,
    ),
    "store_sign_in": Template(
        {"app": str, "present": bool, "user": str, "password": str, "others": list},
        _install_app_too,
        _sign_in_check,
        _sign_in_expert,
        _CHOICES,
        APPS,
        may=_SIGNED_IN,
    ),
}
