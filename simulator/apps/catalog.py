"""What the built-in web knows: the shop's products and the pages that the search engine finds."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

COLORS: dict[str, str] = {
    "red": "#d93025",
    "blue": "#1a73e8",
    "green": "#188038",
    "black": "#1f2328",
    "yellow": "#e8a400",
    "pink": "#e0508f",
    "brown": "#7a4a26",
    "purple": "#7b3fc4",
}
NOUNS: dict[str, str] = {
    "shoes": "",
    "lamp": "light",
    "chair": "chair",
    "watch": "watch",
    "backpack": "backpack",
    "camera": "photo_camera",
    "umbrella": "umbrella",
    "bike": "pedal_bike",
    "headphones": "headphones",
    "laptop": "laptop",
    "keyboard": "keyboard",
    "book": "book",
    "ball": "sports_soccer",
    "mug": "local_cafe",
    "plant": "local_florist",
    "shirt": "checkroom",
}
"""The shop's nouns and their icons ("" is painted: `distrl.simulator.phone.art`)."""
_MAKES = ("Nordic", "Urban", "Alpine")


@dataclass(frozen=True)
class Product:
    """An article of the shop. `price` is in cents, `rating` in tenths of a star."""

    id: int
    make: str
    color: str
    noun: str
    price: int
    rating: int
    reviews: int

    @property
    def title(self) -> str:
        """What the shop calls it."""
        return f"{self.make} {self.color} {self.noun}"


def _products() -> tuple[Product, ...]:
    items: list[Product] = []
    for color in COLORS:
        for noun in NOUNS:
            for make in _MAKES:
                salt = zlib.crc32(f"{make}/{color}/{noun}".encode())
                price = 900 + salt % 180 * 50 - 1
                items.append(Product(len(items), make, color, noun, price, 30 + salt % 21, 12 + salt % 900))
    return tuple(items)


PRODUCTS = _products()


def words(query: str) -> tuple[str, ...]:
    """A query's words in lower case, with single spaces."""
    return tuple(query.lower().split())


def find_products(query: str) -> list[Product]:
    """Products with every word of the query in their title; if there are none, those with any of them."""
    asked = set(words(query))
    titles = [(product, set(words(product.title))) for product in PRODUCTS]
    every = [product for product, title in titles if asked and asked <= title]
    return every or [product for product, title in titles if asked & title]


def price(cents: int) -> str:
    """Cents as dollars."""
    return f"${cents // 100}.{cents % 100:02d}"


@dataclass(frozen=True)
class Article:
    """A page of the built-in web."""

    title: str
    site: str
    icon: str
    color: str
    body: str


ARTICLES: tuple[Article, ...] = (
    Article(
        "How tea is made",
        "teahouse.example",
        "local_cafe",
        "#188038",
        "Green, black and white tea all come from the same plant. The leaves are picked, "
        "withered, rolled and dried. Green tea is heated soon after picking, so it keeps its "
        "colour. Black tea rests for hours first.",
    ),
    Article(
        "Train times and tickets",
        "rail.example",
        "directions_bus",
        "#1a73e8",
        "Trains to the coast leave every hour from platform four. A day ticket costs twelve "
        "dollars and is valid on buses too. Buy tickets at the station or on the train.",
    ),
    Article(
        "Weather this week",
        "skies.example",
        "wb_sunny",
        "#f29900",
        "Sunny at first, with a few clouds on Thursday. Rain reaches the coast on Friday "
        "evening. Temperatures stay between sixteen and twenty four degrees.",
    ),
    Article(
        "A beginner's guide to running",
        "stride.example",
        "hiking",
        "#d93025",
        "Start with short runs and walk when you need to. Good shoes matter more than "
        "anything else. After six weeks most people run five kilometres without a break.",
    ),
    Article(
        "Caring for house plants",
        "leafy.example",
        "eco",
        "#0b8f83",
        "Most house plants want light, but not full sun. Water them when the top of the soil "
        "is dry. Turn the pot once a week so that the plant grows straight.",
    ),
    Article(
        "The museum of clocks",
        "museum.example",
        "museum",
        "#7b51d3",
        "Three floors of clocks, from sundials to atomic time. Open daily from ten to six, "
        "closed on Mondays. Entry is free for children.",
    ),
    Article(
        "Simple bread at home",
        "kitchen.example",
        "restaurant",
        "#b4531a",
        "Mix flour, water, salt and yeast. Let the dough rest for twelve hours, fold it and "
        "bake it in a hot pot for forty minutes. The crust should be dark and crisp.",
    ),
    Article(
        "Choosing a bike",
        "wheels.example",
        "pedal_bike",
        "#3949ab",
        "A city bike is upright and calm, a road bike is light and fast. Test the frame size: "
        "your foot should touch the ground. Lights and a lock belong to every bike.",
    ),
    Article(
        "The planets, from the Sun out",
        "orbit.example",
        "science",
        "#111827",
        "Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus, Neptune. Jupiter is the "
        "largest; Mercury the smallest. A year on Neptune lasts one hundred and sixty five of "
        "ours.",
    ),
    Article(
        "Learn a language in ten minutes a day",
        "lingua.example",
        "translate",
        "#00838f",
        "Short, daily practice beats one long lesson. Say words aloud, and use them the same "
        "day. After a year you can read a newspaper.",
    ),
    Article(
        "Dogs: food, walks and sleep",
        "pets.example",
        "pets",
        "#6d4c41",
        "A grown dog eats twice and walks three times a day. Puppies sleep up to eighteen "
        "hours. Chocolate is poison for dogs.",
    ),
    Article(
        "The best beaches of the coast",
        "coast.example",
        "beach_access",
        "#e0508f",
        "The north beach has fine sand and cold water. Families like the bay, where the water "
        "is shallow. Parking is free before nine.",
    ),
)


def find_articles(query: str) -> list[Article]:
    """Articles that hold any of the query's words, best first; a word in the title counts four times."""
    asked = set(words(query))
    scored = []
    for place, article in enumerate(ARTICLES):
        title = words(article.title.replace(":", " ").replace(",", " "))
        body = words(article.body.replace(".", " ").replace(",", " "))
        score = sum(4 * title.count(word) + min(2, body.count(word)) for word in asked)
        if score:
            scored.append((-score, place, article))
    return [article for _, _, article in sorted(scored, key=lambda item: item[:2])]
