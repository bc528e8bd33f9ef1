"""Files: folders, their files in a chosen order, a file's details, and renaming, moving and deleting."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.simulator.apps.base import App, Args
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, viewport

FOLDERS = ("Documents", "Downloads", "Pictures", "Work")
ORDERS = ("name", "size", "date")
_KINDS = {
    "pdf": ("picture_as_pdf", "#d93025"),
    "jpg": ("image", "#188038"),
    "txt": ("description", "#1a73e8"),
    "mp3": ("audio_file", "#8430ce"),
    "zip": ("archive", "#f29900"),
}
_TOP = STATUS_H + widgets.BAR_H


def data() -> State:
    """Four folders with a few files."""
    return {
        "folders": list(FOLDERS),
        "order": "name",
        "files": [
            file("lease.pdf", "Documents", 840, 12),
            file("recipe.txt", "Documents", 4, 3),
            file("holiday.jpg", "Pictures", 2300, 21),
            file("setup.zip", "Downloads", 9100, 30),
        ],
    }


def file(name: str, folder: str, size: int, day: int) -> State:
    """A file: its size is in kB, and it was changed on a day of May."""
    return {"name": name, "folder": folder, "size": size, "day": day}


def find(state: State, name: str) -> int:
    """The place of the file with this name, -1 when there is none."""
    files: list[State] = state["apps"]["files"]["files"]
    return next((place for place, entry in enumerate(files) if entry["name"] == name), -1)


def _kind(name: str) -> tuple[str, str]:
    return _KINDS.get(name.rsplit(".", 1)[-1], ("insert_drive_file", "#5f6b7a"))


def _size(size: int) -> str:
    return f"{size} kB" if size < 1000 else f"{size / 1000:.1f} MB"


def view(ui: Ui) -> list[Node]:
    """The page on top."""
    top = st.page(ui.state, "files")
    if top[0] in ("root", "search"):
        return _folders(ui) if top[0] == "root" else _search(ui)
    if top[0] == "folder":
        return _folder(ui, str(top[1]))
    if top[0] == "sort":
        return _sort(ui, str(top[1]))
    if top[0] == "new":
        field = widgets.field(ui, _TOP + 16, "files.name", "Folder name", icon="folder", h=60)
        return widgets.form(ui, "New folder", [field], ("files", "save"), "Create")
    index = int(top[1])
    if top[0] == "rename":
        fields = widgets.clearable(ui, _TOP + 16, "files", "files.name", "Name", "edit")
        return widgets.form(ui, "Rename", fields, ("files", "renamed", index))
    if top[0] == "move":
        return _move(ui, index)
    if top[0] == "delete":
        said = f"“{ui.state['apps']['files']['files'][index]['name']}” will be gone for good."
        event = ("files", "really_delete", index)
        return widgets.confirm(ui, _details(ui, index), "Delete file?", said, "Delete", event)
    return _details(ui, index)


def _folder_row(ui: Ui, y: float, name: str, place: int, tap: tuple[str | int, ...]) -> Node:
    count = sum(entry["folder"] == name for entry in ui.state["apps"]["files"]["files"])
    lead = ui.disc(widgets.MARGIN + 12, y + 12, 48, "folder", ui.theme.tint, ui.theme.on_tint)
    told = f"{count} file{'' if count == 1 else 's'}"
    return widgets.row(ui, y, name, told, lead=lead, tap=tap, rid=f"folder_{place}", fill=ui.theme.card)


def _folders(ui: Ui) -> list[Node]:
    names = ui.state["apps"]["files"]["folders"]

    def build(y: float) -> tuple[Sequence[Node], float]:
        used = sum(entry["size"] for entry in ui.state["apps"]["files"]["files"])
        parts = [
            ui.disc(36, y + 20, 56, "storage", ui.theme.primary, ui.theme.on_primary),
            ui.text(108, y + 18, 200, 30, "Internal storage", 18),
            ui.text(108, y + 48, 200, 26, f"{_size(used)} in files", 14, ui.theme.muted),
        ]
        rows = [widgets.card(ui, y + 4, 92, parts, rid="storage")]
        for place, name in enumerate(names):
            rows.append(_folder_row(ui, y + 108 + 80 * place, name, place, ("files", "folder", name)))
        return rows, y + 108 + 80 * len(names) + 90

    look = ui.icon_button(WIDTH - 56, STATUS_H + 8, "search", "Search", ("files", "search"), "search")
    return [
        viewport(ui, "files.folders", _TOP, ui.bottom, build),
        widgets.app_bar(ui, "Files", [look], back=False),
        widgets.fab(ui, "create_new_folder", "New folder", ("files", "new"), "new_folder"),
    ]


def _file_row(ui: Ui, y: float, place: int) -> Node:
    entry = ui.state["apps"]["files"]["files"][place]
    icon, color = _kind(entry["name"])
    lead = ui.disc(widgets.MARGIN + 12, y + 12, 48, icon, ui.legible(color, "#ffffff"))
    told = f"{_size(entry['size'])}, May {entry['day']}"
    tap, rid = ("files", "open", place), f"file_{place}"
    return widgets.row(ui, y, entry["name"], told, lead=lead, tap=tap, rid=rid, fill=ui.theme.card)


def _rows(ui: Ui, y: float, places: Sequence[int]) -> tuple[Sequence[Node], float]:
    if not places:
        return widgets.empty(ui, y + 80, "folder_open", "No files here"), y + 240
    return [_file_row(ui, y + 8 + 78 * line, place) for line, place in enumerate(places)], (
        y + 8 + 78 * len(places)
    )


def _folder(ui: Ui, folder: str) -> list[Node]:
    app = ui.state["apps"]["files"]
    inside = [place for place, entry in enumerate(app["files"]) if entry["folder"] == folder]
    key = {"name": "name", "size": "size", "date": "day"}[app["order"]]
    inside.sort(key=lambda place: app["files"][place][key], reverse=key != "name")
    sort = ui.icon_button(WIDTH - 56, STATUS_H + 8, "sort", "Sort", ("files", "sort", folder), "sort")
    return [
        viewport(ui, "files.folder", _TOP, ui.bottom, lambda y: _rows(ui, y, inside)),
        widgets.app_bar(ui, folder, [sort]),
    ]


def _search(ui: Ui) -> list[Node]:
    files = ui.state["apps"]["files"]["files"]
    found = [place for place, entry in enumerate(files) if widgets.asked(ui.state, "files", entry["name"])]
    listed = viewport(ui, "files.found", _TOP, ui.bottom, lambda y: _rows(ui, y, found))
    return [listed, widgets.search_bar(ui, "files", "Search files")]


def _sort(ui: Ui, folder: str) -> list[Node]:
    chosen = ui.state["apps"]["files"]["order"]
    items = [
        (
            "check" if order == chosen else icon,
            label,
            ("files", "order", order),
            "order_" + order,
        )
        for order, icon, label in (
            ("name", "sort_by_alpha", "Name"),
            ("size", "storage", "Largest first"),
            ("date", "schedule", "Newest first"),
        )
    ]
    return widgets.menu(ui, _folder(ui, folder), items)


def _details(ui: Ui, index: int) -> list[Node]:
    entry, theme = ui.state["apps"]["files"]["files"][index], ui.theme
    icon, color = _kind(entry["name"])
    nodes = [
        Node(
            widgets.MARGIN,
            _TOP + 4,
            WIDTH - 2 * widgets.MARGIN,
            150,
            "widget.ImageView",
            fill=theme.card,
            radius=24,
            icon=icon,
            icon_size=84,
            color=ui.legible(color),
        ),
        ui.text(24, _TOP + 162, WIDTH - 48, 40, entry["name"], 24, rid="file_name"),
    ]
    facts = f"{_size(entry['size'])} · {entry['folder']} · May {entry['day']}"
    nodes.append(ui.text(24, _TOP + 200, WIDTH - 48, 28, facts, 15, theme.muted, rid="file_facts"))
    for place, (sign, label, verb) in enumerate(
        (("edit", "Rename", "rename"), ("drive_file_move", "Move", "move"), ("delete", "Delete", "delete"))
    ):
        y = _TOP + 244 + 76 * place
        lead = ui.disc(widgets.MARGIN + 14, y + 14, 42, sign, theme.tint, theme.on_tint)
        tap = ("files", verb, index)
        nodes.append(widgets.row(ui, y, label, lead=lead, tap=tap, rid=verb, h=70, fill=theme.card))
    return [*nodes, widgets.app_bar(ui, "Details")]


def _move(ui: Ui, index: int) -> list[Node]:
    names = ui.state["apps"]["files"]["folders"]

    def build(y: float) -> tuple[Sequence[Node], float]:
        rows = [
            _folder_row(ui, y + 8 + 80 * place, name, place, ("files", "moved", index, name))
            for place, name in enumerate(names)
        ]
        return rows, y + 8 + 80 * len(rows)

    return [viewport(ui, "files.move", _TOP, ui.bottom, build), widgets.app_bar(ui, "Move to")]


def act(state: State, verb: str, args: Args) -> None:
    """Opens pages; orders, creates, renames, moves and deletes."""
    app = state["apps"]["files"]
    if verb == "search":
        widgets.start_search(state, "files")
    elif verb in ("folder", "sort", "move", "delete"):
        st.push(state, "files", verb, *args)
    elif verb == "open":
        st.push(state, "files", "file", *args)
    elif verb == "order":
        app["order"] = args[0]
        st.pop(state, "files")
    elif verb in ("new", "rename"):
        state["fields"]["files.name"] = app["files"][int(args[0])]["name"] if args else ""
        st.push(state, "files", verb, *args)
        st.focus(state, "files.name")
    elif verb == "clear":
        widgets.clear(state, str(args[0]))
    elif verb == "save":
        name = st.take(state, "files.name")
        st.reset(state, "files")
        if name and name not in app["folders"] and len(app["folders"]) < st.MAX_ITEMS:
            app["folders"].append(name)
            app["folders"].sort()
    else:
        _change(state, app, verb, args)


def _change(state: State, app: State, verb: str, args: Args) -> None:
    entry = app["files"][int(args[0])]
    if verb == "renamed":
        entry["name"] = st.take(state, "files.name") or entry["name"]
        st.pop(state, "files")
    elif verb == "moved":
        entry["folder"] = args[1]
        st.pop(state, "files")
        state["toast"] = f"Moved to {args[1]}"
    elif verb == "really_delete":
        app["files"].remove(entry)
        st.reset(state, "files", ["folder", entry["folder"]])
        state["toast"] = "File deleted"


def submit(state: State, key: str) -> None:
    """Enter closes the keyboard."""
    st.blur(state)


APP = App("files", "Files", "folder", "#00897b", data, view, act, submit, keeps=("files", "folders"))
