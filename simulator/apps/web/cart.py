"""A shop's cart, wish list and checkout."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.simulator.apps.web import store
from distrl.simulator.apps.web.goods import PRODUCTS, dollars
from distrl.simulator.apps.web.header import Area
from distrl.simulator.apps.web.kit import Site, empty, picture
from distrl.simulator.apps.web.listing import products
from distrl.simulator.apps.web.product import stepper
from distrl.simulator.phone.nodes import WIDTH, Node
from distrl.simulator.phone.ui import viewport

TITLES = {"address": "Delivery address", "delivery": "Delivery", "review": "Review your order"}
FEES = {"standard": 0, "express": 990, "pickup": 0}
"""What a delivery costs in cents."""
_WHEN = {"standard": "Free, in 3 to 5 days", "express": "$9.90, tomorrow", "pickup": "Free, from 4 PM today"}


def cart(site: Site, area: Area) -> list[Node]:
    """What is in the cart, the total, and the way to the checkout."""
    items = site.data["cart"]

    def build(y: float) -> tuple[Sequence[Node], float]:
        title = site.text(16, y + 8, 320, 40, f"Your {site.shop.cart.lower()}", 22, bold=True)
        if not items:
            return [title, *empty(site, y + 80)], y + 320
        rows = [_cart_row(site, y + 56 + 128 * place, item, place) for place, item in enumerate(items)]
        return [title, *rows], y + 60 + 128 * len(items)

    if not items:
        return [viewport(site.ui, "web.cart", area[0], area[1], build)]
    bottom = area[1] - 108
    return [viewport(site.ui, "web.cart", area[0], bottom, build), _summary(site, bottom)]


def _summary(site: Site, y: float) -> Node:
    first = site.shop.checkout[0]
    pieces = store.pieces(site.data)
    parts = (
        Node(0, y, WIDTH, 1, fill=site.colors.line),
        site.text(20, y + 6, 170, 40, f"Total ({pieces} item{'' if pieces == 1 else 's'})", 15),
        site.text(
            180, y + 6, 160, 40, dollars(store.total(site.data)), 20, bold=True, align="r", rid="total"
        ),
        site.button(16, y + 48, WIDTH - 32, "Checkout", site.event("open", first), "checkout", h=52),
    )
    return Node(0, y, WIDTH, 108, "view.ViewGroup", "summary", fill=site.colors.card, children=parts)


def _described(item: store.Item) -> str:
    return " · ".join(part for part in (item["color"].capitalize(), item["size"]) if part)


def _cart_row(site: Site, y: float, item: store.Item, place: int) -> Node:
    product, count = PRODUCTS[item["id"]], item["count"]
    less, more = (site.event("amount", place, count + step) for step in (-1, 1))
    remove = site.icon(
        WIDTH - 62,
        y + 62,
        "delete",
        "Remove",
        site.event("remove", place),
        f"remove_{place}",
        site.colors.muted,
    )
    parts = (
        picture(site, product, 22, y + 10, 78, 78, item["color"]),
        site.text(112, y + 6, 226, 26, product.title, 15, bold=True),
        site.text(112, y + 32, 130, 24, _described(item), 13, site.colors.muted),
        site.text(228, y + 32, 110, 24, dollars(product.price * count), 16, bold=True, align="r"),
        *stepper(site, 112, y + 62, count, less, more, f"_{place}"),
        remove,
    )
    return site.panel(12, y, WIDTH - 24, 120, parts, f"cart_{place}")


def wish(site: Site, area: Area) -> list[Node]:
    """What was saved for later."""

    def build(y: float) -> tuple[Sequence[Node], float]:
        title: list[Node] = [site.text(16, y + 8, 320, 40, site.shop.wish, 22, bold=True)]
        if not site.data["wish"]:
            return [*title, *site.note(y + 80, "favorite_border", "Nothing saved yet")], y + 240
        found, y = products(site, [PRODUCTS[number] for number in site.data["wish"]], y + 56)
        return [*title, *found], y

    return [viewport(site.ui, "web.wish", area[0], area[1], build)]


def checkout(site: Site, area: Area, step: str) -> list[Node]:
    """A page of the checkout: "address", "delivery" or "review"."""
    pages = site.shop.checkout
    number = pages.index(step)
    last = number + 1 == len(pages)
    bottom = area[1] - 68
    if not site.data["cart"]:
        return empty(site, area[0] + 80)

    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes = [*_steps(site, y + 10, number), site.text(16, y + 34, 320, 40, TITLES[step], 22, bold=True)]
        found, y = {"address": _address, "delivery": _delivery, "review": _review}[step](site, y + 82)
        return [*nodes, *found], y

    label = "Place order" if last else "Continue"
    tap = site.event("order") if last else site.event("open", pages[number + 1])
    rid = "place_order" if last else "continue"
    button = site.button(16, bottom + 8, WIDTH - 32, label, tap, rid, h=52)
    return [viewport(site.ui, "web.checkout", area[0], bottom, build), button]


def _steps(site: Site, y: float, number: int) -> list[Node]:
    """One bar for each page of the checkout; those reached are coloured."""
    count, colors = len(site.shop.checkout), site.colors
    width = (WIDTH - 32 - 8 * (count - 1)) / count
    return [
        Node(
            16 + (width + 8) * place,
            y,
            width,
            6,
            fill=colors.brand if place <= number else colors.line,
            radius=3,
        )
        for place in range(count)
    ]


def _lines(site: Site, y: float, icon: str, lines: Sequence[str]) -> tuple[list[Node], float]:
    height = 24.0 * len(lines) + 24
    mark = Node(26, y + 12, 30, 30, "widget.ImageView", icon=icon, icon_size=26, color=site.colors.brand)
    texts = [
        site.text(72, y + 12 + 24 * place, 262, 24, line, 15, bold=not place)
        for place, line in enumerate(lines)
    ]
    return [site.panel(12, y, WIDTH - 24, height, [mark, *texts])], y + height + 12


def _address(site: Site, y: float) -> tuple[list[Node], float]:
    found, y = _lines(site, y, "home", ("Alex Morgan", "12 Harbour Street", "Northbay 40213"))
    contact, y = _lines(site, y, "phone", ("Contact", "555 0142"))
    return [*found, *contact], y


def _delivery(site: Site, y: float) -> tuple[list[Node], float]:
    colors, nodes = site.colors, []
    for key, label in store.DELIVERIES.items():
        on = site.data["delivery"] == key
        mark = Node(
            28,
            y,
            28,
            72,
            "widget.ImageView",
            icon="radio_button_checked" if on else "radio_button_unchecked",
            color=colors.brand if on else colors.muted,
        )
        parts = (
            mark,
            site.text(72, y + 10, 250, 28, label, 16, bold=True),
            site.text(72, y + 38, 250, 24, _WHEN[key], 14, colors.muted),
        )
        nodes.append(
            Node(
                12,
                y,
                WIDTH - 24,
                72,
                "widget.RadioButton",
                f"delivery_{key}",
                desc=label,
                tap=site.event("delivery", key),
                checked=on,
                fill=colors.card,
                border=colors.brand if on else colors.line,
                radius=site.shop.radius,
                children=parts,
            )
        )
        y += 82
    return nodes, y


def _review(site: Site, y: float) -> tuple[list[Node], float]:
    data, nodes = site.data, []
    for item in data["cart"]:
        product = PRODUCTS[item["id"]]
        name = f"{item['count']} × {product.title}"
        shot = picture(site, product, 16, y, 52, 52, item["color"])
        price = dollars(product.price * item["count"])
        nodes += [
            shot,
            site.text(80, y, 264, 26, name, 15, bold=True),
            site.text(80, y + 26, 130, 24, _described(item), 13, site.colors.muted),
            site.text(214, y + 26, 130, 24, price, 15, align="r"),
        ]
        y += 62
    fee = FEES[data["delivery"]]
    sums = (
        (f"Delivery: {store.DELIVERIES[data['delivery']].lower()}", dollars(fee) if fee else "Free"),
        ("Total", dollars(store.total(data) + fee)),
    )
    nodes.append(site.rule(y + 4))
    for label, amount in sums:
        bold = label == "Total"
        nodes.append(site.text(16, y + 12, 220, 34, label, 17 if bold else 15, bold=bold))
        nodes.append(site.text(200, y + 12, 144, 34, amount, 17 if bold else 15, bold=bold, align="r"))
        y += 36
    payment, y = _lines(site, y + 24, "credit_card", ("Card ending in 4471", "Alex Morgan"))
    return [*nodes, *payment], y


def thanks(site: Site, area: Area) -> list[Node]:
    """What is shown once an order is placed."""
    y, colors = area[0] + 80, site.colors
    text = "You will hear from us when your order is on its way."
    return [
        site.ui.disc(WIDTH / 2 - 44, y, 88, "check", colors.brand, colors.on_brand),
        site.text(20, y + 108, 320, 40, "Thank you!", 26, bold=True, align="c"),
        site.text(40, y + 152, 280, 50, text, 15, colors.muted, align="c", lines=2),
        site.button(90, y + 224, 180, "Back to the shop", site.event("open", "home"), "go_on", "outlined"),
    ]
