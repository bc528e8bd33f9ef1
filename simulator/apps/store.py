"""The app store: what is recommended, search, categories, an app's page, and what is installed.

Its data: the last search, the updates there are, the downloads under way, each with its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from distrl.simulator.apps import store_catalog
from distrl.simulator.apps.base import App, Args
from distrl.simulator.apps.store_catalog import CATEGORIES, ENTRIES, Entry, find
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node, group, image
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, viewport
from distrl.simulator.phone.widgets import TOP

QUERY = "store.query"
"""The search field."""
ROW_H = 80.0
_TABS = (("apps", "Apps"), ("grid_view", "Categories"), ("download_done", "Manage"))
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
        return _app_page(ui, ENTRIES[str(page[1])])
    if page[0] == "results":
        return _results(ui)
    if page[0] == "category":
        entries = [entry for entry in ENTRIES.values() if entry.category == page[1]]
        return [_list(ui, "store.category", TOP, entries), widgets.app_bar(ui, str(page[1]))]
    return _root(ui)


def _root(ui: Ui) -> list[Node]:
    tab = ui.state["apps"]["store"]["tab"]
    at_top = ui.layout.tabs == "top"
    items = [(icon, label, ("store", "tab", place)) for place, (icon, label) in enumerate(_TABS)]
    bar = widgets.tab_bar(ui, STATUS_H if at_top else ui.bottom - widgets.TAB_H, items, tab)
    top = STATUS_H + (widgets.TAB_H if at_top else 0)
    bottom = ui.bottom - (0 if at_top else widgets.TAB_H)
    if ui.state["focus"]:  # the keyboard takes the room of the tabs
        top, bottom, bar = STATUS_H, ui.bottom, Node(0, 0, 0, 0)
    if tab == 0:
        make = partial(_section, ui, title="Recommended for you", names=_RECOMMENDED, head=40)
        nodes = [viewport(ui, "store.home", top + 76, bottom, make), _search(ui, top + 12)]
    elif tab == 1:
        nodes = [_categories(ui, top, bottom)]
    else:
        nodes = [_manage(ui, top, bottom)]
    return [*nodes, bar]


def _search(ui: Ui, y: float, x: float = widgets.MARGIN) -> Node:
    hint, w = "Search apps & games", WIDTH - x - widgets.MARGIN
    return widgets.field(ui, y, QUERY, hint, x=x, w=w, icon="search", pill=True, rid="store_search")


def _results(ui: Ui) -> list[Node]:
    found = find(ui.state["apps"]["store"]["query"])
    bar = ui.icon_button(4, STATUS_H + 16, "arrow_back", "Navigate up", ("system", "back"), "up")
    field = _search(ui, STATUS_H + 12, 56)
    if not found:
        return [*widgets.empty(ui, STATUS_H + 160, "search", "No apps found"), bar, field]
    return [_list(ui, "store.results", STATUS_H + 76, found), bar, field]


def _list(ui: Ui, key: str, top: float, entries: Sequence[Entry]) -> Node:
    return widgets.listing(
        ui, key, ROW_H, entries, lambda y, _, entry: _row(ui, y, entry), top=top, head=4, foot=8
    )


def _section(ui: Ui, y: float, title: str, names: Sequence[str], head: float) -> tuple[list[Node], float]:
    """Apps of the store under a heading; and the y below them."""
    nodes = [ui.text(20, y, WIDTH - 40, head, title, 18, bold=True)]
    nodes += [_row(ui, y + head + ROW_H * place, ENTRIES[name]) for place, name in enumerate(names)]
    return nodes, y + head + ROW_H * len(names) + 8


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
        ui.app_icon(20, y + 10, 56, entry.icon, 56 * 0.56, entry.color),
        ui.text(92, y + 8, WIDTH - 112, 24, entry.label, 17),
        ui.text(92, y + 31, WIDTH - 112, 20, first, 13, theme.muted),
        ui.text(92 + (16 if star else 0), y + 51, WIDTH - 128, 20, last, 13, theme.muted),
    ]
    if star:
        parts.append(Node(90, y + 51, 16, 20, icon="star", icon_size=14, color=theme.muted))
    return group(0, y, WIDTH, ROW_H, "row_" + entry.name, parts, entry.label, ("store", "app", entry.name))


def _categories(ui: Ui, top: float, bottom: float) -> Node:
    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes = [ui.text(20, y + 8, WIDTH - 40, 48, "Categories", 26, rid="title")]
        for place, (name, icon) in enumerate(CATEGORIES.items()):
            at = y + 64 + 72 * place
            lead = ui.disc(32, at + 10, 44, icon, ui.theme.tint, ui.theme.on_tint)
            count = sum(entry.category == name for entry in ENTRIES.values())
            tap, rid = ("store", "category", name), "category_" + name.lower()
            nodes.append(widgets.row(ui, at, name, f"{count} apps", lead=lead, tap=tap, rid=rid, h=64))
        return nodes, y + 64 + 72 * len(CATEGORIES)

    return viewport(ui, "store.categories", top, bottom, build)


def _manage(ui: Ui, top: float, bottom: float) -> Node:
    store, installed = ui.state["apps"]["store"], ui.state["installed"]
    updates = store["updates"]
    rest = [name for name in installed if name in ENTRIES and name not in updates]

    def build(y: float) -> tuple[Sequence[Node], float]:
        count = f"{len(updates)} updates available" if len(updates) != 1 else "1 update available"
        nodes = [
            ui.text(20, y + 8, WIDTH - 170, 52, count if updates else "All apps up to date", 18, bold=True)
        ]
        if updates:
            tap = ("store", "update_all")
            nodes.append(ui.button(WIDTH - 140, y + 8, 124, "Update all", tap, "update_all", "tonal", 48, 15))
        nodes += [_row(ui, y + 68 + ROW_H * place, ENTRIES[name]) for place, name in enumerate(updates)]
        y += 68 + ROW_H * len(updates)
        if not rest:
            return nodes, y + 8
        listed, y = _section(ui, y, "Installed", rest, 44)
        return [*nodes, *listed], y

    return viewport(ui, "store.manage", top, bottom, build)


def act(state: State, verb: str, args: Args) -> None:
    """Moves about in the store, or does something with an app."""
    store = state["apps"]["store"]
    if verb == "tab":
        store["tab"] = int(args[0])
        state["scrolls"] = {}
    elif verb in ("app", "category"):
        st.push(state, "store", verb, str(args[0]))
    elif verb == "update_all":
        for name in store["updates"]:
            store_catalog.begin(state, name)
        state["toast"] = "Downloading updates"
    else:
        _act_on_app(state, verb, str(args[0]))


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


APP = App(
    name="store",
    label="Store",
    icon="local_mall",
    color="#01875f",
    data=data,
    view=view,
    act=act,
    submit=submit,
    keeps=("downloads", "updates"),
    comes="store",
    permissions=("INTERNET", "INSTALL_PACKAGES", "DELETE_PACKAGES", "POST_NOTIFICATIONS"),
)
_NEEDS = {
    "location": "Location",
    "contacts": "Contacts",
    "camera": "Camera",
    "photos": "Photos and media",
    "microphone": "Microphone",
    "notifications": "Notifications",
}


def _app_page(ui: Ui, entry: Entry) -> list[Node]:
    nodes = [
        viewport(ui, "store.app", TOP, ui.bottom, lambda y: _page(ui, entry, y)),
        widgets.app_bar(ui, ""),
    ]
    if len(st.page(ui.state, "store")) > 2:
        nodes.append(_sheet(ui, entry))
    return nodes


def _page(ui: Ui, entry: Entry, y: float) -> tuple[Sequence[Node], float]:
    theme = ui.theme
    nodes = [
        ui.app_icon(20, y + 4, 80, entry.icon, 46, entry.color),
        ui.text(116, y + 8, WIDTH - 132, 34, entry.label, 24, rid="app_name"),
        ui.text(116, y + 42, WIDTH - 132, 22, entry.developer, 15, theme.primary, True),
        ui.text(116, y + 64, WIDTH - 132, 20, _line(entry), 13, theme.muted),
    ]
    nodes += _facts(ui, entry, y + 100)
    nodes += _buttons(ui, entry, y + 172)
    y += 244
    for place in range(3):
        nodes.append(_shot(ui, entry, 20 + 110 * place, y, place))
    y += 196
    nodes += [
        ui.text(20, y, WIDTH - 40, 36, "About this app", 18, bold=True),
        ui.text(20, y + 38, WIDTH - 40, 72, entry.summary, 15, theme.muted, lines=3, top=True),
        ui.text(20, y + 104, WIDTH - 40, 36, "App permissions", 18, bold=True),
        ui.text(20, y + 138, WIDTH - 40, 28, _NEEDS[entry.asks], 15, theme.muted),
    ]
    return nodes, y + 180


def _line(entry: Entry) -> str:
    return "In-app purchases" if entry.price_cents else "Contains ads" if entry.sponsored else entry.category


def _facts(ui: Ui, entry: Entry, y: float) -> list[Node]:
    theme, width, nodes = ui.theme, WIDTH / 3, []
    facts = (
        (f"{entry.rating / 10}", f"{entry.reviews}K reviews"),
        (f"{entry.size_mb} MB", "Size"),
        (entry.price, "Price"),
    )
    for place, (head, foot) in enumerate(facts):
        x = place * width
        nodes.append(ui.text(x, y + 4, width - (12 if place == 0 else 0), 28, head, 17, bold=True, align="c"))
        nodes.append(ui.text(x, y + 32, width, 22, foot, 13, theme.muted, align="c"))
        if place:
            nodes.append(Node(x, y + 14, 1, 32, fill=theme.line))
    nodes.append(Node(width / 2 + 6, y + 4, 28, 28, icon="star", icon_size=18, color=theme.text))
    return nodes


def _buttons(ui: Ui, entry: Entry, y: float) -> list[Node]:
    name, half = entry.name, (WIDTH - 52) / 2
    store = ui.state["apps"]["store"]
    if name in store["downloads"]:
        return _download(ui, entry, y)
    if name not in ui.state["installed"]:
        label = "Install" if not entry.price_cents else entry.price
        return [ui.button(20, y, WIDTH - 40, label, ("store", "get", name), "install")]
    remove = ui.button(20, y, half, "Uninstall", ("store", "remove", name), "uninstall", "outlined")
    if name in store["updates"]:
        other = ui.button(32 + half, y, half, "Update", ("store", "download", name), "update")
    else:
        other = ui.button(32 + half, y, half, "Open", ("store", "open", name), "open")
    if ui.layout.switch_left:
        remove, other = replace(remove, x=other.x), replace(other, x=remove.x)
    return [remove, other]


def _download(ui: Ui, entry: Entry, y: float) -> list[Node]:
    theme, part = ui.theme, store_catalog.progress(ui.state, entry.name)
    done = round(part * entry.size_mb)
    track = Node(20, y + 34, WIDTH - 160, 6, fill=theme.tint, radius=3)
    bar = Node(20, y + 34, max(6.0, (WIDTH - 160) * part), 6, fill=theme.primary, radius=3)
    words, tap = f"{done} of {entry.size_mb} MB", ("store", "cancel", entry.name)
    return [
        ui.text(20, y + 4, 200, 24, words, 14, theme.muted, rid="progress"),
        track,
        bar,
        ui.button(WIDTH - 124, y, 104, "Cancel", tap, "cancel_download", "outlined", size=15),
    ]


def _shot(ui: Ui, entry: Entry, x: float, y: float, place: int) -> Node:
    rows = tuple(
        Node(x + 12, y + 78 + 24 * line, 76 - 18 * ((line + place) % 3), 10, fill="#ffffff66", radius=5)
        for line in range(4)
    )
    icon = Node(x, y + 14, 100, 56, icon=entry.icon, icon_size=40 + 6 * place, color="#ffffffd9")
    return image(x, y, 100, 184, fill=entry.color, radius=16, desc=f"Picture {place + 1}").with_children(
        icon, *rows
    )


def _sheet(ui: Ui, entry: Entry) -> Node:
    theme, height = ui.theme, 250.0
    y = ui.bottom - height
    pay = f"{entry.price}, charged to your account" if entry.price_cents else "Free"
    label = "Buy" if entry.price_cents else "Accept"
    parts = (
        Node(WIDTH / 2 - 20, y + 10, 40, 4, fill=theme.line, radius=2),
        ui.text(24, y + 28, WIDTH - 48, 30, entry.label, 20, bold=True, rid="sheet_title"),
        ui.text(24, y + 60, WIDTH - 48, 24, pay, 15, theme.muted),
        ui.text(24, y + 88, WIDTH - 48, 24, f"Needs access to: {_NEEDS[entry.asks]}", 15, theme.muted),
        ui.button(24, y + 124, WIDTH - 48, label, ("store", "download", entry.name), "accept"),
        ui.button(24, y + 184, WIDTH - 48, "Cancel", ("system", "back"), "sheet_cancel", "text"),
    )
    panel = Node(0, y, WIDTH, height + 80, "widget.FrameLayout", "sheet", fill=theme.raised, radius=28)
    kids = (panel.with_children(*parts),)
    return Node(0, 0, WIDTH, ui.height, "view.View", "sheet_scrim", fill="#00000099", children=kids)


def _act_on_app(state: State, verb: str, name: str) -> None:
    needs_consent = ENTRIES[name].price_cents or ENTRIES[name].asks != "notifications"
    if verb == "get" and needs_consent:
        st.push(state, "store", "app", name, "consent")
    elif verb in ("get", "download"):
        if len(st.page(state, "store")) > 2:
            st.pop(state, "store")
        store_catalog.begin(state, name)
    elif verb == "cancel":
        store_catalog.cancel(state, name)
    elif verb == "remove":
        store_catalog.ask_uninstall(state, name)
    elif verb == "open":
        st.show(state, name)
