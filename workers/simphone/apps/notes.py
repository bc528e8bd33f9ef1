"""Notes: a grid of coloured notes, reading one, writing a new one."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.workers.simphone import state as st
from distrl.workers.simphone import widgets
from distrl.workers.simphone.apps.base import App, Args
from distrl.workers.simphone.nodes import WIDTH, Node
from distrl.workers.simphone.state import State
from distrl.workers.simphone.ui import STATUS_H, Ui, viewport

_PAPER = ("#ffe8a3", "#c7f0d2", "#cfe2ff", "#ffd3e0", "#e6d9ff")
_INK = "#2a2620"


def data() -> State:
    """Three notes."""
    return {
        "notes": [
            {"title": "Groceries", "body": "Milk, bread, apples, coffee"},
            {"title": "Ideas", "body": "A table lamp made from the old bicycle wheel"},
            {"title": "Trip", "body": "Train at 9:40, platform four"},
        ]
    }


def view(ui: Ui) -> list[Node]:
    """The grid, a note or the form."""
    top = st.page(ui.state, "notes")
    if top[0] == "note":
        return _note(ui, int(top[1]))
    return _form(ui) if top[0] == "add" else _grid(ui)


def _grid(ui: Ui) -> list[Node]:
    notes = ui.state["apps"]["notes"]["notes"]

    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes = []
        for place, note in enumerate(notes):
            line, column = divmod(place, 2)
            x, top = 16 + 168 * column, y + 8 + 172 * line
            parts = (
                ui.text(x + 14, top + 12, 132, 32, note["title"], 18, _INK, True),
                ui.text(x + 14, top + 46, 132, 100, note["body"], 15, _INK, lines=4, top=True),
            )
            nodes.append(
                Node(
                    x,
                    top,
                    160,
                    164,
                    "view.ViewGroup",
                    f"note_{place}",
                    desc=note["title"],
                    tap=("notes", "open", place),
                    fill=_PAPER[place % 5],
                    radius=22,
                    children=parts,
                )
            )
        return nodes, y + 8 + 172 * ((len(notes) + 1) // 2) + 96

    return [
        viewport(ui, "notes.list", STATUS_H + widgets.BAR_H, ui.bottom, build),
        widgets.app_bar(ui, "Notes", back=False),
        widgets.fab(ui, "edit", "New note", ("notes", "add"), "add_note"),
    ]


def _note(ui: Ui, index: int) -> list[Node]:
    note = ui.state["apps"]["notes"]["notes"][index]
    paper, top = _PAPER[index % 5], STATUS_H + widgets.BAR_H
    bin_button = ui.icon_button(
        WIDTH - 56, STATUS_H + 8, "delete", "Delete", ("notes", "delete", index), "delete"
    )
    parts = (
        ui.text(36, top + 20, 288, 48, note["title"], 28, _INK, True),
        ui.text(36, top + 72, 288, 260, note["body"], 18, _INK, lines=10, top=True),
    )
    sheet = Node(
        16, top + 4, WIDTH - 32, 360, "view.ViewGroup", "sheet", fill=paper, radius=24, children=parts
    )
    return [sheet, widgets.app_bar(ui, "", [bin_button])]


def _form(ui: Ui) -> list[Node]:
    top = STATUS_H + widgets.BAR_H
    nodes = [
        widgets.field(ui, top + 16, "notes.title", "Title", h=60),
        widgets.field(ui, top + 92, "notes.body", "Note", h=60),
    ]
    save = widgets.bar_save(ui, ("notes", "save"))
    if ui.layout.save == "top":
        return [*nodes, widgets.app_bar(ui, "New note", [save])]
    return [*nodes, widgets.app_bar(ui, "New note"), widgets.form_cancel(ui), save]


def act(state: State, verb: str, args: Args) -> None:
    """Opens, adds and deletes notes."""
    notes = state["apps"]["notes"]["notes"]
    if verb == "open":
        st.push(state, "notes", "note", int(args[0]))
    elif verb == "delete":
        notes.pop(int(args[0]))
        st.reset(state, "notes")
    elif verb == "add":
        state["fields"].pop("notes.title", None)
        state["fields"].pop("notes.body", None)
        st.push(state, "notes", "add")
        st.focus(state, "notes.title")
    elif verb == "save":
        title, body = st.take(state, "notes.title"), st.take(state, "notes.body")
        st.reset(state, "notes")
        if (title or body) and len(notes) < st.MAX_ITEMS:
            notes.insert(0, {"title": title or "Untitled", "body": body})


def submit(state: State, key: str) -> None:
    """Enter moves from the title to the text, and then closes the keyboard."""
    if key == "notes.title":
        st.focus(state, "notes.body")
    else:
        st.blur(state)


APP = App("notes", "Notes", "edit_note", "#f2b600", data, view, act, submit)
