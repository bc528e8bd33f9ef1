"""Messages: the threads, a conversation with its bubbles, and starting a new one."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.simulator.apps import contacts
from distrl.simulator.apps.base import App, Args
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.fonts import text_width, wrap
from distrl.simulator.phone.nodes import WIDTH, Node
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, viewport

_KEY = "messages.text"
_BUBBLE_W = 236


def data() -> State:
    """Threads by name, newest first: each message is who sent it and what it says."""
    return {
        "threads": [
            {"name": "Anna", "lines": [["them", "Are we still on for lunch?"], ["me", "Yes, at one."]]},
            {"name": "David", "lines": [["them", "I left the keys with Carla."]]},
            {"name": "Carla", "lines": [["me", "Thank you for the book!"], ["them", "Enjoy it."]]},
        ]
    }


def thread(state: State, name: str) -> State | None:
    """The thread with `name`, if there is one."""
    threads: list[State] = state["apps"]["messages"]["threads"]
    return next((entry for entry in threads if entry["name"] == name), None)


def view(ui: Ui) -> list[Node]:
    """The threads, a conversation, or the choice of a contact."""
    top = st.page(ui.state, "messages")
    if top[0] == "thread":
        return _conversation(ui, str(top[1]))
    if top[0] == "menu":
        return _menu(ui, str(top[1]))
    if top[0] == "delete":
        name = str(top[1])
        said = f"All messages with {name} will be gone for good."
        event = ("messages", "really_delete", name)
        return widgets.confirm(ui, _conversation(ui, name), "Delete chat?", said, "Delete", event)
    return _people(ui) if top[0] == "new" else _threads(ui)


def _menu(ui: Ui, name: str) -> list[Node]:
    entry = thread(ui.state, name) or {}
    items = []
    for verb, icon, yes, no in (
        ("pin", "bookmark", "Unpin", "Pin"),
        ("mute", "volume_off", "Unmute", "Mute"),
    ):
        event = ("messages", verb, name)
        items.append((icon, yes if entry.get(verb) else no, event, "menu_" + verb))
    items.append(("delete", "Delete chat", ("messages", "delete", name), "menu_delete"))
    return widgets.menu(ui, _conversation(ui, name), items)


def _threads(ui: Ui) -> list[Node]:
    threads = ui.state["apps"]["messages"]["threads"]

    def build(y: float) -> tuple[Sequence[Node], float]:
        rows = []
        for place, entry in enumerate(threads):
            name, top = entry["name"], y + place * 84
            lead = widgets.avatar(widgets.MARGIN + 12, top + 12, 54, name, contacts.color(name))
            who, said = entry["lines"][-1] if entry["lines"] else ("me", "")
            note = f"You: {said}" if who == "me" else said
            event = ("messages", "open", name)
            rows.append(
                widgets.row(
                    ui,
                    top,
                    name,
                    note,
                    lead=lead,
                    trail=_mark(ui, top, entry),
                    tap=event,
                    rid=f"thread_{place}",
                    fill=ui.theme.card,
                    h=78,
                )
            )
        return rows, y + len(threads) * 84 + 96

    return [
        viewport(ui, "messages.list", STATUS_H + widgets.BAR_H, ui.bottom, build),
        widgets.app_bar(ui, "Messages", back=False),
        widgets.fab(ui, "chat", "Start chat", ("messages", "new"), "start_chat"),
    ]


def _mark(ui: Ui, y: float, entry: State) -> Node | None:
    """What a thread's row has on its right: unread, pinned or muted."""
    if entry.get("unread"):
        return ui.disc(WIDTH - 52, y + 32, 14, "", ui.theme.primary)
    icon = "bookmark" if entry.get("pin") else "volume_off" if entry.get("mute") else ""
    if not icon:
        return None
    return Node(WIDTH - 60, y, 28, 78, "widget.ImageView", icon=icon, icon_size=22, color=ui.theme.muted)


def _people(ui: Ui) -> list[Node]:
    people = ui.state["apps"]["contacts"]["people"]

    def build(y: float) -> tuple[Sequence[Node], float]:
        rows = []
        for place, entry in enumerate(people):
            name, top = entry["name"], y + place * widgets.ROW_H
            lead = widgets.avatar(widgets.MARGIN + 12, top + 10, 52, name, contacts.color(name))
            event = ("messages", "start", name)
            rows.append(widgets.row(ui, top, name, entry["phone"], lead=lead, tap=event, rid=f"to_{place}"))
        return rows, y + len(people) * widgets.ROW_H

    top = STATUS_H + widgets.BAR_H
    return [viewport(ui, "messages.people", top, ui.bottom, build), widgets.app_bar(ui, "New message")]


def _conversation(ui: Ui, name: str) -> list[Node]:
    entry = thread(ui.state, name) or {"lines": []}
    shown = entry["lines"][-12:]
    top, bottom = STATUS_H + widgets.BAR_H, ui.bottom - 76

    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes: list[Node] = []
        y += 12
        for who, said in shown:
            nodes.append(_bubble(ui, y, who == "me", said))
            y += nodes[-1].h + 8
        return nodes, y

    face = widgets.avatar(WIDTH - 104, STATUS_H + 10, 44, name, contacts.color(name))
    more = ui.icon_button(WIDTH - 52, STATUS_H + 8, "more_vert", "More", ("messages", "menu", name), "more")
    send = Node(
        WIDTH - 72,
        bottom + 10,
        56,
        56,
        "widget.ImageButton",
        "send",
        desc="Send",
        tap=("messages", "send", name),
        fill=ui.theme.primary,
        radius=28,
        icon="send",
        color=ui.theme.on_primary,
    )
    box = widgets.field(ui, bottom + 10, _KEY, "Text message", w=WIDTH - 100, pill=True, rid="message_field")
    bar = Node(0, bottom, WIDTH, 76, "view.ViewGroup", "compose", fill=ui.theme.raised, children=(box, send))
    return [
        viewport(ui, "messages.thread", top, bottom, build, at_end=True),
        widgets.app_bar(ui, name, [face, more] if thread(ui.state, name) else [face]),
        bar,
    ]


def _bubble(ui: Ui, y: float, mine: bool, said: str) -> Node:
    theme = ui.theme
    rows = wrap(said, False, 17, _BUBBLE_W - 32, 6)
    width = min(_BUBBLE_W, max(text_width(row, False, 17) for row in rows) + 36)
    height = 22 + 23 * len(rows)
    x = WIDTH - widgets.MARGIN - width if mine else widgets.MARGIN
    ink = theme.on_primary if mine else theme.text
    label = ui.text(x + 16, y, width - 30, height, said, 17, ink, lines=6)
    return Node(
        x,
        y,
        width,
        height,
        "view.ViewGroup",
        "bubble_me" if mine else "bubble_them",
        fill=theme.primary if mine else theme.raised,
        radius=20,
        children=(label,),
    )


def act(state: State, verb: str, args: Args) -> None:
    """Opens, starts, pins, mutes and deletes threads, and sends."""
    if verb == "new":
        st.push(state, "messages", "new")
        return
    name = str(args[0])
    entry = thread(state, name) or {}
    if verb == "open":
        state["fields"].pop(_KEY, None)
        entry.pop("unread", None)
        st.push(state, "messages", "thread", name)
    elif verb == "start":
        state["fields"].pop(_KEY, None)
        st.reset(state, "messages", ["thread", name])
    elif verb == "send":
        _send(state, name)
    elif verb in ("menu", "delete"):
        st.push(state, "messages", verb, name)
    elif verb in ("pin", "mute"):
        entry[verb] = not entry.get(verb, False)
        st.pop(state, "messages")
        _order(state)
    elif verb == "really_delete":
        threads = state["apps"]["messages"]["threads"]
        state["apps"]["messages"]["threads"] = [other for other in threads if other["name"] != name]
        st.reset(state, "messages")
        state["toast"] = "Chat deleted"


def _order(state: State) -> None:
    """Pinned threads come first."""
    state["apps"]["messages"]["threads"].sort(key=lambda entry: not entry.get("pin", False))


def _send(state: State, name: str) -> None:
    said = st.take(state, _KEY)
    state["fields"][_KEY] = ""
    if not said:
        return
    threads = state["apps"]["messages"]["threads"]
    entry = thread(state, name) or {"name": name, "lines": []}
    entry["lines"] = [*entry["lines"], ["me", said]][-st.MAX_ITEMS :]
    others = [other for other in threads if other["name"] != name]
    state["apps"]["messages"]["threads"] = [entry, *others][: st.MAX_ITEMS]
    _order(state)
    state["scrolls"].pop("messages.thread", None)


def submit(state: State, key: str) -> None:
    """Enter sends."""
    top = st.page(state, "messages")
    if top[0] == "thread":
        _send(state, str(top[1]))


APP = App("messages", "Messages", "chat", "#12a150", data, view, act, submit, keeps=("threads",))
