"""Finding a shop's products: by words, category, brand and price, in one of four orders."""

from __future__ import annotations

from functools import lru_cache

from distrl.simulator.apps.web import goods
from distrl.simulator.apps.web.goods import Product
from distrl.simulator.apps.web.shops import SHOPS

SORTS = {
    "best": "Best match",
    "price_up": "Lowest price",
    "price_down": "Highest price",
    "rating": "Best rated",
}
"""Orders of results, and what shops call them."""
BANDS = {
    "under_25": ("Under $25", 0, 2500),
    "25_50": ("$25 to $50", 2500, 5000),
    "50_100": ("$50 to $100", 5000, 10000),
    "100_300": ("$100 to $300", 10000, 30000),
    "over_300": ("Over $300", 30000, 10**9),
}
"""Price ranges to narrow results to: label, lowest price, and the first price above it, in cents."""


@lru_cache(maxsize=32)
def assortment(key: str) -> tuple[Product, ...]:
    """The products of shop `key`, best sellers first (by reviews and rating)."""
    sold = [product for product in goods.PRODUCTS if product.kind.category in SHOPS[key].categories]
    return tuple(sorted(sold, key=lambda product: (-product.reviews * product.rating, product.id)))


@lru_cache(maxsize=4096)
def find(
    key: str, query: str = "", category: str = "", brand: str = "", band: str = "", sort: str = "best"
) -> tuple[Product, ...]:
    """The products of shop `key` with every word of `query` in title or category; failing that, with any.

    Args:
        category, brand: Only these; "" for all.
        band: Only prices in this one of `BANDS`; "" for all.
        sort: One of `SORTS`; within equal prices or ratings, best sellers come first.
    """
    asked = set(query.lower().split())
    sold = [product for product in assortment(key) if category in ("", product.kind.category)]
    if asked:
        titles = [(product, words(product)) for product in sold]
        every = [product for product, words in titles if asked <= words]
        sold = every or [product for product, words in titles if asked & words]
    _, low, high = BANDS.get(band, ("", 0, 10**9))
    kept = [product for product in sold if brand in ("", product.brand) and low <= product.price < high]
    if sort == "best":
        return tuple(kept)
    rank = {
        "price_up": lambda product: product.price,
        "price_down": lambda product: -product.price,
        "rating": lambda product: -product.rating,
    }[sort]
    return tuple(sorted(kept, key=rank))


def exact(key: str, query: str) -> tuple[Product, ...]:
    """The products of shop `key` that have every word of `query`."""
    asked = set(query.lower().split())
    return tuple(product for product in find(key, query) if asked and asked <= words(product))


@lru_cache(maxsize=1024)
def words(product: Product) -> frozenset[str]:
    """What a product is found by: the words of its title, their plain plurals and its category."""
    words = product.title.lower().split()
    return frozenset({*words, *(word + "s" for word in words), *product.kind.category.lower().split()})
