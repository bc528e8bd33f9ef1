"""A shop's pages: front page, categories, search, results, cart, wish list, checkout; a page put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from distrl.simulator.apps.webshop import goods, panels, shop_state
from distrl.simulator.apps.webshop import product as product_page
from distrl.simulator.apps.webshop.goods import PRODUCTS, Product, dollars
from distrl.simulator.apps.webshop.product import stepper
from distrl.simulator.apps.webshop.shops import SHOPS
from distrl.simulator.apps.webshop.site import STAR, Area, Site, empty, header, picture, search_box, stars
from distrl.simulator.phone.nodes import WIDTH, Node, group, icon_button, image, text_box
from distrl.simulator.phone.state import Page
from distrl.simulator.phone.ui import Ui, viewport

BEST_SELLERS = 6
"""Products on a front page."""


def home(site: Site, area: Area) -> list[Node]:
    """Hero, categories and best sellers, in the shop's order."""

    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes = [_hero(site, y)]
        y += nodes[0].h + 12
        found, y = _categories(site, y)
        nodes += [*found, site.text(16, y + 8, 300, 32, "Best sellers", 18, bold=True)]
        shown = goods.assortment(site.shop.key)[:BEST_SELLERS]
        found, y = products(site, shown, y + 48)
        return [*nodes, *found, *_footer(site, y)], y + 64

    return [viewport(site.ui, "web.home", area[0], area[1], build)]


def browse(site: Site, area: Area) -> list[Node]:
    """All categories, one below the other."""

    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes: list[Node] = [site.text(16, y + 8, 300, 36, "Departments", 22, bold=True)]
        for place, name in enumerate(site.shop.categories):
            nodes.append(_category_photo(site, y + 52 + 104 * place, place, name))
        return nodes, y + 52 + 104 * len(site.shop.categories)

    return [viewport(site.ui, "web.browse", area[0], area[1], build)]


def search_page(site: Site, area: Area) -> list[Node]:
    """The search field of shops that keep it on a page of its own, and what others look for."""
    y, colors = area[0], site.colors
    nodes: list[Node] = [
        search_box(site, 16, y + 16, WIDTH - 32, 52, colors.card, colors.line),
        site.text(20, y + 88, 300, 30, "Popular searches", 16, bold=True),
    ]
    y += 124
    for place, kind in enumerate(_popular(site)):
        if y + 48 > area[1]:
            break
        mark = image(18, y, 26, 48, "north_west", 20, colors.muted)
        text = site.text(58, y, 280, 48, kind, 16)
        tap = site.event("query", kind)
        rid = f"popular_{place}"
        nodes.append(group(0, y, WIDTH, 48, rid, (mark, text), kind, tap))
        y += 48
    return nodes


def _popular(site: Site) -> list[str]:
    nouns = dict.fromkeys(product.kind.noun for product in goods.assortment(site.shop.key))
    return list(nouns)[:5]


def _example(site: Site, category: str) -> Product:
    return goods.find(site.shop.key, category=category)[0]


def _hero(site: Site, y: float) -> Node:
    """What the shop promotes: a field in its colours, or a photograph as wide as the page."""
    shop, colors = site.shop, site.colors
    product = next(found for found in goods.assortment(shop.key) if found.kind.noun == shop.hero)
    tap = site.event("category", product.kind.category)
    plural = shop.hero + ("es" if shop.hero.endswith("s") else "s")
    if shop.header in ("minimal", "tabs"):
        return replace(_wide(site, y, product, f"{plural.capitalize()} and more"), tap=tap)
    fill = colors.brand if shop.header != "centred" else colors.card
    ink = colors.on_brand if shop.header != "centred" else colors.brand
    parts = (
        site.text(32, y + 24, 180, 60, shop.slogan, 20, ink, True, lines=2),
        site.text(32, y + 90, 180, 26, f"Up to 30% off {plural}", 14, ink),
        picture(site, product, WIDTH - 132, y + 24, 104, 104, radius=52),
    )
    box = group(12, y + 12, WIDTH - 24, 128, children=parts, fill=fill, radius=shop.radius)
    return group(0, y, WIDTH, 146, "hero", (box,), shop.slogan, tap)


def _wide(site: Site, y: float, product: Product, text: str) -> Node:
    """A photograph as wide as the page, with what it says below it, in the colours of the header."""
    shop, colors = site.shop, site.colors
    slogan = shop.slogan.upper() if shop.header == "minimal" else shop.slogan
    strip = Node(0, y + 170, WIDTH, 62, fill=colors.head)
    parts = (
        picture(site, product, 0, y, WIDTH, 170, radius=0),
        strip,
        site.text(20, y + 174, 320, 30, slogan, 19, colors.on_head, True),
        site.text(20, y + 202, 320, 24, text, 14, colors.on_head),
    )
    return group(0, y, WIDTH, 232, "hero", parts, shop.slogan)


def _categories(site: Site, y: float) -> tuple[list[Node], float]:
    names = site.shop.categories
    if site.shop.header == "inline":
        nodes = [_category_disc(site, y, place, name) for place, name in enumerate(names)]
        return nodes, y + 100 * -(-len(names) // 3)
    if site.shop.header == "minimal":
        nodes = [_category_line(site, y + 52 * place, place, name) for place, name in enumerate(names)]
        return nodes, y + 52 * len(names)
    if site.shop.header == "tabs":
        return [], y
    nodes = [_category_tile(site, y, place, name) for place, name in enumerate(names)]
    return nodes, y + 68 * -(-len(names) // 2)


def _category(site: Site, place: int, name: str, box: tuple[float, float, float, float]) -> Node:
    x, y, w, h = box
    tap = site.event("category", name)
    return group(x, y, w, h, f"cat_{place}", desc=name, tap=tap)


def _category_disc(site: Site, y: float, place: int, name: str) -> Node:
    row, column = divmod(place, 3)
    x, top = 12 + 112 * column, y + 100 * row
    shot = picture(site, _example(site, name), x + 26, top + 4, 60, 60, radius=30)
    label = site.text(x, top + 68, 112, 24, name, 14, align="c")
    return _category(site, place, name, (x, top, 112, 96)).with_children(shot, label)


def _category_line(site: Site, y: float, place: int, name: str) -> Node:
    mark = image(WIDTH - 48, y, 28, 51, "chevron_right", color=site.colors.muted)
    parts = (site.text(20, y, 260, 51, name, 17), mark, site.rule(y + 51, 20))
    return _category(site, place, name, (0, y, WIDTH, 52)).with_children(*parts)


def _category_tile(site: Site, y: float, place: int, name: str) -> Node:
    row, column = divmod(place, 2)
    x, top = 12 + 172 * column, y + 68 * row
    parts = (
        picture(site, _example(site, name), x + 6, top + 6, 48, 48),
        site.text(x + 62, top, 98, 60, name, 14, bold=True, lines=2),
    )
    tile = site.panel(x, top, 164, 60, parts)
    return _category(site, place, name, (x, top, 164, 60)).with_children(tile)


def _category_photo(site: Site, y: float, place: int, name: str) -> Node:
    shot = picture(site, _example(site, name), WIDTH - 136, y, 124, 96)
    back = Node(12, y, WIDTH - 24, 96, fill=site.colors.card, radius=site.shop.radius)
    parts = (back, shot, site.text(32, y, 190, 96, name, 19, bold=True))
    return _category(site, place, name, (12, y, WIDTH - 24, 96)).with_children(*parts)


def _footer(site: Site, y: float) -> list[Node]:
    text = f"© {site.shop.name} · Help · Terms · Privacy"
    return [site.text(16, y + 12, WIDTH - 32, 40, text, 12, site.colors.muted, align="c")]


AD_AFTER = 4
"""Advertised products come after this many results."""


def results(site: Site, area: Area) -> list[Node]:
    """The results page: tools, how many there are, products, and what is advertised."""
    found = shop_state.found(site.data, site.shop.key)
    fixed, top, bottom = panels.TOOLS[site.shop.tools](site, area)

    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes: list[Node] = [_count(site, y + 4, len(found))]
        if not found:
            return [*nodes, *site.note(y + 70, "search", "Nothing found. Try other words.")], y + 260
        ads = [PRODUCTS[number] for number in site.data["ads"]]
        first, y = products(site, found[:AD_AFTER], y + 40)
        nodes += first
        if ads and len(found) >= AD_AFTER:
            nodes.append(_advert(site, y, ads[0]))
            y += 104
        rest, y = products(site, found[AD_AFTER:], y)
        return [*nodes, *rest], y + (72 if site.shop.tools == "floating" else 8)

    return [viewport(site.ui, "web.results", top, bottom, build), *fixed]


def _count(site: Site, y: float, count: int) -> Node:
    data = site.data
    what = data["query"] or data["category"]
    narrowed = [data["brand"], goods.BANDS[data["band"]][0] if data["band"] else ""]
    more = "".join(f" · {part}" for part in narrowed if part)
    text = f"{count} {'result' if count == 1 else 'results'} for {what}{more}"
    return site.text(16, y, WIDTH - 32, 32, text, 14, site.colors.muted, rid="result_count")


def _advert(site: Site, y: float, product: Product) -> Node:
    label = text_box(24, y + 8, 76, 20, "Sponsored", 11, site.colors.text, site.colors.line, 4, bold=True)
    parts = (
        label,
        picture(site, product, 264, y + 10, 72, 76),
        site.text(24, y + 32, 230, 26, product.title, 15),
        site.text(24, y + 58, 230, 26, dollars(product.price), 16, bold=True),
    )
    tap = site.event("open", "product", product.id)
    card = site.panel(12, y, WIDTH - 24, 96, parts)
    return replace(card, rid=f"ad_{product.id}", desc=product.title, tap=tap)


def products(site: Site, shown: Sequence[Product], y: float) -> tuple[list[Node], float]:
    """The shop's design of a list of products, and the y below it."""
    build, columns, height = _DESIGNS[site.shop.listing]
    nodes = []
    for place, product in enumerate(shown):
        row, column = divmod(place, columns)
        nodes.append(build(site, WIDTH / columns * column, y + height * row, product))
    return nodes, y + height * -(-len(shown) // columns)


def _card(site: Site, card: Node, product: Product) -> Node:
    tap = site.event("open", "product", product.id)
    return replace(card, rid=f"product_{product.id}", desc=product.title, tap=tap)


def _price(site: Site, x: float, y: float, product: Product, size: float) -> list[Node]:
    if product.id in site.data["sold_out"]:
        return [site.text(x, y, 130, 28, "Sold out", size - 2, site.colors.muted, True)]
    return [site.text(x, y, 140, 28, dollars(product.price), size, bold=True)]


def _row(site: Site, x: float, y: float, product: Product) -> Node:
    parts = (
        picture(site, product, 20, y + 10, 104, 104),
        site.text(136, y + 8, 200, 42, product.title, 16, lines=2),
        *stars(site, 136, y + 54, product),
        *_price(site, 136, y + 82, product, 19),
    )
    return _card(site, site.panel(12, y, WIDTH - 24, 124, parts), product)


def _grid(site: Site, x: float, y: float, product: Product) -> Node:
    left = x + 12 if not x else x + 6
    parts = (
        picture(site, product, left + 8, y + 8, 146, 120),
        site.text(left + 12, y + 134, 138, 40, product.title, 14, lines=2),
        *_price(site, left + 12, y + 178, product, 17),
        *stars(site, left + 12, y + 206, product, 13)[:5],
    )
    return _card(site, site.panel(left, y, 162, 232, parts), product)


def _photo(site: Site, x: float, y: float, product: Product) -> Node:
    parts = (
        picture(site, product, 12, y, WIDTH - 24, 132),
        site.text(24, y + 138, 236, 26, product.title, 17, bold=True),
        *stars(site, 24, y + 166, product),
        site.text(220, y + 152, 116, 32, _tag(site, product), 19, site.colors.accent, True, "r"),
    )
    return _card(site, site.panel(12, y, WIDTH - 24, 194, parts), product)


def _tag(site: Site, product: Product) -> str:
    return "Sold out" if product.id in site.data["sold_out"] else dollars(product.price)


def _tall(site: Site, x: float, y: float, product: Product) -> Node:
    left = x + 10 if not x else x + 4
    parts = (
        picture(site, product, left, y, 166, 190),
        site.text(left + 2, y + 196, 160, 22, product.brand.upper(), 12, site.colors.muted, True),
        site.text(left + 2, y + 216, 160, 22, f"{product.line} {product.kind.noun}", 14),
        site.text(left + 2, y + 238, 160, 24, _tag(site, product), 15, bold=True),
    )
    card = group(left, y, 166, 266, children=parts)
    return _card(site, card, product)


def _compact(site: Site, x: float, y: float, product: Product) -> Node:
    is_gone = product.id in site.data["sold_out"]
    tap = site.event("quick", product.id)
    desc = f"Add {product.title}"
    rid = f"quick_{product.id}"
    quick = icon_button(
        WIDTH - 68, y + 16, 44, "add", desc, tap, rid, site.colors.on_brand, site.colors.brand
    )
    parts = [
        picture(site, product, 16, y + 8, 60, 60),
        site.text(88, y + 8, 196, 26, product.title, 15),
        *_price(site, 88, y + 38, product, 16),
    ]
    if not is_gone:
        parts += [quick, *_rated(site, 190, y + 38, product)]
    return _card(site, site.panel(8, y, WIDTH - 16, 76, parts), product)


def _rated(site: Site, x: float, y: float, product: Product) -> list[Node]:
    mark = image(x, y, 18, 28, "star", 15, STAR)
    return [mark, site.text(x + 22, y, 40, 28, str(product.rating / 10), 13, site.colors.muted)]


_DESIGNS: dict[str, tuple[Callable[[Site, float, float, Product], Node], int, float]] = {
    "rows": (_row, 1, 132),
    "grid": (_grid, 2, 244),
    "photo": (_photo, 1, 206),
    "tall": (_tall, 2, 280),
    "compact": (_compact, 1, 84),
}
"""How a product is drawn, columns, and dp from one row to the next."""
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
    pieces = shop_state.pieces(site.data)
    parts = (
        Node(0, y, WIDTH, 1, fill=site.colors.line),
        site.text(20, y + 6, 170, 40, f"Total ({pieces} item{'' if pieces == 1 else 's'})", 15),
        site.text(
            180, y + 6, 160, 40, dollars(shop_state.total(site.data)), 20, bold=True, align="r", rid="total"
        ),
        site.button(16, y + 48, WIDTH - 32, "Checkout", site.event("open", first), "checkout", h=52),
    )
    return group(0, y, WIDTH, 108, "summary", parts, fill=site.colors.card)


def _described(item: shop_state.Item) -> str:
    return " · ".join(part for part in (item["color"].capitalize(), item["size"]) if part)


def _cart_row(site: Site, y: float, item: shop_state.Item, place: int) -> Node:
    product, count = PRODUCTS[item["id"]], item["count"]
    less, more = (site.event("amount", place, count + step) for step in (-1, 1))
    tap = site.event("remove", place)
    remove = site.icon(WIDTH - 62, y + 62, "delete", "Remove", tap, f"remove_{place}", site.colors.muted)
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
    count, colors = len(site.shop.checkout), site.colors
    width = (WIDTH - 32 - 8 * (count - 1)) / count
    fills = (colors.brand if place <= number else colors.line for place in range(count))
    return [
        Node(16 + (width + 8) * place, y, width, 6, fill=fill, radius=3) for place, fill in enumerate(fills)
    ]


def _lines(site: Site, y: float, icon: str, lines: Sequence[str]) -> tuple[list[Node], float]:
    height = 24.0 * len(lines) + 24
    mark = image(26, y + 12, 30, 30, icon, 26, site.colors.brand)
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
    for key, label in shop_state.DELIVERIES.items():
        on = site.data["delivery"] == key
        icon = "radio_button_checked" if on else "radio_button_unchecked"
        mark = image(28, y, 28, 72, icon, color=colors.brand if on else colors.muted)
        parts = (
            mark,
            site.text(72, y + 10, 250, 28, label, 16, bold=True),
            site.text(72, y + 38, 250, 24, _WHEN[key], 14, colors.muted),
        )
        border = colors.brand if on else colors.line
        look: dict[str, Any] = {"cls": "widget.RadioButton", "checked": on, "border": border}
        look |= {"fill": colors.card, "radius": site.shop.radius}
        tap = site.event("delivery", key)
        nodes.append(group(12, y, WIDTH - 24, 72, f"delivery_{key}", parts, label, tap, **look))
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
        (f"Delivery: {shop_state.DELIVERIES[data['delivery']].lower()}", dollars(fee) if fee else "Free"),
        ("Total", dollars(shop_state.total(data) + fee)),
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


def view(ui: Ui, page: Page, area: Area) -> list[Node]:
    """The page ["site", shop, name, ...] in `area` (top and bottom in dp)."""
    key = str(page[1])
    whole = Site(ui, SHOPS[key], shop_state.data(ui.state, key), *area)
    free = panels.beside_cookies(whole)
    banner = panels.banner(free)
    site = replace(free, top=free.top + panels.BANNER_H) if banner else free
    head, inner = header(site)
    ground = Node(0, area[0], WIDTH, area[1] - area[0], "view.View", "web_page", fill=site.colors.bg)
    return [ground, *_page(site, page, inner), *head, *banner, *panels.over(free), *panels.cookies(whole)]


_PAGES: dict[str, Callable[[Site, Area], list[Node]]] = {
    "home": home,
    "browse": browse,
    "search": search_page,
    "results": results,
    "cart": cart,
    "wish": wish,
    "thanks": thanks,
}


def _page(site: Site, page: Page, area: Area) -> list[Node]:
    name = str(page[2])
    if name in ("product", "reviews"):
        build = product_page.product if name == "product" else product_page.reviews
        return build(site, area, int(page[3]))
    return _PAGES[name](site, area) if name in _PAGES else checkout(site, area, name)
