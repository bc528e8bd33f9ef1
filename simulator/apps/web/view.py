"""A shop's page, put together: ground, page, header, app banner, and what lies over it all."""

from __future__ import annotations

from dataclasses import replace

from distrl.simulator.apps.web import cart, home, listing, panels, product, store
from distrl.simulator.apps.web.header import Area, header
from distrl.simulator.apps.web.kit import Site
from distrl.simulator.apps.web.shops import SHOPS
from distrl.simulator.phone.nodes import WIDTH, Node
from distrl.simulator.phone.state import Page
from distrl.simulator.phone.ui import Ui


def view(ui: Ui, page: Page, area: Area) -> list[Node]:
    """The page ["site", shop, name, ...] in `area` (top and bottom in dp)."""
    key = str(page[1])
    whole = Site(ui, SHOPS[key], store.data(ui.state, key), *area)
    free = panels.beside_cookies(whole)
    praise = panels.banner(free)
    site = replace(free, top=free.top + panels.BANNER_H) if praise else free
    head, inner = header(site)
    ground = Node(0, area[0], WIDTH, area[1] - area[0], "view.View", "web_page", fill=site.colors.bg)
    return [ground, *_page(site, page, inner), *head, *praise, *panels.over(free), *panels.cookies(whole)]


def _page(site: Site, page: Page, area: Area) -> list[Node]:
    name = str(page[2])
    if name == "home":
        return home.home(site, area)
    if name == "browse":
        return home.browse(site, area)
    if name == "search":
        return home.search_page(site, area)
    if name == "results":
        return listing.results(site, area)
    if name == "product":
        return product.product(site, area, int(page[3]))
    if name == "reviews":
        return product.reviews(site, area, int(page[3]))
    if name == "cart":
        return cart.cart(site, area)
    if name == "wish":
        return cart.wish(site, area)
    if name == "thanks":
        return cart.thanks(site, area)
    return cart.checkout(site, area, name)
