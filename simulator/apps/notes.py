"""Notes: a grid of coloured notes, pinned ones first; reading, writing, changing, searching; checklists."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.simulator.apps.base import App, Args
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, viewport

_PAPER = ("#ffe8a3", "#c7f0d2", "#cfe2ff", "#ffd3e0", "#e6d9ff")
_INK = "#2a2620"
_PIN = "#b3261e"
_TOP = STATUS_H + widgets.BAR_H


def data() -> State:
    """Three notes. A checklist has `items`, each what it says and whether it is done."""
    return {
        "notes": [
            {"title": "Groceries", "body": "Milk, bread, apples, coffee"},
            {"title": "Ideas", "body": "A table lamp made from the old bicycle wheel"},
            {"title": "Trip", "body": "Train at 9:40, platform four"},
        ]
    }


def find(state: State, title: str) -> int:
    """The place of the note with this title, -1 when there is none."""
    notes: list[State] = state["apps"]["notes"]["notes"]
    return next((place for place, note in enumerate(notes) if note["title"] == title), -1)


def body(note: State) -> str:
    """What a note says below its title, as text."""
    if "items" in note:
        return "\n".join(("[x] " if done else "[ ] ") + what for what, done in note["items"])
    return str(note["body"])


def view(ui: Ui) -> list[Node]:
    """The grid, a search, a note or the form."""
    top = st.page(ui.state, "notes")
    if top[0] == "note":
        return _note(ui, int(top[1]))
    if top[0] == "delete":
        index = int(top[1])
        said = f"“{ui.state['apps']['notes']['notes'][index]['title']}” will be gone for good."
        event = ("notes", "really_delete", index)
        return widgets.confirm(ui, _note(ui, index), "Delete note?", said, "Delete", event)
    if top[0] in ("add", "edit"):
        return _form(ui, "New note" if top[0] == "add" else "Edit note")
    return _grid(ui, searching=top[0] == "search")


def _grid(ui: Ui, searching: bool = False) -> list[Node]:
    notes = ui.state["apps"]["notes"]["notes"]
    order = sorted(range(len(notes)), key=lambda place: not notes[place].get("pinned", False))
    if searching:
        order = [at for at in order if widgets.asked(ui.state, "notes", notes[at]["title"], body(notes[at]))]

    def build(y: float) -> tuple[Sequence[Node], float]:
        if not order:
            message = "Nothing found" if searching else "No notes yet"
            return widgets.empty(ui, y + 60, "edit_note", message), y + 220
        nodes = []
        for place, index in enumerate(order):
            line, column = divmod(place, 2)
            nodes.append(_paper(ui, 16 + 168 * column, y + 8 + 172 * line, notes[index], index))
        return nodes, y + 8 + 172 * ((len(order) + 1) // 2) + 96

    grid = viewport(ui, "notes.list", _TOP, ui.bottom, build)
    if searching:
        return [grid, widgets.search_bar(ui, "notes", "Search notes")]
    look = ui.icon_button(WIDTH - 56, STATUS_H + 8, "search", "Search", ("notes", "search"), "search")
    return [
        grid,
        widgets.app_bar(ui, "Notes", [look], back=False),
        widgets.fab(ui, "edit", "New note", ("notes", "add"), "add_note"),
    ]


def _paper(ui: Ui, x: float, top: float, note: State, index: int) -> Node:
    parts = [
        ui.text(x + 14, top + 12, 132, 32, note["title"], 18, _INK, True),
        ui.text(x + 14, top + 46, 132, 100, body(note), 15, _INK, lines=4, top=True),
    ]
    if note.get("pinned"):
        parts[0] = ui.text(x + 14, top + 12, 106, 32, note["title"], 18, _INK, True)
        parts.append(Node(x + 126, top + 14, 26, 26, icon="bookmark", icon_size=22, color=_PIN))
    return Node(
        x,
        top,
        160,
        164,
        "view.ViewGroup",
        f"note_{index}",
        desc=note["title"],
        tap=("notes", "open", index),
        fill=_PAPER[index % 5],
        radius=22,
        children=tuple(parts),
    )


def _note(ui: Ui, index: int) -> list[Node]:
    note = ui.state["apps"]["notes"]["notes"][index]
    paper, pinned = _PAPER[index % 5], note.get("pinned", False)
    actions = [
        ui.icon_button(WIDTH - 56, STATUS_H + 8, "delete", "Delete", ("notes", "delete", index), "delete"),
        ui.icon_button(
            WIDTH - 106,
            STATUS_H + 8,
            "bookmark" if pinned else "flag",
            "Unpin" if pinned else "Pin",
            ("notes", "pin", index),
            "pin",
            ui.legible(_PIN, ui.theme.bg) if pinned else "",
        ),
        ui.icon_button(WIDTH - 156, STATUS_H + 8, "edit", "Edit", ("notes", "edit", index), "edit"),
    ]
    bar = widgets.app_bar(ui, "", actions)
    if "items" in note:
        return [*_checklist(ui, note, index), bar]
    parts = (
        ui.text(36, _TOP + 20, 288, 48, note["title"], 28, _INK, True, rid="note_title"),
        ui.text(36, _TOP + 72, 288, 260, note["body"], 18, _INK, lines=10, top=True, rid="note_body"),
    )
    sheet = Node(
        16, _TOP + 4, WIDTH - 32, 360, "view.ViewGroup", "sheet", fill=paper, radius=24, children=parts
    )
    return [sheet, bar]


def _checklist(ui: Ui, note: State, index: int) -> list[Node]:
    def build(y: float) -> tuple[Sequence[Node], float]:
        rows: list[Node] = []
        for place, (what, done) in enumerate(note["items"]):
            tap = ("notes", "tick", index, place)
            rows.append(widgets.tick_row(ui, y + 70 * place, what, tap, f"item_{place}", done))
        return rows, y + 70 * len(rows) + 8

    title = ui.text(24, _TOP, 312, 52, note["title"], 28, bold=True, rid="note_title")
    field = widgets.field(
        ui, ui.bottom - 66, "notes.item", "Add an item", w=WIDTH - 96, pill=True, rid="item_field"
    )
    add = Node(
        WIDTH - 72,
        ui.bottom - 66,
        56,
        56,
        "widget.ImageButton",
        "add_item",
        desc="Add item",
        tap=("notes", "add_item", index),
        fill=ui.theme.primary,
        radius=28,
        icon="add",
        color=ui.theme.on_primary,
    )
    bar = Node(
        0, ui.bottom - 76, WIDTH, 76, "view.ViewGroup", "compose", fill=ui.theme.bg, children=(field, add)
    )
    return [viewport(ui, "notes.items", _TOP + 56, ui.bottom - 76, build), title, bar]


def _form(ui: Ui, title: str) -> list[Node]:
    if title == "New note":
        nodes = [
            widgets.field(ui, _TOP + 16, "notes.title", "Title", h=60),
            widgets.field(ui, _TOP + 92, "notes.body", "Note", h=60),
        ]
    else:
        nodes = [
            *widgets.clearable(ui, _TOP + 16, "notes", "notes.title", "Title"),
            *widgets.clearable(ui, _TOP + 92, "notes", "notes.body", "Note"),
        ]
    return widgets.form(ui, title, nodes, ("notes", "save"))


def act(state: State, verb: str, args: Args) -> None:
    """Opens, adds, changes, pins, ticks and deletes notes."""
    notes = state["apps"]["notes"]["notes"]
    index = int(args[0]) if args and isinstance(args[0], int) else -1
    if verb == "search":
        widgets.start_search(state, "notes")
    elif verb == "open":
        state["fields"].pop("notes.item", None)
        st.push(state, "notes", "note", index)
    elif verb == "delete":
        st.push(state, "notes", "delete", index)
    elif verb == "really_delete":
        notes.pop(index)
        st.reset(state, "notes")
        state["toast"] = "Note deleted"
    elif verb == "pin":
        notes[index]["pinned"] = not notes[index].get("pinned", False)
    elif verb == "tick":
        item = notes[index]["items"][int(args[1])]
        item[1] = not item[1]
    elif verb == "add_item":
        _add_item(state, index)
    elif verb in ("add", "edit"):
        note = notes[index] if verb == "edit" else {"title": "", "body": ""}
        state["fields"]["notes.title"], state["fields"]["notes.body"] = note["title"], note.get("body", "")
        st.push(state, "notes", verb, *([index] if verb == "edit" else []))
        st.focus(state, "notes.title" if verb == "add" else "notes.body")
    elif verb == "clear":
        widgets.clear(state, str(args[0]))
    elif verb == "save":
        _save(state, notes)


def _save(state: State, notes: list[State]) -> None:
    page = st.page(state, "notes")
    title, text = st.take(state, "notes.title"), st.take(state, "notes.body")
    if page[0] == "edit":
        note = notes[int(page[1])]
        note["title"] = title or "Untitled"
        if "body" in note:
            note["body"] = text
        st.pop(state, "notes")
        return
    st.reset(state, "notes")
    if (title or text) and len(notes) < st.MAX_ITEMS:
        notes.insert(0, {"title": title or "Untitled", "body": text})


def _add_item(state: State, index: int) -> None:
    what, items = st.take(state, "notes.item"), state["apps"]["notes"]["notes"][index]["items"]
    state["fields"]["notes.item"] = ""
    if what and len(items) < st.MAX_ITEMS:
        items.append([what, False])


def submit(state: State, key: str) -> None:
    """Enter moves from the title to the text, adds an item of a checklist, or closes the keyboard."""
    top = st.page(state, "notes")
    if key == "notes.title":
        st.focus(state, "notes.body")
    elif key == "notes.item" and top[0] == "note":
        _add_item(state, int(top[1]))
    else:
        st.blur(state)


APP = App("notes", "Notes", "edit_note", "#f2b600", data, view, act, submit, keeps=("notes",))
