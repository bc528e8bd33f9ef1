"""The web shops' templates, in three levels of difficulty; the level is in a template's name and parameters.

1   go to a shop, and search there or open a category
2   besides, select a result, sort or filter the results
3   besides, add to the cart with options and quantity, change the cart, check out, save for later

The seed chooses which shops the browser's start page shows and what gets in the way: cookie questions,
newsletters, app banners, advertised results, products that are sold out (never those of the task).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from distrl.core.actions import Action
from distrl.core.errors import TaskError
from distrl.simulator.apps.web import search, store
from distrl.simulator.apps.web.goods import BY_TITLE, PRODUCTS, Product
from distrl.simulator.apps.web.search import BANDS, SORTS
from distrl.simulator.apps.web.shops import SHOPS, Shop
from distrl.simulator.phone import state as st
from distrl.simulator.phone.hand import COMPLETE, IMPOSSIBLE, Hand
from distrl.simulator.phone.keeping import May, where
from distrl.simulator.phone.state import State
from distrl.simulator.tasks.base import Params, Template
from distrl.simulator.tasks.shopper import Shopper

Check = Callable[[State, Params], bool]
Way = Callable[[Shopper, Params], "Action | None"]
"""What to do now, or None once there is nothing left to do."""


def items(listed: Iterable[dict[str, Any]]) -> list[store.Item]:
    """A cart as parameters have it, by titles, as a shop's data have it, by ids."""
    return [
        {"id": BY_TITLE[entry["product"]].id, **{key: entry[key] for key in ("color", "size", "count")}}
        for entry in listed
    ]


def _start(state: State, params: Params, rng: random.Random) -> None:
    """The web, with what gets in the way; tasks of level 3 have their shop on the start page."""
    _refuse_nonsense(params)
    key = params["shop"]
    sites = rng.sample(sorted(SHOPS), rng.randint(2, 4))
    if params["level"] == 3 and key not in sites:
        sites[0] = key
    web = store.web(sites)
    state["apps"]["browser"]["web"] = web
    kept = _wanted(params)
    for name, shop in web["shops"].items():
        shop["cookies"], shop["letter"], shop["banner"] = (rng.random() < p for p in (0.45, 0.3, 0.25))
        others = [product.id for product in search.assortment(name) if product not in kept]
        shop["sold_out"] = rng.sample(others, len(others) // 20)
        shop["ads"] = rng.sample(others, 1) if rng.random() < 0.6 else []
    web["shops"][key]["cart"] = items(params.get("cart", ()))


def _refuse_nonsense(params: Params) -> None:
    """Raises TaskError if the shop has not what the parameters ask for."""
    shop = SHOPS[params["shop"]]
    wrong = ""
    if params.get("category", shop.categories[0]) not in shop.categories:
        wrong = f"no category {params['category']!r}"
    elif "query" in params and len(search.find(shop.key, params["query"])) < params.get("rank", 1):
        wrong = f"not enough results for {params['query']!r}"
    elif "brand" in params and not search.find(
        shop.key, params["query"], "", params["brand"], params["band"]
    ):
        wrong = "no result with that brand and price"
    for entry in params.get("cart", ()) or ([params] if "product" in params else []):
        wrong = wrong or _fault(shop, entry)
    if wrong:
        raise TaskError(
            f"the shop {shop.key!r} has {wrong}.", "Correct the task's params; see simulator/docs/webshop.md."
        )


def _fault(shop: Shop, entry: dict[str, Any]) -> str:
    """What is wrong with an entry of a cart, or with a product to buy."""
    product = BY_TITLE.get(entry.get("product", ""))
    if product is None or product.kind.category not in shop.categories:
        return f"no product {entry.get('product')!r}"
    if entry.get("color", product.colors[0]) not in product.colors:
        return f"no {product.title} in {entry['color']!r}"
    sizes = product.kind.sizes or ("",)
    return "" if entry.get("size", sizes[0]) in sizes else f"no {product.title} of size {entry['size']!r}"


def _wanted(params: Params) -> set[Product]:
    """The products that a task is about."""
    titles = [entry["product"] for entry in params.get("cart", ())]
    if "product" in params:
        titles.append(params["product"])
    found = search.find(params["shop"], params["query"]) if "query" in params else ()
    return {BY_TITLE[title] for title in titles} | set(found)


def _page(state: State, params: Params) -> list[Any]:
    """The page of the task's shop that is in front, [] if it is another site or app."""
    page = st.page(state, "browser")
    return page[2:] if state["front"] == "browser" and page[:2] == ["site", params["shop"]] else []


def _data(state: State, params: Params) -> State:
    return store.data(state, params["shop"])


def _asked(state: State, params: Params) -> bool:
    """Whether the shop was searched for the task's query."""
    words: list[str] = _data(state, params)["query"].lower().split()
    return words == str(params["query"]).lower().split()


def _narrowed(state: State, params: Params, **wanted: str) -> bool:
    """Whether the results of the query are shown, in the order and narrowed as `wanted`."""
    data = _data(state, params)
    shown = _page(state, params) == ["results"] and _asked(state, params)
    return shown and all(data[what] == value for what, value in wanted.items())


def _opened(state: State, params: Params, rank: int, sort: str) -> bool:
    """Whether the product is open that is at `rank` (from 1) of the results in the order `sort`."""
    product = search.find(params["shop"], params["query"], sort=sort)[rank - 1]
    return _page(state, params) == ["product", product.id] and _asked(state, params)


def _visit(state: State, params: Params) -> bool:
    return _page(state, params) == ["home"]


def _search(state: State, params: Params) -> bool:
    return _narrowed(state, params)


def _browse(state: State, params: Params) -> bool:
    data = _data(state, params)
    shown = [data["query"], data["category"]] == ["", params["category"]]
    return shown and _page(state, params) == ["results"]


def _select(state: State, params: Params) -> bool:
    return _opened(state, params, params["rank"], "best")


def _sort(state: State, params: Params) -> bool:
    return _narrowed(state, params, sort=params["sort"])


def _filter(state: State, params: Params) -> bool:
    return _narrowed(state, params, brand=params["brand"], band=params["band"])


def _best(state: State, params: Params) -> bool:
    return _opened(state, params, 1, params["sort"])


def _holds(state: State, params: Params, wanted: list[store.Item]) -> bool:
    """Whether the cart holds `wanted` and nothing else, in any order."""
    cart = _data(state, params)["cart"]
    return len(cart) == len(wanted) and all(item in cart for item in wanted)


def _one(params: Params) -> list[store.Item]:
    return items([params])


def _add(state: State, params: Params) -> bool:
    return _holds(state, params, _one(params))


def _first(state: State, params: Params) -> bool:
    """One piece of the first result, in any colour and size."""
    cart = _data(state, params)["cart"]
    product = search.find(params["shop"], params["query"])[0]
    return [(item["id"], item["count"]) for item in cart] == [(product.id, 1)]


def changed(params: Params) -> list[store.Item]:
    """The cart as the task wants it: `product` in it `count` times (0: not at all), the rest as it is."""
    number = BY_TITLE[params["product"]].id
    cart = [
        {**item, "count": params["count"]} if item["id"] == number else item for item in items(params["cart"])
    ]
    return [item for item in cart if item["count"]]


def _cart(state: State, params: Params) -> bool:
    return _holds(state, params, changed(params))


def _checkout(state: State, params: Params) -> bool:
    data = _data(state, params)
    here = _page(state, params) == ["review"] and data["delivery"] == params["delivery"]
    return here and _holds(state, params, items(params["cart"]))


def _save(state: State, params: Params) -> bool:
    return BY_TITLE[params["product"]].id in _data(state, params)["wish"]


def _go_select(shopper: Shopper, params: Params) -> Action | None:
    product = search.find(params["shop"], params["query"])[params["rank"] - 1]
    return shopper.open(product, params["query"])


def _go_narrow(shopper: Shopper, params: Params) -> Action | None:
    wanted = {what: params.get(what, "best" if what == "sort" else "") for what in ("sort", "brand", "band")}
    return shopper.narrow(params["query"], wanted)


def _go_best(shopper: Shopper, params: Params) -> Action | None:
    wanted = {"sort": params["sort"], "brand": "", "band": ""}
    product = search.find(params["shop"], params["query"], sort=params["sort"])[0]
    return shopper.open(product, params["query"], wanted)


def _go_first(shopper: Shopper, params: Params) -> Action | None:
    product = search.find(params["shop"], params["query"])[0]
    there = [item for item in shopper.data["cart"] if item["id"] == product.id][:1]
    wanted = [{**item, "count": 1} for item in there] or [store.default(product)]
    return shopper.fill(wanted, params["query"])


def _go_checkout(shopper: Shopper, params: Params) -> Action | None:
    way = shopper.fill(items(params["cart"]))
    return way if way is not None else shopper.check_out(params["delivery"])


def _template(
    level: int, needs: dict[str, type], check: Check, way: Way, may: tuple[May, ...] = (), **choices: Any
) -> Template:
    """A template whose expert goes `way` until the check passes."""

    def expert(hand: Hand, params: Params) -> Action:
        if check(hand.phone.state, params):
            return COMPLETE
        step = way(Shopper(hand, params["shop"]), params)
        return IMPOSSIBLE if step is None else step

    return Template(
        {"level": int, "shop": str, **needs},
        _start,
        check,
        expert,
        choices={"level": (level,), "shop": SHOPS, **choices},
        app="browser",
        may=may,
    )


def _is_wanted(number: int, params: Params) -> bool:
    return number == BY_TITLE[params["product"]].id


_CART = (May("browser.web.shops.{shop}.cart"),)
_WISH = (May("browser.web.shops.{shop}.wish", where(_is_wanted)),)
_TITLES = {"product": BY_TITLE}
_COUNTS = range(1, store.MAX_COUNT + 1)

TEMPLATES: dict[str, Template] = {
    "webshop1_visit": _template(1, {}, _visit, lambda shopper, params: shopper.home()),
    "webshop1_search": _template(
        1, {"query": str}, _search, lambda shopper, params: shopper.search(params["query"])
    ),
    "webshop1_browse": _template(
        1,
        {"category": str},
        _browse,
        lambda shopper, params: shopper.browse(params["category"]),
        category={product.kind.category for product in PRODUCTS},
    ),
    "webshop2_select": _template(2, {"query": str, "rank": int}, _select, _go_select, rank=(1, 2, 3)),
    "webshop2_sort": _template(2, {"query": str, "sort": str}, _sort, _go_narrow, sort=SORTS),
    "webshop2_filter": _template(
        2, {"query": str, "brand": str, "band": str}, _filter, _go_narrow, band=("", *BANDS)
    ),
    "webshop2_best": _template(2, {"query": str, "sort": str}, _best, _go_best, sort=SORTS),
    "webshop3_add": _template(
        3,
        {"product": str, "color": str, "size": str, "count": int},
        _add,
        lambda shopper, params: shopper.fill(_one(params)),
        _CART,
        count=_COUNTS,
        **_TITLES,
    ),
    "webshop3_first": _template(3, {"query": str}, _first, _go_first, _CART),
    "webshop3_cart": _template(
        3,
        {"cart": list, "product": str, "count": int},
        _cart,
        lambda shopper, params: shopper.fill(changed(params)),
        _CART,
        count=(0, *_COUNTS),
        **_TITLES,
    ),
    "webshop3_checkout": _template(
        3, {"cart": list, "delivery": str}, _checkout, _go_checkout, delivery=store.DELIVERIES
    ),
    "webshop3_save": _template(
        3,
        {"product": str},
        _save,
        lambda shopper, params: shopper.save(BY_TITLE[params["product"]]),
        _WISH,
        **_TITLES,
    ),
}
