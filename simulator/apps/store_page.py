"""An app's page in the store: what it is, its rating, and the buttons to get, open, update or remove it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distrl.simulator.apps import store_catalog
from distrl.simulator.apps.store_catalog import Entry
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, viewport

_NEEDS = {
    "location": "Location",
    "contacts": "Contacts",
    "camera": "Camera",
    "photos": "Photos and media",
    "microphone": "Microphone",
    "notifications": "Notifications",
}


def view(ui: Ui, entry: Entry) -> list[Node]:
    """The page; over it a sheet, while it asks whether the price or the permissions are accepted."""
    top = STATUS_H + widgets.BAR_H
    nodes = [
        viewport(ui, "store.app", top, ui.bottom, lambda y: _page(ui, entry, y)),
        widgets.app_bar(ui, ""),
    ]
    if len(st.page(ui.state, "store")) > 2:
        nodes.append(_sheet(ui, entry))
    return nodes


def _page(ui: Ui, entry: Entry, y: float) -> tuple[Sequence[Node], float]:
    theme = ui.theme
    nodes = [
        Node(
            20,
            y + 4,
            80,
            80,
            "widget.ImageView",
            fill=entry.color,
            radius=ui.layout.icon_radius * 80 / 56,
            icon=entry.icon,
            icon_size=46,
            color="#ffffff",
        ),
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
    """Rating, size and price in three columns."""
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
    words = f"{done} of {entry.size_mb} MB"
    return [
        ui.text(20, y + 4, 200, 24, words, 14, theme.muted, rid="progress"),
        track,
        bar,
        ui.button(
            WIDTH - 124,
            y,
            104,
            "Cancel",
            ("store", "cancel", entry.name),
            "cancel_download",
            "outlined",
            size=15,
        ),
    ]


def _shot(ui: Ui, entry: Entry, x: float, y: float, place: int) -> Node:
    """A picture of the app: its colours and a few shapes."""
    rows = tuple(
        Node(x + 12, y + 78 + 24 * line, 76 - 18 * ((line + place) % 3), 10, fill="#ffffff66", radius=5)
        for line in range(4)
    )
    icon = Node(x, y + 14, 100, 56, icon=entry.icon, icon_size=40 + 6 * place, color="#ffffffd9")
    return Node(
        x, y, 100, 184, "widget.ImageView", desc=f"Picture {place + 1}", fill=entry.color, radius=16
    ).with_children(icon, *rows)


def _sheet(ui: Ui, entry: Entry) -> Node:
    """What must be accepted before an app is downloaded."""
    theme, height = ui.theme, 250.0
    y = ui.bottom - height
    pay = f"{entry.price}, charged to your account" if entry.price_cents else "Free"
    parts = (
        Node(WIDTH / 2 - 20, y + 10, 40, 4, fill=theme.line, radius=2),
        ui.text(24, y + 28, WIDTH - 48, 30, entry.label, 20, bold=True, rid="sheet_title"),
        ui.text(24, y + 60, WIDTH - 48, 24, pay, 15, theme.muted),
        ui.text(24, y + 88, WIDTH - 48, 24, f"Needs access to: {_NEEDS[entry.asks]}", 15, theme.muted),
        ui.button(
            24,
            y + 124,
            WIDTH - 48,
            "Buy" if entry.price_cents else "Accept",
            ("store", "download", entry.name),
            "accept",
        ),
        ui.button(24, y + 184, WIDTH - 48, "Cancel", ("system", "back"), "sheet_cancel", "text"),
    )
    panel = Node(0, y, WIDTH, height + 80, "widget.FrameLayout", "sheet", fill=theme.raised, radius=28)
    return Node(
        0,
        0,
        WIDTH,
        ui.height,
        "view.View",
        "sheet_scrim",
        fill="#00000099",
        children=(panel.with_children(*parts),),
    )


def needs_consent(entry: Entry) -> bool:
    """Whether the store asks before it downloads an app."""
    return bool(entry.price_cents) or entry.asks != "notifications"


def act(state: State, verb: str, name: str) -> None:
    """Gets, downloads, opens or removes the app `name`, or cancels its download."""
    entry = store_catalog.ENTRIES.get(name)
    assert entry is not None
    if verb == "get" and needs_consent(entry):
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
