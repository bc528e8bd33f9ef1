"""A shop's state and what its events do to it: results, options, cart, wish list, checkout, pop-ups.

state["apps"]["browser"]["web"]    what a browser with the whole web has: "sites", the shops on its start page
                                   in order, and "shops", the data of each shop (see `fresh`)
pages of the browser               ["site", shop, "home" | "results" | "product", id | "cart" | ...]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from distrl.simulator.apps.base import Args
from distrl.simulator.apps.webshop import goods
from distrl.simulator.apps.webshop.goods import PRODUCTS, Product
from distrl.simulator.apps.webshop.shops import SHOPS
from distrl.simulator.phone import state as st
from distrl.simulator.phone.state import State

QUERY = "web.query"
"""The text field in which a shop is searched."""
MAX_ITEMS = 12
"""Most different things in a cart or on a wish list."""
MAX_COUNT = 5
"""Most pieces of one thing."""
DELIVERIES = {"standard": "Standard", "express": "Express", "pickup": "Pick up in store"}
Item = dict[str, Any]
"""Something in a cart: "id" of the product, "color", "size" ("" if it has none) and "count"."""


def fresh() -> State:
    """A shop's data before the first visit.

    query, category, brand, band, sort    what its results are of, see `goods.find`
    panel                                 the sheet that is open, "" for none
    choice                                what is chosen on the product page, with the product's id
    cart, wish                            `Item`s; ids of products
    delivery, orders                      what is chosen at the checkout; how many orders were placed
    cookies, letter, banner               whether it asks about cookies, has a newsletter, advertises its app
    sold_out, ads                         ids of products that are sold out, and of those it advertises
    """
    return {
        "query": "",
        "category": "",
        "brand": "",
        "band": "",
        "sort": "best",
        "panel": "",
        "choice": {},
        "cart": [],
        "wish": [],
        "delivery": "standard",
        "orders": 0,
        "cookies": False,
        "letter": False,
        "banner": False,
        "sold_out": [],
        "ads": [],
    }


def web(sites: Iterable[str] = tuple(SHOPS)) -> State:
    """The web of a browser with `sites` on its start page; every shop can be reached by its address."""
    return {"sites": list(sites), "shops": {key: fresh() for key in SHOPS}}


def data(state: State, key: str) -> State:
    """The data of shop `key`."""
    found: State = state["apps"]["browser"]["web"]["shops"][key]
    return found


def found(shop: State, key: str) -> tuple[Product, ...]:
    """The results that shop `key` shows now."""
    return goods.find(key, shop["query"], shop["category"], shop["brand"], shop["band"], shop["sort"])


def choice(shop: State, key: str, product: Product) -> Item:
    """What is chosen on the page of `product`: an `Item`, whose colour and size may be open ("")."""
    if shop["choice"].get("id") == product.id:
        chosen: Item = shop["choice"]
        return chosen
    return default(product) | ({"color": "", "size": ""} if SHOPS[key].asks else {})


def missing(item: Item) -> str:
    """What must be chosen before `item` can be bought: "colour", the name of its size, or ""."""
    if not item["color"]:
        return "colour"
    kind = PRODUCTS[item["id"]].kind
    return kind.ask.lower() if kind.sizes and not item["size"] else ""


def total(shop: State) -> int:
    """The price of the cart in cents."""
    return sum(PRODUCTS[item["id"]].price * item["count"] for item in shop["cart"])


def pieces(shop: State) -> int:
    """How many pieces are in the cart."""
    return sum(item["count"] for item in shop["cart"])


def visit(state: State, key: str, page: str = "home", *args: str | int) -> None:
    """Opens a page of shop `key` on top of the present one."""
    data(state, key)["panel"] = ""
    st.push(state, "browser", "site", key, page, *args)


def show_results(state: State, key: str, query: str = "", category: str = "") -> None:
    """Shows what shop `key` has for a query or in a category, in place of earlier results."""
    shop = data(state, key)
    shop.update(query=query, category=category, brand="", band="", sort="best")
    state["fields"].pop(QUERY, None)
    if st.page(state, "browser")[:3] in (["site", key, "results"], ["site", key, "search"]):
        st.pop(state, "browser")
    visit(state, key, "results")


def close(state: State) -> bool:
    """Closes the panel that is open over the present page; False if none is."""
    page = st.page(state, "browser")
    if page[0] != "site" or not data(state, str(page[1]))["panel"]:
        return False
    data(state, str(page[1]))["panel"] = ""
    return True


def act(state: State, key: str, verb: str, args: Args) -> None:
    """Applies an event of shop `key`."""
    shop = data(state, key)
    if verb == "open":
        visit(state, key, str(args[0]), *args[1:])
        if args[0] == "search":
            st.focus(state, QUERY)
    elif verb == "category":
        show_results(state, key, category=str(args[0]))
    elif verb == "query":
        show_results(state, key, query=str(args[0]))
    elif verb == "panel":
        shop["panel"] = str(args[0])
    elif verb in ("sort", "brand", "band"):
        _narrow(state, shop, verb, str(args[0]))
    elif verb in ("color", "size", "count"):
        _choose(shop, key, PRODUCTS[int(args[0])], verb, args[1])
    elif verb in ("add", "quick", "amount", "remove"):
        _fill(state, key, verb, args)
    elif verb == "wish":
        _save(state, key, int(args[0]))
    elif verb == "delivery":
        shop["delivery"] = str(args[0])
    elif verb == "order":
        shop.update(cart=[], orders=shop["orders"] + 1)
        st.reset(state, "browser", ["site", key, "home"], ["site", key, "thanks"])
    elif verb in ("cookies", "letter", "banner"):
        shop[verb] = False
    elif verb == "say":
        state["toast"] = str(args[0])


def _narrow(state: State, shop: State, what: str, value: str) -> None:
    """Sorts or filters the results; choosing a filter that is set takes it away."""
    shop[what] = "" if what != "sort" and shop[what] == value else value
    if shop["panel"] != "filter":
        shop["panel"] = ""
    state["scrolls"].pop("web.results", None)


def _choose(shop: State, key: str, product: Product, what: str, value: str | int) -> None:
    item = dict(choice(shop, key, product))
    item[what] = min(MAX_COUNT, max(1, int(value))) if what == "count" else value
    shop["choice"], shop["panel"] = item, ""


def _fill(state: State, key: str, verb: str, args: Args) -> None:
    """Changes the cart: "add" and "quick" a product, "amount" and "remove" of a place."""
    shop, place = data(state, key), int(args[0])
    if verb == "remove":
        shop["cart"].pop(place)
        return
    if verb == "amount":
        shop["cart"][place]["count"] = min(MAX_COUNT, max(1, int(args[1])))
        return
    product = PRODUCTS[place]
    item = dict(choice(shop, key, product)) if verb == "add" else default(product)
    if lacking := missing(item):
        state["toast"] = f"Please choose a {lacking}"
        return
    if verb == "quick":
        shop["choice"] = {}
    state["toast"] = f"Added to your {SHOPS[key].cart.lower()}"
    same = [other for other in shop["cart"] if {**other, "count": 0} == {**item, "count": 0}]
    if same:
        same[0]["count"] = min(MAX_COUNT, same[0]["count"] + item["count"])
    elif len(shop["cart"]) < MAX_ITEMS:
        shop["cart"].append(item)
    else:
        state["toast"] = f"Your {SHOPS[key].cart.lower()} is full"


def default(product: Product) -> Item:
    """One piece with the first of each option."""
    size = product.kind.sizes[0] if product.kind.sizes else ""
    return {"id": product.id, "color": product.colors[0], "size": size, "count": 1}


def _save(state: State, key: str, number: int) -> None:
    wish, name = data(state, key)["wish"], SHOPS[key].wish
    if number in wish:
        wish.remove(number)
        state["toast"] = f"Removed from {name.lower()}"
    elif len(wish) < MAX_ITEMS:
        wish.append(number)
        state["toast"] = f"Saved to {name.lower()}"
