"""The browser of a phone with the whole web: its start page, its search engine, and where addresses lead."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.simulator.apps import catalog
from distrl.simulator.apps.web import search, store
from distrl.simulator.apps.web.shops import HOSTS, SHOPS, Shop
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Event, Node
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import Ui

ADDRESS = "browser.address"
"""The text field in the address bar."""
_OTHERS: tuple[tuple[str, str, str, Event], ...] = (
    ("Market", "storefront", "#e8710a", ("browser", "shop")),
    ("News", "newspaper", "#3949ab", ("browser", "article", 2)),
    ("Travel", "flight_takeoff", "#0b8f83", ("browser", "article", 1)),
    ("Recipes", "restaurant", "#7b51d3", ("browser", "article", 6)),
)
"""Sites of the start page that are no shops with pages of their own."""


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
    """Opens what `text` is the address of; False if it is no address but something to search for."""
    address = text.lower().removeprefix("https://").removeprefix("http://").removeprefix("www.")
    host = address.split("/")[0].rstrip(".")
    sites = {article.site: place for place, article in enumerate(catalog.ARTICLES)}
    if host in HOSTS:
        store.visit(state, HOSTS[host])
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
    """What the search engine knows of the shops: those that `query` names, then those that have it."""
    nodes: list[Node] = []
    asked = query.lower().split()
    for key, shop in SHOPS.items():
        if shop.name.lower() in asked or shop.host in asked:
            nodes.append(_offer(ui, y, shop, "site_" + key, shop.slogan, ("open", "home")))
            y += 84
    for key, shop in SHOPS.items():
        found = len(search.exact(key, query))
        if found:
            note = f"{found} product{'' if found == 1 else 's'} at {shop.host}"
            nodes.append(_offer(ui, y, shop, "offer_" + key, note, ("query", query)))
            y += 84
    return nodes, y


def _offer(ui: Ui, y: float, shop: Shop, rid: str, note: str, event: Sequence[str]) -> Node:
    lead = ui.disc(widgets.MARGIN + 14, y + 14, 44, shop.icon, shop.light.brand)
    tap = ("browser", "site", shop.key, *event)
    return widgets.row(ui, y, shop.name, note, lead=lead, tap=tap, rid=rid, fill=ui.theme.card)


def suggestions(ui: Ui, area: tuple[float, float], above: bool) -> list[Node]:
    """Shops whose address goes on as what is typed, next to the address bar: below it, or `above` it."""
    typed = st.text(ui.state, ADDRESS).lower().removeprefix("www.")
    found = [shop for shop in SHOPS.values() if typed and shop.host.startswith(typed)][:3]
    height = 56.0 * len(found)
    top = area[1] - height if above else area[0]
    rows = []
    for place, shop in enumerate(found):
        y = top + 56 * place
        mark = Node(20, y, 28, 56, "widget.ImageView", icon="public", icon_size=22, color=ui.theme.muted)
        label = ui.text(64, y, 270, 56, shop.host, 16)
        tap = ("browser", "site", shop.key, "open", "home")
        rid = "suggested_" + shop.key
        rows.append(
            Node(0, y, WIDTH, 56, "view.ViewGroup", rid, desc=shop.host, tap=tap, children=(mark, label))
        )
    if not rows:
        return []
    return [
        Node(
            0,
            top,
            WIDTH,
            height,
            "view.ViewGroup",
            "suggestions",
            fill=ui.theme.card,
            shadow=3,
            children=tuple(rows),
        )
    ]
