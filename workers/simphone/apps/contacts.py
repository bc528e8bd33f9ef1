"""Contacts: the list, a contact's page, and the form for a new one."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from distrl.workers.simphone import state as st
from distrl.workers.simphone import widgets
from distrl.workers.simphone.apps.base import App, Args
from distrl.workers.simphone.nodes import WIDTH, Node
from distrl.workers.simphone.state import State
from distrl.workers.simphone.ui import STATUS_H, Ui, viewport

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
    "Oscar": "#7cb342",
}
"""Avatar colours of the names in the built-in address books; other names get one by hash."""
_OTHERS = ("#546e7a", "#ad1457", "#00838f", "#6d4c41", "#3949ab")


def color(name: str) -> str:
    """The avatar colour of a name, the same on every phone."""
    return COLORS.get(name, _OTHERS[zlib.crc32(name.encode("utf-8", "replace")) % len(_OTHERS)])


def phone_number(name: str) -> str:
    """A made-up number, always the same for a name."""
    digits = f"{zlib.crc32(name.encode()) % 10_000:04d}"
    return f"555 01{digits[:2]}"


def data() -> State:
    """The address book: names in order, with numbers and whether they are favourites."""
    names = ("Anna", "Ben", "Carla", "David", "Maria", "Oscar")
    return {"people": [person(name) for name in names]}


def person(name: str) -> State:
    """An entry of the address book."""
    return {"name": name, "phone": phone_number(name), "starred": False}


def view(ui: Ui) -> list[Node]:
    """The list, a contact or the form."""
    top = st.page(ui.state, "contacts")
    if top[0] == "detail":
        return _detail(ui, ui.state["apps"]["contacts"]["people"][int(top[1])], int(top[1]))
    return _form(ui) if top[0] == "add" else _list(ui)


def _list(ui: Ui) -> list[Node]:
    people = ui.state["apps"]["contacts"]["people"]

    def build(y: float) -> tuple[Sequence[Node], float]:
        if not people:
            return widgets.empty(ui, y + 80, "person", "No contacts yet"), y + 240
        rows = []
        for place, entry in enumerate(people):
            top = y + place * (widgets.ROW_H + 6)
            name = entry["name"]
            lead = widgets.avatar(widgets.MARGIN + 12, top + 10, 52, name, color(name))
            star = None
            if entry["starred"]:
                star = Node(
                    WIDTH - 64, top, 32, widgets.ROW_H, "widget.ImageView", icon="star", color="#f29900"
                )
            rows.append(
                widgets.row(
                    ui,
                    top,
                    name,
                    lead=lead,
                    trail=star,
                    tap=("contacts", "open", place),
                    rid=f"contact_{place}",
                    fill=ui.theme.card,
                )
            )
        return rows, y + len(people) * (widgets.ROW_H + 6) + 96

    top = STATUS_H + widgets.BAR_H
    return [
        viewport(ui, "contacts.list", top, ui.bottom, build),
        widgets.app_bar(ui, "Contacts", back=False),
        widgets.fab(ui, "person_add", "Add contact", ("contacts", "add"), "add_contact"),
    ]


def _detail(ui: Ui, entry: State, index: int) -> list[Node]:
    name, theme = entry["name"], ui.theme
    star = "star" if entry["starred"] else "star_border"
    top = STATUS_H + widgets.BAR_H
    actions = [
        ui.icon_button(WIDTH - 56, STATUS_H + 8, star, "Favourite", ("contacts", "star", index), "favourite")
    ]
    nodes = [
        Node(0, 0, WIDTH, top + 236, fill=theme.tint, radius=0),
        widgets.avatar(WIDTH / 2 - 64, top + 8, 128, name, color(name)),
        ui.text(24, top + 148, WIDTH - 48, 48, name, 32, theme.on_tint, align="c", rid="contact_name"),
    ]
    label = ui.text(widgets.MARGIN + 72, top + 264, 200, 24, entry["phone"], 18)
    kind = ui.text(widgets.MARGIN + 72, top + 288, 200, 22, "Mobile", 14, theme.muted)
    lead = ui.disc(widgets.MARGIN + 14, top + 264, 44, "phone", "#12a150")
    nodes.append(widgets.card(ui, top + 252, 72, [lead, label, kind], rid="phone_card"))
    lead = ui.disc(widgets.MARGIN + 14, top + 350, 44, "chat", "#1a73e8")
    event = ("contacts", "message", index)
    nodes.append(
        widgets.row(
            ui, top + 336, "Send a message", lead=lead, tap=event, rid="send_message", fill=theme.card
        )
    )
    lead = ui.disc(widgets.MARGIN + 14, top + 434, 44, "delete", "#d93025")
    event = ("contacts", "delete", index)
    nodes.append(widgets.row(ui, top + 420, "Delete", lead=lead, tap=event, rid="delete", fill=theme.card))
    nodes.append(widgets.app_bar(ui, "", actions, fill=theme.tint))
    return nodes


def _form(ui: Ui) -> list[Node]:
    top = STATUS_H + widgets.BAR_H
    nodes = [
        widgets.field(ui, top + 16, "contacts.name", "Name", icon="person", h=60),
        widgets.field(ui, top + 92, "contacts.phone", "Phone", icon="phone", h=60),
    ]
    save = widgets.bar_save(ui, ("contacts", "save"))
    if ui.layout.save == "top":
        return [*nodes, widgets.app_bar(ui, "New contact", [save])]
    return [*nodes, widgets.app_bar(ui, "New contact"), widgets.form_cancel(ui), save]


def act(state: State, verb: str, args: Args) -> None:
    """Opens, adds, stars, deletes or writes to a contact."""
    people = state["apps"]["contacts"]["people"]
    if verb == "open":
        st.push(state, "contacts", "detail", int(args[0]))
    elif verb == "add":
        state["fields"].pop("contacts.name", None)
        state["fields"].pop("contacts.phone", None)
        st.push(state, "contacts", "add")
        st.focus(state, "contacts.name")
    elif verb == "star":
        entry = people[int(args[0])]
        entry["starred"] = not entry["starred"]
    elif verb == "delete":
        entry = people.pop(int(args[0]))
        st.reset(state, "contacts")
        state["toast"] = f"{entry['name']} deleted"
    elif verb == "message":
        st.reset(state, "messages", ["thread", people[int(args[0])]["name"]])
        st.show(state, "messages")
    elif verb == "save":
        _save(state, people)


def _save(state: State, people: list[State]) -> None:
    name, phone = st.take(state, "contacts.name"), st.take(state, "contacts.phone")
    st.reset(state, "contacts")
    if name and len(people) < st.MAX_ITEMS:
        people.append({"name": name, "phone": phone, "starred": False})
        people.sort(key=lambda entry: str(entry["name"]).lower())
        state["toast"] = f"{name} saved"


def submit(state: State, key: str) -> None:
    """Enter moves from the name to the phone number, and then closes the keyboard."""
    if key == "contacts.name":
        st.focus(state, "contacts.phone")
    else:
        st.blur(state)


APP = App("contacts", "Contacts", "person", "#e2483d", data, view, act, submit)
