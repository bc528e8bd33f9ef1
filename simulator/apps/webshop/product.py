"""A product's page: its parts, in the order and the form that each shop has, and all its reviews."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

from distrl.simulator.apps.webshop import shop_state
from distrl.simulator.apps.webshop.goods import COLORS, PRODUCTS, Product, dollars
from distrl.simulator.apps.webshop.site import STAR, Area, Choice, Site, chips, picture, stars
from distrl.simulator.phone.nodes import WIDTH, Arg, Node, button, group, icon_button, image
from distrl.simulator.phone.ui import viewport

Placed = tuple[list[Node], float]
"""Nodes, and the y below them."""
_OPINIONS = (
    ("Just what I was looking for", "Well made, and it arrived a day early. I would buy it again."),
    ("Good value", "Not perfect, but for this price there is nothing better."),
    ("Looks better than in the picture", "The colour is warmer than I thought. Everybody asks me about it."),
    ("Does its job", "Simple and solid. The instructions could be longer."),
    ("A present that was liked", "My sister uses it every day."),
    ("Could be sturdier", "After a month it shows some wear, but it works."),
)
_AUTHORS = ("Ada", "Boris", "Chen", "Dora", "Emil", "Farah", "Goran", "Hana")


def product(site: Site, area: Area, number: int) -> list[Node]:
    """The page of the product with id `number`."""
    item = PRODUCTS[number]
    bottom = area[1] - (68 if site.shop.sticky else 0)

    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes: list[Node] = []
        for name in site.shop.sections:
            found, y = _SECTIONS[name](site, item, y)
            nodes += found
        return nodes, y + 12

    view = viewport(site.ui, "web.product", area[0], bottom, build)
    return [view, *_sticky(site, item, bottom)] if site.shop.sticky else [view]


def reviews(site: Site, area: Area, number: int) -> list[Node]:
    """Every review of a product."""
    item = PRODUCTS[number]

    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes: list[Node] = [site.text(16, y + 8, 328, 30, item.title, 18, bold=True)]
        nodes += stars(site, 16, y + 42, item, 18)
        y += 76
        for place in range(len(_OPINIONS)):
            nodes += _review(site, y, item, place)
            y += 112
        return nodes, y

    return [viewport(site.ui, "web.reviews", area[0], area[1], build)]


def _is_gone(site: Site, item: Product) -> bool:
    return item.id in site.data["sold_out"]


def _chosen(site: Site, item: Product) -> shop_state.Item:
    return shop_state.choice(site.data, site.shop.key, item)


def _title(site: Site, item: Product, y: float) -> Placed:
    if site.shop.header == "minimal":
        brand = site.text(20, y + 8, 320, 22, item.brand.upper(), 13, site.colors.muted, True)
        return [brand, site.text(20, y + 30, 320, 32, item.title, 20, rid="product_title")], y + 66
    title = site.text(16, y + 8, 328, 34, item.title, 21, bold=True, rid="product_title")
    return [title, *stars(site, 16, y + 44, item, 17)], y + 72


def _picture(site: Site, item: Product, y: float) -> Placed:
    color = _chosen(site, item)["color"]
    if site.shop.header == "minimal":
        return [picture(site, item, 0, y, WIDTH, 260, color)], y + 260
    height = 170 if site.shop.header == "inline" else 210
    return [picture(site, item, 16, y + 8, WIDTH - 32, height, color)], y + height + 14


def _price(site: Site, item: Product, y: float) -> Placed:
    colors = site.colors
    price = site.text(16, y + 4, 160, 40, dollars(item.price), 26, bold=True, rid="price")
    if _is_gone(site, item):
        stock = site.text(176, y + 4, 168, 40, "Out of stock", 14, colors.accent, True, "r", rid="stock")
    else:
        stock = site.text(176, y + 4, 168, 40, "In stock", 14, "#2f9e54", True, "r", rid="stock")
    return [price, stock], y + 46


def offered(site: Site, item: Product, name: str) -> list[Choice]:
    """Colours, sizes or numbers of pieces to choose from."""
    chosen = _chosen(site, item)[name]
    found: dict[str, Sequence[Arg]] = {
        "color": item.colors,
        "size": item.kind.sizes,
        "count": range(1, shop_state.MAX_COUNT + 1),
    }
    return [
        (
            str(value).replace(" ", "_"),
            str(value).capitalize() if name == "color" else str(value),
            site.event(name, item.id, value),
            chosen == value,
        )
        for value in found[name]
    ]


def _options(site: Site, item: Product, y: float, name: str, title: str) -> Placed:
    """A choice: chips or discs under its title, or a row that opens a sheet."""
    values = offered(site, item, name)
    if not values:
        return [], y
    chosen = _chosen(site, item)[name]
    style = site.shop.quantity if name == "count" else site.shop.options
    if style == "menu":
        return [_menu(site, y + 4, name, title, str(chosen).capitalize() or "Choose")], y + 60
    label = site.text(16, y + 6, 328, 28, f"{title}: {chosen}" if chosen else title, 14, bold=True)
    if style == "discs" and name == "color":
        return [label, *_discs(site, item, y + 36, values)], y + 90
    if style == "discs":
        cells = [
            site.chip(20 + 64 * place, y + 36, 58, text, tap, f"{name}_{key}", on)
            for place, (key, text, tap, on) in enumerate(values)
        ]
        return [label, *cells], y + 88
    found, y = chips(site, y + 36, name, values)
    return [label, *found], y


def _discs(site: Site, item: Product, y: float, values: Sequence[Choice]) -> list[Node]:
    nodes = []
    for place, (key, label, tap, on) in enumerate(values):
        x = 16 + 60.0 * place
        ring = Node(x + 2, y + 2, 44, 44, border=site.colors.text if on else "", radius=22)
        disc = Node(x + 7, y + 7, 34, 34, fill=COLORS[item.colors[place]], border=site.colors.line, radius=17)
        rid = f"color_{key}"
        parts = (ring, disc)
        nodes.append(
            Node(x, y, 48, 48, "widget.RadioButton", rid, desc=label, tap=tap, checked=on, children=parts)
        )
    return nodes


def _menu(site: Site, y: float, name: str, title: str, shown: str) -> Node:
    colors = site.colors
    parts = (
        site.text(32, y, 140, 50, title, 15, colors.muted),
        site.text(150, y, 150, 50, shown, 15, bold=True, align="r"),
        image(WIDTH - 52, y, 26, 50, "expand_more", color=colors.muted),
    )
    tap, radius = site.event("panel", name), min(site.shop.radius, 14)
    look: dict[str, Any] = {
        "cls": "widget.Spinner",
        "fill": colors.card,
        "border": colors.line,
        "radius": radius,
    }
    return group(16, y, WIDTH - 32, 50, "choose_" + name, parts, title, tap, **look)


def _color(site: Site, item: Product, y: float) -> Placed:
    return _options(site, item, y, "color", "Colour")


def _size(site: Site, item: Product, y: float) -> Placed:
    return _options(site, item, y, "size", item.kind.ask)


def _count(site: Site, item: Product, y: float) -> Placed:
    if site.shop.quantity != "stepper":
        return _options(site, item, y, "count", "Quantity")
    count = _chosen(site, item)["count"]
    less, more = (site.event("count", item.id, count + step) for step in (-1, 1))
    label = site.text(16, y + 4, 120, 48, "Quantity", 14, bold=True)
    return [label, *stepper(site, WIDTH - 160, y + 4, count, less, more, "")], y + 60


def stepper(
    site: Site, x: float, y: float, count: int, less: tuple[Arg, ...], more: tuple[Arg, ...], suffix: str
) -> list[Node]:
    """Less, the number, more: 144 dp wide, 48 high."""
    colors, nodes = site.colors, []
    look = {"radius": min(site.shop.radius, 24), "border": colors.line}
    for left, icon, name, tap in ((x, "remove", "less", less), (x + 96, "add", "more", more)):
        desc, rid = name.capitalize(), name + suffix
        nodes.append(icon_button(left, y, 48, icon, desc, tap, rid, colors.text, colors.card, 22, **look))
    return [*nodes, site.text(x + 48, y, 48, 48, str(count), 17, bold=True, align="c", rid="count" + suffix)]


def _add_button(site: Site, item: Product, x: float, y: float, w: float) -> Node:
    if not _is_gone(site, item):
        return site.button(x, y, w, site.shop.add, site.event("add", item.id), "add_to_cart", h=52)
    color, fill, radius = site.colors.muted, site.colors.line, min(site.shop.radius, 26)
    return button(x, y, w, 52, "Out of stock", (), "sold_out", 16, color, fill, radius, bold=True)


def _heart(site: Site, item: Product, x: float, y: float) -> Node:
    saved = item.id in site.data["wish"]
    icon, color = ("favorite", site.colors.accent) if saved else ("favorite_border", "")
    tap = site.event("wish", item.id)
    return site.icon(x, y, icon, f"Save to {site.shop.wish.lower()}", tap, "save_product", color)


def _sticky(site: Site, item: Product, y: float) -> list[Node]:
    parts = (
        Node(0, y, WIDTH, 1, fill=site.colors.line),
        _heart(site, item, 10, y + 10),
        _add_button(site, item, 68, y + 8, WIDTH - 84),
    )
    bar = group(0, y, WIDTH, 68, "buy_bar", parts, fill=site.colors.card)
    return [bar]


def _add(site: Site, item: Product, y: float) -> Placed:
    return [_add_button(site, item, 16, y + 8, WIDTH - 32)], y + 66


def _save(site: Site, item: Product, y: float) -> Placed:
    saved = item.id in site.data["wish"]
    label = f"Saved to {site.shop.wish.lower()}" if saved else f"Save to {site.shop.wish.lower()}"
    tap = site.event("wish", item.id)
    return [site.button(16, y + 4, WIDTH - 32, label, tap, "save_product", "outlined")], y + 58


def _about(site: Site, item: Product, y: float) -> Placed:
    text = (
        f"From the {item.line} line by {item.brand}, made to last. "
        f"Comes in {' and '.join(item.colors)}, with a warranty of two years and free returns."
    )
    return [
        site.text(16, y + 10, 328, 28, "About this product", 16, bold=True),
        site.text(16, y + 42, 328, 84, text, 14, site.colors.muted, lines=4, top=True),
    ], y + 124


def _reviews(site: Site, item: Product, y: float) -> Placed:
    first = zlib.crc32(item.title.encode()) % len(_OPINIONS)
    more = site.button(
        196, y + 4, 148, "All reviews", site.event("open", "reviews", item.id), "all_reviews", "text", 44, 14
    )
    heading = site.text(16, y + 8, 180, 36, f"Reviews ({item.reviews:,})", 16, bold=True)
    return [heading, more, *_review(site, y + 48, item, first)], y + 156


def _review(site: Site, y: float, item: Product, place: int) -> list[Node]:
    salt = zlib.crc32(f"{item.title}/{place}".encode())
    given = max(1, min(5, round(item.rating / 10) + (0, 0, 1, -1)[salt % 4]))
    title, text = _OPINIONS[place]
    marks = [
        image(16 + 18 * number, y + 6, 18, 20, "star" if number < given else "star_border", 16, STAR)
        for number in range(5)
    ]
    author = f"{_AUTHORS[salt // 5 % len(_AUTHORS)]} · verified buyer"
    return [
        site.rule(y),
        *marks,
        site.text(112, y + 6, 232, 20, author, 12, site.colors.muted),
        site.text(16, y + 28, 328, 26, title, 15, bold=True),
        site.text(16, y + 54, 328, 44, text, 14, site.colors.muted, lines=2, top=True),
    ]


_SECTIONS: dict[str, Callable[[Site, Product, float], Placed]] = {
    "title": _title,
    "picture": _picture,
    "price": _price,
    "color": _color,
    "size": _size,
    "count": _count,
    "add": _add,
    "save": _save,
    "about": _about,
    "reviews": _reviews,
}
