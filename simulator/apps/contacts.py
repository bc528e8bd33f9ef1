"""Contacts: the list, a contact's page, the form, calls and search; tasks with people and calls."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from distrl.core.actions import Action
from distrl.simulator.apps.base import App, Args, through
from distrl.simulator.names import Names
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Event, Node, icon_button, image
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui
from distrl.simulator.phone.widgets import TOP
from distrl.simulator.tasks.base import (
    Entries,
    Family,
    May,
    Params,
    Template,
    everyday,
    mark,
    where,
)
from distrl.simulator.tasks.expert import BACK, COMPLETE, IMPOSSIBLE, Expert

COLORS: dict[str, str] = {
    "Anna": "#d93025",
    "Ben": "#1a73e8",
    "Carla": "#188038",
    "David": "#f29900",
    "Emma": "#8430ce",
    "Felix": "#007b83",
    "Grace": "#e52592",
    "Henry": "#5f4b32",
    "Maria": "#90a4ae",
    "Otto": "#7cb342",
}
"""Avatar colours of the names in the built-in address books; other names get one by hash."""
_OTHERS = ("#546e7a", "#ad1457", "#00838f", "#6d4c41", "#3949ab")


def color(name: str) -> str:
    """The avatar colour of a name, the same on every phone."""
    return COLORS.get(name, _OTHERS[zlib.crc32(name.encode("utf-8", "replace")) % len(_OTHERS)])


def phone_number(name: str) -> str:
    """A made-up number, always the same for a name."""
    return f"555 01{zlib.crc32(name.encode()) % 10_000 // 100:02d}"


def data() -> State:
    """The address book: names in order, with numbers and whether they are favourites; calls, newest first."""
    names = ("Anna", "Ben", "Carla", "David", "Maria", "Otto")
    return {"edition": 1, "people": [person(name) for name in names], "calls": []}


def person(name: str) -> State:
    """An entry of the address book."""
    return {"name": name, "phone": phone_number(name), "starred": False}


def view(ui: Ui) -> list[Node]:
    """The list, a search, a contact, a call, the calls or the form."""
    top = st.page(ui.state, "contacts")
    people = ui.state["apps"]["contacts"]["people"]
    if top[0] == "detail":
        return _detail(ui, people[int(top[1])], int(top[1]))
    if top[0] == "delete":
        index, name = int(top[1]), people[int(top[1])]["name"]
        event = ("contacts", "really_delete", index)
        under = _detail(ui, people[index], index)
        return widgets.confirm(ui, under, "Delete contact?", f"{name} will be removed.", "Delete", event)
    if top[0] == "call":
        return _call(ui, str(top[1]), people)
    if top[0] == "calls":
        return _calls(ui)
    if top[0] == "edit":
        fields = [
            *widgets.clearable(ui, TOP + 16, "contacts.name", "Name", "person"),
            *widgets.clearable(ui, TOP + 92, "contacts.phone", "Phone", "phone"),
        ]
        return widgets.form(ui, "Edit contact", fields, ("contacts", "change", int(top[1])))
    if top[0] == "add":
        return _form(ui)
    return _list(ui, searching=top[0] == "search")


def _list(ui: Ui, searching: bool) -> list[Node]:
    people = ui.state["apps"]["contacts"]["people"]
    shown = list(range(len(people)))
    is_asked = searching and bool(st.text(ui.state, "contacts.search").strip())
    if is_asked:
        shown = [place for place in shown if widgets.asked(ui.state, "contacts", people[place]["name"])]

    def row(y: float, _: int, place: int) -> Node:
        star = image(WIDTH - 64, y, 32, widgets.ROW_H, "star", color="#f29900")
        trail = star if people[place]["starred"] else None
        tap = ("contacts", "open", place)
        return person_row(ui, y, people[place]["name"], "", tap, f"contact_{place}", trail)

    none = ("person", "Nobody found" if is_asked else "No contacts yet")
    listed = widgets.listing(ui, "contacts.list", 78, shown, row, foot=96, none=none)
    if searching:
        return [listed, widgets.search_bar(ui, "contacts", "Search contacts")]
    actions = []
    if ui.state["apps"]["contacts"]["edition"] > 1:
        actions = [
            ui.icon_button(WIDTH - 56, STATUS_H + 8, "search", "Search", ("find", "contacts"), "search"),
            ui.icon_button(WIDTH - 106, STATUS_H + 8, "history", "Calls", ("contacts", "calls"), "calls"),
        ]
    return [
        listed,
        widgets.app_bar(ui, "Contacts", actions, back=False),
        widgets.fab(ui, "person_add", "Add contact", ("contacts", "add"), "add_contact"),
    ]


def person_row(
    ui: Ui,
    y: float,
    name: str,
    note: str,
    tap: Event,
    rid: str,
    trail: Node | None = None,
    flat: bool = False,
) -> Node:
    """A row with a person's avatar."""
    lead = widgets.avatar(widgets.MARGIN + 12, y + 10, 52, name, color(name))
    return widgets.row(ui, y, name, note, lead=lead, trail=trail, tap=tap, rid=rid, flat=flat)


def _detail(ui: Ui, entry: State, index: int) -> list[Node]:
    name, theme = entry["name"], ui.theme
    star = "star" if entry["starred"] else "star_border"
    actions = [
        ui.icon_button(WIDTH - 56, STATUS_H + 8, star, "Favourite", ("contacts", "star", index), "favourite")
    ]
    nodes = [
        Node(0, 0, WIDTH, TOP + 236, fill=theme.tint, radius=0),
        widgets.avatar(WIDTH / 2 - 64, TOP + 8, 128, name, color(name)),
        ui.text(24, TOP + 148, WIDTH - 48, 48, name, 32, theme.on_tint, align="c", rid="contact_name"),
    ]
    more = ui.state["apps"]["contacts"]["edition"] > 1
    if more:
        edit = ui.icon_button(WIDTH - 106, STATUS_H + 8, "edit", "Edit", ("contacts", "edit", index), "edit")
        actions.append(edit)
    label = ui.text(widgets.MARGIN + 72, TOP + 264, 200, 24, entry["phone"], 18)
    kind = ui.text(widgets.MARGIN + 72, TOP + 288, 200, 22, "Mobile", 14, theme.muted)
    lead = ui.disc(widgets.MARGIN + 14, TOP + 264, 44, "phone", "#12a150")
    card = widgets.card(ui, TOP + 252, 72, [lead, label, kind], rid="phone_card")
    call: Event = ("contacts", "call", name) if more else ()
    nodes.append(replace(card, tap=call, desc=f"Call {name}" if more else ""))
    for y, icon, fill, words, verb, rid in (
        (336, "chat", "#1a73e8", "Send a message", "message", "send_message"),
        (420, "delete", "#d93025", "Delete", "delete", "delete"),
    ):
        tap = ("contacts", verb, index)
        nodes.append(widgets.row(ui, TOP + y, words, lead=(icon, fill), tap=tap, rid=rid))
    nodes.append(widgets.app_bar(ui, "", actions, fill=theme.tint))
    return nodes


def _call(ui: Ui, name: str, people: list[State]) -> list[Node]:
    theme, y = ui.theme, STATUS_H + 96
    phone = next((entry["phone"] for entry in people if entry["name"] == name), phone_number(name))
    x, top, tap = WIDTH / 2 - 40, ui.bottom - 130, ("contacts", "hang_up")
    end = icon_button(x, top, 80, "phone_disabled", "End call", tap, "end_call", "#ffffff", "#d93025", 36)
    return [
        Node(0, 0, WIDTH, ui.bottom, fill=theme.tint),
        ui.text(24, y - 56, WIDTH - 48, 32, "Calling…", 18, theme.on_tint, align="c"),
        widgets.avatar(WIDTH / 2 - 72, y, 144, name, color(name)),
        ui.text(24, y + 164, WIDTH - 48, 48, name, 32, theme.on_tint, align="c", rid="callee"),
        ui.text(24, y + 212, WIDTH - 48, 32, phone, 18, theme.on_tint, align="c"),
        end,
    ]


_CALLS = {
    "out": ("call_made", "Outgoing"),
    "in": ("call_received", "Incoming"),
    "missed": ("call_missed", "Missed"),
}


def _calls(ui: Ui) -> list[Node]:
    def row(y: float, place: int, call: Sequence[str]) -> Node:
        name, kind = call
        icon, told = _CALLS[kind]
        tint = ui.legible("#d93025") if kind == "missed" else ui.theme.muted
        sign = image(WIDTH - 64, y, 32, widgets.ROW_H, icon, color=tint)
        return person_row(ui, y, name, told, ("contacts", "call", name), f"call_{place}", sign)

    calls, none = ui.state["apps"]["contacts"]["calls"], ("call", "No calls yet")
    listed = widgets.listing(ui, "contacts.calls", 78, calls, row, none=none)
    return [listed, widgets.app_bar(ui, "Calls")]


def _form(ui: Ui) -> list[Node]:
    nodes = [
        widgets.field(ui, TOP + 16, "contacts.name", "Name", icon="person", h=60),
        widgets.field(ui, TOP + 92, "contacts.phone", "Phone", icon="phone", h=60),
    ]
    return widgets.form(ui, "New contact", nodes, ("contacts", "save"))


def act(state: State, verb: str, args: Args) -> None:
    """Opens, adds, stars, changes, deletes, calls or writes to a contact."""
    people = state["apps"]["contacts"]["people"]
    if verb == "open":
        st.push(state, "contacts", "detail", int(args[0]))
    elif verb == "add":
        empty = {"contacts.name": "", "contacts.phone": ""}
        st.open_form(state, "contacts", ["add"], empty, "contacts.name")
    elif verb == "star":
        entry = people[int(args[0])]
        entry["starred"] = not entry["starred"]
    elif verb == "delete" and state["apps"]["contacts"]["edition"] > 1:
        st.push(state, "contacts", "delete", int(args[0]))
    elif verb in ("delete", "really_delete"):
        entry = people.pop(int(args[0]))
        st.reset(state, "contacts")
        state["toast"] = f"{entry['name']} deleted"
    elif verb == "message":
        state["fields"].pop("messages.text", None)
        st.reset(state, "messages", ["thread", people[int(args[0])]["name"]])
        st.show(state, "messages")
    elif verb == "save":
        _save(state, people)
    else:
        _more(state, people, verb, args)


def _more(state: State, people: list[State], verb: str, args: Args) -> None:
    """What the second edition can do."""
    if verb == "calls":
        st.push(state, "contacts", "calls")
    elif verb == "call":
        calls = state["apps"]["contacts"]["calls"]
        calls.insert(0, [str(args[0]), "out"])
        del calls[st.MAX_ITEMS :]
        st.push(state, "contacts", "call", str(args[0]))
    elif verb == "hang_up":
        st.pop(state, "contacts")
    elif verb == "edit":
        entry = people[int(args[0])]
        fields = {"contacts.name": entry["name"], "contacts.phone": entry["phone"]}
        st.open_form(state, "contacts", ["edit", int(args[0])], fields)
    elif verb == "change":
        name, phone = st.take(state, "contacts.name"), st.take(state, "contacts.phone")
        entry = people[int(args[0])]
        entry.update(name=name or entry["name"], phone=phone)
        _sort(people)
        st.reset(state, "contacts", ["detail", people.index(entry)])


def _sort(people: list[State]) -> None:
    people.sort(key=lambda entry: str(entry["name"]).lower())


def _save(state: State, people: list[State]) -> None:
    name, phone = st.take(state, "contacts.name"), st.take(state, "contacts.phone")
    st.reset(state, "contacts")
    if name and len(people) < st.MAX_ITEMS:
        people.append({"name": name, "phone": phone, "starred": False})
        _sort(people)
        state["toast"] = f"{name} saved"


def fill(state: State, rng: Names) -> None:
    """The second edition, with nine people, calls from three of them, and chats with four."""
    names = rng.names("person", 9)
    state["apps"]["contacts"] = {
        "edition": 2,
        "people": [person(name) for name in sorted(names)],
        "calls": [[name, rng.choice(("in", "out", "missed"))] for name in names[:3]],
    }
    state["apps"]["messages"]["threads"] = [
        {"name": name, "lines": [[rng.choice(("me", "them")), said] for said in rng.names("text", 2)]}
        for name in names[3:7]
    ]


APP = App(
    name="contacts",
    label="Contacts",
    icon="person",
    color="#e2483d",
    data=data,
    view=view,
    act=act,
    submit=through("contacts.name", "contacts.phone"),
    keeps=("people", "calls"),
    fill=fill,
    asks="contacts",
    permissions=("READ_CONTACTS", "WRITE_CONTACTS"),
)


PEOPLE = Entries("contacts", "people", "name", "detail", "contact")


def add_person(state: State, name: str) -> None:
    """Makes sure that `name` is in the address book."""
    people = state["apps"]["contacts"]["people"]
    if all(entry["name"] != name for entry in people):
        people.append(person(name))
        _sort(people)


def _contact_start(state: State, params: Params, rng: Names) -> None:
    state["apps"]["contacts"]["people"] = [person(name) for name in sorted(params["book"])]


def _contact_expert(expert: Expert, params: Params) -> Action:
    if PEOPLE.is_open(expert.state, params):
        return COMPLETE
    if PEOPLE.find(expert.state, params) < 0:
        return IMPOSSIBLE
    return expert.open("contacts") or PEOPLE.open(expert, params) or COMPLETE


def _starred_check(state: State, params: Params) -> bool:
    return bool(PEOPLE.entry(state, params).get("starred"))


def _starred_expert(expert: Expert, params: Params) -> Action:
    if _starred_check(expert.state, params):
        return COMPLETE
    step = _contact_expert(expert, params)
    return expert.tap("favourite") if step is COMPLETE else step


def _known(state: State, params: Params, rng: Names) -> None:
    """The person is in the address book, beside one with the same first and one with the same last name."""
    first, _, last = params["name"].partition(" ")
    for name in (params["name"], f"{first} {rng.name('last')}", f"{rng.name('first')} {last}".strip()):
        add_person(state, name)
    mark(PEOPLE.entry(state, params))
    state["apps"]["contacts"]["calls"] = []


def _add_step(expert: Expert, params: Params) -> Action:
    if entry := PEOPLE.entry(expert.state, params):
        return (PEOPLE.tap("favourite") if entry["starred"] else _number_step)(expert, params)
    at = expert.page("contacts")[0]
    if at != "add":
        return expert.tap("add_contact") if at == "root" else BACK
    return expert.fill("contacts", {"name": params["name"], "phone": params["phone"]}, clear=False)


def _number_step(expert: Expert, params: Params) -> Action:
    if expert.page("contacts") == ["edit", PEOPLE.find(expert.state, params)]:
        return expert.fill("contacts", {"name": params["name"], "phone": params["phone"]})
    return PEOPLE.open(expert, params) or expert.tap("edit")


def _number_start(state: State, params: Params, rng: Names) -> None:
    _known(state, params, rng)
    entry = PEOPLE.entry(state, params)
    if entry["phone"] == params["phone"]:
        entry["phone"] = "555 0000"


def _call_check(state: State, params: Params) -> bool:
    calls = state["apps"]["contacts"]["calls"]
    return bool(calls and calls[0] == [params["name"], "out"])


def _back_start(state: State, params: Params, rng: Names) -> None:
    """A missed call of the person, among other calls."""
    _known(state, params, rng)
    others = rng.names("person", 4, without=(params["name"],))
    calls = [[name, rng.choice(("in", "out"))] for name in others]
    calls.insert(rng.randrange(1, 5), [params["name"], "missed"])
    state["apps"]["contacts"]["calls"] = calls


def _back_step(expert: Expert, params: Params) -> Action:
    at, calls = expert.page("contacts")[0], expert.state["apps"]["contacts"]["calls"]
    if at == "calls":
        names = [name for name, _ in calls]
        return expert.tap(f"call_{names.index(params['name'])}") if params["name"] in names else BACK
    return expert.tap("calls") if at == "root" else BACK


def _star_start(state: State, params: Params, rng: Names) -> None:
    _known(state, params, rng)
    for entry in state["apps"]["contacts"]["people"]:
        entry["starred"] = entry["name"] == params["name"] or rng.random() < 0.3


def _star_check(state: State, params: Params) -> bool:
    return bool(PEOPLE.entry(state, params).get("starred") is False)


_CALL = (May("contacts.calls", where(lambda call, params: call == [params["name"], "out"])),)
_NAME = {"name": str}
_task = partial(everyday, "contacts")
TEMPLATES: dict[str, Template] = {
    "contact": Template(
        {"name": str, "book": list}, _contact_start, PEOPLE.is_open, _contact_expert, phone="quickstart"
    ),
    "star": Template(
        {"name": str, "book": list}, _contact_start, _starred_check, _starred_expert, phone="quickstart"
    ),
    "contact_add": _task(
        {**_NAME, "phone": str},
        PEOPLE.remove,
        PEOPLE.matches("phone", unset="starred"),
        _add_step,
        may=PEOPLE.may(),
    ),
    "contact_number": _task(
        {**_NAME, "phone": str}, _number_start, PEOPLE.matches("phone"), _number_step, may=PEOPLE.may("phone")
    ),
    "contact_call": _task(_NAME, _known, _call_check, PEOPLE.tap("phone_card"), may=_CALL),
    "contact_call_back": _task(_NAME, _back_start, _call_check, _back_step, may=_CALL),
    "contact_delete": _task(_NAME, _known, PEOPLE.is_gone, PEOPLE.delete, may=PEOPLE.may()),
    "contact_show": _task(_NAME, _known, PEOPLE.is_open, PEOPLE.search),
    "contact_unstar": _task(
        _NAME, _star_start, _star_check, PEOPLE.tap("favourite"), may=PEOPLE.may("starred")
    ),
}
_PERSON = {"name": "person"}
_NUMBERED = {**_PERSON, "phone": tuple(f"555 0{number}" for number in range(200, 1000))}
FAMILIES = (
    Family("contact_add", _NUMBERED),
    Family("contact_number", _NUMBERED),
    Family("contact_call", _PERSON),
    Family("contact_delete", _PERSON),
    Family("contact_show", _PERSON),
    Family("contact_call_back", _PERSON),
    Family("contact_unstar", _PERSON),
)
