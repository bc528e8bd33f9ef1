"""A shop's front page, its overview of categories, and its search page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distrl.simulator.apps.web import search
from distrl.simulator.apps.web.goods import Product
from distrl.simulator.apps.web.header import Area
from distrl.simulator.apps.web.kit import Site, picture, search_box
from distrl.simulator.apps.web.listing import products
from distrl.simulator.phone.nodes import WIDTH, Node
from distrl.simulator.phone.ui import viewport

BEST_SELLERS = 6
"""Products on a front page."""


def home(site: Site, area: Area) -> list[Node]:
    """Hero, categories and best sellers, in the shop's order."""

    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes = [_hero(site, y)]
        y += nodes[0].h + 12
        found, y = _categories(site, y)
        nodes += [*found, site.text(16, y + 8, 300, 32, "Best sellers", 18, bold=True)]
        shown = search.assortment(site.shop.key)[:BEST_SELLERS]
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
        mark = Node(18, y, 26, 48, "widget.ImageView", icon="north_west", icon_size=20, color=colors.muted)
        text = site.text(58, y, 280, 48, kind, 16)
        tap = site.event("query", kind)
        rid = f"popular_{place}"
        nodes.append(Node(0, y, WIDTH, 48, "view.ViewGroup", rid, desc=kind, tap=tap, children=(mark, text)))
        y += 48
    return nodes


def _popular(site: Site) -> list[str]:
    nouns = dict.fromkeys(product.kind.noun for product in search.assortment(site.shop.key))
    return list(nouns)[:5]


def _example(site: Site, category: str) -> Product:
    return search.find(site.shop.key, category=category)[0]


def _hero(site: Site, y: float) -> Node:
    """What the shop praises: a field in its colours, or a photograph as wide as the page."""
    shop, colors = site.shop, site.colors
    product = next(found for found in search.assortment(shop.key) if found.kind.noun == shop.hero)
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
    box = Node(12, y + 12, WIDTH - 24, 128, "view.ViewGroup", fill=fill, radius=shop.radius, children=parts)
    return Node(0, y, WIDTH, 146, "view.ViewGroup", "hero", desc=shop.slogan, tap=tap, children=(box,))


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
    return Node(0, y, WIDTH, 232, "view.ViewGroup", "hero", desc=shop.slogan, children=parts)


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
    return Node(x, y, w, h, "view.ViewGroup", f"cat_{place}", desc=name, tap=tap)


def _category_disc(site: Site, y: float, place: int, name: str) -> Node:
    row, column = divmod(place, 3)
    x, top = 12 + 112 * column, y + 100 * row
    shot = picture(site, _example(site, name), x + 26, top + 4, 60, 60, radius=30)
    label = site.text(x, top + 68, 112, 24, name, 14, align="c")
    return _category(site, place, name, (x, top, 112, 96)).with_children(shot, label)


def _category_line(site: Site, y: float, place: int, name: str) -> Node:
    mark = Node(WIDTH - 48, y, 28, 51, "widget.ImageView", icon="chevron_right", color=site.colors.muted)
    parts = (site.text(20, y, 260, 51, name, 17), mark, site.rule(y + 51, 20))
    return _category(site, place, name, (0, y, WIDTH, 52)).with_children(*parts)


def _category_tile(site: Site, y: float, place: int, name: str) -> Node:
    row, column = divmod(place, 2)
    x, top = 12 + 172 * column, y + 68 * row
    tile = site.panel(
        x,
        top,
        164,
        60,
        (
            picture(site, _example(site, name), x + 6, top + 6, 48, 48),
            site.text(x + 62, top, 98, 60, name, 14, bold=True, lines=2),
        ),
    )
    return _category(site, place, name, (x, top, 164, 60)).with_children(tile)


def _category_photo(site: Site, y: float, place: int, name: str) -> Node:
    shot = picture(site, _example(site, name), WIDTH - 136, y, 124, 96)
    back = Node(12, y, WIDTH - 24, 96, fill=site.colors.card, radius=site.shop.radius)
    parts = (back, shot, site.text(32, y, 190, 96, name, 19, bold=True))
    return _category(site, place, name, (12, y, WIDTH - 24, 96)).with_children(*parts)


def _footer(site: Site, y: float) -> list[Node]:
    text = f"© {site.shop.name} · Help · Terms · Privacy"
    return [site.text(16, y + 12, WIDTH - 32, 40, text, 12, site.colors.muted, align="c")]
