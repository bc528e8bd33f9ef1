"""The shop "Market" in the browser, and the articles that its search engine finds; tasks to search it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from distrl.core.actions import Action
from distrl.simulator.apps.base import Args
from distrl.simulator.apps.webshop.goods import dollars
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node, group, image, text_box
from distrl.simulator.phone.state import Page, State
from distrl.simulator.phone.ui import Ui, viewport
from distrl.simulator.tasks.base import Params, Template, everyday, fresh
from distrl.simulator.tasks.expert import BACK, Expert

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
    "radio": "radio",
    "book": "book",
    "ball": "sports_soccer",
    "mug": "local_cafe",
    "plant": "local_florist",
    "shirt": "checkroom",
}
"""The shop's nouns and their icons ("" is painted: `distrl.simulator.phone.render`)."""
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


Area = tuple[float, float]
ORANGE = "#e8710a"
HEAD_H = 64.0
MAX_CART = 20
_SORTS = (("relevance", "Best match"), ("price", "Price"), ("rating", "Rating"))


def view(ui: Ui, page: Page, area: Area) -> list[Node]:
    """The shop's page in `area` (top and bottom in dp)."""
    if page[0] == "shop_results":
        body = _results(ui, (area[0] + HEAD_H + 76, area[1]))
        return [*body, *_head(ui, area[0]), _search_field(ui, area[0] + HEAD_H)]
    if page[0] == "shop_product":
        return [*_product(ui, PRODUCTS[int(page[1])], (area[0] + HEAD_H, area[1])), *_head(ui, area[0])]
    if page[0] == "shop_cart":
        return [*_cart(ui, (area[0] + HEAD_H, area[1])), *_head(ui, area[0])]
    return [
        *_front(ui, (area[0] + HEAD_H + 76, area[1])),
        *_head(ui, area[0]),
        _search_field(ui, area[0] + HEAD_H),
    ]


def _head(ui: Ui, y: float) -> list[Node]:
    count = len(ui.state["apps"]["browser"]["cart"])
    cart = ui.icon_button(WIDTH - 60, y + 8, "shopping_cart", "Cart", ("browser", "cart"), "cart", "#ffffff")
    parts = [
        image(16, y, 40, HEAD_H, "storefront", 30, "#ffffff"),
        ui.text(62, y, 180, HEAD_H, "Market", 24, "#ffffff", True),
        cart,
    ]
    if count:
        badge = text_box(WIDTH - 34, y + 10, 22, 22, str(count), 13, ORANGE, "#ffffff", 11, bold=True)
        parts.append(badge)
    return [group(0, y, WIDTH, HEAD_H, "shop_head", parts, fill=ORANGE)]


def _search_field(ui: Ui, y: float) -> Node:
    field = widgets.field(
        ui, y + 10, "shop.query", "Search Market", icon="search", pill=True, h=56, rid="shop_search"
    )
    return group(0, y, WIDTH, 76, "shop_bar", (field,), fill=ui.theme.bg)


def _front(ui: Ui, area: Area) -> list[Node]:
    def build(y: float) -> tuple[Sequence[Node], float]:
        parts = (
            ui.text(36, y + 18, 210, 32, "Summer sale", 24, ORANGE, True),
            ui.text(36, y + 52, 210, 26, "Up to 40% off bikes", 16),
            image(WIDTH - 108, y + 8, 80, 84, "pedal_bike", 64, ORANGE),
        )
        fill = "#7b2d00" if ui.theme.dark else "#ffe1c7"
        banner = group(16, y + 4, WIDTH - 32, 92, children=parts, fill=fill, radius=24)
        nodes: list[Node] = [banner, ui.text(24, y + 106, 200, 32, "Popular", 18, bold=True)]
        for place, product in enumerate(PRODUCTS[place * 25 + 4] for place in range(6)):
            row, column = divmod(place, 2)
            nodes.append(_tile(ui, 16 + 168 * column, y + 142 + 196 * row, product))
        return nodes, y + 142 + 196 * 3

    return [viewport(ui, "shop.front", area[0], area[1], build)]


def picture(product: Product, x: float, y: float, w: float, h: float, size: float) -> Node:
    """The product's picture: its shape in its colour, on a light ground."""
    icon = NOUNS[product.noun]
    color = COLORS[product.color]
    return image(
        x, y, w, h, icon, size, color, "#eef0f3", 18, desc=product.title, art=() if icon else ("shoe",)
    )


def _tile(ui: Ui, x: float, y: float, product: Product) -> Node:
    parts = (
        picture(product, x + 8, y + 8, 144, 108, 84),
        ui.text(x + 12, y + 120, 136, 24, product.title, 14),
        ui.text(x + 12, y + 144, 136, 30, dollars(product.price), 18, bold=True),
    )
    tap = ("browser", "product", product.id)
    return group(x, y, 160, 188, f"product_{product.id}", parts, product.title, tap, ui.theme.card, 22)


def _results(ui: Ui, area: Area) -> list[Node]:
    browser = ui.state["apps"]["browser"]
    found = ranked(browser["shop_query"], browser["sort"])

    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes: list[Node] = []
        for place, (key, label) in enumerate(_SORTS):
            style = "filled" if browser["sort"] == key else "outlined"
            nodes.append(
                ui.button(
                    16 + 112 * place, y, 104, label, ("browser", "sort", key), "sort_" + key, style, 48, 14
                )
            )
        note = f"{len(found)} {'result' if len(found) == 1 else 'results'} for {browser['shop_query']}"
        nodes.append(ui.text(24, y + 56, 312, 32, note, 15, ui.theme.muted, rid="result_count"))
        y += 92
        for product in found[:24]:
            nodes.append(_listing(ui, y, product))
            y += 124
        return nodes, y

    return [viewport(ui, "shop.results", area[0], area[1], build)]


def _listing(ui: Ui, y: float, product: Product) -> Node:
    parts = (
        picture(product, 24, y + 8, 100, 100, 72),
        ui.text(138, y + 8, 196, 44, product.title, 16, lines=2),
        image(136, y + 52, 22, 24, "star", 18, "#f29900"),
        ui.text(160, y + 52, 160, 24, f"{product.rating / 10} ({product.reviews})", 14, ui.theme.muted),
        ui.text(138, y + 78, 160, 30, dollars(product.price), 20, bold=True),
    )
    tap = ("browser", "product", product.id)
    return group(
        16, y, WIDTH - 32, 116, f"product_{product.id}", parts, product.title, tap, ui.theme.card, 22
    )


def _product(ui: Ui, product: Product, area: Area) -> list[Node]:
    def build(y: float) -> tuple[Sequence[Node], float]:
        signs = ("star" if product.rating >= 10 * place + 8 else "star_border" for place in range(5))
        stars = [
            image(20 + 26 * place, y + 330, 26, 28, sign, color="#f29900") for place, sign in enumerate(signs)
        ]
        text = f"In {product.color}, by {product.make}. Made to last."
        nodes = [
            picture(product, 16, y + 10, WIDTH - 32, 260, 200),
            ui.text(20, y + 282, 320, 44, product.title, 24, bold=True, rid="title"),
            *stars,
            ui.text(158, y + 330, 180, 28, f"{product.reviews} reviews", 15, ui.theme.muted),
            ui.text(20, y + 366, 200, 44, dollars(product.price), 32, bold=True, rid="price"),
            ui.text(20, y + 412, 320, 26, "Free delivery in two days", 15, "#188038"),
            ui.text(20, y + 440, 320, 48, text, 15, ui.theme.muted, lines=2),
        ]
        return nodes, y + 500

    event = ("browser", "add", product.id)
    button = ui.button(16, area[1] - 68, WIDTH - 32, "Add to cart", event, "add_to_cart", h=60, size=18)
    return [viewport(ui, "shop.product", area[0], area[1] - 76, build), button]


def _cart(ui: Ui, area: Area) -> list[Node]:
    cart = [PRODUCTS[index] for index in ui.state["apps"]["browser"]["cart"]]
    total = sum(product.price for product in cart)

    def build(y: float) -> tuple[Sequence[Node], float]:
        if not cart:
            return widgets.empty(ui, y + 80, "shopping_cart", "Your cart is empty"), y + 240
        nodes: list[Node] = [ui.text(24, y + 8, 300, 40, "Your cart", 24, bold=True, rid="title")]
        for place, product in enumerate(cart):
            nodes.append(_cart_row(ui, y + 56 + 96 * place, product, place))
        return nodes, y + 64 + 96 * len(cart)

    sum_row = ui.text(24, area[1] - 60, 300, 44, f"Total {dollars(total)}", 24, bold=True, rid="total")
    return [viewport(ui, "shop.cart", area[0], area[1] - 68, build), sum_row]


def _cart_row(ui: Ui, y: float, product: Product, place: int) -> Node:
    bin_button = ui.icon_button(
        WIDTH - 72, y + 20, "delete", "Remove", ("browser", "remove", place), f"remove_{place}"
    )
    parts = (
        picture(product, 24, y + 8, 72, 72, 52),
        ui.text(110, y + 12, 170, 30, product.title, 16),
        ui.text(110, y + 44, 170, 30, dollars(product.price), 18, bold=True),
        bin_button,
    )
    return widgets.card(ui, y, 88, parts, rid=f"cart_{place}")


def ranked(query: str, sort: str) -> list[Product]:
    """The products found, in the chosen order."""
    found = find_products(query)
    ranks = {"price": lambda product: product.price, "rating": lambda product: -product.rating}
    return sorted(found, key=ranks[sort]) if sort in ranks else found


def search(state: State, query: str) -> None:
    """Shows the results for `query`, in place of earlier results."""
    browser = state["apps"]["browser"]
    browser["shop_query"], browser["sort"] = query, "relevance"
    state["fields"]["shop.query"] = query
    state["scrolls"].pop("shop.results", None)
    if st.page(state, "browser")[0] == "shop_results":
        st.pop(state, "browser")
    st.push(state, "browser", "shop_results")


def act(state: State, verb: str, args: Args) -> None:
    """Sorting, products and the cart."""
    browser = state["apps"]["browser"]
    if verb == "sort":
        browser["sort"] = str(args[0])
    elif verb == "product":
        st.push(state, "browser", "shop_product", int(args[0]))
    elif verb == "cart":
        st.push(state, "browser", "shop_cart")
    elif verb == "add" and len(browser["cart"]) < MAX_CART:
        browser["cart"].append(int(args[0]))
        state["toast"] = "Added to cart"
    elif verb == "remove":
        browser["cart"].pop(int(args[0]))


def _shop_check(state: State, params: Params) -> bool:
    shown = st.page(state, "browser")[0] == "shop_results" and state["front"] == "browser"
    asked = words(state["apps"]["browser"]["shop_query"])
    return bool(shown and asked == words(params["query"]))


def _shop_step(expert: Expert, params: Params) -> Action:
    page, focus = expert.page("browser")[0], expert.state["focus"]
    if focus == "shop.query":
        return expert.type_and_enter("shop.query", params["query"])
    if focus:
        return BACK
    if page == "root":
        return expert.tap("site_market")
    return expert.tap("shop_search") if page in ("shop", "shop_results") else BACK


TEMPLATES: dict[str, Template] = {
    "shop_search": everyday("browser", {"query": str}, fresh, _shop_check, _shop_step, phone="quickstart")
}
