"""Files: folders, their files in a chosen order, a file's details, renaming, moving; tasks with files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from distrl.core.actions import Action
from distrl.simulator.apps.base import App, Args, through
from distrl.simulator.names import Names
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node, image
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
    fresh,
    mark,
    only,
    where,
)
from distrl.simulator.tasks.expert import Expert

FOLDERS = ("Documents", "Downloads", "Pictures", "Work")
ORDERS = ("name", "size", "date")
_KINDS = {
    "pdf": ("picture_as_pdf", "#d93025"),
    "jpg": ("image", "#188038"),
    "txt": ("description", "#1a73e8"),
    "mp3": ("audio_file", "#8430ce"),
    "zip": ("archive", "#f29900"),
}


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
        field = widgets.field(ui, TOP + 16, "files.name", "Folder name", icon="folder", h=60)
        return widgets.form(ui, "New folder", [field], ("files", "save"), "Create")
    index = int(top[1])
    if top[0] == "rename":
        fields = widgets.clearable(ui, TOP + 16, "files.name", "Name", "edit")
        return widgets.form(ui, "Rename", fields, ("files", "renamed", index))
    if top[0] == "move":
        return _move(ui, index)
    if top[0] == "delete":
        said = f"“{ui.state['apps']['files']['files'][index]['name']}” will be gone for good."
        event = ("files", "really_delete", index)
        return widgets.confirm(ui, _details(ui, index), "Delete file?", said, "Delete", event)
    return _details(ui, index)


def _folder_row(ui: Ui, y: float, name: str, place: int, *verb: str | int) -> Node:
    """A folder; a tap does `verb` with its name."""
    count = sum(entry["folder"] == name for entry in ui.state["apps"]["files"]["files"])
    lead = ui.disc(widgets.MARGIN + 12, y + 12, 48, "folder", ui.theme.tint, ui.theme.on_tint)
    told, tap = f"{count} file{'' if count == 1 else 's'}", ("files", *verb, name)
    return widgets.row(ui, y, name, told, lead=lead, tap=tap, rid=f"folder_{place}")


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
            rows.append(_folder_row(ui, y + 108 + 80 * place, name, place, "folder"))
        return rows, y + 108 + 80 * len(names) + 90

    look = ui.icon_button(WIDTH - 56, STATUS_H + 8, "search", "Search", ("find", "files"), "search")
    return [
        viewport(ui, "files.folders", TOP, ui.bottom, build),
        widgets.app_bar(ui, "Files", [look], back=False),
        widgets.fab(ui, "create_new_folder", "New folder", ("files", "new"), "new_folder"),
    ]


def _file_row(ui: Ui, y: float, place: int) -> Node:
    entry = ui.state["apps"]["files"]["files"][place]
    icon, color = _kind(entry["name"])
    lead = ui.disc(widgets.MARGIN + 12, y + 12, 48, icon, ui.legible(color, "#ffffff"))
    told = f"{_size(entry['size'])}, May {entry['day']}"
    tap, rid = ("files", "file", place), f"file_{place}"
    return widgets.row(ui, y, entry["name"], told, lead=lead, tap=tap, rid=rid)


def _listed(ui: Ui, key: str, places: Sequence[int]) -> Node:
    none = ("folder_open", "No files here")
    return widgets.listing(
        ui, key, 78, places, lambda y, _, place: _file_row(ui, y, place), head=8, none=none
    )


def _folder(ui: Ui, folder: str) -> list[Node]:
    app = ui.state["apps"]["files"]
    inside = [place for place, entry in enumerate(app["files"]) if entry["folder"] == folder]
    key = {"name": "name", "size": "size", "date": "day"}[app["order"]]
    inside.sort(key=lambda place: app["files"][place][key], reverse=key != "name")
    sort = ui.icon_button(WIDTH - 56, STATUS_H + 8, "sort", "Sort", ("files", "sort", folder), "sort")
    return [_listed(ui, "files.folder", inside), widgets.app_bar(ui, folder, [sort])]


def _search(ui: Ui) -> list[Node]:
    files = ui.state["apps"]["files"]["files"]
    found = [place for place, entry in enumerate(files) if widgets.asked(ui.state, "files", entry["name"])]
    return [_listed(ui, "files.found", found), widgets.search_bar(ui, "files", "Search files")]


def _sort(ui: Ui, folder: str) -> list[Node]:
    chosen = ui.state["apps"]["files"]["order"]
    items = [
        ("check" if order == chosen else icon, label, ("files", "order", order), "order_" + order)
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
    ink = ui.legible(color)
    nodes = [
        image(widgets.MARGIN, TOP + 4, WIDTH - 2 * widgets.MARGIN, 150, icon, 84, ink, theme.card, 24),
        ui.text(24, TOP + 162, WIDTH - 48, 40, entry["name"], 24, rid="file_name"),
    ]
    facts = f"{_size(entry['size'])} · {entry['folder']} · May {entry['day']}"
    nodes.append(ui.text(24, TOP + 200, WIDTH - 48, 28, facts, 15, theme.muted, rid="file_facts"))
    for place, (sign, label, verb) in enumerate(
        (("edit", "Rename", "rename"), ("drive_file_move", "Move", "move"), ("delete", "Delete", "delete"))
    ):
        y = TOP + 244 + 76 * place
        lead = ui.disc(widgets.MARGIN + 14, y + 14, 42, sign, theme.tint, theme.on_tint)
        tap = ("files", verb, index)
        nodes.append(widgets.row(ui, y, label, lead=lead, tap=tap, rid=verb, h=70))
    return [*nodes, widgets.app_bar(ui, "Details")]


def _move(ui: Ui, index: int) -> list[Node]:
    def row(y: float, place: int, name: str) -> Node:
        return _folder_row(ui, y, name, place, "moved", index)

    names = ui.state["apps"]["files"]["folders"]
    return [widgets.listing(ui, "files.move", 80, names, row, head=8), widgets.app_bar(ui, "Move to")]


def act(state: State, verb: str, args: Args) -> None:
    """Opens pages; orders, creates, renames, moves and deletes."""
    app = state["apps"]["files"]
    if verb in ("folder", "file", "sort", "move", "delete"):
        st.push(state, "files", verb, *args)
    elif verb == "order":
        app["order"] = args[0]
        st.pop(state, "files")
    elif verb in ("new", "rename"):
        name = app["files"][int(args[0])]["name"] if args else ""
        st.open_form(state, "files", [verb, *args], {"files.name": name}, "files.name")
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


APP = App(
    name="files",
    label="Files",
    icon="folder",
    color="#00897b",
    data=data,
    view=view,
    act=act,
    submit=through(),
    keeps=("files", "folders"),
    comes="everyday",
)


def _order(params: Params) -> Mapping[str, object]:
    orders = {"name": "by name", "size": "largest first", "date": "newest first"}
    return {**params, "order": orders[params["order"]]}


def _file_start(state: State, params: Params, rng: Names) -> None:
    names = rng.names("file", 8, without=[params["file"], params.get("name", "")])
    entries = [file(name, rng.choice(FOLDERS), rng.randrange(3, 9000), 5) for name in names]
    folder = params.get("folder") or rng.choice(FOLDERS)
    meant = file(params["file"], folder, rng.randrange(3, 9000), rng.randrange(1, 31))
    mark(meant)
    entries.insert(rng.randrange(9), meant)
    state["apps"]["files"]["files"] = entries


STORED = Entries("files", "files", "name", "file", "file", param="file", is_searched=True)


def _rename_check(state: State, params: Params) -> bool:
    return bool(STORED.entry(state, {"file": params["name"]}) and not STORED.entry(state, params))


def _rename_step(expert: Expert, params: Params) -> Action:
    place = STORED.find(expert.state, params)
    if place >= 0 and expert.page("files") == ["rename", place]:
        return expert.fill("files", {"name": params["name"]})
    return STORED.open(expert, params) or expert.tap("rename")


def _move_start(state: State, params: Params, rng: Names) -> None:
    others = [folder for folder in FOLDERS if folder != params["to"]]
    _file_start(state, {**params, "folder": rng.choice(others)}, rng)


def _move_step(expert: Expert, params: Params) -> Action:
    state, place = expert.state, STORED.find(expert.state, params)
    if place >= 0 and expert.page("files") == ["move", place]:
        return expert.tap(f"folder_{state['apps']['files']['folders'].index(params['to'])}")
    return STORED.open(expert, params) or expert.tap("move")


def _folder_step(expert: Expert, params: Params) -> Action:
    if expert.page("files")[0] == "new":
        return expert.fill("files", {"name": params["name"]}, clear=False)
    return expert.to_root("files") or expert.tap("new_folder")


def _sort_check(state: State, params: Params) -> bool:
    shown = st.page(state, "files") == ["folder", params["folder"]] and state["front"] == "files"
    return bool(shown and state["apps"]["files"]["order"] == params["order"])


def _sort_step(expert: Expert, params: Params) -> Action:
    at, folder = expert.page("files"), params["folder"]
    if at == ["sort", folder]:
        return expert.tap("order_" + params["order"])
    if at == ["folder", folder]:
        return expert.tap("sort")
    folders = expert.state["apps"]["files"]["folders"]
    return expert.to_root("files") or expert.tap(f"folder_{folders.index(folder)}")


_RENAMED = where(lambda file, params: file["name"] in (params["file"], params["name"]), "name")
_task = partial(everyday, "files")
TEMPLATES: dict[str, Template] = {
    "folder_new": _task(
        {"name": str},
        fresh,
        lambda state, params: params["name"] in state["apps"]["files"]["folders"],
        _folder_step,
        may=(May("files.folders", only("", "name")),),
    ),
    "file_show": _task({"file": str}, _file_start, STORED.is_open, STORED.open),
    "file_rename": _task(
        {"file": str, "name": str},
        _file_start,
        _rename_check,
        _rename_step,
        may=(May("files.files", _RENAMED),),
    ),
    "file_move": _task(
        {"file": str, "to": str},
        _move_start,
        STORED.matches("folder", "to"),
        _move_step,
        {"to": FOLDERS},
        STORED.may("folder"),
    ),
    "file_delete": _task({"file": str}, _file_start, STORED.is_gone, STORED.delete, may=STORED.may()),
    "files_sort": _task(
        {"folder": str, "order": str}, fresh, _sort_check, _sort_step, {"folder": FOLDERS, "order": ORDERS}
    ),
}
_FILE = {"file": "file"}
FAMILIES = (
    Family("folder_new", {"name": "folder"}),
    Family("file_show", _FILE),
    Family(
        "file_rename", {**_FILE, "name": "file"}, fits=lambda params: bool(params["file"] != params["name"])
    ),
    Family("file_move", {**_FILE, "to": FOLDERS}),
    Family("file_delete", _FILE),
    Family("files_sort", {"folder": FOLDERS, "order": ("size", "date")}, _order),
)
