"""The shops: name, address, what each sells and how its pages look. A new shop is one entry of `SHOPS`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Palette:
    """A shop's colours.

    Attributes:
        bg, card, line: The page, what lies on it, and outlines.
        text, muted: Primary and secondary text.
        head, on_head: The header, and what is written on it.
        brand, on_brand: Buttons and chosen chips, and what is written on them.
        accent: Prices that are reduced, badges and stars.
    """

    bg: str
    card: str
    line: str
    text: str
    muted: str
    head: str
    on_head: str
    brand: str
    on_brand: str
    accent: str

    @classmethod
    def of(cls, colors: str) -> Palette:
        """The palette of ten colours, in the order of the attributes."""
        return cls(*colors.split())


@dataclass(frozen=True)
class Shop:
    """One shop.

    Attributes:
        mark: How its name is written in its header.
        icon, slogan: Beside and under its name; hero: what its front page promotes (a noun of `goods`).
        header: "band" (coloured, search below), "inline" (search between name and cart), "centred" (menu,
            name, cart; search below), "tabs" (tabs at the bottom) or "minimal" (icons; a search page).
        listing: Results as "rows", "grid", "photo" (one wide picture each), "tall" (a grid without cards) or
            "compact" (rows with a quick add button).
        tools: Sorting and filters as "chips" (sheets for each), "buttons" (sheet and filter page), "segments"
            (orders side by side), "floating" (two buttons over the bottom) or "line" (text links).
        sections: The product page from top to bottom.
        sticky: Whether its add button is fixed at the bottom.
        options: Colours and sizes as "chips", "menu" or "discs"; quantity: "stepper", "chips" or "menu".
        asks: Whether a buyer must choose the options; else the first are chosen already.
        cart, add, wish: What it calls the cart, the button that adds to it, and the wish list.
        consent: Where it asks about cookies: "bottom", "dialog" or "top".
        letter: The page on which its newsletter pops up.
    """

    key: str
    name: str
    host: str
    mark: str
    icon: str
    slogan: str
    hero: str
    light: Palette
    dark: Palette
    categories: tuple[str, ...]
    header: str
    listing: str
    tools: str
    sections: tuple[str, ...]
    sticky: bool
    options: str
    quantity: str
    asks: bool
    cart: str
    add: str
    wish: str
    checkout: tuple[str, ...]
    radius: float
    consent: str
    letter: str


_SHOPS = (
    Shop(
        key="voltivo",
        name="Voltivo",
        mark="Voltivo",
        host="voltivo.com",
        icon="bolt",
        slogan="Electronics, delivered tomorrow",
        hero="laptop",
        light=Palette.of("#eef2f9 #ffffff #cdd6e6 #101828 #56627a #0b49b5 #ffffff #0b49b5 #ffffff #d92d20"),
        dark=Palette.of("#0c1220 #182236 #33425f #e8eefb #9fb0cf #0a2f73 #ffffff #6ea2ff #06142e #ff8a7a"),
        categories=("Computers", "Phones", "Audio", "Photo and TV", "Gaming"),
        header="band",
        listing="rows",
        tools="chips",
        sections=("title", "picture", "price", "color", "size", "count", "about", "reviews"),
        sticky=True,
        options="chips",
        quantity="stepper",
        asks=False,
        cart="Cart",
        add="Add to cart",
        wish="Wish list",
        checkout=("delivery", "review"),
        radius=8,
        consent="bottom",
        letter="product",
    ),
    Shop(
        key="hearthory",
        name="Hearthory",
        mark="Hearthory",
        host="hearthory.com",
        icon="chair",
        slogan="Good things for your home",
        hero="sofa",
        light=Palette.of("#fbf6ee #ffffff #dfd3c0 #2b2419 #7a6c58 #fbf6ee #2f5d4a #2f5d4a #ffffff #b4451f"),
        dark=Palette.of("#171411 #231f1a #453c31 #f3ebdf #b5a793 #171411 #9fd3bb #8fc9ae #0e241b #f0976f"),
        categories=("Furniture", "Lighting", "Kitchen", "Decoration", "Household"),
        header="centred",
        listing="grid",
        tools="buttons",
        sections=("picture", "price", "title", "color", "size", "count", "add", "save", "about", "reviews"),
        sticky=False,
        options="menu",
        quantity="menu",
        asks=True,
        cart="Basket",
        add="Add to basket",
        wish="Favourites",
        checkout=("address", "review"),
        radius=18,
        consent="dialog",
        letter="home",
    ),
    Shop(
        key="trailoak",
        name="Trailoak",
        mark="TRAILOAK",
        host="trailoak.com",
        icon="park",
        slogan="Gear for every season",
        hero="bike",
        light=Palette.of("#f1f3ee #ffffff #ccd3c6 #18211b #5d6a60 #1d2b23 #ffffff #d9480f #ffffff #b8400b"),
        dark=Palette.of("#0d1310 #1a231e #37463d #e6efe9 #a0b1a6 #0a0f0c #ffffff #ff8a4c #2c1200 #ffa877"),
        categories=("Hiking", "Cycling", "Fitness", "Ball games", "Water and snow"),
        header="tabs",
        listing="photo",
        tools="segments",
        sections=("picture", "title", "price", "count", "color", "size", "reviews", "about"),
        sticky=True,
        options="chips",
        quantity="chips",
        asks=False,
        cart="Pack",
        add="Add to pack",
        wish="Saved gear",
        checkout=("address", "delivery", "review"),
        radius=4,
        consent="bottom",
        letter="results",
    ),
    Shop(
        key="modavia",
        name="Modavia",
        mark="M O D A V I A",
        host="modavia.com",
        icon="checkroom",
        slogan="New this week",
        hero="dress",
        light=Palette.of("#ffffff #f4f4f2 #d5d5d2 #111111 #6b6b6b #ffffff #111111 #111111 #ffffff #a3123f"),
        dark=Palette.of("#101010 #1e1e1e #3d3d3d #f5f5f5 #a8a8a8 #101010 #f5f5f5 #f5f5f5 #111111 #ff7fa3"),
        categories=("Clothing", "Shoes", "Accessories", "Jewellery"),
        header="minimal",
        listing="tall",
        tools="floating",
        sections=("picture", "title", "price", "color", "size", "count", "add", "save", "reviews", "about"),
        sticky=False,
        options="discs",
        quantity="stepper",
        asks=True,
        cart="Bag",
        add="Add to bag",
        wish="Wish list",
        checkout=("review",),
        radius=0,
        consent="bottom",
        letter="product",
    ),
    Shop(
        key="pennybasket",
        name="PennyBasket",
        mark="PennyBasket",
        host="pennybasket.com",
        icon="savings",
        slogan="Everything, for a little less",
        hero="board game",
        light=Palette.of("#f2fafa #ffffff #bfdcdc #0f2a2c #4f6c6e #007a80 #ffffff #007a80 #ffffff #c2410c"),
        dark=Palette.of("#081617 #11282a #2b4b4e #e2f5f5 #96b8ba #00474b #ffffff #4fd0d6 #00292b #ffa16b"),
        categories=(
            "Food",
            "Toys",
            "Books",
            "Kitchen",
            "Household",
            "Baby and pets",
            "Health",
            "Audio",
            "Travel",
        ),
        header="inline",
        listing="compact",
        tools="line",
        sections=("title", "price", "picture", "count", "add", "save", "color", "size", "about", "reviews"),
        sticky=False,
        options="chips",
        quantity="stepper",
        asks=False,
        cart="Basket",
        add="Add to basket",
        wish="Shopping list",
        checkout=("delivery", "address", "review"),
        radius=14,
        consent="top",
        letter="home",
    ),
)
SHOPS: dict[str, Shop] = {shop.key: shop for shop in _SHOPS}
"""Every shop by its key."""
HOSTS: dict[str, str] = {shop.host: shop.key for shop in _SHOPS}
"""The shops' keys by address."""
