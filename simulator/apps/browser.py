"""The browser: start page, search engine and the pages it finds; the shops are in `shop.py` and `web`."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.simulator.apps import catalog, shop
from distrl.simulator.apps.base import App, Args
from distrl.simulator.apps.web import start, store
from distrl.simulator.apps.web import view as shops
from distrl.simulator.apps.web.shops import SHOPS
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, viewport

BAR_H = 64.0


def data() -> State:
    """The shop's query, sort order and cart; the history of searches."""
    return {"searches": [], "shop_query": "", "sort": "relevance", "cart": []}


def view(ui: Ui) -> list[Node]:
    """The page on top, with the address bar above or below it."""
    top = st.page(ui.state, "browser")
    name = str(top[0])
    if ui.layout.browser_top:
        area = (STATUS_H + BAR_H, ui.bottom)
    else:
        area = (STATUS_H, ui.bottom - (BAR_H if _bar_shows(ui) else 0))
    if name.startswith("shop"):
        body, address = shop.view(ui, top, area), "market.example"
    elif name == "results":
        body, address = _results(ui, str(top[1]), area), "find.example"
    elif name == "article":
        article = catalog.ARTICLES[int(top[1])]
        body, address = _article(ui, article, area), article.site
    elif name == "site":
        body, address = shops.view(ui, top, area), SHOPS[str(top[1])].host
    elif name == "unreachable":
        body, address = start.unreachable(ui, str(top[1]), area), str(top[1])
    else:
        body, address = _start(ui, area), "Start page"
    if ui.state["focus"] == start.ADDRESS:
        body += start.suggestions(ui, area, above=not ui.layout.browser_top)
    return [*body, *_address(ui, address)]


def _bar_shows(ui: Ui) -> bool:
    """Whether the address bar shows: at the bottom, the keyboard hides it unless it types there."""
    return ui.layout.browser_top or ui.state["focus"] in ("", start.ADDRESS)


def _address(ui: Ui, address: str) -> list[Node]:
    """The bar with back, address and start page."""
    top = ui.layout.browser_top
    if not _bar_shows(ui):
        return []
    y = STATUS_H if top else ui.bottom - BAR_H
    theme = ui.theme
    pill = _typed(ui, y, address) if start.has_web(ui.state) else _shown(ui, y, address)
    back = ui.icon_button(6, y + 8, "arrow_back", "Back", ("system", "back"), "up")
    home = ui.icon_button(WIDTH - 56, y + 8, "home", "Start page", ("browser", "start"), "start_page")
    edge = 0.0 if top else y
    return [
        Node(
            0,
            edge,
            WIDTH,
            y + BAR_H - edge,
            "view.ViewGroup",
            "bar",
            fill=theme.raised,
            children=(back, pill, home),
        )
    ]


def _shown(ui: Ui, y: float, address: str) -> Node:
    """The address, to be read only."""
    theme = ui.theme
    lock = Node(64 + 10, y + 8, 24, 48, "widget.ImageView", icon="lock", icon_size=18, color=theme.muted)
    label = ui.text(64 + 38, y + 8, 170, 48, address, 16, theme.muted, rid="address")
    return Node(
        60,
        y + 8,
        236,
        48,
        "view.ViewGroup",
        "address_bar",
        fill=theme.card,
        radius=24,
        children=(lock, label),
    )


def _typed(ui: Ui, y: float, address: str) -> Node:
    """The address in a field in which another can be typed."""
    icon = "search" if address == "Start page" else "lock"
    hint = "Search or address" if address == "Start page" else address
    if ui.state["focus"] == start.ADDRESS:
        icon, hint = "search", ""
    return widgets.field(
        ui, y + 8, start.ADDRESS, hint, x=60, w=236, h=48, icon=icon, pill=True, rid="address_bar"
    )


def _start(ui: Ui, area: tuple[float, float]) -> list[Node]:
    y, theme = area[0], ui.theme
    sites = start.tiles(ui.state)
    rows = -(-len(sites) // 4)
    nodes = [
        ui.text(0, y + 20, WIDTH, 64, "Find", 44, theme.primary, True, "c"),
        widgets.field(
            ui, y + 96, "browser.query", "Search the web", icon="search", pill=True, h=56, rid="search_field"
        ),
    ]
    left = ui.layout.switch_left
    for place, (label, icon, color, event) in enumerate(sites):
        row, column = divmod(place, 4)
        x, top = 6 + 87 * (3 - column if left else column), y + 176 + 104 * row
        disc = ui.disc(x + 15, top + 8, 57, icon, color)
        name = ui.text(x, top + 70, 87, 24, label, 14, align="c")
        nodes.append(
            Node(
                x,
                top,
                87,
                100,
                "view.ViewGroup",
                "site_" + label.lower(),
                desc=label,
                tap=event,
                children=(disc, name),
            )
        )
    y += 104 * (rows - 1)
    nodes.append(ui.text(24, y + 292, 300, 32, "For you", 18, bold=True))
    for place, index in enumerate((3, 4, 8)):
        article = catalog.ARTICLES[index]
        top = y + 330 + 92 * place
        if top + 84 < area[1]:
            nodes.append(_story(ui, top, article, index))
    return nodes


def _story(ui: Ui, y: float, article: catalog.Article, index: int) -> Node:
    picture = Node(
        widgets.MARGIN + 10,
        y + 10,
        64,
        64,
        "widget.ImageView",
        fill=article.color,
        radius=14,
        icon=article.icon,
        icon_size=36,
        color="#ffffff",
    )
    title = ui.text(106, y + 8, 220, 44, article.title, 16, lines=2)
    site = ui.text(106, y + 54, 220, 22, article.site, 13, ui.theme.muted)
    node = widgets.card(ui, y, 84, [picture, title, site], rid=f"article_{index}")
    return Node(
        node.x,
        node.y,
        node.w,
        node.h,
        node.cls,
        node.rid,
        desc=article.title,
        tap=("browser", "article", index),
        fill=node.fill,
        radius=20,
        children=node.children,
    )


def _results(ui: Ui, query: str, area: tuple[float, float]) -> list[Node]:
    found = catalog.find_articles(query)
    products = catalog.find_products(query)

    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes: list[Node] = [
            widgets.field(
                ui, y + 12, "browser.query", query, icon="search", pill=True, h=56, rid="search_field"
            )
        ]
        y += 80
        nodes.append(
            ui.text(
                24,
                y,
                312,
                28,
                f"{len(found)} {'page' if len(found) == 1 else 'pages'} for {query}",
                14,
                ui.theme.muted,
            )
        )
        y += 32
        if products:
            lead = ui.disc(widgets.MARGIN + 14, y + 14, 44, "storefront", "#e8710a")
            note = f"{len(products)} products at market.example"
            event = ("browser", "shop_for", query)
            nodes.append(
                widgets.row(ui, y, "Market", note, lead=lead, tap=event, rid="shop_offer", fill=ui.theme.card)
            )
            y += 84
        if start.has_web(ui.state):
            shown, y = start.offers(ui, query, y)
            nodes += shown
        for article in found:
            nodes.append(_result(ui, y, article))
            y += 128
        return nodes, y

    return [viewport(ui, "browser.results", area[0], area[1], build)]


def _result(ui: Ui, y: float, article: catalog.Article) -> Node:
    icon = ui.disc(widgets.MARGIN + 14, y + 14, 28, article.icon, article.color)
    parts = (
        icon,
        ui.text(68, y + 12, 250, 32, article.site, 14, ui.theme.muted),
        ui.text(30, y + 46, 300, 26, article.title, 18, ui.theme.primary, True),
        ui.text(30, y + 74, 300, 42, article.body, 14, ui.theme.muted, lines=2),
    )
    index = catalog.ARTICLES.index(article)
    return Node(
        widgets.MARGIN,
        y,
        WIDTH - 2 * widgets.MARGIN,
        120,
        "view.ViewGroup",
        f"result_{index}",
        desc=article.title,
        tap=("browser", "article", index),
        fill=ui.theme.card,
        radius=20,
        children=parts,
    )


def _article(ui: Ui, article: catalog.Article, area: tuple[float, float]) -> list[Node]:
    y, theme = area[0], ui.theme
    return [
        Node(
            0,
            y,
            WIDTH,
            170,
            "widget.ImageView",
            fill=article.color,
            icon=article.icon,
            icon_size=96,
            color="#ffffffcc",
        ),
        ui.text(24, y + 186, 312, 76, article.title, 28, bold=True, lines=2, rid="title"),
        ui.text(24, y + 264, 312, 24, article.site, 15, theme.primary),
        ui.text(24, y + 298, 312, 260, article.body, 18, lines=11, top=True),
    ]


def act(state: State, verb: str, args: Args) -> None:
    """Opens pages; what belongs to the shop goes there."""
    if verb == "start":
        st.reset(state, "browser")
    elif verb == "article":
        st.push(state, "browser", "article", int(args[0]))
    elif verb == "shop":
        st.push(state, "browser", "shop")
    elif verb == "shop_for":
        shop.search(state, str(args[0]))
    elif verb == "site":
        store.act(state, str(args[0]), str(args[1]), args[2:])
    else:
        shop.act(state, verb, args)


def submit(state: State, key: str) -> None:
    """Enter in the web search, in the address bar or in a shop's search field."""
    query = " ".join(st.text(state, key).split())
    if not query:
        st.blur(state)
    elif key == "shop.query":
        shop.search(state, query)
    elif key == store.QUERY:
        store.show_results(state, str(st.page(state, "browser")[1]), query)
    else:
        st.take(state, key)
        if key != start.ADDRESS or not start.go(state, query):
            _search(state, query)


def _search(state: State, query: str) -> None:
    """Shows what the search engine finds, in place of what it found before."""
    searches = state["apps"]["browser"]["searches"]
    searches.append(query)
    del searches[: -st.MAX_ITEMS]
    if st.page(state, "browser")[0] == "results":
        st.pop(state, "browser")
    st.push(state, "browser", "results", query)


_SHOPS = "web.shops.*."
_KEEPS = ("cart", _SHOPS + "cart", _SHOPS + "wish", _SHOPS + "orders")

APP = App("browser", "Browser", "public", "#0aa3c2", data, view, act, submit, store.close, keeps=_KEEPS)
