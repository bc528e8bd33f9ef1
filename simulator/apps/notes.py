"""Notes: a grid of coloured notes, pinned ones first; one note, the form, checklists; tasks with notes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from distrl.core.actions import Action
from distrl.simulator.apps.base import App, Args
from distrl.simulator.names import Names
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node, group, icon_button
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, viewport
from distrl.simulator.phone.widgets import TOP
from distrl.simulator.tasks.base import (
    Entries,
    Family,
    May,
    Params,
    Template,
    everyday,
    mark,
)
from distrl.simulator.tasks.expert import BACK, IMPOSSIBLE, Expert

_PAPER = ("#ffe8a3", "#c7f0d2", "#cfe2ff", "#ffd3e0", "#e6d9ff")
_INK = "#2a2620"
_PIN = "#b3261e"


def data() -> State:
    """Three notes. A checklist has `items`, each what it says and whether it is done."""
    return {
        "notes": [
            {"title": "Groceries", "body": "Milk, bread, apples, coffee"},
            {"title": "Ideas", "body": "A table lamp made from the old bicycle wheel"},
            {"title": "Trip", "body": "Train at 9:40, platform four"},
        ]
    }


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

    grid = viewport(ui, "notes.list", TOP, ui.bottom, build)
    if searching:
        return [grid, widgets.search_bar(ui, "notes", "Search notes")]
    look = ui.icon_button(WIDTH - 56, STATUS_H + 8, "search", "Search", ("find", "notes"), "search")
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
    tap = ("notes", "open", index)
    return group(x, top, 160, 164, f"note_{index}", parts, note["title"], tap, _PAPER[index % 5], 22)


def _note(ui: Ui, index: int) -> list[Node]:
    note = ui.state["apps"]["notes"]["notes"][index]
    paper, pinned = _PAPER[index % 5], note.get("pinned", False)
    color = ui.legible(_PIN, ui.theme.bg) if pinned else ""
    icon = "bookmark" if pinned else "flag"
    desc = "Unpin" if pinned else "Pin"
    actions = [
        ui.icon_button(WIDTH - 56, STATUS_H + 8, "delete", "Delete", ("notes", "delete", index), "delete"),
        ui.icon_button(WIDTH - 106, STATUS_H + 8, icon, desc, ("notes", "pin", index), "pin", color),
        ui.icon_button(WIDTH - 156, STATUS_H + 8, "edit", "Edit", ("notes", "edit", index), "edit"),
    ]
    bar = widgets.app_bar(ui, "", actions)
    if "items" in note:
        return [*_checklist(ui, note, index), bar]
    parts = (
        ui.text(36, TOP + 20, 288, 48, note["title"], 28, _INK, True, rid="note_title"),
        ui.text(36, TOP + 72, 288, 260, note["body"], 18, _INK, lines=10, top=True, rid="note_body"),
    )
    sheet = group(16, TOP + 4, WIDTH - 32, 360, "sheet", parts, fill=paper, radius=24)
    return [sheet, bar]


def _checklist(ui: Ui, note: State, index: int) -> list[Node]:
    def row(y: float, place: int, item: tuple[str, bool]) -> Node:
        what, done = item
        return widgets.tick_row(ui, y, what, ("notes", "tick", index, place), f"item_{place}", done)

    y, theme, tap = ui.bottom - 66, ui.theme, ("notes", "add_item", index)
    title = ui.text(24, TOP, 312, 52, note["title"], 28, bold=True, rid="note_title")
    field = widgets.field(ui, y, "notes.item", "Add an item", w=WIDTH - 96, pill=True, rid="item_field")
    add = icon_button(WIDTH - 72, y, 56, "add", "Add item", tap, "add_item", theme.on_primary, theme.primary)
    bar = group(0, ui.bottom - 76, WIDTH, 76, "compose", (field, add), fill=theme.bg)
    items, bottom = note["items"], ui.bottom - 76
    listed = widgets.listing(ui, "notes.items", 70, items, row, top=TOP + 56, bottom=bottom, foot=8)
    return [listed, title, bar]


def _form(ui: Ui, title: str) -> list[Node]:
    nodes: list[Node] = []
    is_new = title == "New note"
    for y, key, hint in ((TOP + 16, "notes.title", "Title"), (TOP + 92, "notes.body", "Note")):
        nodes += [widgets.field(ui, y, key, hint, h=60)] if is_new else widgets.clearable(ui, y, key, hint)
    return widgets.form(ui, title, nodes, ("notes", "save"))


def act(state: State, verb: str, args: Args) -> None:
    """Opens, adds, changes, pins, ticks and deletes notes."""
    notes = state["apps"]["notes"]["notes"]
    index = int(args[0]) if args and isinstance(args[0], int) else -1
    if verb == "open":
        st.open_form(state, "notes", ["note", index], {"notes.item": ""})
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
        fields = {"notes.title": note["title"], "notes.body": note.get("body", "")}
        st.open_form(state, "notes", [verb, *args], fields, "notes.title" if verb == "add" else "notes.body")
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


def fill(state: State, rng: Names) -> None:
    """Four notes."""
    state["apps"]["notes"]["notes"] = [
        {"title": title, "body": rng.name("text")} for title in rng.names("note", 4)
    ]


APP = App(
    name="notes",
    label="Notes",
    icon="edit_note",
    color="#f2b600",
    data=data,
    view=view,
    act=act,
    submit=submit,
    keeps=("notes",),
    fill=fill,
    asks="microphone",
)


ENTRIES = Entries("notes", "notes", "title", "note", "note")


def _add_note(state: State, note: State, rng: Names) -> None:
    entries = state["apps"]["notes"]["notes"]
    if (place := ENTRIES.find(state, note)) >= 0:
        entries.pop(place)
    entries.insert(rng.randrange(len(entries) + 1), note)


def _with(state: State, params: Params, rng: Names) -> None:
    title = params["title"]
    note: State = {"title": title, "body": rng.name("text", without=[params.get("body", "")])}
    mark(note)
    _add_note(state, note, rng)


def _list(state: State, params: Params, rng: Names) -> None:
    """A checklist with the item open and others ticked or not; for a new item, without it."""
    others = rng.names("item", 4, without=(params["item"],))
    items: list[list[str | bool]] = [[what, rng.random() < 0.4] for what in others]
    if not params.get("new", False):
        items.insert(rng.randrange(len(items) + 1), [params["item"], False])
    _add_note(state, {"title": params["title"], "items": items}, rng)


def _add_step(expert: Expert, params: Params) -> Action:
    note = ENTRIES.entry(expert.state, params)
    if note.get("pinned"):
        return ENTRIES.tap("pin")(expert, params)
    if "body" in note:
        return _edit_step(expert, params)
    at = expert.page("notes")[0]
    if at == "add":
        return expert.fill("notes", {"title": params["title"], "body": params["body"]}, clear=False)
    return expert.tap("add_note") if at == "root" else BACK


def _edit_step(expert: Expert, params: Params) -> Action:
    if expert.page("notes") == ["edit", ENTRIES.find(expert.state, params)]:
        return expert.fill("notes", {"title": params["title"], "body": params["body"]})
    return ENTRIES.open(expert, params) or expert.tap("edit")


def _pin_check(state: State, params: Params) -> bool:
    return bool(ENTRIES.entry(state, params).get("pinned"))


def _items(state: State, params: Params) -> list[list[str | bool]]:
    items: list[list[str | bool]] = ENTRIES.entry(state, params).get("items", [])
    return items


def _tick_check(state: State, params: Params) -> bool:
    return [params["item"], True] in _items(state, params)


def _tick_step(expert: Expert, params: Params) -> Action:
    if (step := ENTRIES.open(expert, params)) is not None:
        return step
    names = [what for what, _ in _items(expert.state, params)]
    if params["item"] not in names:
        return IMPOSSIBLE
    return expert.tap(f"item_{names.index(params['item'])}")


def _new_start(state: State, params: Params, rng: Names) -> None:
    _list(state, {**params, "new": True}, rng)


def _new_check(state: State, params: Params) -> bool:
    return [params["item"], False] in _items(state, params)


def _new_step(expert: Expert, params: Params) -> Action:
    if [params["item"], True] in _items(expert.state, params):
        return _tick_step(expert, params)
    if (step := ENTRIES.open(expert, params)) is not None:
        return step
    return expert.write("item_field", "notes.item", params["item"]) or expert.tap("add_item")


def _without_item(note: State, params: Params) -> State:
    """A note without the task's item, once, which may come or be ticked."""
    names = [what for what, _ in note.get("items", ())]
    if note["title"] != params["title"] or params["item"] not in names:
        return note
    place = names.index(params["item"])
    return {**note, "items": note["items"][:place] + note["items"][place + 1 :]}


_ITEM = (May("notes.notes", _without_item),)
_TITLE = {"title": str}
_task = partial(everyday, "notes")
TEMPLATES: dict[str, Template] = {
    "note_add": _task(
        {**_TITLE, "body": str},
        ENTRIES.remove,
        ENTRIES.matches("body", unset="pinned"),
        _add_step,
        may=ENTRIES.may(),
    ),
    "note_edit": _task(
        {**_TITLE, "body": str}, _with, ENTRIES.matches("body"), _edit_step, may=ENTRIES.may("body")
    ),
    "note_show": _task(_TITLE, _with, ENTRIES.is_open, ENTRIES.search),
    "note_pin": _task(_TITLE, _with, _pin_check, ENTRIES.tap("pin"), may=ENTRIES.may("pinned")),
    "note_delete": _task(_TITLE, _with, ENTRIES.is_gone, ENTRIES.delete, may=ENTRIES.may()),
    "list_tick": _task({**_TITLE, "item": str}, _list, _tick_check, _tick_step, may=_ITEM),
    "list_add": _task({**_TITLE, "item": str}, _new_start, _new_check, _new_step, may=_ITEM),
}
_NOTE = {"title": "note"}
_LISTED = {"title": "list", "item": "item"}
FAMILIES = (
    Family("note_add", {**_NOTE, "body": "text"}),
    Family("note_edit", {**_NOTE, "body": "text"}),
    Family("note_show", _NOTE),
    Family("note_pin", _NOTE),
    Family("note_delete", _NOTE),
    Family("list_tick", _LISTED),
    Family("list_add", _LISTED),
)
