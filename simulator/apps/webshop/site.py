"""`Site`: a page of a shop while it is drawn, with builders in its colours; five designs of headers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from distrl.simulator.apps.webshop import shop_state
from distrl.simulator.apps.webshop.goods import COLORS, Product
from distrl.simulator.apps.webshop.shops import Palette, Shop
from distrl.simulator.phone.fonts import text_width
from distrl.simulator.phone.nodes import WIDTH, Arg, Event, Node, button, group, image, text_box
from distrl.simulator.phone.state import State, page
from distrl.simulator.phone.ui import Ui

Choice = tuple[Arg, str, Event, bool]
"""A choice's key, its label, what choosing it does, and whether it is chosen."""
STAR = "#e69500"
GROUNDS = ("#eef1f5", "#f4efe8", "#eaf1ec", "#f3edf3")
"""Grounds of product pictures; the same in light and dark, as photographs are."""


@dataclass(frozen=True)
class Site:
    """What the pages of a shop are drawn with.

    Attributes:
        top, bottom: The area of its pages in dp.
    """

    ui: Ui
    shop: Shop
    data: State
    top: float
    bottom: float

    @property
    def colors(self) -> Palette:
        """The shop's colours now."""
        return self.shop.dark if self.ui.theme.dark else self.shop.light

    def event(self, verb: str, *args: Arg) -> Event:
        """An event of this shop."""
        return ("browser", "site", self.shop.key, verb, *args)

    def text(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        text: str,
        size: float = 15,
        color: str = "",
        bold: bool = False,
        align: str = "l",
        lines: int = 1,
        rid: str = "",
        top: bool = False,
    ) -> Node:
        """A label; `color` is the shop's text colour unless given."""
        return self.ui.text(x, y, w, h, text, size, color or self.colors.text, bold, align, lines, rid, top)

    def button(
        self,
        x: float,
        y: float,
        w: float,
        label: str,
        tap: Event,
        rid: str,
        style: str = "filled",
        h: float = 48,
        size: float = 16,
    ) -> Node:
        """A button of the shop: "filled", "outlined" or "text"."""
        colors = self.colors
        is_filled, is_outlined = style == "filled", style == "outlined"
        color = colors.on_brand if is_filled else colors.text if is_outlined else colors.brand
        fill, border = colors.brand if is_filled else "", colors.line if is_outlined else ""
        radius = min(self.shop.radius, h / 2)
        return button(x, y, w, h, label, tap, rid, size, color, fill, radius, border, bold=True)

    def chip(
        self, x: float, y: float, w: float, label: str, tap: Event, rid: str, on: bool, h: float = 44
    ) -> Node:
        """A choice among several."""
        colors = self.colors
        color, fill = (colors.on_brand, colors.brand) if on else (colors.text, colors.card)
        border, radius = "" if on else colors.line, min(self.shop.radius, h / 2)
        look: dict[str, Any] = {"cls": "widget.RadioButton", "checked": on, "bold": on}
        return button(x, y, w, h, label, tap, rid, 14, color, fill, radius, border, **look)

    def icon(self, x: float, y: float, icon: str, desc: str, tap: Event, rid: str, color: str = "") -> Node:
        """A 48 dp icon button."""
        return self.ui.icon_button(x, y, icon, desc, tap, rid, color or self.colors.text)

    def panel(self, x: float, y: float, w: float, h: float, children: Sequence[Node], rid: str = "") -> Node:
        """A surface on the page."""
        colors = self.colors
        return group(x, y, w, h, rid, children, fill=colors.card, radius=self.shop.radius)

    def rule(self, y: float, x: float = 16) -> Node:
        """A thin line across the page."""
        return Node(x, y, WIDTH - 2 * x, 1, fill=self.colors.line)

    def note(self, y: float, icon: str, message: str) -> list[Node]:
        """What an empty page shows."""
        colors = self.colors
        return [
            self.ui.disc(WIDTH / 2 - 40, y, 80, icon, colors.card, colors.muted),
            self.text(40, y + 92, WIDTH - 80, 48, message, 16, colors.muted, align="c", lines=2),
        ]


def picture(
    site: Site, product: Product, x: float, y: float, w: float, h: float, color: str = "", radius: float = -1
) -> Node:
    """The product's picture: its shape in one of its colours, on a pale ground."""
    icon, side = product.kind.icon, min(w, h)
    ground, size = GROUNDS[product.id % len(GROUNDS)], side * (0.62 + product.id % 3 * 0.04)
    middle, floor = x + w / 2, y + h / 2 + size * 0.43
    backdrop = Node(
        middle - side * 0.4, y + h / 2 - side * 0.4, side * 0.8, side * 0.8, fill="#ffffff8c", radius=side
    )
    shade = Node(middle - size * 0.4, floor, size * 0.8, size * 0.06, fill="#00000018", radius=size * 0.03)
    is_outline = icon.startswith("#")
    ink = COLORS[color or product.colors[0]]
    art = ("outline", icon[1:]) if is_outline else ()
    shape = image(x, y, w, h, "" if is_outline else icon, size, ink, art=art)
    children = (backdrop, shade, shape) if product.id % 2 else (shade, shape)
    look: dict[str, Any] = {"desc": product.title, "clip": True, "children": children}
    return image(x, y, w, h, fill=ground, radius=site.shop.radius if radius < 0 else radius, **look)


def stars(site: Site, x: float, y: float, product: Product, size: float = 16) -> list[Node]:
    """Five stars and how many reviews there are, `size` dp high."""
    nodes = [
        image(x + (size + 1) * place, y, size, size + 4, _star(product.rating - 10 * place), size, STAR)
        for place in range(5)
    ]
    left = x + 5 * (size + 1) + 4
    shown = f"{product.rating / 10} ({product.reviews:,})"
    return [*nodes, site.text(left, y, 92, size + 4, shown, size - 3, site.colors.muted)]


def _star(tenths: int) -> str:
    return "star" if tenths >= 8 else ("star_half" if tenths >= 3 else "star_border")


def badge(site: Site, x: float, y: float) -> list[Node]:
    """The number of pieces in the cart, in a disc on its button; nothing for none."""
    count = shop_state.pieces(site.data)
    if not count:
        return []
    color = "#1a0a06" if site.ui.theme.dark else "#ffffff"
    label = text_box(x, y, 20, 20, str(count), 12, color, site.colors.accent, 10, rid="cart_count", bold=True)
    return [label]


def search_box(site: Site, x: float, y: float, w: float, h: float, fill: str, border: str = "") -> Node:
    """The shop's search field, which shows what was searched."""
    ui, colors = site.ui, site.colors
    focused = ui.state["focus"] == shop_state.QUERY
    value = ui.state["fields"].get(shop_state.QUERY, "") if focused else site.data["query"]
    hint = f"Search {site.shop.name}" if w > 220 else "Search"
    left, room = x + 46, w - 60
    parts = [image(x + 12, y, 26, h, "search", 22, colors.muted)]
    if focused:
        cursor = min(room, text_width(value, False, 16))
        parts.append(Node(left + cursor + 1, y + h / 2 - 11, 2, 22, fill=colors.brand))
    if value or not focused:
        parts.append(site.text(left, y, room, h, value or hint, 16, colors.text if value else colors.muted))
    border, radius = colors.brand if focused else border, min(site.shop.radius * 1.6, h / 2)
    look: dict[str, Any] = {"cls": "widget.EditText", "field": shop_state.QUERY, "border": border}
    look |= {"value": value, "focused": focused, "radius": radius}
    return group(x, y, w, h, "web_search", parts, hint, fill=fill, **look)


def chips(site: Site, y: float, rid: str, items: Sequence[Choice], x: float = 16) -> tuple[list[Node], float]:
    """Chips with the ids `rid`_key in as many rows as they need, and the y below them."""
    nodes, left = [], x
    for key, label, tap, on in items:
        width = max(56.0, round(text_width(label, True, 14)) + 28)
        if left + width > WIDTH - 16 and left > x:
            left, y = x, y + 52
        nodes.append(site.chip(left, y, width, label, tap, f"{rid}_{key}", on))
        left += width + 8
    return nodes, y + 52


def empty(site: Site, y: float) -> list[Node]:
    """What a cart without anything shows."""
    cart = site.shop.cart.lower()
    go_on = site.button(
        90, y + 160, 180, "Continue shopping", site.event("open", "home"), "go_on", "outlined"
    )
    return [*site.note(y, "shopping_cart", f"Your {cart} is empty"), go_on]


Area = tuple[float, float]
"""Top and bottom of what a header leaves to the page, in dp."""
TABS_H = 60.0
_TABBED = ("home", "browse", "wish", "results")
"""Pages with tabs at the bottom; the others have a bar of their own there, or nothing."""


def header(site: Site) -> tuple[list[Node], Area]:
    """The shop's header, and its tabs if it has any; and the area they leave to the page."""
    return _HEADERS[site.shop.header](site)


def _bar(site: Site, h: float, children: list[Node], fill: str = "") -> Node:
    return group(0, site.top, WIDTH, h, "web_head", children, fill=fill or site.colors.head)


def _mark(site: Site, x: float, w: float, h: float, size: float, align: str = "l", icon: bool = True) -> Node:
    y, color = site.top, site.colors.on_head
    parts, left = [], x
    if icon:
        parts.append(image(x, y, 28, h, site.shop.icon, 26, color))
        left = x + 34
    parts.append(site.text(left, y, w - (left - x), h, site.shop.mark, size, color, True, align))
    return group(x, y, w, h, "web_home", parts, site.shop.name, site.event("open", "home"))


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
    tabs = group(0, bottom, WIDTH, TABS_H, "web_tabs", (line, *cells), fill=colors.card)
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
    mark = image(x + 30, y + 8, 30, 26, icon, color=color)
    name = site.text(x, y + 34, 90, 20, label, 12, color, on, "c")
    count = badge(site, x + 50, y + 4) if rid == "web_cart" else []
    parts = (mark, name, *count)
    return group(x, y + 1, 90, TABS_H - 2, rid, parts, label, tap)


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
