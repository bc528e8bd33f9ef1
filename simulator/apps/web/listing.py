"""Products in lists: the five designs of results, and the results page with its tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distrl.simulator.apps.web import search, store
from distrl.simulator.apps.web.goods import PRODUCTS, Product, dollars
from distrl.simulator.apps.web.header import Area
from distrl.simulator.apps.web.kit import STAR, Site, picture, stars
from distrl.simulator.apps.web.tools import tools
from distrl.simulator.phone.nodes import WIDTH, Node
from distrl.simulator.phone.ui import viewport

MAX_RESULTS = 20
"""Most results on a page."""
AD_AFTER = 4
"""Advertised products come after this many results."""


def results(site: Site, area: Area) -> list[Node]:
    """The results page: tools, how many there are, products, and what is advertised."""
    found = store.found(site.data, site.shop.key)
    fixed, top, bottom = tools(site, area)

    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes: list[Node] = [_count(site, y + 4, len(found))]
        if not found:
            return [*nodes, *site.note(y + 70, "search", "Nothing found. Try other words.")], y + 260
        shown = found[:MAX_RESULTS]
        ads = [PRODUCTS[number] for number in site.data["ads"]]
        first, y = products(site, shown[:AD_AFTER], y + 40)
        nodes += first
        if ads and len(shown) >= AD_AFTER:
            nodes.append(_advert(site, y, ads[0]))
            y += 104
        rest, y = products(site, shown[AD_AFTER:], y)
        return [*nodes, *rest], y + (72 if site.shop.tools == "floating" else 8)

    return [viewport(site.ui, "web.results", top, bottom, build), *fixed]


def _count(site: Site, y: float, count: int) -> Node:
    data = site.data
    what = data["query"] or data["category"]
    narrowed = [data["brand"], search.BANDS[data["band"]][0] if data["band"] else ""]
    more = "".join(f" · {part}" for part in narrowed if part)
    text = f"{count} {'result' if count == 1 else 'results'} for {what}{more}"
    return site.text(16, y, WIDTH - 32, 32, text, 14, site.colors.muted, rid="result_count")


def _advert(site: Site, y: float, product: Product) -> Node:
    """A product that somebody paid for, marked as such."""
    label = Node(
        24,
        y + 8,
        76,
        20,
        "widget.TextView",
        text="Sponsored",
        fill=site.colors.line,
        radius=4,
        size=11,
        bold=True,
        align="c",
        color=site.colors.text,
    )
    parts = (
        label,
        picture(site, product, 264, y + 10, 72, 76),
        site.text(24, y + 32, 230, 26, product.title, 15),
        site.text(24, y + 58, 230, 26, dollars(product.price), 16, bold=True),
    )
    tap = site.event("open", "product", product.id)
    card = site.panel(12, y, WIDTH - 24, 96, parts)
    return _touchable(card, f"ad_{product.id}", product.title, tap)


def _touchable(card: Node, rid: str, desc: str, tap: tuple[str | int, ...]) -> Node:
    return Node(
        card.x,
        card.y,
        card.w,
        card.h,
        card.cls,
        rid,
        desc=desc,
        tap=tap,
        fill=card.fill,
        radius=card.radius,
        children=card.children,
    )


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
    return _touchable(card, f"product_{product.id}", product.title, tap)


def _price(site: Site, x: float, y: float, product: Product, size: float) -> list[Node]:
    """The price, if the product is to be had."""
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
    card = Node(left, y, 166, 266, "view.ViewGroup", children=parts)
    return _card(site, card, product)


def _compact(site: Site, x: float, y: float, product: Product) -> Node:
    is_gone = product.id in site.data["sold_out"]
    quick = Node(
        WIDTH - 68,
        y + 16,
        44,
        44,
        "widget.ImageButton",
        f"quick_{product.id}",
        desc=f"Add {product.title}",
        tap=site.event("quick", product.id),
        fill=site.colors.brand,
        radius=22,
        icon="add",
        color=site.colors.on_brand,
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
    """One star and the rating."""
    mark = Node(x, y, 18, 28, "widget.ImageView", icon="star", icon_size=15, color=STAR)
    return [mark, site.text(x + 22, y, 40, 28, str(product.rating / 10), 13, site.colors.muted)]


_DESIGNS: dict[str, tuple[Callable[[Site, float, float, Product], Node], int, float]] = {
    "rows": (_row, 1, 132),
    "grid": (_grid, 2, 244),
    "photo": (_photo, 1, 206),
    "tall": (_tall, 2, 280),
    "compact": (_compact, 1, 84),
}
"""How a product is drawn, columns, and dp from one row to the next."""
