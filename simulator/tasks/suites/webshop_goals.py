"""The instructions of the suite of web shops, phrased in other ways in `val` and `test` than in `train`."""

from __future__ import annotations

import random
from typing import Any

from distrl.simulator.apps.web.goods import BY_TITLE
from distrl.simulator.apps.web.search import BANDS
from distrl.simulator.apps.web.shops import SHOPS

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
