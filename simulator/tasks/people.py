"""Tasks with people: contacts, calls and chats."""

from __future__ import annotations

import random

from distrl.core.actions import Action
from distrl.simulator.apps import messages
from distrl.simulator.phone import state as st
from distrl.simulator.phone.hand import BACK, IMPOSSIBLE, Hand
from distrl.simulator.phone.keeping import May, only, where
from distrl.simulator.phone.state import State
from distrl.simulator.tasks import stuff
from distrl.simulator.tasks.base import Params, Template
from distrl.simulator.tasks.moves import (
    add_person,
    everyday,
    is_marked,
    mark,
    page,
    person_at,
    search,
    write,
)


def _known(state: State, params: Params, rng: random.Random) -> None:
    """The person is in the address book, beside those whose first name begins alike."""
    add_person(state, params["name"])
    for name in stuff.NAMES:
        if name[:3] == params["name"][:3]:
            add_person(state, name)
    mark(_person(state, params))
    state["apps"]["contacts"]["calls"] = []


def _unknown(state: State, params: Params, rng: random.Random) -> None:
    book = state["apps"]["contacts"]
    book["people"] = [entry for entry in book["people"] if entry["name"] != params["name"]]


def _person(state: State, params: Params) -> State:
    place = person_at(state, params["name"])
    people: list[State] = state["apps"]["contacts"]["people"]
    return people[place] if place >= 0 else {}


def _opened(hand: Hand, params: Params) -> Action | None:
    """What opens the person's page; None when it is open."""
    place = person_at(hand.phone.state, params["name"])
    if place < 0:
        return IMPOSSIBLE
    at = page(hand, "contacts")
    if at == ["detail", place]:
        return None
    return hand.tap(f"contact_{place}") if at[0] == "root" else BACK


def _add_check(state: State, params: Params) -> bool:
    return bool(_person(state, params).get("phone") == params["phone"])


def _add_way(hand: Hand, params: Params) -> Action:
    if _person(hand.phone.state, params):
        return _number_way(hand, params)
    at = page(hand, "contacts")[0]
    if at != "add":
        return hand.tap("add_contact") if at == "root" else BACK
    for field in ("name", "phone"):
        way = write(hand, f"contacts_{field}", f"contacts.{field}", params[field])
        if way is not None:
            return way
    return hand.tap("save")


def _number_way(hand: Hand, params: Params) -> Action:
    if page(hand, "contacts") == ["edit", person_at(hand.phone.state, params["name"])]:
        for field in ("name", "phone"):
            way = write(hand, f"contacts_{field}", f"contacts.{field}", params[field], clear=f"clear_{field}")
            if way is not None:
                return way
        return hand.tap("save")
    return _opened(hand, params) or hand.tap("edit")


def _number_start(state: State, params: Params, rng: random.Random) -> None:
    _known(state, params, rng)
    entry = _person(state, params)
    if entry["phone"] == params["phone"]:
        entry["phone"] = "555 0000"


def _call_check(state: State, params: Params) -> bool:
    calls = state["apps"]["contacts"]["calls"]
    return bool(calls and calls[0] == [params["name"], "out"])


def _call_way(hand: Hand, params: Params) -> Action:
    return _opened(hand, params) or hand.tap("phone_card")


def _back_start(state: State, params: Params, rng: random.Random) -> None:
    """A missed call of the person, among other calls."""
    _known(state, params, rng)
    others = rng.sample([name for name in stuff.NAMES if name != params["name"]], 4)
    calls = [[name, rng.choice(("in", "out"))] for name in others]
    calls.insert(rng.randrange(1, 5), [params["name"], "missed"])
    state["apps"]["contacts"]["calls"] = calls


def _back_way(hand: Hand, params: Params) -> Action:
    at, calls = page(hand, "contacts")[0], hand.phone.state["apps"]["contacts"]["calls"]
    if at == "calls":
        names = [name for name, _ in calls]
        return hand.tap(f"call_{names.index(params['name'])}") if params["name"] in names else BACK
    return hand.tap("calls") if at == "root" else BACK


def _delete_check(state: State, params: Params) -> bool:
    return not is_marked(state["apps"]["contacts"]["people"])


def _delete_way(hand: Hand, params: Params) -> Action:
    if page(hand, "contacts") == ["delete", person_at(hand.phone.state, params["name"])]:
        return hand.tap("confirm")
    return _opened(hand, params) or hand.tap("delete")


def _show_check(state: State, params: Params) -> bool:
    at = st.page(state, "contacts")
    people = state["apps"]["contacts"]["people"]
    shown = at[0] == "detail" and people[int(at[1])]["name"] == params["name"]
    return bool(shown and state["front"] == "contacts")


def _show_way(hand: Hand, params: Params) -> Action:
    place = person_at(hand.phone.state, params["name"])
    return search(hand, "contacts", params["name"], f"contact_{place}") if place >= 0 else IMPOSSIBLE


def _star_start(state: State, params: Params, rng: random.Random) -> None:
    _known(state, params, rng)
    for entry in state["apps"]["contacts"]["people"]:
        entry["starred"] = entry["name"] == params["name"] or rng.random() < 0.3


def _star_check(state: State, params: Params) -> bool:
    return bool(_person(state, params).get("starred") is False)


def _star_way(hand: Hand, params: Params) -> Action:
    return _opened(hand, params) or hand.tap("favourite")


def _thread(state: State, params: Params, rng: random.Random) -> None:
    """A chat with the person, neither pinned nor muted, among others."""
    add_person(state, params["name"])
    chats = state["apps"]["messages"]
    threads = [entry for entry in chats["threads"] if entry["name"] != params["name"]]
    said = [["me", rng.choice(stuff.SAID)], ["them", rng.choice(stuff.SAID)]]
    threads.insert(rng.randrange(len(threads) + 1), {"name": params["name"], "lines": said})
    chats["threads"] = threads


def _no_thread(state: State, params: Params, rng: random.Random) -> None:
    add_person(state, params["name"])
    chats = state["apps"]["messages"]
    chats["threads"] = [entry for entry in chats["threads"] if entry["name"] != params["name"]]


def _chat(hand: Hand, name: str) -> Action | None:
    """What opens the chat with `name`; None when it is open."""
    state, at = hand.phone.state, page(hand, "messages")
    if at == ["thread", name]:
        return None
    names = [entry["name"] for entry in state["apps"]["messages"]["threads"]]
    if at[0] == "root":
        return hand.tap(f"thread_{names.index(name)}" if name in names else "start_chat")
    if at[0] == "new" and name not in names:
        place = person_at(state, name)
        return hand.tap(f"to_{place}") if place >= 0 else IMPOSSIBLE
    return BACK


def _send_check(state: State, params: Params) -> bool:
    entry = messages.thread(state, params["name"]) or {"lines": []}
    return ["me", params["text"]] in entry["lines"]


def _send_way(hand: Hand, params: Params) -> Action:
    if (way := _chat(hand, params["name"])) is not None:
        return way
    return write(hand, "message_field", "messages.text", params["text"]) or hand.tap("send")


def _open_check(state: State, params: Params) -> bool:
    return bool(st.page(state, "messages") == ["thread", params["name"]] and state["front"] == "messages")


def _open_way(hand: Hand, params: Params) -> Action:
    return _chat(hand, params["name"]) or BACK


def _chat_gone(state: State, params: Params) -> bool:
    return messages.thread(state, params["name"]) is None


def _chat_menu(hand: Hand, name: str, item: str) -> Action:
    """Chooses something in the chat's menu."""
    if messages.thread(hand.phone.state, name) is None:
        return IMPOSSIBLE
    if page(hand, "messages") == ["menu", name]:
        return hand.tap("menu_" + item)
    return _chat(hand, name) or hand.tap("more")


def _chat_delete_way(hand: Hand, params: Params) -> Action:
    if page(hand, "messages") == ["delete", params["name"]]:
        return hand.tap("confirm")
    return _chat_menu(hand, params["name"], "delete")


def _mark_check(state: State, params: Params) -> bool:
    entry = messages.thread(state, params["name"]) or {}
    return bool(entry.get(params["mark"]))


def _mark_way(hand: Hand, params: Params) -> Action:
    return _chat_menu(hand, params["name"], params["mark"])


def _said(entry: State, params: Params) -> State | None:
    """A chat without what the task wants to be said in it; nothing of one that holds only this."""
    if entry["name"] != params["name"]:
        return entry
    lines = [line for line in entry["lines"] if line != ["me", params["text"]]]
    return {**entry, "lines": lines} if lines else None


def _marked(entry: State, params: Params) -> State:
    """A chat without what the task has it marked as."""
    if entry["name"] != params["name"]:
        return entry
    return {key: value for key, value in entry.items() if key != params["mark"]}


def _person_may(*fields: str) -> tuple[May, ...]:
    return (May("contacts.people", only("name", "name", *fields)),)


_CALL = (May("contacts.calls", where(lambda call, params: call == [params["name"], "out"])),)
_SAID = (May("messages.threads", _said),)
_NAME = {"name": str}

TEMPLATES: dict[str, Template] = {
    "contact_add": everyday(
        "contacts", {**_NAME, "phone": str}, _unknown, _add_check, _add_way, may=_person_may()
    ),
    "contact_number": everyday(
        "contacts", {**_NAME, "phone": str}, _number_start, _add_check, _number_way, may=_person_may("phone")
    ),
    "contact_call": everyday("contacts", _NAME, _known, _call_check, _call_way, may=_CALL),
    "contact_call_back": everyday("contacts", _NAME, _back_start, _call_check, _back_way, may=_CALL),
    "contact_delete": everyday("contacts", _NAME, _known, _delete_check, _delete_way, may=_person_may()),
    "contact_show": everyday("contacts", _NAME, _known, _show_check, _show_way),
    "contact_unstar": everyday(
        "contacts", _NAME, _star_start, _star_check, _star_way, may=_person_may("starred")
    ),
    "message_send": everyday("messages", {**_NAME, "text": str}, _thread, _send_check, _send_way, may=_SAID),
    "message_new": everyday(
        "messages", {**_NAME, "text": str}, _no_thread, _send_check, _send_way, may=_SAID
    ),
    "chat_open": everyday("messages", _NAME, _thread, _open_check, _open_way),
    "chat_delete": everyday(
        "messages",
        _NAME,
        _thread,
        _chat_gone,
        _chat_delete_way,
        may=(May("messages.threads", only("name", "name")),),
    ),
    "chat_mark": everyday(
        "messages",
        {**_NAME, "mark": str},
        _thread,
        _mark_check,
        _mark_way,
        {"mark": ("pin", "mute")},
        (May("messages.threads", _marked),),
    ),
}
