"""What the web's shops do when they are used, by taps on what they show; and their catalogue."""

from __future__ import annotations

from typing import Any

import pytest
from phone_crawl import has
from phone_user import User

from distrl.core.errors import TaskError
from distrl.simulator.apps.webshop import goods, shop_state
from distrl.simulator.apps.webshop.goods import dollars
from distrl.simulator.apps.webshop.shops import SHOPS
from distrl.simulator.phone import nodes
from distrl.simulator.phone.phone import new_state
from distrl.simulator.tasks import play as tasks

KEYS = list(SHOPS)


class Buyer(User):
    """Taps elements by resource id, scrolling to them, as a person would."""

    def __init__(self, key: str, *page: str | int, layout: int = 0, **data: Any) -> None:
        state = new_state(layout)
        state["apps"]["browser"]["web"] = shop_state.web(("voltivo", "modavia"))
        state["front"] = "browser"
        super().__init__(state)
        self.key = key
        self.shop.update(data)
        if page:
            state["stacks"]["browser"].append(["site", key, *page])

    @property
    def shop(self) -> dict[str, Any]:
        return shop_state.data(self.phone.state, self.key)

    def sees(self, rid: str) -> bool:
        return has(self.phone, rid)

    def tap(self, *rids: str) -> None:
        for rid in rids:
            for _ in range(8):
                node = nodes.find(self.phone.tree(), rid)
                if node is not None and self._hit(node) == node:
                    break
                self.phone.swipe(180, 560, 180, 300)
            assert node is not None, f"{rid} is not on the page"
            self.phone.tap(node.x + node.w / 2, node.y + node.h / 2)

    def _hit(self, node: nodes.Node) -> nodes.Node | None:
        return nodes.hit(self.phone.tree(), node.x + node.w / 2, node.y + node.h / 2)


def test_search_finds_all_words_before_any_word() -> None:
    found = goods.find("voltivo", "Norvik HEADPHONES")
    assert found
    assert {(product.brand, product.kind.noun) for product in found} == {("Norvik", "headphones")}
    assert len(goods.find("voltivo", "norvik zzz")) > len(found)
    assert goods.exact("voltivo", "norvik zzz") == ()
    assert goods.find("voltivo", "zzz") == ()


def test_results_are_sorted_and_narrowed() -> None:
    prices = [product.price for product in goods.find("voltivo", "laptop", sort="price_up")]
    assert prices == sorted(prices)
    assert [product.price for product in goods.find("voltivo", "laptop", sort="price_down")] == prices[::-1]
    ratings = [product.rating for product in goods.find("voltivo", "laptop", sort="rating")]
    assert ratings == sorted(ratings, reverse=True)
    for band, (_, low, high) in goods.BANDS.items():
        found = goods.find("voltivo", "", "Audio", "Norvik", band)
        assert all(low <= item.price < high and item.brand == "Norvik" for item in found)
        assert all(item.kind.category == "Audio" for item in found)
    assert sum(len(goods.find("voltivo", band=band)) for band in goods.BANDS) == len(
        goods.assortment("voltivo")
    )


@pytest.mark.parametrize("typed", ["hearthory.com", "https://www.Hearthory.com/sofas"])
def test_an_address_leads_to_its_shop(typed: str) -> None:
    buyer = Buyer("hearthory")
    assert not buyer.sees("site_hearthory")
    buyer.tap("address_bar")
    buyer.phone.type_text(typed + "\n")
    assert buyer.page() == ["site", "hearthory", "home"]
    assert "hearthory.com" in buyer.texts()


def test_a_suggested_address_is_opened() -> None:
    for layout in (0, 2):
        buyer = Buyer("pennybasket", layout=layout)
        buyer.tap("address_bar")
        buyer.phone.type_text("penny")
        buyer.tap("suggested_pennybasket")
        assert buyer.page() == ["site", "pennybasket", "home"]
        assert buyer.phone.state["focus"] == ""


def test_an_unknown_address_and_a_search_in_the_address_bar() -> None:
    buyer = Buyer("voltivo")
    buyer.tap("address_bar")
    buyer.phone.type_text("voltiva.com\n")
    assert "This site can't be reached" in buyer.texts()
    buyer.tap("address_bar")
    buyer.phone.type_text("quanto headphones\n")
    buyer.tap("offer_voltivo")
    assert buyer.page() == ["site", "voltivo", "results"]
    assert buyer.shop["query"] == "quanto headphones"
    buyer.phone.back()
    assert buyer.page() == ["results", "quanto headphones"]


@pytest.mark.parametrize("key", KEYS)
def test_the_cart_is_changed_and_checked_out(key: str) -> None:
    one, two = goods.assortment(key)[:2]
    cart = [{**shop_state.default(one), "count": 1}, {**shop_state.default(two), "count": 5}]
    buyer = Buyer(key, "home", cart=cart)
    buyer.tap("web_cart", "more_0", "more_1")
    assert [item["count"] for item in buyer.shop["cart"]] == [2, 5]
    buyer.tap("remove_1")
    assert [item["id"] for item in buyer.shop["cart"]] == [one.id]
    assert dollars(2 * one.price) in buyer.texts()
    buyer.tap("checkout")
    for page in SHOPS[key].checkout[:-1]:
        assert buyer.page() == ["site", key, page]
        if page == "delivery":
            buyer.tap("delivery_express")
        buyer.tap("continue")
    assert buyer.page() == ["site", key, "review"]
    if "delivery" in SHOPS[key].checkout:
        assert dollars(2 * one.price + 990) in buyer.texts()
    buyer.tap("place_order")
    assert (buyer.shop["cart"], buyer.shop["orders"], buyer.page()[2]) == ([], 1, "thanks")


def test_a_cart_takes_twelve_things_and_five_pieces_of_each() -> None:
    buyer = Buyer("pennybasket", "results", query="food")
    state = buyer.phone.state
    for product in goods.assortment("pennybasket")[:14]:
        shop_state.act(state, "pennybasket", "quick", (product.id,))
    assert len(buyer.shop["cart"]) == shop_state.MAX_ITEMS
    for _ in range(9):
        shop_state.act(state, "pennybasket", "quick", (buyer.shop["cart"][0]["id"],))
    assert buyer.shop["cart"][0]["count"] == shop_state.MAX_COUNT


def test_what_is_sold_out_cannot_be_bought() -> None:
    product = next(item for item in goods.assortment("pennybasket") if not item.kind.sizes)
    buyer = Buyer("pennybasket", "product", product.id, sold_out=[product.id])
    assert not buyer.sees("add_to_cart")
    assert "Out of stock" in buyer.texts()
    buyer = Buyer("pennybasket", "results", query=product.title, sold_out=[product.id])
    assert buyer.sees(f"product_{product.id}")
    assert not buyer.sees(f"quick_{product.id}")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("answer", ["cookies_accept", "cookies_reject"])
def test_the_question_about_cookies_is_asked_once(key: str, answer: str) -> None:
    buyer = Buyer(key, "home", cookies=True, letter=True)
    assert not buyer.sees("letter")
    buyer.tap(answer)
    assert not buyer.sees("cookies")
    assert buyer.sees("letter") == (SHOPS[key].letter == "home")


def test_the_app_banner_can_be_closed_and_its_app_not_be_had() -> None:
    buyer = Buyer("trailoak", "home", banner=True)
    buyer.tap("banner_get")
    assert buyer.phone.state["toast"] == "Not available in your country"
    buyer.tap("banner_close")
    assert not buyer.sees("app_banner")


@pytest.mark.parametrize(
    ("template", "params", "said"),
    [
        ("webshop1_browse", {"level": 1, "category": "Shoes"}, "no category 'Shoes'"),
        ("webshop2_select", {"level": 2, "query": "zzz", "rank": 1}, "not enough results for 'zzz'"),
        ("webshop3_save", {"level": 3, "product": "Nothing"}, "'Nothing' is not a valid product"),
        (
            "webshop3_checkout",
            {"level": 3, "cart": [{"product": "x"}], "delivery": "standard"},
            "no product 'x'",
        ),
        ("webshop1_visit", {"level": 2}, "2 is not a valid level"),
    ],
)
def test_what_a_shop_does_not_have_is_refused(template: str, params: dict[str, Any], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        tasks.start_state(template, {"layout": 0, "shop": "voltivo", **params}, 0)
