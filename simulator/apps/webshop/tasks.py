"""The web shops' templates, in three levels of difficulty; the level is in a template's name and parameters.

1   go to a shop, and search there or open a category
2   as 1, and select a result, sort or filter the results
3   as 2, and add to the cart with options and quantity, change the cart, check out, save for later

The seed chooses which shops the browser's start page shows and what interferes: cookie questions,
newsletters, app banners, advertised results, products that are sold out (never those of the task).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

from distrl.core.actions import Action
from distrl.core.errors import TaskError
from distrl.simulator.apps import browser
from distrl.simulator.apps.webshop import goods, shop_state
from distrl.simulator.apps.webshop.goods import BANDS, BY_TITLE, PRODUCTS, SORTS, Product
from distrl.simulator.apps.webshop.shops import SHOPS, Shop
from distrl.simulator.phone import state as st
from distrl.simulator.phone.state import Page, State
from distrl.simulator.tasks.base import Check, May, Params, Template, where
from distrl.simulator.tasks.expert import BACK, COMPLETE, IMPOSSIBLE, SWIPE_DOWN, Expert

UNSORTED = {"sort": "best", "brand": "", "band": ""}
"""Results as a shop first shows them."""
_MARKS = {
    "count": ("more", "less"),
    "add": ("add_to_cart",),
    "save": ("save_product",),
    "reviews": ("all_reviews",),
}
"""Elements by which sections of a product page are known."""


class Shopper:
    """The expert in shop `key`."""

    def __init__(self, expert: Expert, key: str) -> None:
        self.expert, self.key, self.shop = expert, key, SHOPS[key]
        self.state: State = expert.state
        self.data = shop_state.data(self.state, key)

    @property
    def page(self) -> Page:
        """The browser's page."""
        return st.page(self.state, "browser")

    def is_at(self, name: str, *args: str | int) -> bool:
        """Whether this page of the shop is in front."""
        return self.state["front"] == "browser" and self.page == ["site", self.key, name, *args]

    def enter(self) -> Action | None:
        """Goes to the shop, by its tile on the start page or by its address, and clears the view."""
        if (step := self.expert.open("browser")) is not None:
            return step
        focus = self.state["focus"]
        if self.page[:2] == ["site", self.key]:
            return BACK if focus not in ("", shop_state.QUERY) else self._unblock()
        if focus == browser.ADDRESS:
            return self.expert.type_and_enter(browser.ADDRESS, self.shop.host)
        if focus:
            return BACK
        tile = "site_" + self.shop.name.lower()
        return self.expert.tap(tile if self.expert.has(tile) else "address_bar")

    def _unblock(self) -> Action | None:
        """Answers what lies over the page: cookies, then the newsletter."""
        if self.state["focus"]:
            return None
        for question in ("cookies_accept", "letter_close"):
            if self.expert.has(question):
                return self.expert.tap(question)
        return None

    def home(self) -> Action | None:
        """Shows the shop's front page."""
        if (step := self.enter()) is not None:
            return step
        if self.is_at("home") and not self.state["focus"]:
            return BACK if self.data["panel"] else None
        return BACK if self.state["focus"] or self.data["panel"] else self.expert.tap("web_home")

    def browse(self, category: str) -> Action | None:
        """Shows the products of a category."""
        if (step := self.enter()) is not None:
            return step
        if self.is_at("results") and (self.data["query"], self.data["category"]) == ("", category):
            return None
        if self.state["focus"] or self.data["panel"] not in ("", "menu"):
            return BACK
        place = self.shop.categories.index(category)
        if self.data["panel"] == "menu":
            return self.expert.tap(f"menu_cat_{place}")
        if self.is_at("browse") or (self.is_at("home") and self.shop.header != "tabs"):
            return self.expert.tap(f"cat_{place}")
        return self.expert.tap("web_browse" if self.shop.header == "tabs" else "web_home")

    def search(self, query: str) -> Action | None:
        """Shows what the shop finds for a query."""
        if (step := self.enter()) is not None:
            return step
        if self.is_at("results") and self.data["query"].lower() == query.lower() and not self.state["focus"]:
            return None
        if self.state["focus"] == shop_state.QUERY:
            return self.expert.type_and_enter(shop_state.QUERY, query)
        if self.state["focus"] or self.data["panel"]:
            return BACK
        return self.expert.tap("web_search" if self.expert.has("web_search") else "open_search")

    def narrow(self, query: str, wanted: Mapping[str, str] = UNSORTED) -> Action | None:
        """Shows what the shop finds, in an order and narrowed as `wanted` says for sort, brand and band."""
        if (step := self.search(query)) is not None:
            return step
        for what, value in wanted.items():
            if self.data[what] != value:
                return self._set(what, value or self.data[what])
        panel = self.data["panel"]
        return self.expert.tap("apply" if panel == "filter" else "sheet_close") if panel else None

    def _set(self, what: str, value: str) -> Action:
        """Chooses an order or a filter; choosing the filter that is set takes it away."""
        panel, tools = self.data["panel"], self.shop.tools
        if what == "sort":
            sheet = "" if tools == "segments" else "sort"
        else:
            sheet = what if tools in ("chips", "line") else "filter"
        if panel == sheet:
            return self.expert.tap(f"{what}_{value}")
        return BACK if panel else self.expert.tap("open_" + sheet)

    def open(self, product: Product, query: str, wanted: Mapping[str, str] = UNSORTED) -> Action | None:
        """Opens a product from the results."""
        if self.is_at("product", product.id) and self.data["query"].lower() == query.lower():
            return self.enter() or (BACK if self.state["focus"] else None)
        return self.narrow(query, wanted) or self.expert.tap(f"product_{product.id}")

    def save(self, product: Product) -> Action | None:
        """Puts a product on the wish list."""
        if product.id in self.data["wish"]:
            return None
        if (step := self.open(product, product.title)) is not None:
            return step
        return BACK if self.data["panel"] else self._tap("save", "save_product")

    def add(self, item: shop_state.Item, query: str) -> Action:
        """Puts an item into the cart from its product's page."""
        product = PRODUCTS[item["id"]]
        if (step := self.open(product, query)) is not None:
            return step
        chosen, panel = shop_state.choice(self.data, self.key, product), self.data["panel"]
        for what in (name for name in self.shop.sections if name in chosen):
            if chosen[what] != item[what]:
                return self._choose(what, item[what], chosen[what])
        return BACK if panel else self._tap("add", "add_to_cart")

    def _tap(self, section: str, rid: str) -> Action:
        """A tap on an element of the product page, which is scrolled up if only later sections show."""
        has, sections = self.expert.has, self.shop.sections
        if not has(rid) and section in sections:
            later = sections[sections.index(section) + 1 :]
            if any(has(mark) for name in later for mark in _MARKS.get(name, ())):
                return SWIPE_DOWN
        return self.expert.tap(rid)

    def _choose(self, what: str, value: str | int, now: str | int) -> Action:
        style = self.shop.quantity if what == "count" else self.shop.options
        panel = self.data["panel"]
        if style == "stepper":
            return BACK if panel else self._tap(what, "more" if int(now) < int(value) else "less")
        if panel == what or (not panel and style != "menu"):
            return self._tap(what, f"{what}_{str(value).replace(' ', '_')}")
        return BACK if panel else self._tap(what, "choose_" + what)

    def fill(
        self, wanted: Sequence[shop_state.Item], query: str = "", unnamed: Container[str] = ()
    ) -> Action | None:
        """Makes the cart hold `wanted` and nothing else.

        Args:
            query: What finds the products that are missing; "" is their titles.
            unnamed: Titles that the goal does not have: such a product cannot be found again.
        """
        cart = self.data["cart"]
        for place, item in enumerate(cart):
            like = [other for other in wanted if same(other, item)]
            if not like or like[0]["count"] != item["count"]:
                return self._mend(place, like[0]["count"] - item["count"] if like else 0)
        for item in wanted:
            if not any(same(item, other) for other in cart):
                title = PRODUCTS[item["id"]].title
                return IMPOSSIBLE if title in unnamed else self.add(item, query or title)
        return None

    def cart(self) -> Action | None:
        """Shows the cart."""
        if (step := self.enter()) is not None:
            return step
        if self.state["focus"] or self.data["panel"]:
            return BACK
        return None if self.is_at("cart") else self.expert.tap("web_cart")

    def _mend(self, place: int, change: int) -> Action:
        """Changes how many pieces there are of something in the cart; 0 removes it."""
        if (step := self.cart()) is not None:
            return step
        name = "more" if change > 0 else ("less" if change else "remove")
        return self.expert.tap(f"{name}_{place}")

    def check_out(self, delivery: str) -> Action | None:
        """Goes through the checkout to its last page."""
        if (step := self.enter()) is not None:
            return step
        pages, name = self.shop.checkout, str(self.page[2])
        if name not in pages:
            return self.cart() or self.expert.tap("checkout")
        if self.state["focus"] or self.data["panel"]:
            return BACK
        if self.data["delivery"] != delivery:
            return self.expert.tap("delivery_" + delivery) if name == "delivery" else self._to_delivery(name)
        return None if name == pages[-1] else self.expert.tap("continue")

    def _to_delivery(self, name: str) -> Action:
        pages = self.shop.checkout
        return self.expert.tap("continue") if pages.index(name) < pages.index("delivery") else BACK


def same(one: shop_state.Item, other: shop_state.Item) -> bool:
    """Whether two items are the same thing, however many of it."""
    return all(one[what] == other[what] for what in ("id", "color", "size"))


Way = Callable[[Shopper, Params], "Action | None"]
"""What to do now, or None once there is nothing left to do."""


def items(listed: Iterable[dict[str, Any]]) -> list[shop_state.Item]:
    """A cart as parameters have it, by titles, as a shop's data have it; without options it has `default`."""
    return [
        shop_state.default(BY_TITLE[entry["product"]])
        | {key: entry[key] for key in ("color", "size", "count") if key in entry}
        for entry in listed
    ]


def _start(state: State, params: Params, rng: random.Random) -> None:
    """The web, with what interferes; tasks of level 3 have their shop on the start page."""
    _refuse_nonsense(params)
    key = params["shop"]
    sites = rng.sample(sorted(SHOPS), rng.randint(2, 4))
    if params["level"] == 3 and key not in sites:
        sites[0] = key
    web = shop_state.web(sites)
    state["apps"]["browser"]["web"] = web
    kept = _wanted(params)
    for name, shop in web["shops"].items():
        shop["cookies"], shop["letter"], shop["banner"] = (rng.random() < p for p in (0.45, 0.3, 0.25))
        others = [product.id for product in goods.assortment(name) if product not in kept]
        shop["sold_out"] = rng.sample(others, len(others) // 20)
        shop["ads"] = rng.sample(others, 1) if rng.random() < 0.6 else []
    web["shops"][key]["cart"] = items(params.get("cart", ()))


def _refuse_nonsense(params: Params) -> None:
    shop = SHOPS[params["shop"]]
    wrong = ""
    if params.get("category", shop.categories[0]) not in shop.categories:
        wrong = f"no category {params['category']!r}"
    elif "query" in params and len(goods.find(shop.key, params["query"])) < params.get("rank", 1):
        wrong = f"not enough results for {params['query']!r}"
    elif "brand" in params and not goods.find(shop.key, params["query"], "", params["brand"], params["band"]):
        wrong = "no result with that brand and price"
    for entry in params.get("cart", ()) or ([params] if "product" in params else []):
        wrong = wrong or _fault(shop, entry)
    if wrong:
        raise TaskError(
            f"the shop {shop.key!r} has {wrong}.", "Correct the task's params; see simulator/docs/webshop.md."
        )


def _fault(shop: Shop, entry: dict[str, Any]) -> str:
    product = BY_TITLE.get(entry.get("product", ""))
    if product is None or product.kind.category not in shop.categories:
        return f"no product {entry.get('product')!r}"
    if entry.get("color", product.colors[0]) not in product.colors:
        return f"no {product.title} in {entry['color']!r}"
    sizes = product.kind.sizes or ("",)
    return "" if entry.get("size", sizes[0]) in sizes else f"no {product.title} of size {entry['size']!r}"


def _wanted(params: Params) -> set[Product]:
    titles = [entry["product"] for entry in params.get("cart", ())]
    if "product" in params:
        titles.append(params["product"])
    found = goods.find(params["shop"], params["query"]) if "query" in params else ()
    return {BY_TITLE[title] for title in titles} | set(found)


def _page(state: State, params: Params) -> list[Any]:
    """The page of the task's shop that is in front, [] if it is another site or app."""
    page = st.page(state, "browser")
    return page[2:] if state["front"] == "browser" and page[:2] == ["site", params["shop"]] else []


def _data(state: State, params: Params) -> State:
    return shop_state.data(state, params["shop"])


def _asked(state: State, params: Params) -> bool:
    """Whether the shop was searched for the task's query."""
    words: list[str] = _data(state, params)["query"].lower().split()
    return words == str(params["query"]).lower().split()


def _narrowed(state: State, params: Params) -> bool:
    """Whether the results of the query are shown, in the order and narrowed as the task says."""
    data = _data(state, params)
    shown = _page(state, params) == ["results"] and not data["panel"] and _asked(state, params)
    return shown and all(data[what] == params.get(what, data[what]) for what in UNSORTED)


def _found(params: Params) -> Product:
    """The result that the task names: by default the first, in the shop's own order."""
    rank: int = params.get("rank", 1)
    return goods.find(params["shop"], params["query"], sort=params.get("sort", "best"))[rank - 1]


def _opened(state: State, params: Params) -> bool:
    """Whether that result is open."""
    return _page(state, params) == ["product", _found(params).id] and _asked(state, params)


def _browse(state: State, params: Params) -> bool:
    data = _data(state, params)
    shown = [data["query"], data["category"]] == ["", params["category"]]
    return shown and _page(state, params) == ["results"]


def _holds(state: State, params: Params, wanted: list[shop_state.Item]) -> bool:
    """Whether the cart holds `wanted` and nothing else, in any order."""
    cart = _data(state, params)["cart"]
    return len(cart) == len(wanted) and all(item in cart for item in wanted)


def _first(state: State, params: Params) -> bool:
    """One piece of the first result, in any colour and size."""
    cart = _data(state, params)["cart"]
    return [(item["id"], item["count"]) for item in cart] == [(_found(params).id, 1)]


def changed(params: Params) -> list[shop_state.Item]:
    """The cart as the task wants it: `product` in it `count` times (0: not at all), the rest as it is."""
    number = BY_TITLE[params["product"]].id
    cart = [
        {**item, "count": params["count"]} if item["id"] == number else item for item in items(params["cart"])
    ]
    return [item for item in cart if item["count"]]


def _titles(params: Params) -> set[str]:
    return {entry["product"] for entry in params["cart"]}


def _checkout(state: State, params: Params) -> bool:
    data = _data(state, params)
    here = _page(state, params) == ["review"] and data["delivery"] == params["delivery"]
    return here and _holds(state, params, items(params["cart"]))


def _order(params: Params) -> dict[str, str]:
    return {what: params.get(what, value) for what, value in UNSORTED.items()}


def _go_narrow(shopper: Shopper, params: Params) -> Action | None:
    return shopper.narrow(params["query"], _order(params))


def _go_open(shopper: Shopper, params: Params) -> Action | None:
    return shopper.open(_found(params), params["query"], _order(params))


def _go_first(shopper: Shopper, params: Params) -> Action | None:
    product = _found(params)
    there = [item for item in shopper.data["cart"] if item["id"] == product.id][:1]
    wanted = [{**item, "count": 1} for item in there] or [shop_state.default(product)]
    return shopper.fill(wanted, params["query"])


def _go_checkout(shopper: Shopper, params: Params) -> Action | None:
    cart = items(params["cart"])
    return shopper.fill(cart, unnamed=_titles(params)) or shopper.check_out(params["delivery"])


def _template(
    level: int, needs: dict[str, type], check: Check, go: Way, may: tuple[May, ...] = (), **choices: Any
) -> Template:
    """A template whose expert goes `go` until the check passes."""

    def act(expert: Expert, params: Params) -> Action:
        if check(expert.state, params):
            return COMPLETE
        return go(Shopper(expert, params["shop"]), params) or IMPOSSIBLE

    return Template(
        {"level": int, "shop": str, **needs},
        _start,
        check,
        act,
        choices={"level": (level,), "shop": SHOPS, **choices},
        app="browser",
        may=may,
    )


_CART = (May("browser.web.shops.{shop}.cart"),)
_IS_WANTED = where(lambda number, params: number == BY_TITLE[params["product"]].id)
_WISH = (May("browser.web.shops.{shop}.wish", _IS_WANTED),)
_TITLES = {"product": BY_TITLE}
_COUNTS = range(1, shop_state.MAX_COUNT + 1)
TEMPLATES: dict[str, Template] = {
    "webshop1_visit": _template(
        1, {}, lambda state, params: _page(state, params) == ["home"], lambda shopper, params: shopper.home()
    ),
    "webshop1_search": _template(
        1, {"query": str}, _narrowed, lambda shopper, params: shopper.search(params["query"])
    ),
    "webshop1_browse": _template(
        1,
        {"category": str},
        _browse,
        lambda shopper, params: shopper.browse(params["category"]),
        category={product.kind.category for product in PRODUCTS},
    ),
    "webshop2_select": _template(2, {"query": str, "rank": int}, _opened, _go_open, rank=(1, 2, 3)),
    "webshop2_sort": _template(2, {"query": str, "sort": str}, _narrowed, _go_narrow, sort=SORTS),
    "webshop2_filter": _template(
        2, {"query": str, "brand": str, "band": str}, _narrowed, _go_narrow, band=("", *BANDS)
    ),
    "webshop2_best": _template(2, {"query": str, "sort": str}, _opened, _go_open, sort=SORTS),
    "webshop3_add": _template(
        3,
        {"product": str, "color": str, "size": str, "count": int},
        lambda state, params: _holds(state, params, items([params])),
        lambda shopper, params: shopper.fill(items([params])),
        _CART,
        count=_COUNTS,
        **_TITLES,
    ),
    "webshop3_first": _template(3, {"query": str}, _first, _go_first, _CART),
    "webshop3_cart": _template(
        3,
        {"cart": list, "product": str, "count": int},
        lambda state, params: _holds(state, params, changed(params)),
        lambda shopper, params: shopper.fill(changed(params), unnamed=_titles(params) - {params["product"]}),
        _CART,
        count=(0, *_COUNTS),
        **_TITLES,
    ),
    "webshop3_checkout": _template(
        3, {"cart": list, "delivery": str}, _checkout, _go_checkout, delivery=shop_state.DELIVERIES
    ),
    "webshop3_save": _template(
        3,
        {"product": str},
        lambda state, params: BY_TITLE[params["product"]].id in _data(state, params)["wish"],
        lambda shopper, params: shopper.save(BY_TITLE[params["product"]]),
        _WISH,
        **_TITLES,
    ),
}
