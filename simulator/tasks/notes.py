"""Tasks of the notes: to write, find, change, pin and delete; checklists to tick and to lengthen."""

from __future__ import annotations

import random

from distrl.core.actions import Action
from distrl.simulator.apps import notes
from distrl.simulator.phone import state as st
from distrl.simulator.phone.hand import BACK, IMPOSSIBLE, Hand
from distrl.simulator.phone.keeping import May, only
from distrl.simulator.phone.state import State
from distrl.simulator.tasks import stuff
from distrl.simulator.tasks.base import Params, Template
from distrl.simulator.tasks.moves import add_note, everyday, is_marked, mark, page, search, write


def _with(state: State, params: Params, rng: random.Random) -> None:
    title = params["title"]
    note: State = {"title": title, "body": stuff.NOTES.get(title, "Do not forget")}
    mark(note)
    add_note(state, note, rng)


def _without(state: State, params: Params, rng: random.Random) -> None:
    entries = state["apps"]["notes"]["notes"]
    entries[:] = [note for note in entries if note["title"] != params["title"]]


def _list(state: State, params: Params, rng: random.Random) -> None:
    """A checklist with the item open and others ticked or not; for a new item, without it."""
    known = [what for what in stuff.LISTS.get(params["title"], ()) if what != params["item"]]
    items: list[list[str | bool]] = [[what, rng.random() < 0.4] for what in rng.sample(known, 4)]
    if not params.get("new", False):
        items.insert(rng.randrange(len(items) + 1), [params["item"], False])
    add_note(state, {"title": params["title"], "items": items}, rng)


def _note(state: State, params: Params) -> State:
    place = notes.find(state, params["title"])
    entries: list[State] = state["apps"]["notes"]["notes"]
    return entries[place] if place >= 0 else {}


def _opened(hand: Hand, params: Params) -> Action | None:
    """What opens the note; None when it is open."""
    place = notes.find(hand.phone.state, params["title"])
    if place < 0:
        return IMPOSSIBLE
    at = page(hand, "notes")
    if at == ["note", place]:
        return None
    return hand.tap(f"note_{place}") if at[0] == "root" else BACK


def _add_check(state: State, params: Params) -> bool:
    return bool(_note(state, params).get("body") == params["body"])


def _fill(hand: Hand, params: Params, clear: bool) -> Action:
    for field in ("title", "body"):
        button = "clear_" + field if clear else ""
        way = write(hand, "notes_" + field, "notes." + field, params[field], button)
        if way is not None:
            return way
    return hand.tap("save")


def _add_way(hand: Hand, params: Params) -> Action:
    if "body" in _note(hand.phone.state, params):
        return _edit_way(hand, params)
    at = page(hand, "notes")[0]
    if at == "add":
        return _fill(hand, params, clear=False)
    return hand.tap("add_note") if at == "root" else BACK


def _edit_way(hand: Hand, params: Params) -> Action:
    if page(hand, "notes") == ["edit", notes.find(hand.phone.state, params["title"])]:
        return _fill(hand, params, clear=True)
    return _opened(hand, params) or hand.tap("edit")


def _show_check(state: State, params: Params) -> bool:
    at = st.page(state, "notes")
    entries = state["apps"]["notes"]["notes"]
    shown = at[0] == "note" and entries[int(at[1])]["title"] == params["title"]
    return bool(shown and state["front"] == "notes")


def _show_way(hand: Hand, params: Params) -> Action:
    place = notes.find(hand.phone.state, params["title"])
    return search(hand, "notes", params["title"], f"note_{place}") if place >= 0 else IMPOSSIBLE


def _pin_check(state: State, params: Params) -> bool:
    return bool(_note(state, params).get("pinned"))


def _pin_way(hand: Hand, params: Params) -> Action:
    return _opened(hand, params) or hand.tap("pin")


def _delete_check(state: State, params: Params) -> bool:
    return not is_marked(state["apps"]["notes"]["notes"])


def _delete_way(hand: Hand, params: Params) -> Action:
    if page(hand, "notes") == ["delete", notes.find(hand.phone.state, params["title"])]:
        return hand.tap("confirm")
    return _opened(hand, params) or hand.tap("delete")


def _items(state: State, params: Params) -> list[list[str | bool]]:
    items: list[list[str | bool]] = _note(state, params).get("items", [])
    return items


def _tick_check(state: State, params: Params) -> bool:
    return [params["item"], True] in _items(state, params)


def _tick_way(hand: Hand, params: Params) -> Action:
    if (way := _opened(hand, params)) is not None:
        return way
    names = [what for what, _ in _items(hand.phone.state, params)]
    if params["item"] not in names:
        return IMPOSSIBLE
    return hand.tap(f"item_{names.index(params['item'])}")


def _new_start(state: State, params: Params, rng: random.Random) -> None:
    _list(state, {**params, "new": True}, rng)


def _new_check(state: State, params: Params) -> bool:
    return any(what == params["item"] for what, _ in _items(state, params))


def _new_way(hand: Hand, params: Params) -> Action:
    if (way := _opened(hand, params)) is not None:
        return way
    return write(hand, "item_field", "notes.item", params["item"]) or hand.tap("add_item")


def _note_may(*fields: str) -> tuple[May, ...]:
    """The task's note; of it only `fields`, if any are named."""
    return (May("notes.notes", only("title", "title", *fields)),)


def _without_item(note: State, params: Params) -> State:
    """A note without the task's item, which may come or be ticked."""
    if note["title"] != params["title"]:
        return note
    return {**note, "items": [item for item in note["items"] if item[0] != params["item"]]}


_ITEM = (May("notes.notes", _without_item),)
_TITLE = {"title": str}

TEMPLATES: dict[str, Template] = {
    "note_add": everyday("notes", {**_TITLE, "body": str}, _without, _add_check, _add_way, may=_note_may()),
    "note_edit": everyday(
        "notes", {**_TITLE, "body": str}, _with, _add_check, _edit_way, may=_note_may("body")
    ),
    "note_show": everyday("notes", _TITLE, _with, _show_check, _show_way),
    "note_pin": everyday("notes", _TITLE, _with, _pin_check, _pin_way, may=_note_may("pinned")),
    "note_delete": everyday("notes", _TITLE, _with, _delete_check, _delete_way, may=_note_may()),
    "list_tick": everyday(
        "notes", {**_TITLE, "item": str}, _list, _tick_check, _tick_way, {"title": stuff.LISTS}, _ITEM
    ),
    "list_add": everyday(
        "notes", {**_TITLE, "item": str}, _new_start, _new_check, _new_way, {"title": stuff.LISTS}, _ITEM
    ),
}
