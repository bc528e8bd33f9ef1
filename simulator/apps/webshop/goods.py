"""What the shops sell: kinds of goods, and several hundred products made of them; finding them in a shop."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache

from distrl.simulator.apps.webshop.shops import SHOPS

COLORS: dict[str, str] = {
    "black": "#2b2f36",
    "silver": "#8f98a3",
    "blue": "#1f6fd6",
    "red": "#d2382c",
    "green": "#2e8b57",
    "yellow": "#dfa20c",
    "pink": "#dd5b93",
    "brown": "#8a5a34",
    "purple": "#7a48bf",
    "orange": "#e2721b",
}
CLOTHES = ("S", "M", "L", "XL")
FEET = ("38", "40", "42", "44")
STORAGE = ("128 GB", "256 GB", "512 GB")


@dataclass(frozen=True)
class Kind:
    """A kind of goods.

    Attributes:
        noun: What it is called; the last words of a product's title.
        icon: Its Material icon, or "#name" of an outline.
        low, high: Prices in dollars.
        colors: The colours it may come in; a product has two or three of them.
        sizes: What else a buyer may choose from; () for nothing. ask: What this is called.
    """

    noun: str
    icon: str
    category: str
    low: int
    high: int
    colors: tuple[str, ...]
    sizes: tuple[str, ...] = ()
    ask: str = "Size"


@dataclass(frozen=True)
class Product:
    """One product. `price` is in cents, `rating` in tenths of a star."""

    id: int
    brand: str
    line: str
    kind: Kind
    price: int
    rating: int
    reviews: int
    colors: tuple[str, ...]

    @property
    def title(self) -> str:
        """What the shops call it."""
        return f"{self.brand} {self.line} {self.kind.noun}"


BRANDS: dict[str, tuple[str, ...]] = {
    "tech": ("Norvik", "Quanto", "Lumoro", "Zephro", "Orbex", "Tessik"),
    "home": ("Hollin", "Brenna", "Casaro", "Tovik", "Mellow", "Aldena"),
    "sport": ("Trekora", "Summit", "Rivo", "Alderon", "Kestro", "Vanta"),
    "style": ("Maren", "Velda", "Ostro", "Linnea", "Corvo", "Ysolde"),
    "daily": ("Pomelo", "Kiddo", "Harvest", "Sunny", "Bramble", "Oatwell"),
}
"""Brands by department; of each kind of goods every brand of its department makes one or two."""
LINES = (
    *("Aero", "Pulse", "Nova", "Terra", "Swift", "Prime", "Luna", "Vega", "Onyx", "Flow", "Spark", "Echo"),
    *("Delta", "Ridge", "Breeze", "Ember", "Solo", "Atlas", "Comet", "Fjord", "Metro", "Classic"),
)
_NEUTRAL = ("black", "silver", "blue", "red")
_BRIGHT = ("red", "blue", "green", "yellow", "pink", "purple", "black")
_WOOD = ("brown", "black", "silver", "green")
_SOFT = ("blue", "pink", "green", "brown", "purple")
KINDS: dict[str, tuple[Kind, ...]] = {
    "tech": (
        Kind("laptop", "laptop", "Computers", 399, 1899, _NEUTRAL, STORAGE, "Storage"),
        Kind(
            "monitor",
            "desktop_windows",
            "Computers",
            119,
            699,
            ("black", "silver"),
            ("24 in", "27 in", "32 in"),
        ),
        Kind("keyboard", "keyboard", "Computers", 19, 189, _NEUTRAL),
        Kind("mouse", "mouse", "Computers", 12, 99, _NEUTRAL),
        Kind("printer", "print", "Computers", 69, 399, ("black", "silver", "blue")),
        Kind("router", "router", "Computers", 39, 299, ("black", "silver", "blue")),
        Kind("phone", "smartphone", "Phones", 199, 1199, _BRIGHT, STORAGE, "Storage"),
        Kind("tablet", "tablet", "Phones", 149, 899, _NEUTRAL, STORAGE, "Storage"),
        Kind("smartwatch", "watch", "Phones", 79, 449, _BRIGHT),
        Kind("power bank", "battery_charging_full", "Phones", 15, 89, _BRIGHT),
        Kind("headphones", "headphones", "Audio", 29, 379, _BRIGHT),
        Kind("speaker", "speaker", "Audio", 25, 349, _BRIGHT),
        Kind("microphone", "mic", "Audio", 35, 249, _NEUTRAL),
        Kind("radio", "radio", "Audio", 24, 149, _WOOD),
        Kind("camera", "photo_camera", "Photo and TV", 249, 1599, _NEUTRAL),
        Kind("television", "tv", "Photo and TV", 229, 1799, ("black", "silver"), ("43 in", "50 in", "65 in")),
        Kind("memory card", "sd_card", "Photo and TV", 9, 79, ("black", "blue", "red"), STORAGE, "Storage"),
        Kind("controller", "sports_esports", "Gaming", 29, 119, _BRIGHT),
        Kind("console", "videogame_asset", "Gaming", 199, 599, ("black", "silver", "red")),
        Kind("headset", "headphones", "Gaming", 39, 199, _NEUTRAL),
    ),
    "home": (
        Kind("chair", "chair", "Furniture", 49, 399, _WOOD),
        Kind(
            "sofa",
            "weekend",
            "Furniture",
            349,
            1799,
            ("blue", "green", "silver", "brown"),
            ("2 seats", "3 seats"),
        ),
        Kind("bed", "bed", "Furniture", 199, 1199, _WOOD, ("90 cm", "140 cm", "180 cm")),
        Kind("desk", "desk", "Furniture", 99, 599, _WOOD),
        Kind("dining table", "table_restaurant", "Furniture", 129, 899, _WOOD),
        Kind("lamp", "light", "Lighting", 19, 199, _BRIGHT),
        Kind("night light", "nightlight", "Lighting", 9, 49, _SOFT),
        Kind(
            "light bulb",
            "lightbulb",
            "Lighting",
            5,
            29,
            ("yellow", "orange", "silver"),
            ("6 W", "9 W", "12 W"),
            "Power",
        ),
        Kind("coffee maker", "coffee_maker", "Kitchen", 39, 499, _NEUTRAL),
        Kind("blender", "blender", "Kitchen", 29, 249, _BRIGHT),
        Kind("microwave", "microwave", "Kitchen", 69, 299, ("black", "silver", "red")),
        Kind("fridge", "kitchen", "Kitchen", 299, 1499, ("silver", "black", "red"), ("200 l", "300 l")),
        Kind(
            "frying pan", "#pan", "Kitchen", 15, 129, ("black", "red", "green"), ("20 cm", "24 cm", "28 cm")
        ),
        Kind("mug", "local_cafe", "Kitchen", 6, 29, _BRIGHT),
        Kind("iron", "iron", "Household", 25, 149, _BRIGHT),
        Kind("toolbox", "handyman", "Household", 29, 199, ("red", "blue", "black")),
        Kind(
            "house plant",
            "local_florist",
            "Decoration",
            9,
            89,
            ("green", "pink", "purple"),
            ("Small", "Large"),
        ),
        Kind("cushion", "#cushion", "Decoration", 12, 69, _SOFT),
        Kind("rug", "#rug", "Decoration", 39, 399, _SOFT, ("Small", "Medium", "Large")),
    ),
    "sport": (
        Kind("bike", "pedal_bike", "Cycling", 249, 1899, _BRIGHT, ("S", "M", "L")),
        Kind("bike light", "flashlight_on", "Cycling", 12, 79, ("black", "red", "silver")),
        Kind("football", "sports_soccer", "Ball games", 15, 79, _BRIGHT),
        Kind("basketball", "sports_basketball", "Ball games", 15, 89, ("orange", "brown", "blue")),
        Kind("tennis racket", "sports_tennis", "Ball games", 39, 249, _BRIGHT),
        Kind(
            "dumbbell",
            "fitness_center",
            "Fitness",
            15,
            149,
            ("black", "silver", "pink"),
            ("4 kg", "8 kg", "12 kg"),
            "Weight",
        ),
        Kind("yoga mat", "self_improvement", "Fitness", 15, 89, _SOFT),
        Kind("rowing machine", "rowing", "Fitness", 249, 1199, ("black", "silver")),
        Kind("kayak", "kayaking", "Water and snow", 199, 999, _BRIGHT),
        Kind("surfboard", "surfing", "Water and snow", 149, 699, _BRIGHT, ("6 ft", "7 ft", "8 ft"), "Length"),
        Kind(
            "snowboard", "snowboarding", "Water and snow", 149, 599, _BRIGHT, ("150 cm", "160 cm"), "Length"
        ),
        Kind("skateboard", "skateboarding", "Water and snow", 39, 199, _BRIGHT),
        Kind("backpack", "backpack", "Hiking", 35, 249, _BRIGHT, ("20 l", "35 l", "50 l")),
        Kind("tent", "#tent", "Hiking", 79, 599, ("green", "orange", "blue"), ("2 people", "4 people")),
        Kind("water bottle", "#bottle", "Hiking", 9, 49, _BRIGHT),
        Kind("compass", "explore", "Hiking", 12, 69, ("silver", "black", "brown")),
    ),
    "style": (
        Kind("t-shirt", "#tshirt", "Clothing", 12, 59, _BRIGHT, CLOTHES),
        Kind("dress", "#dress", "Clothing", 29, 199, _BRIGHT, CLOTHES),
        Kind("trousers", "#trousers", "Clothing", 29, 129, ("blue", "black", "brown", "green"), CLOTHES),
        Kind("jacket", "#jacket", "Clothing", 49, 349, ("black", "brown", "blue", "red", "green"), CLOTHES),
        Kind("skirt", "#skirt", "Clothing", 24, 119, _BRIGHT, CLOTHES),
        Kind("sneakers", "#sneakers", "Shoes", 39, 179, _BRIGHT, FEET),
        Kind("boots", "#boots", "Shoes", 59, 259, ("brown", "black", "red"), FEET),
        Kind("handbag", "local_mall", "Accessories", 29, 349, _BRIGHT),
        Kind("hat", "#hat", "Accessories", 14, 79, ("brown", "black", "blue", "red"), ("S", "M", "L")),
        Kind("sunglasses", "#sunglasses", "Accessories", 15, 189, ("black", "brown", "purple", "red")),
        Kind("scarf", "#scarf", "Accessories", 12, 99, _SOFT),
        Kind("wallet", "account_balance_wallet", "Accessories", 15, 119, ("brown", "black", "red")),
        Kind("ring", "diamond", "Jewellery", 49, 899, ("silver", "yellow", "pink"), ("52", "54", "56")),
        Kind("watch", "watch", "Jewellery", 39, 599, ("silver", "black", "brown", "yellow")),
    ),
    "daily": (
        Kind("puzzle", "extension", "Toys", 8, 39, _BRIGHT, ("500 pieces", "1000 pieces"), "Pieces"),
        Kind("board game", "casino", "Toys", 15, 69, _BRIGHT),
        Kind("toy car", "directions_car", "Toys", 6, 49, _BRIGHT),
        Kind("story book", "menu_book", "Books", 6, 29, _BRIGHT),
        Kind("cookbook", "book", "Books", 12, 49, ("red", "green", "orange")),
        Kind("stroller", "stroller", "Baby and pets", 99, 599, ("black", "blue", "red")),
        Kind("pet bed", "pets", "Baby and pets", 19, 99, _SOFT, ("S", "M", "L")),
        Kind(
            "coffee beans", "coffee", "Food", 6, 29, ("brown", "black"), ("250 g", "500 g", "1 kg"), "Weight"
        ),
        Kind("birthday cake", "cake", "Food", 12, 49, ("pink", "brown", "yellow"), ("Small", "Large")),
        Kind("ice cream", "icecream", "Food", 4, 15, ("pink", "brown", "yellow"), ("500 ml", "1 l")),
        Kind("frozen pizza", "local_pizza", "Food", 4, 12, ("red", "green", "yellow")),
        Kind("first aid kit", "local_hospital", "Health", 12, 59, ("red", "green")),
        Kind("hand soap", "water_drop", "Health", 3, 15, _SOFT),
        Kind("umbrella", "umbrella", "Travel", 12, 69, _BRIGHT),
    ),
}
"""Kinds of goods by department."""


def _salt(*parts: object) -> int:
    return zlib.crc32("/".join(str(part) for part in parts).encode())


def _product(number: int, brand: str, line: str, kind: Kind) -> Product:
    salt = _salt(brand, line, kind.noun)
    dollars = kind.low + salt % 1009 * (kind.high - kind.low) // 1009
    first = salt % len(kind.colors)
    colors = tuple((*kind.colors, *kind.colors)[first : first + 2 + salt // 7 % 2])[: len(kind.colors)]
    rating, reviews = 31 + salt // 11 % 20, 8 + salt // 13 % 2400
    return Product(number, brand, line, kind, 100 * dollars + 99, rating, reviews, colors)


def _products() -> tuple[Product, ...]:
    made: list[Product] = []
    for department, kinds in KINDS.items():
        brands = BRANDS[department]
        for kind in kinds:
            first = _salt(kind.noun, "lines") % len(LINES)
            makers = (*brands, *brands[first % 3 : first % 3 + 2])
            for place, brand in enumerate(makers):
                line = LINES[(first + 5 * place) % len(LINES)]
                made.append(_product(len(made), brand, line, kind))
    return tuple(made)


PRODUCTS = _products()
"""Every product; its id is its place."""
BY_TITLE = {product.title: product for product in PRODUCTS}


def dollars(cents: int) -> str:
    """Cents as dollars, with a comma after thousands."""
    return f"${cents // 100:,}.{cents % 100:02d}"


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
    sold = [product for product in PRODUCTS if product.kind.category in SHOPS[key].categories]
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
