"""What lasts of a phone's state, and what of it changed since a task's start although it must not.

An app names the lasting parts of its data (`App.keeps`); the apps on the phone, the flashlight, permissions
that were granted and notifications last too. A template names what its task may change (`Template.may`). The
rest is compared with the start, of which the state holds a copy under "kept". A task makes one
entry at most: a message that is sent twice is a change.

Lists are compared without regard to order. Ignored: pages, fields, sort orders, playback, a timer that is set
but not running, searches, notifications that arrived during the task or were opened, denied permissions, and
whether something was read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from distrl.simulator.apps import APPS
from distrl.simulator.phone.state import State
from distrl.simulator.tasks.base import May, Params, Rest

_UNSEEN = frozenset({"mark", "read"})
"""Fields of entries that are not compared."""
_GROWING = frozenset({"notifications"})
"""Parts that get new entries by themselves; only missing ones count."""
_MANY = frozenset({"permissions"})
"""Parts to which a task may add more than one entry."""


def lasting(state: State) -> dict[str, Any]:
    """The lasting parts of a state by name: "installed", "permissions", "clock.alarms", "settings.wifi", …"""
    parts: dict[str, Any] = {
        "installed": state["installed"],
        "flashlight": state["flashlight"],
        "permissions": [app for app, is_given in state["permissions"].items() if is_given],
        "notifications": state["notifications"] + state["opened"],
    }
    for app in state["installed"]:
        for path in APPS[app].keeps:
            parts.update(_reach(state["apps"][app], app, path.split(".")))
    return parts


def _reach(data: Any, name: str, path: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """What lies at `path`, in which "*" is every key; nothing if there is no such place."""
    if not path:
        yield name, data
        return
    for key in data if path[0] == "*" else [path[0]]:
        if key in data:
            yield from _reach(data[key], f"{name}.{key}", path[1:])


def keep(state: State) -> None:
    """Copies what lasts of the state into the state itself."""
    state["kept"] = json.loads(json.dumps(lasting(state)))


def changed(state: State, params: Params, may: Iterable[May]) -> list[str]:
    """The parts that differ from the task's start although the task may not change them.

    An app that was installed or removed shows in "installed" only.
    """
    before, now = state["kept"], lasting(state)
    allowed = {one.part.format_map(params): one.rest for one in may}

    def differs(part: str) -> bool:
        (was, num_free), (is_now, num_free_now) = (
            _bag(held[part], allowed.get(part), params) for held in (before, now)
        )
        if part in _GROWING:
            return not was <= is_now
        return was != is_now or (num_free_now > num_free + 1 and part not in _MANY)

    return [part for part in before if part in now and differs(part)]


def _bag(value: Any, rest: Rest | None, params: Params) -> tuple[Counter[str], int]:
    """A part's entries, as far as they must stay, each as text; and how many need not stay."""
    entries = value if isinstance(value, list) else [value]
    if isinstance(value, Mapping):
        entries = [[key, held] for key, held in value.items()]
    kept = entries
    if rest is not None:
        kept = [left for entry in entries if (left := rest(entry, params)) is not None]
    bag = Counter(json.dumps(_bare(entry), sort_keys=True) for entry in kept)
    return bag, len(entries) - len(kept)


def _bare(entry: Any) -> Any:
    """An entry without what is empty in it or not looked at."""
    if not isinstance(entry, Mapping):
        return entry
    return {
        key: value
        for key, value in entry.items()
        if key not in _UNSEEN and value not in (None, False, "", [])
    }
