"""`Site`: a page of a shop while it is drawn, and builders in its colours: buttons, chips, pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distrl.simulator.apps.web import store
from distrl.simulator.apps.web.goods import COLORS, Product
from distrl.simulator.apps.web.shops import Palette, Shop
from distrl.simulator.phone.fonts import text_width
from distrl.simulator.phone.nodes import WIDTH, Arg, Event, Node
from distrl.simulator.phone.state import State
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
        ui: The screen.
        shop, data: The shop and its present data.
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
        filled = style == "filled"
        return Node(
            x,
            y,
            w,
            h,
            "widget.Button",
            rid,
            label,
            tap=tap,
            fill=colors.brand if filled else "",
            border=colors.line if style == "outlined" else "",
            radius=min(self.shop.radius, h / 2),
            color=colors.on_brand if filled else (colors.text if style == "outlined" else colors.brand),
            bold=True,
            align="c",
            size=size,
        )

    def chip(
        self, x: float, y: float, w: float, label: str, tap: Event, rid: str, on: bool, h: float = 44
    ) -> Node:
        """A choice among several."""
        colors = self.colors
        return Node(
            x,
            y,
            w,
            h,
            "widget.RadioButton",
            rid,
            label,
            tap=tap,
            checked=on,
            fill=colors.brand if on else colors.card,
            border="" if on else colors.line,
            radius=min(self.shop.radius, h / 2),
            color=colors.on_brand if on else colors.text,
            bold=on,
            align="c",
            size=14,
        )

    def icon(self, x: float, y: float, icon: str, desc: str, tap: Event, rid: str, color: str = "") -> Node:
        """A 48 dp icon button."""
        return self.ui.icon_button(x, y, icon, desc, tap, rid, color or self.colors.text)

    def panel(self, x: float, y: float, w: float, h: float, children: Sequence[Node], rid: str = "") -> Node:
        """A surface on the page."""
        colors = self.colors
        return Node(
            x,
            y,
            w,
            h,
            "view.ViewGroup",
            rid,
            fill=colors.card,
            radius=self.shop.radius,
            children=tuple(children),
        )

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
    shape = Node(
        x,
        y,
        w,
        h,
        "widget.ImageView",
        icon="" if is_outline else icon,
        icon_size=size,
        color=COLORS[color or product.colors[0]],
        art=("outline", icon[1:]) if is_outline else (),
    )
    return Node(
        x,
        y,
        w,
        h,
        "widget.ImageView",
        desc=product.title,
        fill=ground,
        radius=site.shop.radius if radius < 0 else radius,
        clip=True,
        children=(backdrop, shade, shape) if product.id % 2 else (shade, shape),
    )


def stars(site: Site, x: float, y: float, product: Product, size: float = 16) -> list[Node]:
    """Five stars and how many reviews there are, `size` dp high."""
    nodes = [
        Node(
            x + (size + 1) * place,
            y,
            size,
            size + 4,
            "widget.ImageView",
            icon=_star(product.rating - 10 * place),
            icon_size=size,
            color=STAR,
        )
        for place in range(5)
    ]
    left = x + 5 * (size + 1) + 4
    shown = f"{product.rating / 10} ({product.reviews:,})"
    return [*nodes, site.text(left, y, 92, size + 4, shown, size - 3, site.colors.muted)]


def _star(tenths: int) -> str:
    return "star" if tenths >= 8 else ("star_half" if tenths >= 3 else "star_border")


def badge(site: Site, x: float, y: float) -> list[Node]:
    """The number of pieces in the cart, in a disc on its button; nothing for none."""
    count = store.pieces(site.data)
    if not count:
        return []
    label = Node(
        x,
        y,
        20,
        20,
        "widget.TextView",
        "cart_count",
        str(count),
        fill=site.colors.accent,
        radius=10,
        size=12,
        bold=True,
        align="c",
        color="#1a0a06" if site.ui.theme.dark else "#ffffff",
    )
    return [label]


def search_box(site: Site, x: float, y: float, w: float, h: float, fill: str, border: str = "") -> Node:
    """The shop's search field, which shows what was searched."""
    ui, colors = site.ui, site.colors
    focused = ui.state["focus"] == store.QUERY
    value = ui.state["fields"].get(store.QUERY, "") if focused else site.data["query"]
    hint = f"Search {site.shop.name}" if w > 220 else "Search"
    left, room = x + 46, w - 60
    parts = [Node(x + 12, y, 26, h, "widget.ImageView", icon="search", icon_size=22, color=colors.muted)]
    if focused:
        cursor = min(room, text_width(value, False, 16))
        parts.append(Node(left + cursor + 1, y + h / 2 - 11, 2, 22, fill=colors.brand))
    if value or not focused:
        parts.append(site.text(left, y, room, h, value or hint, 16, colors.text if value else colors.muted))
    return Node(
        x,
        y,
        w,
        h,
        "widget.EditText",
        "web_search",
        value=value,
        desc=hint,
        field=store.QUERY,
        focused=focused,
        fill=fill,
        border=colors.brand if focused else border,
        radius=min(site.shop.radius * 1.6, h / 2),
        children=tuple(parts),
    )


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
