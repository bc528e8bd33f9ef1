"""The app store: what is recommended, search, categories, an app's page, and what is installed.

Its data: the last search, the updates there are, the downloads under way, each with its start.
"""

from __future__ import annotations

from collections.abc import Sequence

from distrl.simulator.apps import store_catalog, store_page
from distrl.simulator.apps.base import App, Args
from distrl.simulator.apps.store_catalog import CATEGORIES, ENTRIES, Entry, category_icon, find
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, viewport

QUERY = "store.query"
"""The search field."""
ROW_H = 80.0
_TABS = (("apps", "Apps"), ("grid_view", "Categories"), ("download_done", "Manage"))
_TAB_H = 72.0
_RECOMMENDED = (
    *("radiowave", "towerlands", "recipebox", "taskly", "cityguide", "sleepsounds", "waterlog"),
    *("photoring", "lightpuzzle", "dailypost", "fittrack", "bustimes"),
)


def data() -> State:
    """No updates, no downloads."""
    return {"tab": 0, "query": "", "updates": [], "downloads": {}}


def view(ui: Ui) -> list[Node]:
    """The page on top."""
    page = st.page(ui.state, "store")
    if page[0] == "app":
        return store_page.view(ui, ENTRIES[str(page[1])])
    if page[0] == "results":
        return _results(ui)
    if page[0] == "category":
        entries = [entry for entry in ENTRIES.values() if entry.category == page[1]]
        nodes = _list(ui, "store.category", STATUS_H + widgets.BAR_H, entries)
        return [nodes, widgets.app_bar(ui, str(page[1]))]
    return _root(ui)


def _root(ui: Ui) -> list[Node]:
    tab = ui.state["apps"]["store"]["tab"]
    at_top = ui.layout.tabs == "top"
    items = [(icon, label, ("store", "tab", place)) for place, (icon, label) in enumerate(_TABS)]
    bar = widgets.tab_bar(ui, STATUS_H if at_top else ui.bottom - _TAB_H, items, tab)
    top = STATUS_H + (_TAB_H if at_top else 0)
    bottom = ui.bottom - (0 if at_top else _TAB_H)
    if ui.state["focus"]:  # the keyboard takes the room of the tabs
        top, bottom, bar = STATUS_H, ui.bottom, Node(0, 0, 0, 0)
    if tab == 0:
        entries = [ENTRIES[name] for name in _RECOMMENDED]
        nodes = [_list(ui, "store.home", top + 76, entries, bottom, "Recommended for you"), _search(ui, top)]
    elif tab == 1:
        nodes = [_categories(ui, top, bottom)]
    else:
        nodes = [_manage(ui, top, bottom)]
    return [*nodes, bar]


def _search(ui: Ui, top: float) -> Node:
    return widgets.field(
        ui, top + 12, QUERY, "Search apps & games", icon="search", pill=True, rid="store_search"
    )


def _results(ui: Ui) -> list[Node]:
    found = find(ui.state["apps"]["store"]["query"])
    bar = ui.icon_button(4, STATUS_H + 16, "arrow_back", "Navigate up", ("system", "back"), "up")
    field = widgets.field(
        ui,
        STATUS_H + 12,
        QUERY,
        "Search apps & games",
        x=56,
        w=WIDTH - 72,
        icon="search",
        pill=True,
        rid="store_search",
    )
    if not found:
        return [*widgets.empty(ui, STATUS_H + 160, "search", "No apps found"), bar, field]
    return [_list(ui, "store.results", STATUS_H + 76, found), bar, field]


def _list(
    ui: Ui, key: str, top: float, entries: Sequence[Entry], bottom: float | None = None, title: str = ""
) -> Node:
    def build(y: float) -> tuple[Sequence[Node], float]:
        head = 40 if title else 4
        nodes = [ui.text(20, y, WIDTH - 40, 40, title, 18, bold=True)] if title else []
        nodes += [_row(ui, y + head + ROW_H * place, entry) for place, entry in enumerate(entries)]
        return nodes, y + head + ROW_H * len(entries) + 8

    return viewport(ui, key, top, ui.bottom if bottom is None else bottom, build)


def app_icon(ui: Ui, entry: Entry, x: float, y: float, d: float) -> Node:
    """The icon of an app in the form of the layout's icons."""
    return Node(
        x,
        y,
        d,
        d,
        "widget.ImageView",
        fill=entry.color,
        radius=ui.layout.icon_radius * d / 56,
        icon=entry.icon,
        icon_size=d * 0.56,
        color="#ffffff",
    )


def _row(ui: Ui, y: float, entry: Entry) -> Node:
    theme, state = ui.theme, ui.state
    first = f"Sponsored · {entry.developer}" if entry.sponsored else entry.developer
    last = f"{entry.rating / 10}   {entry.size_mb} MB   {entry.price}"
    if entry.name in state["apps"]["store"]["downloads"]:
        last = "Downloading…"
    elif entry.name in state["apps"]["store"]["updates"]:
        last = "Update available"
    elif entry.name in state["installed"]:
        last = "Installed"
    star = last[0].isdigit()
    parts = [
        app_icon(ui, entry, 20, y + 10, 56),
        ui.text(92, y + 8, WIDTH - 112, 24, entry.label, 17),
        ui.text(92, y + 31, WIDTH - 112, 20, first, 13, theme.muted),
        ui.text(92 + (16 if star else 0), y + 51, WIDTH - 128, 20, last, 13, theme.muted),
    ]
    if star:
        parts.append(Node(90, y + 51, 16, 20, icon="star", icon_size=14, color=theme.muted))
    return Node(
        0,
        y,
        WIDTH,
        ROW_H,
        "view.ViewGroup",
        "row_" + entry.name,
        desc=entry.label,
        tap=("store", "app", entry.name),
        children=tuple(parts),
    )


def _categories(ui: Ui, top: float, bottom: float) -> Node:
    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes = [ui.text(20, y + 8, WIDTH - 40, 48, "Categories", 26, rid="title")]
        for place, name in enumerate(CATEGORIES):
            at = y + 64 + 72 * place
            lead = ui.disc(32, at + 10, 44, category_icon(name), ui.theme.tint, ui.theme.on_tint)
            count = sum(entry.category == name for entry in ENTRIES.values())
            nodes.append(
                widgets.row(
                    ui,
                    at,
                    name,
                    f"{count} apps",
                    lead=lead,
                    tap=("store", "category", name),
                    rid="category_" + name.lower(),
                    fill=ui.theme.card,
                    h=64,
                )
            )
        return nodes, y + 64 + 72 * len(CATEGORIES)

    return viewport(ui, "store.categories", top, bottom, build)


def _manage(ui: Ui, top: float, bottom: float) -> Node:
    """Updates, then the apps of the store that are on the phone."""
    store, installed = ui.state["apps"]["store"], ui.state["installed"]
    updates = store["updates"]
    rest = [name for name in installed if name in ENTRIES and name not in updates]

    def build(y: float) -> tuple[Sequence[Node], float]:
        count = f"{len(updates)} updates available" if len(updates) != 1 else "1 update available"
        nodes = [
            ui.text(20, y + 8, WIDTH - 170, 52, count if updates else "All apps up to date", 18, bold=True)
        ]
        if updates:
            nodes.append(
                ui.button(
                    WIDTH - 140,
                    y + 8,
                    124,
                    "Update all",
                    ("store", "update_all"),
                    "update_all",
                    "tonal",
                    48,
                    15,
                )
            )
        y += 68
        for name in updates:
            nodes.append(_row(ui, y, ENTRIES[name]))
            y += ROW_H
        if rest:
            nodes.append(ui.text(20, y, WIDTH - 40, 44, "Installed", 18, bold=True))
            y += 44
        for name in rest:
            nodes.append(_row(ui, y, ENTRIES[name]))
            y += ROW_H
        return nodes, y + 8

    return viewport(ui, "store.manage", top, bottom, build)


def act(state: State, verb: str, args: Args) -> None:
    """Moves about in the store, or does something with an app."""
    store = state["apps"]["store"]
    if verb == "tab":
        store["tab"] = int(args[0])
        state["scrolls"] = {}
    elif verb in ("app", "category"):
        st.blur(state)
        st.push(state, "store", verb, str(args[0]))
    elif verb == "update_all":
        for name in store["updates"]:
            store_catalog.begin(state, name)
        state["toast"] = "Downloading updates"
    else:
        store_page.act(state, verb, str(args[0]))


def submit(state: State, key: str) -> None:
    """Enter in the search field: the results."""
    query = " ".join(st.text(state, key).split())
    if not query:
        return
    state["apps"]["store"]["query"] = query
    st.blur(state)
    state["scrolls"].pop("store.results", None)
    if st.page(state, "store")[0] != "results":
        st.push(state, "store", "results")


APP = App("store", "Store", "local_mall", "#01875f", data, view, act, submit, keeps=("downloads", "updates"))
