"""Tasks of the app store, and the suite `install` of them.

To an agent that is trained on `general`, all of it is an app that it has never seen. In the suite itself,
`test` holds out apps that tasks ask for and wordings, `unseen_template` templates too, and `unseen_layout`
layouts too.

Apps are installed, updated, removed, opened and signed in to; names have look-alikes, of which the sponsored
one comes first in a search. The parameter `others` names apps of the store that are on the phone from the
start. Half of the suite's tasks are interrupted: pop-ups, advertisements, prompts, updates, ratings, a low
battery, messages.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Container
from typing import Any

from distrl.core.actions import Action
from distrl.core.types import Task
from distrl.simulator.apps import store_catalog
from distrl.simulator.apps.store import QUERY
from distrl.simulator.apps.store_apps import password_field, user_field
from distrl.simulator.apps.store_catalog import ENTRIES
from distrl.simulator.names import Names
from distrl.simulator.phone import state as st
from distrl.simulator.phone.state import State
from distrl.simulator.phone.theme import TRAIN_LAYOUTS, UNSEEN_LAYOUTS
from distrl.simulator.tasks.base import Check, May, Params, Start, Template, instance, suite_of, where
from distrl.simulator.tasks.expert import BACK, COMPLETE, WAIT, Expert
from distrl.simulator.tasks.wording import say

Step = Callable[[Expert, Params], "Action | None"]


class _Lists:
    """Lists of apps of the store."""

    def __contains__(self, value: object) -> bool:
        return isinstance(value, list) and all(name in ENTRIES for name in value)


def _install_others(state: State, params: Params, rng: random.Random) -> None:
    for name in params["others"]:
        store_catalog.install(state, name)


def _install_app_too(state: State, params: Params, rng: random.Random) -> None:
    _install_others(state, params, rng)
    if params.get("present", "app" in params):
        store_catalog.install(state, params["app"])


def _offer_updates(state: State, params: Params, rng: random.Random) -> None:
    """An update for the app, if the task is about one, and for two others."""
    _install_app_too(state, params, rng)
    named = [params["app"]] if "app" in params else []
    updates = named + rng.sample(params["others"], min(2, len(params["others"])))
    state["apps"]["store"]["updates"] = sorted(updates, key=lambda name: ENTRIES[name].label)


def _find(expert: Expert, app: str) -> Action | None:
    """Opens the app's page in the store, by a search if it is not in sight; None when it is open."""
    if (step := expert.open("store")) is not None:
        return step
    state, label = expert.state, ENTRIES[app].label
    page = st.page(state, "store")
    if state["focus"] == QUERY:
        return expert.type_and_enter(QUERY, label)
    if page[:2] == ["app", app]:
        return None
    if state["focus"] or page[0] in ("app", "category"):
        return BACK
    if expert.has("row_" + app):
        return expert.tap("row_" + app)
    if page[0] == "results" and state["apps"]["store"]["query"] == label:
        return expert.tap("row_" + app)
    searchable = page[0] == "results" or state["apps"]["store"]["tab"] == 0
    return expert.tap("store_search" if searchable else "tab_apps")


def _manage(expert: Expert, app: str) -> Action | None:
    if (step := expert.open("store")) is not None:
        return step
    state = expert.state
    page = st.page(state, "store")
    if page == ["app", app]:
        return None
    if page[0] != "root" or state["focus"]:
        return BACK
    return expert.tap("row_" + app if state["apps"]["store"]["tab"] == 2 else "tab_manage")


def _get(expert: Expert, app: str) -> Action | None:
    """Brings an app onto the phone; None when it is there."""
    state = expert.state
    if app in state["installed"]:
        return None
    if (step := _find(expert, app)) is not None:
        return step
    if app in state["apps"]["store"]["downloads"]:
        return WAIT
    return expert.tap("accept" if len(st.page(state, "store")) > 2 else "install")


def _remove(expert: Expert, app: str) -> Action | None:
    """Takes an app off the phone, or gives its download up; None when there is neither."""
    if app in expert.state["apps"]["store"]["downloads"]:
        return _find(expert, app) or expert.tap("cancel_download")
    if app not in expert.state["installed"]:
        return None
    return _manage(expert, app) or expert.tap("uninstall")


def _launch(expert: Expert, app: str) -> Action | None:
    """Brings an app to the front, after installing it if need be; None when it is there."""
    if (step := _get(expert, app)) is not None:
        return step
    state = expert.state
    if state["front"] == "store" and st.page(state, "store") == ["app", app]:
        return expert.tap("open")
    return expert.open(app)


def _install_check(state: State, params: Params) -> bool:
    """The app is there, and what looks like it is neither there nor being downloaded."""
    here = {*state["installed"], *state["apps"]["store"]["downloads"]}
    return params["app"] in state["installed"] and params.get("decoy") not in here


def _install_step(expert: Expert, params: Params) -> Action | None:
    return _remove(expert, params.get("decoy", "")) or _get(expert, params["app"])


def _update_check(state: State, params: Params) -> bool:
    """Everything that there was an update for is still there, and new."""
    updates = state["apps"]["store"]["updates"]
    wanted = [params["app"]] if "app" in params else params["others"]
    return all(name in state["installed"] and name not in updates for name in wanted)


def _update_step(expert: Expert, params: Params) -> Action:
    state, app = expert.state, params["app"]
    if (step := _get(expert, app) or _manage(expert, app)) is not None:
        return step
    return WAIT if app in state["apps"]["store"]["downloads"] else expert.tap("update")


def _update_all_step(expert: Expert, params: Params) -> Action:
    store = expert.state["apps"]["store"]
    gone = [name for name in params["others"] if name not in expert.state["installed"]]
    if gone and (step := _get(expert, gone[0])) is not None:
        return step
    if set(store["updates"]) <= set(store["downloads"]):
        return WAIT
    if (step := expert.open("store")) is not None:
        return step
    if st.page(expert.state, "store")[0] != "root" or expert.state["focus"]:
        return BACK
    return expert.tap("update_all" if store["tab"] == 2 else "tab_manage")


def _uninstall_check(state: State, params: Params) -> bool:
    """The app is gone and not being downloaded, and nothing else is gone."""
    here = {*state["installed"], *state["apps"]["store"]["downloads"]}
    return params["app"] not in here and set(params["others"]) <= set(state["installed"])


def _uninstall_step(expert: Expert, params: Params) -> Action | None:
    gone = [name for name in params["others"] if name not in expert.state["installed"]]
    back = _get(expert, gone[0]) if gone else None
    return back or _remove(expert, params["app"])


def _sign_in_page_check(state: State, params: Params) -> bool:
    app = params["app"]
    if state["front"] != app or st.page(state, app) != ["sign_in"]:
        return False
    return not state["apps"][app]["user"]


def _sign_in_page_step(expert: Expert, params: Params) -> Action | None:
    app = params["app"]
    if (step := _launch(expert, app)) is not None or _sign_in_page_check(expert.state, params):
        return step
    page = st.page(expert.state, app)[0]
    return expert.tap("sign_out") if page == "sign_in" else expert.tap("account") if page == "root" else BACK


def _sign_in_check(state: State, params: Params) -> bool:
    """User name and password have been sent."""
    if params["app"] not in state["installed"]:
        return False
    data = state["apps"][params["app"]]
    return all(data[key] == params[key] for key in ("user", "password"))


def _sign_in_step(expert: Expert, params: Params) -> Action | None:
    app = params["app"]
    return (
        _sign_in_page_step(expert, params)
        or expert.write("user_name", user_field(app), params["user"])
        or expert.write("password", password_field(app), params["password"])
        or expert.tap("sign_in")
    )


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


def _template(
    names: str, start: Start, check: Check, step: Step, may: tuple[May, ...] = _APP, removes: str = ""
) -> Template:
    """A template with these parameters and `others`, whose tasks are done on a phone with the store."""

    def act(expert: Expert, params: Params) -> Action:
        return COMPLETE if check(expert.state, params) else step(expert, params) or COMPLETE

    needs = {name: bool if name == "present" else str for name in names.split()} | {"others": list}
    return Template(needs, start, check, act, _CHOICES, "store", may=may, removes=removes)


TEMPLATES: dict[str, Template] = {
    "store_install": _template("app", _install_others, _install_check, _install_step),
    "store_lookalike": _template(
        "app decoy", _install_others, _install_check, _install_step, removes="decoy"
    ),
    "store_update": _template("app", _offer_updates, _update_check, _update_step, _UPDATES),
    "store_update_all": _template("", _offer_updates, _update_check, _update_all_step, _UPDATES),
    "store_uninstall": _template("app", _install_app_too, _uninstall_check, _uninstall_step, removes="app"),
    "store_replace": _template(
        "app new",
        _install_app_too,
        lambda state, params: params["new"] in state["installed"] and _uninstall_check(state, params),
        lambda expert, params: _uninstall_step(expert, params) or _get(expert, params["new"]),
        removes="app",
    ),
    "store_open": _template(
        "app present",
        _install_app_too,
        lambda state, params: state["front"] == params["app"],
        lambda expert, params: _launch(expert, params["app"]),
    ),
    "store_sign_in_page": _template("app present", _install_app_too, _sign_in_page_check, _sign_in_page_step),
    "store_sign_in": _template(
        "app present user password", _install_app_too, _sign_in_check, _sign_in_step, _SIGNED_IN
    ),
}
SUITE = "install"
SPLITS = ("train", "val", "test", "unseen_template", "unseen_layout")
DISJOINT = ("tasks", "goals", "params", "phrasings", "names")
"""What no evaluation split shares with `train`."""
MAX_STEPS = 20
COUNTS = {"train": 2000, "val": 42, "test": 402, "unseen_template": 402, "unseen_layout": 402}
"""Instances by split, spread evenly over its templates."""
UNSEEN_TEMPLATES = ("store_replace", "store_sign_in_page")
"""Templates that are only measured."""
HELD_OUT = {
    "test": (
        *("lightpuzzle", "lightpuzzles", "waterlog", "waterlogger", "cityguide", "cityguides"),
        *("podnest", "fittrack", "bustimes"),
    ),
    "val": ("recipebox", "recipebook", "sleepsounds"),
}
"""Apps of the store that only one side of the evaluation asks for."""
LOOKALIKES = (
    ("chessclub", "chessclubs"),
    ("chessclub", "chessclubpro"),
    ("lightpuzzle", "lightpuzzles"),
    ("radiowave", "radiowavesfm"),
    ("taskly", "tasklist"),
    ("shoppinglist", "shoppinglists"),
    ("waterlog", "waterlogger"),
    ("dailypost", "dailyposts"),
    ("recipebox", "recipebook"),
    ("cityguide", "cityguides"),
    ("chatnest", "chatnestlite"),
)
"""An app, and one that may be taken for it; tasks are about either."""
INTERRUPTIONS: tuple[tuple[str, ...], ...] = (
    ("popup", "permission"),
    ("ad",),
    ("update", "message"),
    ("rating", "low_battery"),
    ("message", "permission"),
    ("popup",),
    ("low_battery",),
    ("ad", "message"),
)
"""What interrupts every second instance."""


def _words(params: Params) -> dict[str, object]:
    """What fills a wording."""
    labels: dict[str, object] = {key: ENTRIES[params[key]].label for key in ("app", "new") if key in params}
    developer = ENTRIES[params["app"]].developer if "app" in params else ""
    return {**params, **labels, "developer": developer}


def _asked(pool: str) -> list[str]:
    """The apps that tasks of a pool are about: "train", "val" or "test"."""
    held = {name for names in HELD_OUT.values() for name in names}
    return [name for name in ENTRIES if (name in HELD_OUT[pool] if pool in HELD_OUT else name not in held)]


def _named(template: str, index: int, pool: str, rng: Names) -> Params:
    if template == "store_update_all":
        return {}
    asked = _asked(pool)
    if template == "store_lookalike":
        app, decoy = rng.choice([pair for pair in LOOKALIKES if pair[0] in asked])
        return {"app": app, "decoy": decoy} if rng.random() < 0.5 else {"app": decoy, "decoy": app}
    app, new = rng.sample([name for name in asked if not ENTRIES[name].price_cents], 2)
    named: Params = {"app": app}
    if template == "store_replace":
        named["new"] = new
    if template in _OPENED:
        named["present"] = index % 2 == 1
    if template == "store_sign_in":
        named |= {"user": rng.name("user"), "password": rng.name("password")}
    return named


_OPENED = ("store_open", "store_sign_in_page", "store_sign_in")


def _params(template: str, index: int, split: str, rng: Names) -> Params:
    named = _named(template, index, split if split in ("train", "val") else "test", rng)
    used = {named.get(key) for key in ("app", "decoy", "new")}
    others = rng.sample([name for name in ENTRIES if name not in used], rng.randrange(3, 7))
    layouts = UNSEEN_LAYOUTS if split == "unseen_layout" else TRAIN_LAYOUTS
    params = {"layout": rng.choice(layouts), **named, "others": others}
    is_long = template == "store_replace" or (template == "store_sign_in" and not params["present"])
    if index // 2 % 2 and not is_long:
        params["interruptions"] = list(rng.choice(INTERRUPTIONS))
    return params


def _instances() -> dict[str, tuple[Task, str]]:
    """The tasks by id, each with its wording."""
    made: dict[str, tuple[Task, str]] = {}
    for split in SPLITS:
        is_unseen = split == "unseen_template"
        templates = [name for name in TEMPLATES if (name in UNSEEN_TEMPLATES) == is_unseen]
        for at, template in enumerate(templates):
            for index in range(COUNTS[split] // len(templates) + (at < COUNTS[split] % len(templates))):
                name = f"{SUITE}/{template}/{split}/{index:04d}"
                rng = Names(2 * zlib.crc32(f"2/{name}".encode()) + (split != "train"))
                params = _params(template, index, split, rng)
                wording = say(template, split != "train", rng)
                words = _words(params)
                made[name] = instance(name, template, wording, words, params, rng.getrandbits(31), MAX_STEPS)
    return made


tasks, phrasing, aside = suite_of(_instances)


def names(task: Task) -> list[str]:
    """The apps, the user and the password that a task is about, and what else its goal names."""
    named = [task.params[key] for key in ("app", "new", "user", "password") if key in task.params]
    return [*named, *aside(task)]
