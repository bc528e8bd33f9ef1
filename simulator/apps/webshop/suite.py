"""The suite of web shops: 500 tasks to train on and 128 to test, in three levels of difficulty.

What `test` holds out of `train` and `val`:

    products    one brand in six, and one in seven of the others' products
    queries     those with such a brand, and one in five of the others
    categories  of each shop one in four to five
    phrasings   of every template
    visits      to open a shop and no more (`webshop1_visit`) is only trained on: there is nothing to hold out

`val`, for choosing among checkpoints, holds out of `train` products, queries and categories of its own, but
no brands; it has the phrasings of `test`. Every shop and layout is in all three. What a task's seed decides
is described in `distrl.simulator.apps.webshop.tasks`.
"""

from __future__ import annotations

import itertools
import random
import re
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from distrl.core.types import Task
from distrl.simulator.apps.webshop import goods, shop_state
from distrl.simulator.apps.webshop.goods import BANDS, BRANDS, BY_TITLE, SORTS, Product
from distrl.simulator.apps.webshop.shops import SHOPS
from distrl.simulator.tasks.base import instance

SUITE = "webshop"
SPLITS = ("train", "val", "test")
DISJOINT = ("tasks", "goals", "params", "phrasings")
"""What `val` and `test` never share with `train`."""
LAYOUTS = (0, 1, 2, 3)
MAX_STEPS = 20
COUNTS: dict[str, dict[str, int]] = {
    "webshop1_visit": {"train": 10, "val": 0, "test": 0},
    "webshop1_search": {"train": 100, "val": 10, "test": 29},
    "webshop1_browse": {"train": 40, "val": 5, "test": 9},
    "webshop2_select": {"train": 55, "val": 5, "test": 14},
    "webshop2_sort": {"train": 40, "val": 5, "test": 10},
    "webshop2_filter": {"train": 45, "val": 5, "test": 11},
    "webshop2_best": {"train": 35, "val": 5, "test": 10},
    "webshop3_add": {"train": 75, "val": 5, "test": 19},
    "webshop3_first": {"train": 30, "val": 5, "test": 8},
    "webshop3_cart": {"train": 35, "val": 5, "test": 9},
    "webshop3_checkout": {"train": 20, "val": 5, "test": 5},
    "webshop3_save": {"train": 15, "val": 5, "test": 4},
}
"""Instances by template and split; the digit in a template's name is its level."""
HELD_OUT_BRANDS = frozenset(brands[-1] for brands in BRANDS.values())
"""Brands that only `test` asks for."""
Params = dict[str, Any]


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
    return {"layout": rng.choice(LAYOUTS)}


def _search(rng: random.Random, shop: str, split: str) -> Params:
    return {"query": rng.choice(queries(shop, split, 1))}


def _browse(rng: random.Random, shop: str, split: str) -> Params:
    return {"category": rng.choice(_categories(shop, split)), "layout": rng.choice(LAYOUTS)}


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


def _draws(template: str, split: str) -> Iterator[Params]:
    """Parameters without end: shops in turn, each with the layouts in turn, and none twice."""
    rng = random.Random(f"{SUITE}/1/{template}/{split}")
    seen: set[str] = set()
    for number in itertools.count():
        shop = list(SHOPS)[number % len(SHOPS)]
        layout = LAYOUTS[(number // len(SHOPS) + number) % len(LAYOUTS)]
        for _ in range(200):
            drawn = _DRAWS[template](rng, shop, split)
            params = {"layout": layout, "level": level(template), "shop": shop, **drawn}
            if str(params) not in seen:
                seen.add(str(params))
                yield params
                break


def tasks() -> list[Task]:
    """Every instance of every split, the same on every machine."""
    made: list[Task] = []
    for template, counts in COUNTS.items():
        for split in SPLITS:
            for index, params in enumerate(itertools.islice(_draws(template, split), counts[split])):
                name = f"{template}/{split}/{index:04d}"
                rng = random.Random(f"{SUITE}/1/{name}")
                words = goal(template, params, split, rng)
                task = instance(f"{SUITE}/{name}", template, words, params, rng.getrandbits(31), MAX_STEPS)
                made.append(task)
    return made


def vocabulary() -> list[str]:
    """Every word, number and mark in the goals and in what must be typed, over all splits, sorted."""
    texts = {shop.host for shop in SHOPS.values()}
    for task in tasks():
        params = task.params
        texts |= {task.goal, params.get("query", ""), params.get("product", "")}
        texts |= {entry["product"] for entry in params.get("cart", ())}
    return sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]", text)})


PHRASES: dict[str, dict[str, tuple[str, ...]]] = {
    "webshop1_visit": {
        "train": (
            "Go to {host}",
            "Open {host}",
            "Visit {host} in the browser",
            "Take the browser to {host}",
            "Show {host}",
            "I want to see the website of {host}",
        ),
        "test": ("Take me to {host}", "Show me the website {host}"),
    },
    "webshop1_search": {
        "train": (
            'Go to {host}, search for "{query}"',
            'Open {host} and search for "{query}"',
            "Search {host} for {query}",
            'Look on {host} for "{query}"',
            "Find {query} on {host}",
            'On {host}, show the results of a search for "{query}"',
        ),
        "test": ('Look for "{query}" on {host}', "Show what {host} has when you search for {query}"),
    },
    "webshop1_browse": {
        "train": (
            'Go to {host} and open the category "{category}"',
            "Browse {category} on {host}",
            "Open {host}, show everything in {category}",
            "Show me the department {category} of {host}",
            "Look at what {host} lists as {category}",
            "On {host}, find the products under {category}",
        ),
        "test": (
            "Which products does {host} list under {category}?",
            "On {host}, go to the {category} department",
        ),
    },
    "webshop2_select": {
        "train": (
            'Go to {host}, search for "{query}", and select the {nth} entry',
            'Search {host} for "{query}" and open the {nth} result',
            "Open {host}, search for {query} and select the {nth} product",
            'Look for "{query}" on {host} and tap the {nth} product',
            "Find {query} on {host} and show the {nth} one",
            'On {host}, open the {nth} result in the list for "{query}"',
        ),
        "test": (
            'On {host}, look for "{query}" and show the {nth} product in the list',
            "Find {query} on {host} and tap the {nth} result",
        ),
    },
    "webshop2_sort": {
        "train": (
            'Go to {host}, search for "{query}", and sort by {sort}',
            "Search {host} for {query} and sort the results by {sort}",
            'Look on {host} for "{query}" and list it by {sort}',
            "Find {query} on {host}, ordered by {sort}",
            'On {host}, order what there is for "{query}" by {sort}',
        ),
        "test": (
            'List the results for "{query}" on {host}, ordered by {sort}',
            "Look for {query} on {host} and order what it finds by {sort}",
        ),
    },
    "webshop2_filter": {
        "train": (
            'Go to {host}, search for "{query}", and filter by {filters}',
            "Search {host} for {query} and set the filter to {filters}",
            'Look on {host} for "{query}" with {filters}',
            "Find {query} on {host}, only {filters}",
            'On {host}, narrow what you find for "{query}" to {filters}',
        ),
        "test": (
            'On {host}, look for "{query}" and narrow the results to {filters}',
            "Show {query} on {host}, but only {filters}",
        ),
    },
    "webshop2_best": {
        "train": (
            'Go to {host}, search for "{query}", sort by {sort}, and select the first entry',
            "Search {host} for {query}, sort the results by {sort} and open the first one",
            'Look for "{query}" on {host}, order it by {sort} and tap the first one',
            "Find {query} on {host}, sort by {sort} and show the product at the top",
            'On {host}, show the top result for "{query}", ordered by {sort}',
        ),
        "test": (
            'On {host}, order the results for "{query}" by {sort} and show the one at the top',
            "Look for {query} on {host}, order by {sort}, then tap the top result",
        ),
    },
    "webshop3_add": {
        "train": (
            'Go to {host}, search for "{product}", choose {options}, and add it to the {cart}',
            "Add the {product} with {options} to the {cart} on {host}",
            "On {host}, find the {product}, set {options}, and put it into your {cart}",
            'Look on {host} for "{product}" and place it with {options} in the {cart}',
            "Put the {product} from {host}, {options}, into my {cart}",
            "I want {options} of the {product} in the {cart} on {host}",
        ),
        "test": (
            "I want the {product} from {host} with {options}: get the {cart} ready",
            'Look for "{product}" on {host} and place it in the {cart} with {options}',
        ),
    },
    "webshop3_first": {
        "train": (
            'Go to {host}, search for "{query}", select the first entry, and add it to the {cart}',
            "Search {host} for {query} and add the first result to the {cart}",
            'Look on {host} for "{query}" and put the first product into my {cart}',
            "Find {query} on {host} and add the one at the top to your {cart}",
            'On {host}, place the top result for "{query}" in the {cart}',
        ),
        "test": (
            'On {host}, look for "{query}" and put the product at the top into the {cart}',
            "Find {query} on {host} and place the first one in your {cart}",
        ),
    },
    "webshop3_cart": {
        "train": (
            "In the {cart} on {host}, {change}",
            "Go to {host}, open the {cart}, and {change}",
            "Look at the {cart} on {host} and {change}",
            "On {host}, go to my {cart} to {change}",
            "The {cart} on {host} is wrong: {change}",
        ),
        "test": ("Look into my {cart} on {host} to {change}", "My {cart} on {host} is not right: {change}"),
    },
    "webshop3_checkout": {
        "train": (
            "Check out on {host}{delivery}, up to the review of the order",
            "Go to {host} and take your {cart} to the order review{delivery}, without placing the order",
            "Prepare my order on {host}{delivery} and stop at the review of it",
            "On {host}, order what is in the {cart}{delivery}, but stop before the last step",
            "Proceed on {host} to the order review{delivery}",
        ),
        "test": (
            "Prepare the order of my {cart} on {host}{delivery}; stop at the review",
            "On {host}, proceed from the {cart} to the last page before ordering{delivery}",
        ),
    },
    "webshop3_save": {
        "train": (
            'Go to {host}, search for "{product}", and save it to the {wish}',
            "Save the {product} to your {wish} on {host}",
            "Find the {product} on {host} and put it on the {wish}",
            'Look for "{product}" on {host} and keep it on your {wish} for later',
            "On {host}, put the {product} into my {wish}",
        ),
        "test": (
            "Put the {product} from {host} on my {wish} for later",
            'Find "{product}" on {host} and keep it in the {wish}',
        ),
    },
}
"""Phrasings by template: to train on, and of what is evaluated."""
_SORTS = {"price_up": "lowest price", "price_down": "highest price", "rating": "best rating"}
_NTH = ("first", "second", "third")
_DELIVERIES = {
    "standard": " with standard delivery",
    "express": " with express delivery",
    "pickup": " with pick up in store",
}


def goal(template: str, params: dict[str, Any], split: str, rng: random.Random) -> str:
    """The instruction of a task, in one of its split's phrasings."""
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
    phrases = PHRASES[template]["train" if split == "train" else "test"]
    return rng.choice(phrases).format(**words)


def _filters(params: dict[str, Any]) -> str:
    band = BANDS[params["band"]][0].lower() if params["band"] else ""
    parts = [
        f"the brand {params['brand']}" if params["brand"] else "",
        f"prices {_prices(band)}" if band else "",
    ]
    return " and ".join(part for part in parts if part)


def _prices(band: str) -> str:
    return band if band.startswith(("under", "over")) else f"from {band}"


def _options(params: dict[str, Any]) -> str:
    """What to choose: "colour blue, storage 256 GB and quantity 2"."""
    ask = BY_TITLE[params["product"]].kind.ask.lower()
    size = f", {ask} {params['size']}" if params["size"] else ""
    return f"colour {params['color']}{size} and quantity {params['count']}"


def _change(params: dict[str, Any]) -> str:
    if not params["count"]:
        return f"remove the {params['product']}"
    return f"change the quantity of the {params['product']} to {params['count']}"
