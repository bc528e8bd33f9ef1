"""What lasts of a phone's state, and what of it a task may change: nothing else shall be another at its end.

An app names the lasting parts of its data (`App.keeps`); besides them the apps on the phone, the flashlight,
what apps were allowed and notifications last. A template names what its task may change (`Template.may`).
The rest is compared with what it was at the start, which the state carries along under "kept".

Lists are compared as bags: their order is nobody's property. Not looked at: pages, fields, sort orders,
what plays, a timer that is set and does not run, searches, notifications that came during the task or were
opened, permissions that were denied, and whether something was read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distrl.simulator.apps import APPS
from distrl.simulator.phone.state import State

Params = dict[str, Any]
Rest = Callable[[Any, Params], Any]
_UNSEEN = frozenset({"mark", "read", "unread"})
"""Fields of entries that are not looked at."""
_GROWING = frozenset({"notifications"})
"""Parts that get new entries by themselves; only what is gone counts."""


def nothing(entry: Any, params: Params) -> None:
    """Leaves nothing of an entry to be compared: it may come, go and change."""


@dataclass(frozen=True)
class May:
    """A lasting part of the state that a task may change.

    Attributes:
        part: Its name as in `lasting`, in which "{name}" stands for the task's parameter of that name.
        rest: What of an entry (of a part that is neither list nor mapping: of its value) must stay as it was;
            None for nothing. Entries of a mapping are lists of key and value.
    """

    part: str
    rest: Rest = nothing


def only(key: str, value: str, *fields: str) -> Rest:
    """The entry whose field `key` is the parameter `value`; of it only `fields`, if any are named.

    Args:
        key: A field of the entries; "" for the entry itself.
    """
    return where(lambda entry, params: (entry[key] if key else entry) == params[value], *fields)


def where(is_meant: Callable[[Any, Params], bool], *fields: str) -> Rest:
    """The entries that `is_meant` finds; of them only `fields`, if any are named."""

    def rest(entry: Any, params: Params) -> Any:
        if not is_meant(entry, params):
            return entry
        return {key: value for key, value in entry.items() if key not in fields} if fields else None

    return rest


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
    """What lies at `path`, in which "*" is every key; nothing where there is no such place."""
    if not path:
        yield name, data
        return
    for key in data if path[0] == "*" else [path[0]]:
        if key in data:
            yield from _reach(data[key], f"{name}.{key}", path[1:])


def keep(state: State) -> None:
    """Notes in the state itself what lasts of it now."""
    state["kept"] = json.loads(json.dumps(lasting(state)))


def changed(state: State, params: Params, may: Iterable[May]) -> list[str]:
    """The parts that are no more what they were at the task's start, and that it may not change.

    An app that came or went is told by "installed" alone.
    """
    before, now = state["kept"], lasting(state)
    allowed = {one.part.format_map(params): one.rest for one in may}

    def differs(part: str) -> bool:
        was, is_now = (_bag(parts[part], allowed.get(part), params) for parts in (before, now))
        return not was <= is_now if part in _GROWING else was != is_now

    return [part for part in before if part in now and differs(part)]


def _bag(value: Any, rest: Rest | None, params: Params) -> Counter[str]:
    """A part's entries, as far as they must stay, each as text."""
    entries = value if isinstance(value, list) else [value]
    if isinstance(value, Mapping):
        entries = [[key, held] for key, held in value.items()]
    if rest is not None:
        entries = [left for entry in entries if (left := rest(entry, params)) is not None]
    return Counter(json.dumps(_bare(entry), sort_keys=True) for entry in entries)


def _bare(entry: Any) -> Any:
    """An entry without what is empty in it or not looked at."""
    if not isinstance(entry, Mapping):
        return entry
    return {
        key: value
        for key, value in entry.items()
        if key not in _UNSEEN and value not in (None, False, "", [])
    }
