"""The browser: start page, address bar, search engine and the pages it finds; tasks to search the web."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distrl.core.actions import Action
from distrl.simulator.apps import market
from distrl.simulator.apps.base import App, Args
from distrl.simulator.apps.webshop import goods, shop_state
from distrl.simulator.apps.webshop import pages as shops
from distrl.simulator.apps.webshop.shops import HOSTS, SHOPS, Shop
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Event, Node, group, image
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, viewport
from distrl.simulator.tasks.base import Family, Params, Template, everyday, fresh
from distrl.simulator.tasks.expert import BACK, ENTER, Expert

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
        body, address = market.view(ui, top, area), "market.example"
    elif name == "results":
        body, address = _results(ui, str(top[1]), area), "find.example"
    elif name == "article":
        article = market.ARTICLES[int(top[1])]
        body, address = _article(ui, article, area), article.site
    elif name == "site":
        body, address = shops.view(ui, top, area), SHOPS[str(top[1])].host
    elif name == "unreachable":
        body, address = unreachable(ui, str(top[1]), area), str(top[1])
    else:
        body, address = _start(ui, area), "Start page"
    if ui.state["focus"] == ADDRESS:
        body += suggestions(ui, area, above=not ui.layout.browser_top)
    return [*body, *_address(ui, address)]


def _bar_shows(ui: Ui) -> bool:
    """Whether the address bar shows: at the bottom, the keyboard hides it unless it types there."""
    return ui.layout.browser_top or ui.state["focus"] in ("", ADDRESS)


def _address(ui: Ui, address: str) -> list[Node]:
    top = ui.layout.browser_top
    if not _bar_shows(ui):
        return []
    y = STATUS_H if top else ui.bottom - BAR_H
    theme = ui.theme
    pill = _typed(ui, y, address) if has_web(ui.state) else _shown(ui, y, address)
    back = ui.icon_button(6, y + 8, "arrow_back", "Back", ("system", "back"), "up")
    home = ui.icon_button(WIDTH - 56, y + 8, "home", "Start page", ("browser", "start"), "start_page")
    edge = 0.0 if top else y
    return [group(0, edge, WIDTH, y + BAR_H - edge, "bar", (back, pill, home), fill=theme.raised)]


def _shown(ui: Ui, y: float, address: str) -> Node:
    theme = ui.theme
    lock = image(64 + 10, y + 8, 24, 48, "lock", 18, theme.muted)
    label = ui.text(64 + 38, y + 8, 170, 48, address, 16, theme.muted, rid="address")
    return group(60, y + 8, 236, 48, "address_bar", (lock, label), fill=theme.card, radius=24)


def _typed(ui: Ui, y: float, address: str) -> Node:
    icon = "search" if address == "Start page" else "lock"
    hint = "Search or address" if address == "Start page" else address
    if ui.state["focus"] == ADDRESS:
        icon, hint = "search", ""
    return widgets.field(ui, y + 8, ADDRESS, hint, x=60, w=236, h=48, icon=icon, pill=True, rid="address_bar")


def _start(ui: Ui, area: tuple[float, float]) -> list[Node]:
    y, theme = area[0], ui.theme
    sites = tiles(ui.state)
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
        nodes.append(group(x, top, 87, 100, "site_" + label.lower(), (disc, name), label, event))
    y += 104 * (rows - 1)
    nodes.append(ui.text(24, y + 292, 300, 32, "For you", 18, bold=True))
    for place, index in enumerate((3, 4, 8)):
        article = market.ARTICLES[index]
        top = y + 330 + 92 * place
        if top + 84 < area[1]:
            nodes.append(_story(ui, top, article, index))
    return nodes


def _story(ui: Ui, y: float, article: market.Article, index: int) -> Node:
    picture = image(widgets.MARGIN + 10, y + 10, 64, 64, article.icon, 36, "#ffffff", article.color, 14)
    title = ui.text(106, y + 8, 220, 44, article.title, 16, lines=2)
    site = ui.text(106, y + 54, 220, 22, article.site, 13, ui.theme.muted)
    card = widgets.card(ui, y, 84, [picture, title, site], rid=f"article_{index}")
    return replace(card, desc=article.title, tap=("browser", "article", index), radius=20)


def _results(ui: Ui, query: str, area: tuple[float, float]) -> list[Node]:
    found = market.find_articles(query)
    products = market.find_products(query)

    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes: list[Node] = [
            widgets.field(
                ui, y + 12, "browser.query", query, icon="search", pill=True, h=56, rid="search_field"
            )
        ]
        y += 80
        text = f"{len(found)} {'page' if len(found) == 1 else 'pages'} for {query}"
        nodes.append(ui.text(24, y, 312, 28, text, 14, ui.theme.muted))
        y += 32
        if products:
            lead = ui.disc(widgets.MARGIN + 14, y + 14, 44, "storefront", "#e8710a")
            note = f"{len(products)} products at market.example"
            event = ("browser", "shop_for", query)
            nodes.append(widgets.row(ui, y, "Market", note, lead=lead, tap=event, rid="shop_offer"))
            y += 84
        if has_web(ui.state):
            shown, y = offers(ui, query, y)
            nodes += shown
        for article in found:
            nodes.append(_result(ui, y, article))
            y += 128
        return nodes, y

    return [viewport(ui, "browser.results", area[0], area[1], build)]


def _result(ui: Ui, y: float, article: market.Article) -> Node:
    icon = ui.disc(widgets.MARGIN + 14, y + 14, 28, article.icon, article.color)
    parts = (
        icon,
        ui.text(68, y + 12, 250, 32, article.site, 14, ui.theme.muted),
        ui.text(30, y + 46, 300, 26, article.title, 18, ui.theme.primary, True),
        ui.text(30, y + 74, 300, 42, article.body, 14, ui.theme.muted, lines=2),
    )
    index, x, title = market.ARTICLES.index(article), widgets.MARGIN, article.title
    tap = ("browser", "article", index)
    return group(x, y, WIDTH - 2 * x, 120, f"result_{index}", parts, title, tap, ui.theme.card, 20)


def _article(ui: Ui, article: market.Article, area: tuple[float, float]) -> list[Node]:
    y, theme = area[0], ui.theme
    return [
        image(0, y, WIDTH, 170, article.icon, 96, "#ffffffcc", article.color),
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
        market.search(state, str(args[0]))
    elif verb == "site":
        shop_state.act(state, str(args[0]), str(args[1]), args[2:])
    else:
        market.act(state, verb, args)


def submit(state: State, key: str) -> None:
    """Enter in the web search, in the address bar or in a shop's search field."""
    query = " ".join(st.text(state, key).split())
    if not query:
        st.blur(state)
    elif key == "shop.query":
        market.search(state, query)
    elif key == shop_state.QUERY:
        shop_state.show_results(state, str(st.page(state, "browser")[1]), query)
    else:
        st.take(state, key)
        if key != ADDRESS or not go(state, query):
            _search(state, query)


def _search(state: State, query: str) -> None:
    searches = state["apps"]["browser"]["searches"]
    searches.append(query)
    del searches[: -st.MAX_ITEMS]
    if st.page(state, "browser")[0] == "results":
        st.pop(state, "browser")
    st.push(state, "browser", "results", query)


APP = App(
    name="browser",
    label="Browser",
    icon="public",
    color="#0aa3c2",
    data=data,
    view=view,
    act=act,
    submit=submit,
    back=shop_state.close,
    keeps=("cart", "web.shops.*.cart", "web.shops.*.wish", "web.shops.*.orders"),
    asks="location",
    permissions=("INTERNET", "ACCESS_FINE_LOCATION", "POST_NOTIFICATIONS"),
)
ADDRESS = "browser.address"
"""The text field in the address bar."""
_OTHERS: tuple[tuple[str, str, str, Event], ...] = (
    ("Market", "storefront", "#e8710a", ("browser", "shop")),
    ("News", "newspaper", "#3949ab", ("browser", "article", 2)),
    ("Travel", "flight_takeoff", "#0b8f83", ("browser", "article", 1)),
    ("Recipes", "restaurant", "#7b51d3", ("browser", "article", 6)),
)
"""Sites of the start page that are not shops with pages of their own."""


def has_web(state: State) -> bool:
    """Whether this phone's browser has the whole web: shops, and an address bar to type in."""
    return "web" in state["apps"]["browser"]


def tiles(state: State) -> list[tuple[str, str, str, Event]]:
    """Label, icon, colour and event of the sites on the start page: shops first, eight at most."""
    found: list[tuple[str, str, str, Event]] = []
    for key in state["apps"]["browser"]["web"]["sites"] if has_web(state) else ():
        shop = SHOPS[key]
        color = shop.light.brand
        found.append((shop.name, shop.icon, color, ("browser", "site", key, "open", "home")))
    return [*found, *_OTHERS][:8]


def go(state: State, text: str) -> bool:
    """Opens what `text` is the address of; False if it is not an address but a search."""
    address = text.lower().removeprefix("https://").removeprefix("http://").removeprefix("www.")
    host = address.split("/")[0].rstrip(".")
    sites = {article.site: place for place, article in enumerate(market.ARTICLES)}
    if host in HOSTS:
        shop_state.visit(state, HOSTS[host])
    elif host in sites:
        st.push(state, "browser", "article", sites[host])
    elif host == "market.example":
        st.push(state, "browser", "shop")
    elif " " not in host and "." in host:
        st.push(state, "browser", "unreachable", host)
    else:
        return False
    return True


def unreachable(ui: Ui, host: str, area: tuple[float, float]) -> list[Node]:
    """What an unknown address shows."""
    y, theme = area[0] + 70, ui.theme
    return [
        ui.disc(WIDTH / 2 - 40, y, 80, "public", theme.tint, theme.on_tint),
        ui.text(30, y + 100, 300, 40, "This site can't be reached", 21, bold=True, align="c"),
        ui.text(
            30, y + 144, 300, 44, f"Check if there is a typo in {host}.", 15, theme.muted, align="c", lines=2
        ),
    ]


def offers(ui: Ui, query: str, y: float) -> tuple[list[Node], float]:
    """The shops that the search engine finds: those that `query` names, then those that sell it."""
    nodes: list[Node] = []
    asked = query.lower().split()
    for key, shop in SHOPS.items():
        if shop.name.lower() in asked or shop.host in asked:
            nodes.append(_offer(ui, y, shop, "site_" + key, shop.slogan, ("open", "home")))
            y += 84
    for key, shop in SHOPS.items():
        found = len(goods.exact(key, query))
        if found:
            note = f"{found} product{'' if found == 1 else 's'} at {shop.host}"
            nodes.append(_offer(ui, y, shop, "offer_" + key, note, ("query", query)))
            y += 84
    return nodes, y


def _offer(ui: Ui, y: float, shop: Shop, rid: str, note: str, event: Sequence[str]) -> Node:
    lead = ui.disc(widgets.MARGIN + 14, y + 14, 44, shop.icon, shop.light.brand)
    tap = ("browser", "site", shop.key, *event)
    return widgets.row(ui, y, shop.name, note, lead=lead, tap=tap, rid=rid)


def suggestions(ui: Ui, area: tuple[float, float], above: bool) -> list[Node]:
    """Shops whose address starts with the typed text, next to the address bar: below it, or `above` it."""
    typed = st.text(ui.state, ADDRESS).lower().removeprefix("www.")
    found = [shop for shop in SHOPS.values() if typed and shop.host.startswith(typed)][:3]
    height = 56.0 * len(found)
    top = area[1] - height if above else area[0]
    rows = []
    for place, shop in enumerate(found):
        y = top + 56 * place
        mark = image(20, y, 28, 56, "public", 22, ui.theme.muted)
        label = ui.text(64, y, 270, 56, shop.host, 16)
        tap = ("browser", "site", shop.key, "open", "home")
        rid = "suggested_" + shop.key
        rows.append(group(0, y, WIDTH, 56, rid, (mark, label), shop.host, tap))
    if not rows:
        return []
    return [group(0, top, WIDTH, height, "suggestions", rows, fill=ui.theme.card, shadow=3)]


def _web_check(state: State, params: Params) -> bool:
    at = st.page(state, "browser")
    asked = at[0] == "results" and market.words(str(at[1])) == market.words(params["query"])
    return bool(asked and state["front"] == "browser")


def _web_step(expert: Expert, params: Params) -> Action:
    state = expert.state
    if expert.page("browser")[0] not in ("root", "results"):
        return BACK
    if state["focus"] != "browser.query":
        return expert.tap("search_field")  # which empties it
    return expert.write("search_field", "browser.query", params["query"]) or ENTER


TEMPLATES: dict[str, Template] = {
    "web_search": everyday("browser", {"query": str}, fresh, _web_check, _web_step)
}
FAMILIES = (Family("web_search", {"query": "query"}),)
