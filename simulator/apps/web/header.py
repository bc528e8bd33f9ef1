"""The shops' headers and tabs: five designs of the same things (home, search, wish list, cart)."""

from __future__ import annotations

from collections.abc import Callable

from distrl.simulator.apps.web.kit import Site, badge, search_box
from distrl.simulator.phone.nodes import WIDTH, Event, Node
from distrl.simulator.phone.state import page

Area = tuple[float, float]
"""Top and bottom of what a header leaves to the page, in dp."""
TABS_H = 60.0
_TABBED = ("home", "browse", "wish", "results")
"""Pages with tabs at the bottom; the others have a bar of their own there, or nothing."""


def header(site: Site) -> tuple[list[Node], Area]:
    """The shop's header, and its tabs if it has any; and the area they leave to the page."""
    return _HEADERS[site.shop.header](site)


def _bar(site: Site, h: float, children: list[Node], fill: str = "") -> Node:
    return Node(
        0,
        site.top,
        WIDTH,
        h,
        "view.ViewGroup",
        "web_head",
        fill=fill or site.colors.head,
        children=tuple(children),
    )


def _mark(site: Site, x: float, w: float, h: float, size: float, align: str = "l", icon: bool = True) -> Node:
    """The shop's name, which leads to its front page."""
    y, color = site.top, site.colors.on_head
    parts, left = [], x
    if icon:
        parts.append(Node(x, y, 28, h, "widget.ImageView", icon=site.shop.icon, icon_size=26, color=color))
        left = x + 34
    parts.append(site.text(left, y, w - (left - x), h, site.shop.mark, size, color, True, align))
    return Node(
        x,
        y,
        w,
        h,
        "view.ViewGroup",
        "web_home",
        desc=site.shop.name,
        tap=site.event("open", "home"),
        children=tuple(parts),
    )


def _cart(site: Site, x: float, y: float, icon: str = "shopping_cart") -> list[Node]:
    colors = site.colors
    button = site.icon(x, y, icon, site.shop.cart, site.event("open", "cart"), "web_cart", colors.on_head)
    return [button.with_children(*badge(site, x + 27, y + 3))]


def _heart(site: Site, x: float, y: float) -> Node:
    event = site.event("open", "wish")
    return site.icon(x, y, "favorite_border", site.shop.wish, event, "web_wish", site.colors.on_head)


def _band(site: Site) -> tuple[list[Node], Area]:
    y, colors = site.top, site.colors
    parts = [
        _mark(site, 16, 180, 56, 23),
        _heart(site, WIDTH - 104, y + 4),
        *_cart(site, WIDTH - 54, y + 4),
        search_box(site, 12, y + 58, WIDTH - 24, 48, colors.card),
    ]
    return [_bar(site, 116, parts)], (y + 116, site.bottom)


def _inline(site: Site) -> tuple[list[Node], Area]:
    y, colors = site.top, site.colors
    home = site.icon(
        6, y + 8, site.shop.icon, site.shop.name, site.event("open", "home"), "web_home", colors.on_head
    )
    parts = [home, search_box(site, 58, y + 8, 196, 48, colors.card)]
    parts += [_heart(site, WIDTH - 102, y + 8), *_cart(site, WIDTH - 54, y + 8, "shopping_bag")]
    return [_bar(site, 64, parts)], (y + 64, site.bottom)


def _centred(site: Site) -> tuple[list[Node], Area]:
    y, colors = site.top, site.colors
    menu = site.icon(6, y + 6, "menu", "Menu", site.event("panel", "menu"), "web_menu", colors.on_head)
    parts = [menu, _mark(site, 90, WIDTH - 180, 60, 26, "c", icon=False), *_cart(site, WIDTH - 54, y + 6)]
    parts += [search_box(site, 16, y + 60, WIDTH - 32, 48, colors.card, colors.line)]
    return [_bar(site, 116, parts)], (y + 116, site.bottom)


def _tabs(site: Site) -> tuple[list[Node], Area]:
    y, colors = site.top, site.colors
    find = site.icon(
        WIDTH - 56, y + 4, "search", "Search", site.event("open", "search"), "open_search", colors.on_head
    )
    parts = [_mark(site, 16, 190, 56, 20), find]
    shown = page(site.ui.state, "browser")[2]
    if site.ui.state["focus"] or shown not in _TABBED:
        parts += _cart(site, WIDTH - 108, y + 4, "backpack")
        return [_bar(site, 56, parts)], (y + 56, site.bottom)
    bottom = site.bottom - TABS_H
    cells: list[Node] = []
    for place, (name, icon, label, rid) in enumerate(_tab_items(site)):
        cells.append(
            _tab(site, 90 * place, bottom, icon, label, site.event("open", name), rid, shown == name)
        )
    line = Node(0, bottom, WIDTH, 1, fill=colors.line)
    tabs = Node(
        0, bottom, WIDTH, TABS_H, "view.ViewGroup", "web_tabs", fill=colors.card, children=(line, *cells)
    )
    return [_bar(site, 56, parts), tabs], (y + 56, bottom)


def _tab_items(site: Site) -> tuple[tuple[str, str, str, str], ...]:
    return (
        ("home", "home", "Home", "tab_home"),
        ("browse", "grid_view", "Browse", "web_browse"),
        ("wish", "bookmark", "Saved", "web_wish"),
        ("cart", "backpack", site.shop.cart, "web_cart"),
    )


def _tab(site: Site, x: float, y: float, icon: str, label: str, tap: Event, rid: str, on: bool) -> Node:
    color = site.colors.brand if on else site.colors.muted
    mark = Node(x + 30, y + 8, 30, 26, "widget.ImageView", icon=icon, color=color)
    name = site.text(x, y + 34, 90, 20, label, 12, color, on, "c")
    count = badge(site, x + 50, y + 4) if rid == "web_cart" else []
    parts = (mark, name, *count)
    return Node(x, y + 1, 90, TABS_H - 2, "view.ViewGroup", rid, desc=label, tap=tap, children=parts)


def _minimal(site: Site) -> tuple[list[Node], Area]:
    y, colors = site.top, site.colors
    find = site.icon(
        WIDTH - 156, y + 6, "search", "Search", site.event("open", "search"), "open_search", colors.on_head
    )
    parts = [
        _mark(site, 20, 170, 60, 19, icon=False),
        find,
        _heart(site, WIDTH - 106, y + 6),
        *_cart(site, WIDTH - 56, y + 6, "local_mall"),
        Node(0, y + 59, WIDTH, 1, fill=colors.line),
    ]
    return [_bar(site, 60, parts)], (y + 60, site.bottom)


_HEADERS: dict[str, Callable[[Site], tuple[list[Node], Area]]] = {
    "band": _band,
    "inline": _inline,
    "centred": _centred,
    "tabs": _tabs,
    "minimal": _minimal,
}
