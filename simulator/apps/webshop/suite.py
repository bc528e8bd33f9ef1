"""The suite of web shops, in three levels of difficulty.

What `test` holds out of `train` and `val`:

    products    one brand in six, and one in seven of the others' products
    queries     those with such a brand, and one in five of the others
    categories  of each shop one in four to five
    wordings    of every template
    visits      to open a shop and no more (`webshop1_visit`) is only trained on: there is nothing to hold out

`unseen_template` holds out templates too, `unseen_app` a shop, `unseen_layout` layouts of the phone. `val`,
for choosing among checkpoints, holds out of `train` products, queries and categories of its own, but no
brands; it has the wordings of `test`. What a task's seed decides is described in
`distrl.simulator.apps.webshop.tasks`.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from distrl.core.types import Task
from distrl.simulator.apps.webshop import goods, shop_state
from distrl.simulator.apps.webshop.goods import BANDS, BRANDS, BY_TITLE, SORTS, Product
from distrl.simulator.apps.webshop.shops import SHOPS
from distrl.simulator.phone.theme import TRAIN_LAYOUTS, UNSEEN_LAYOUTS
from distrl.simulator.tasks.base import Params, instance, suite_of
from distrl.simulator.tasks.wording import say

SUITE = "webshop"
DISJOINT = ("tasks", "goals", "params", "phrasings", "names")
"""What no evaluation split shares with `train`."""
MAX_STEPS = 20
SPLITS = {
    "train": 3000,
    "val": 60,
    "test": 400,
    "unseen_template": 400,
    "unseen_app": 400,
    "unseen_layout": 400,
}
"""Instances by split."""
WEIGHTS = {
    "webshop1_visit": 1,
    "webshop1_search": 10,
    "webshop1_browse": 4,
    "webshop2_select": 5,
    "webshop2_sort": 4,
    "webshop2_filter": 4,
    "webshop3_add": 7,
    "webshop3_cart": 3,
    "webshop3_checkout": 2,
}
"""How often each template comes; the digit in a template's name is its level."""
UNSEEN_TEMPLATES = {"webshop2_best": 1, "webshop3_first": 1, "webshop3_save": 1}
"""Those that are only measured, likewise: two combine what others train, the third is new."""
UNSEEN_SHOP = "trailoak"
"""The shop that is only measured."""
HELD_OUT_BRANDS = frozenset(brands[-1] for brands in BRANDS.values())
"""Brands that only `test` asks for."""


def level(template: str) -> int:
    """A template's level of difficulty, 1 to 3."""
    return int(template.removeprefix(SUITE)[0])


def _hash(text: str) -> int:
    return zlib.crc32(f"{SUITE}/{text}".encode())


def side(product: Product) -> str:
    """The split that a product belongs to."""
    bucket = _hash(product.title) % 14
    if product.brand in HELD_OUT_BRANDS or bucket < 2:
        return "test"
    return "val" if bucket == 2 else "train"


def query_side(query: str) -> str:
    """The split that a query belongs to."""
    bucket, held = _hash(query) % 10, {brand.lower() for brand in HELD_OUT_BRANDS}
    if held & set(query.split()) or bucket < 2:
        return "test"
    return "val" if bucket == 2 else "train"


@lru_cache(maxsize=64)
def queries(shop: str, split: str, least: int) -> tuple[str, ...]:
    """Queries of a split with `least` results or more: nouns; brands with a noun, a category or a line."""
    found: dict[str, None] = {}
    for product in goods.assortment(shop):
        brand, noun = product.brand.lower(), product.kind.noun
        short = product.kind.category.lower().split()[0]
        for query in (noun, f"{brand} {noun}", f"{brand} {short}", f"{brand} {product.line.lower()}"):
            found[query] = None
    return tuple(
        query for query in found if query_side(query) == split and len(goods.exact(shop, query)) >= least
    )


@lru_cache(maxsize=64)
def _products(shop: str, split: str) -> list[Product]:
    return [product for product in goods.assortment(shop) if side(product) == split]


def _item(rng: random.Random, product: Product, most: int = 3) -> Params:
    return {
        "product": product.title,
        "color": rng.choice(product.colors),
        "size": rng.choice(product.kind.sizes or ("",)),
        "count": rng.randint(1, most),
    }


@lru_cache(maxsize=64)
def _categories(shop: str, split: str) -> list[str]:
    """The categories of a shop that a split asks for: one in four or five for test, one for val."""
    listed = SHOPS[shop].categories
    order = random.Random(_hash(shop)).sample(listed, len(listed))
    test = len(order) // 4
    return {"test": order[:test], "val": order[test : test + 1], "train": order[test + 1 :]}[split]


def _visit(rng: random.Random, shop: str, split: str) -> Params:
    return {}


def _search(rng: random.Random, shop: str, split: str) -> Params:
    return {"query": rng.choice(queries(shop, split, 1))}


def _browse(rng: random.Random, shop: str, split: str) -> Params:
    return {"category": rng.choice(_categories(shop, split))}


def _select(rng: random.Random, shop: str, split: str) -> Params:
    rank = rng.choice((1, 1, 2, 3))
    return {"query": rng.choice(queries(shop, split, rank)), "rank": rank}


def _sort(rng: random.Random, shop: str, split: str) -> Params:
    return {"query": rng.choice(queries(shop, split, 2)), "sort": rng.choice(list(SORTS)[1:])}


def _filter(rng: random.Random, shop: str, split: str) -> Params:
    """Results of one brand, in one range of prices, or both, of which there are some but not all."""
    while True:
        query = rng.choice(queries(shop, split, 4))
        found = goods.find(shop, query)
        brands = sorted({product.brand for product in found})
        known = [brand for brand in brands if split == "test" or brand not in HELD_OUT_BRANDS]
        which = rng.choice(("brand", "band", "both"))
        brand = rng.choice(known) if len(brands) > 1 and known and which != "band" else ""
        band = rng.choice(list(BANDS)) if which != "brand" else ""
        if (brand or band) and 0 < len(goods.find(shop, query, "", brand, band)) < len(found):
            return {"query": query, "brand": brand, "band": band}


def _add(rng: random.Random, shop: str, split: str) -> Params:
    return _item(rng, rng.choice(_products(shop, split)))


def _goods(rng: random.Random, shop: str, split: str, count: int) -> list[Params]:
    return [_item(rng, product, 4) for product in rng.sample(_products(shop, split), count)]


def _cart(rng: random.Random, shop: str, split: str) -> Params:
    """One of the things in the cart, and another number of pieces: 0 in two of five tasks."""
    cart = _goods(rng, shop, split, rng.choice((2, 2, 3)))
    chosen = rng.choice(cart)
    others = [count for count in range(1, shop_state.MAX_COUNT + 1) if count != chosen["count"]]
    count = 0 if rng.random() < 0.4 else rng.choice(others)
    return {"cart": cart, "product": chosen["product"], "count": count}


def _checkout(rng: random.Random, shop: str, split: str) -> Params:
    can_choose = "delivery" in SHOPS[shop].checkout
    delivery = rng.choice(list(shop_state.DELIVERIES)) if can_choose else "standard"
    return {"cart": _goods(rng, shop, split, rng.choice((1, 2))), "delivery": delivery}


def _save(rng: random.Random, shop: str, split: str) -> Params:
    return {"product": rng.choice(_products(shop, split)).title}


_DRAWS: dict[str, Callable[[random.Random, str, str], Params]] = {
    "webshop1_visit": _visit,
    "webshop1_search": _search,
    "webshop1_browse": _browse,
    "webshop2_select": _select,
    "webshop2_sort": _sort,
    "webshop2_filter": _filter,
    "webshop2_best": _sort,
    "webshop3_add": _add,
    "webshop3_first": _search,
    "webshop3_cart": _cart,
    "webshop3_checkout": _checkout,
    "webshop3_save": _save,
}


def _places(split: str) -> list[tuple[str, str]]:
    """Templates with shops, in the order in which the instances of a split take them."""
    weights = UNSEEN_TEMPLATES if split == "unseen_template" else WEIGHTS
    if split != "train":
        weights = {template: weight for template, weight in weights.items() if template != "webshop1_visit"}
    shops = [shop for shop in SHOPS if (shop == UNSEEN_SHOP) == (split == "unseen_app")]
    templates = [template for template, weight in weights.items() for _ in range(weight)]
    return [(template, shop) for shop in shops for template in templates]


def _instances() -> dict[str, tuple[Task, str]]:
    """The tasks by id, each with its wording."""
    made: dict[str, tuple[Task, str]] = {}
    for split, count in SPLITS.items():
        places, pool = _places(split), split if split in ("train", "val") else "test"
        random.Random(f"{SUITE}/2/{split}").shuffle(places)
        for index in range(count):
            template, shop = places[index % len(places)]
            name = f"{SUITE}/{template}/{split}/{index:04d}"
            rng = random.Random(f"2/{name}")
            layout = rng.choice(UNSEEN_LAYOUTS if split == "unseen_layout" else TRAIN_LAYOUTS)
            params = {"layout": layout, "level": level(template), "shop": shop}
            params |= _DRAWS[template](rng, shop, pool)
            wording = say(template, split != "train", rng)
            words = _words(template, params)
            made[name] = instance(name, template, wording, words, params, rng.getrandbits(31), MAX_STEPS)
    return made


tasks, phrasing, _ = suite_of(_instances)


def names(task: Task) -> list[str]:
    """The query or the product that a task is about."""
    return [task.params[key] for key in ("query", "product") if key in task.params]


_SORTS = {"price_up": "lowest price", "price_down": "highest price", "rating": "best rating"}
_NTH = ("first", "second", "third")
_DELIVERIES = {
    "standard": " with standard delivery",
    "express": " with express delivery",
    "pickup": " with pick up in store",
}


def _words(template: str, params: Params) -> dict[str, Any]:
    """What fills a wording."""
    shop = SHOPS[params["shop"]]
    words = {**params, "host": shop.host, "cart": shop.cart.lower(), "wish": shop.wish.lower()}
    if "rank" in params:
        words["nth"] = _NTH[params["rank"] - 1]
    if "sort" in params:
        words["sort"] = _SORTS[params["sort"]]
    if "brand" in params:
        words["filters"] = _filters(params)
    if "color" in params:
        words["options"] = _options(params)
    if template == "webshop3_cart":
        words["change"] = _change(params)
    if "delivery" in params:
        words["delivery"] = _DELIVERIES[params["delivery"]] if "delivery" in shop.checkout else ""
    return words


def _filters(params: Params) -> str:
    band = BANDS[params["band"]][0].lower() if params["band"] else ""
    parts = [
        f"the brand {params['brand']}" if params["brand"] else "",
        f"prices {_prices(band)}" if band else "",
    ]
    return " and ".join(part for part in parts if part)


def _prices(band: str) -> str:
    return band if band.startswith(("under", "over")) else f"from {band}"


def _options(params: Params) -> str:
    """What to choose: "colour blue, storage 256 GB and quantity 2"."""
    ask = BY_TITLE[params["product"]].kind.ask.lower()
    size = f", {ask} {params['size']}" if params["size"] else ""
    return f"colour {params['color']}{size} and quantity {params['count']}"


def _change(params: Params) -> str:
    if not params["count"]:
        return f"remove the {params['product']}"
    return f"change the quantity of the {params['product']} to {params['count']}"
