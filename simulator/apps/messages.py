"""Messages: the threads, a conversation with its bubbles, starting a new one; tasks with chats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from distrl.core.actions import Action
from distrl.simulator.apps import contacts
from distrl.simulator.apps.base import App, Args
from distrl.simulator.apps.contacts import PEOPLE, add_person
from distrl.simulator.names import Names
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.fonts import text_width, wrap
from distrl.simulator.phone.nodes import WIDTH, Node, group, icon_button, image
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, viewport
from distrl.simulator.phone.widgets import TOP
from distrl.simulator.tasks.base import (
    Family,
    May,
    Params,
    Template,
    everyday,
    is_shown,
    only,
)
from distrl.simulator.tasks.expert import BACK, IMPOSSIBLE, Expert

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
    def row(y: float, place: int, entry: State) -> Node:
        name, rid = entry["name"], f"thread_{place}"
        lead = widgets.avatar(widgets.MARGIN + 12, y + 12, 54, name, contacts.color(name))
        who, said = entry["lines"][-1] if entry["lines"] else ("me", "")
        note = f"You: {said}" if who == "me" else said
        tap, trail = ("messages", "open", name), _mark(ui, y, entry)
        return widgets.row(ui, y, name, note, lead=lead, trail=trail, tap=tap, rid=rid, h=78)

    return [
        widgets.listing(ui, "messages.list", 84, ui.state["apps"]["messages"]["threads"], row, foot=96),
        widgets.app_bar(ui, "Messages", back=False),
        widgets.fab(ui, "chat", "Start chat", ("messages", "new"), "start_chat"),
    ]


def _mark(ui: Ui, y: float, entry: State) -> Node | None:
    icon = "bookmark" if entry.get("pin") else "volume_off" if entry.get("mute") else ""
    if not icon:
        return None
    return image(WIDTH - 60, y, 28, 78, icon, 22, ui.theme.muted)


def _people(ui: Ui) -> list[Node]:
    def row(y: float, place: int, entry: State) -> Node:
        name, tap = entry["name"], ("messages", "start", entry["name"])
        return contacts.person_row(ui, y, name, entry["phone"], tap, f"to_{place}", flat=True)

    people = ui.state["apps"]["contacts"]["people"]
    listed = widgets.listing(ui, "messages.people", widgets.ROW_H, people, row)
    return [listed, widgets.app_bar(ui, "New message")]


def _conversation(ui: Ui, name: str) -> list[Node]:
    entry = thread(ui.state, name) or {"lines": []}
    top, bottom = TOP, ui.bottom - 76

    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes: list[Node] = []
        y += 12
        for who, said in entry["lines"]:
            nodes.append(_bubble(ui, y, who == "me", said))
            y += nodes[-1].h + 8
        return nodes, y

    face = widgets.avatar(WIDTH - 104, STATUS_H + 10, 44, name, contacts.color(name))
    more = ui.icon_button(WIDTH - 52, STATUS_H + 8, "more_vert", "More", ("messages", "menu", name), "more")
    tap = ("messages", "send", name)
    send = icon_button(
        WIDTH - 72, bottom + 10, 56, "send", "Send", tap, "send", ui.theme.on_primary, ui.theme.primary
    )
    box = widgets.field(ui, bottom + 10, _KEY, "Text message", w=WIDTH - 100, pill=True, rid="message_field")
    bar = group(0, bottom, WIDTH, 76, "compose", (box, send), fill=ui.theme.raised)
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
    fill = theme.primary if mine else theme.raised
    return group(x, y, width, height, "bubble_me" if mine else "bubble_them", (label,), fill=fill, radius=20)


def act(state: State, verb: str, args: Args) -> None:
    """Opens, starts, pins, mutes and deletes threads, and sends."""
    if verb == "new":
        st.push(state, "messages", "new")
        return
    name = str(args[0])
    entry = thread(state, name) or {}
    if verb == "open":
        st.open_form(state, "messages", ["thread", name], {_KEY: ""})
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


APP = App(
    name="messages",
    label="Messages",
    icon="chat",
    color="#12a150",
    data=data,
    view=view,
    act=act,
    submit=submit,
    keeps=("threads",),
    asks="contacts",
    permissions=("SEND_SMS", "READ_SMS", "READ_CONTACTS", "POST_NOTIFICATIONS"),
)


def _mark_words(params: Params) -> Mapping[str, object]:
    return {**params, "do": params["mark"]}


def _thread(state: State, params: Params, rng: Names) -> None:
    _no_thread(state, params, rng)
    threads = state["apps"]["messages"]["threads"]
    said = [[who, rng.name("text", without=(params.get("text", ""),))] for who in ("me", "them")]
    threads.insert(rng.randrange(len(threads) + 1), {"name": params["name"], "lines": said})


def _no_thread(state: State, params: Params, rng: Names) -> None:
    add_person(state, params["name"])
    chats = state["apps"]["messages"]
    chats["threads"] = [entry for entry in chats["threads"] if entry["name"] != params["name"]]


def _chat(expert: Expert, name: str) -> Action | None:
    state, at = expert.state, expert.page("messages")
    if at == ["thread", name]:
        return None
    names = [entry["name"] for entry in state["apps"]["messages"]["threads"]]
    if at[0] == "root":
        return expert.tap(f"thread_{names.index(name)}" if name in names else "start_chat")
    if at[0] == "new" and name not in names:
        place = PEOPLE.find(state, {"name": name})
        return expert.tap(f"to_{place}") if place >= 0 else IMPOSSIBLE
    return BACK


def _send_check(state: State, params: Params) -> bool:
    entry = thread(state, params["name"]) or {"lines": []}
    return ["me", params["text"]] in entry["lines"]


def _send_step(expert: Expert, params: Params) -> Action:
    if (step := _chat(expert, params["name"])) is not None:
        return step
    return expert.write("message_field", "messages.text", params["text"]) or expert.tap("send")


def _open_check(state: State, params: Params) -> bool:
    return is_shown(state, "messages", "thread", params["name"])


def _chat_menu(expert: Expert, name: str, item: str) -> Action:
    if thread(expert.state, name) is None:
        return IMPOSSIBLE
    if expert.page("messages") == ["menu", name]:
        return expert.tap("menu_" + item)
    return _chat(expert, name) or expert.tap("more")


def _chat_delete_step(expert: Expert, params: Params) -> Action:
    if expert.page("messages") == ["delete", params["name"]]:
        return expert.tap("confirm")
    return _chat_menu(expert, params["name"], "delete")


def _mark_check(state: State, params: Params) -> bool:
    entry = thread(state, params["name"]) or {}
    return bool(entry.get(params["mark"]))


def _said(entry: State, params: Params) -> State | None:
    """A chat without what the task wants to be said in it, once; nothing of one that holds only this."""
    if entry["name"] != params["name"]:
        return entry
    lines = [*entry["lines"]]
    if (sent := ["me", params["text"]]) in lines:
        lines.remove(sent)
    return {**entry, "lines": lines} if lines else None


def _marked(entry: State, params: Params) -> State:
    """A chat without what the task has it marked as."""
    if entry["name"] != params["name"]:
        return entry
    return {key: value for key, value in entry.items() if key != params["mark"]}


_SENT = (May("messages.threads", _said),)
_NAME = {"name": str}
_task = partial(everyday, "messages")
TEMPLATES: dict[str, Template] = {
    "message_send": _task({**_NAME, "text": str}, _thread, _send_check, _send_step, may=_SENT),
    "message_new": _task({**_NAME, "text": str}, _no_thread, _send_check, _send_step, may=_SENT),
    "chat_open": _task(_NAME, _thread, _open_check, lambda expert, params: _chat(expert, params["name"])),
    "chat_delete": _task(
        _NAME,
        _thread,
        lambda state, params: thread(state, params["name"]) is None,
        _chat_delete_step,
        may=(May("messages.threads", only("name", "name")),),
    ),
    "chat_mark": _task(
        {**_NAME, "mark": str},
        _thread,
        _mark_check,
        lambda expert, params: _chat_menu(expert, params["name"], params["mark"]),
        {"mark": ("pin", "mute")},
        (May("messages.threads", _marked),),
    ),
}
_PERSON = {"name": "person"}
FAMILIES = (
    Family("message_send", {**_PERSON, "text": "text"}),
    Family("message_new", {**_PERSON, "text": "text"}),
    Family("chat_open", _PERSON),
    Family("chat_delete", _PERSON),
    Family("chat_mark", {**_PERSON, "mark": ("pin", "mute")}, _mark_words),
)
