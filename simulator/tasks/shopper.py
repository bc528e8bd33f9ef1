"""The expert's ways through the web's shops: each says what to do now, or None once it is done.

Like every expert it has no memory: it looks at the page that is open and at the shop's data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distrl.core.actions import Action
from distrl.simulator.apps.web import start, store
from distrl.simulator.apps.web.goods import PRODUCTS, Product
from distrl.simulator.apps.web.shops import SHOPS
from distrl.simulator.phone import state as st
from distrl.simulator.phone.hand import BACK, ENTER, SWIPE_DOWN, Hand
from distrl.simulator.phone.state import Page, State

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
    """The expert in shop `key`.

    Args:
        hand: The hand on the phone.
        key: The shop.
    """

    def __init__(self, hand: Hand, key: str) -> None:
        self.hand, self.key, self.shop = hand, key, SHOPS[key]
        self.state: State = hand.phone.state
        self.data = store.data(self.state, key)

    @property
    def page(self) -> Page:
        """The browser's page."""
        return st.page(self.state, "browser")

    def is_at(self, name: str, *args: str | int) -> bool:
        """Whether this page of the shop is in front."""
        return self.state["front"] == "browser" and self.page == ["site", self.key, name, *args]

    def enter(self) -> Action | None:
        """Goes to the shop, by its tile on the start page or by its address, and clears the view."""
        if (way := self.hand.open("browser")) is not None:
            return way
        focus = self.state["focus"]
        if self.page[:2] == ["site", self.key]:
            return BACK if focus not in ("", store.QUERY) else self._unblock()
        if focus == start.ADDRESS:
            return self._type(start.ADDRESS, self.shop.host)
        if focus:
            return BACK
        tile = "site_" + self.shop.name.lower()
        return self.hand.tap(tile if self.hand.phone.tree_has(tile) else "address_bar")

    def _type(self, field: str, text: str) -> Action:
        """Types what is missing of `text`; a field that holds anything else is left."""
        typed = st.text(self.state, field)
        if not text.startswith(typed):
            return BACK
        return ENTER if typed == text else Action.type_text(text[len(typed) :])

    def _unblock(self) -> Action | None:
        """Answers what lies over the page: cookies, then the newsletter."""
        if self.state["focus"]:
            return None
        for question in ("cookies_accept", "letter_close"):
            if self.hand.phone.tree_has(question):
                return self.hand.tap(question)
        return None

    def home(self) -> Action | None:
        """Shows the shop's front page."""
        if (way := self.enter()) is not None:
            return way
        if self.is_at("home") and not self.state["focus"]:
            return BACK if self.data["panel"] else None
        return BACK if self.state["focus"] or self.data["panel"] else self.hand.tap("web_home")

    def browse(self, category: str) -> Action | None:
        """Shows the products of a category."""
        if (way := self.enter()) is not None:
            return way
        if self.is_at("results") and (self.data["query"], self.data["category"]) == ("", category):
            return None
        if self.state["focus"] or self.data["panel"] not in ("", "menu"):
            return BACK
        place = self.shop.categories.index(category)
        if self.data["panel"] == "menu":
            return self.hand.tap(f"menu_cat_{place}")
        if self.is_at("browse") or (self.is_at("home") and self.shop.header != "tabs"):
            return self.hand.tap(f"cat_{place}")
        return self.hand.tap("web_browse" if self.shop.header == "tabs" else "web_home")

    def search(self, query: str) -> Action | None:
        """Shows what the shop finds for a query."""
        if (way := self.enter()) is not None:
            return way
        if self.is_at("results") and self.data["query"].lower() == query.lower() and not self.state["focus"]:
            return None
        if self.state["focus"] == store.QUERY:
            return self._type(store.QUERY, query)
        if self.state["focus"] or self.data["panel"]:
            return BACK
        return self.hand.tap("web_search" if self.hand.phone.tree_has("web_search") else "open_search")

    def narrow(self, query: str, wanted: Mapping[str, str] = UNSORTED) -> Action | None:
        """Shows what the shop finds, in an order and narrowed as `wanted` says for sort, brand and band."""
        if (way := self.search(query)) is not None:
            return way
        for what, value in wanted.items():
            if self.data[what] != value:
                return self._set(what, value or self.data[what])
        panel = self.data["panel"]
        return self.hand.tap("apply" if panel == "filter" else "sheet_close") if panel else None

    def _set(self, what: str, value: str) -> Action:
        """Chooses an order or a filter; choosing the filter that is set takes it away."""
        panel, tools = self.data["panel"], self.shop.tools
        if what == "sort":
            sheet = "" if tools == "segments" else "sort"
        else:
            sheet = what if tools in ("chips", "line") else "filter"
        if panel == sheet:
            return self.hand.tap(f"{what}_{value}")
        return BACK if panel else self.hand.tap("open_" + sheet)

    def open(self, product: Product, query: str, wanted: Mapping[str, str] = UNSORTED) -> Action | None:
        """Opens a product from the results."""
        if self.is_at("product", product.id) and self.data["query"].lower() == query.lower():
            way = self.enter()
            return way if way is not None or not self.state["focus"] else BACK
        way = self.narrow(query, wanted)
        return way if way is not None else self.hand.tap(f"product_{product.id}")

    def save(self, product: Product) -> Action | None:
        """Puts a product on the wish list."""
        if product.id in self.data["wish"]:
            return None
        if (way := self.open(product, product.title)) is not None:
            return way
        return BACK if self.data["panel"] else self._tap("save", "save_product")

    def add(self, item: store.Item, query: str) -> Action:
        """Puts an item into the cart from its product's page."""
        product = PRODUCTS[item["id"]]
        if (way := self.open(product, query)) is not None:
            return way
        chosen, panel = store.choice(self.data, self.key, product), self.data["panel"]
        for what in (name for name in self.shop.sections if name in chosen):
            if chosen[what] != item[what]:
                return self._choose(what, item[what], chosen[what])
        return BACK if panel else self._tap("add", "add_to_cart")

    def _tap(self, section: str, rid: str) -> Action:
        """A tap on an element of the product page, which is scrolled up if only later sections show."""
        has, sections = self.hand.phone.tree_has, self.shop.sections
        if not has(rid) and section in sections:
            later = sections[sections.index(section) + 1 :]
            if any(has(mark) for name in later for mark in _MARKS.get(name, ())):
                return SWIPE_DOWN
        return self.hand.tap(rid)

    def _choose(self, what: str, value: str | int, now: str | int) -> Action:
        style = self.shop.quantity if what == "count" else self.shop.options
        panel = self.data["panel"]
        if style == "stepper":
            return BACK if panel else self._tap(what, "more" if int(now) < int(value) else "less")
        if panel == what or (not panel and style != "menu"):
            return self._tap(what, f"{what}_{str(value).replace(' ', '_')}")
        return BACK if panel else self._tap(what, "choose_" + what)

    def fill(self, wanted: Sequence[store.Item], query: str = "") -> Action | None:
        """Makes the cart hold `wanted` and nothing else.

        Args:
            query: What finds the products that are missing; "" is their titles.
        """
        cart = self.data["cart"]
        for place, item in enumerate(cart):
            like = [other for other in wanted if same(other, item)]
            if not like or like[0]["count"] != item["count"]:
                return self._mend(place, like[0]["count"] - item["count"] if like else 0)
        for item in wanted:
            if not any(same(item, other) for other in cart):
                return self.add(item, query or PRODUCTS[item["id"]].title)
        return None

    def cart(self) -> Action | None:
        """Shows the cart."""
        if (way := self.enter()) is not None:
            return way
        if self.state["focus"] or self.data["panel"]:
            return BACK
        return None if self.is_at("cart") else self.hand.tap("web_cart")

    def _mend(self, place: int, change: int) -> Action:
        """Changes how many pieces there are of something in the cart; 0 removes it."""
        if (way := self.cart()) is not None:
            return way
        name = "more" if change > 0 else ("less" if change else "remove")
        return self.hand.tap(f"{name}_{place}")

    def check_out(self, delivery: str) -> Action | None:
        """Goes through the checkout to its last page."""
        if (way := self.enter()) is not None:
            return way
        pages, name = self.shop.checkout, str(self.page[2])
        if name not in pages:
            way = self.cart()
            return way if way is not None else self.hand.tap("checkout")
        if self.state["focus"] or self.data["panel"]:
            return BACK
        if self.data["delivery"] != delivery:
            return self.hand.tap("delivery_" + delivery) if name == "delivery" else self._to_delivery(name)
        return None if name == pages[-1] else self.hand.tap("continue")

    def _to_delivery(self, name: str) -> Action:
        pages = self.shop.checkout
        return self.hand.tap("continue") if pages.index(name) < pages.index("delivery") else BACK


def same(one: store.Item, other: store.Item) -> bool:
    """Whether two items are the same thing, however many of it."""
    return all(one[what] == other[what] for what in ("id", "color", "size"))
