"""The app store's apps, with ratings, sizes, prices and look-alikes; how they are installed and removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from distrl.simulator.apps.webshop.goods import dollars
from distrl.simulator.phone import state as st
from distrl.simulator.phone.state import State

CATEGORIES = {
    "Games": "sports_esports",
    "Music": "library_music",
    "Tools": "handyman",
    "Health": "favorite",
    "News": "newspaper",
    "Food": "restaurant",
    "Travel": "explore",
    "Social": "people",
}
"""The icon of each category."""


@dataclass(frozen=True)
class Entry:
    """One app of the store.

    Attributes:
        kind: What its first page is: "checklist", "reader", "counter", "player" or "game".
        lines: What that page has: tasks, articles, counters or stations.
        rating: Tenths of a star. reviews: How many, in thousands. size_mb: What is downloaded.
        price_cents: 0 for a free app.
        asks: What it wants to be allowed.
        sponsored: Whether it pays for coming first.
    """

    name: str
    label: str
    developer: str
    category: str
    icon: str
    color: str
    kind: str
    lines: tuple[str, ...]
    rating: int
    reviews: int
    size_mb: int
    price_cents: int = 0
    asks: str = "notifications"
    summary: str = ""
    sponsored: bool = False

    @property
    def price(self) -> str:
        """ "Free", or the price as "$2.99"."""
        return dollars(self.price_cents) if self.price_cents else "Free"

    @property
    def download_s(self) -> int:
        """Phone time that its download takes, in seconds."""
        return 4 if self.size_mb < 50 else 6

    def data(self) -> dict[str, Any]:
        """Its data when it has just been installed."""
        page: dict[str, dict[str, Any]] = {
            "checklist": {"items": [[line, False] for line in self.lines]},
            "reader": {"saved": []},
            "counter": {"counts": [0] * len(self.lines)},
            "player": {"playing": -1},
            "game": {"board": [place in (0, 1, 3, 4, 8) for place in range(9)], "moves": 0},
        }
        return {"user": "", "password": "", **page[self.kind]}


_PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "board": ("game", ("Turn all lights off",)),
    "stations": ("player", ("Morning Jazz", "Classic Hits", "Deep Focus", "Evening News", "Ocean Waves")),
    "tasks": ("checklist", ("Water the plants", "Call the bank", "Book a table")),
    "groceries": ("checklist", ("Milk", "Bread", "Tomatoes", "Coffee")),
    "habits": ("checklist", ("Read", "Stretch", "Walk")),
    "pizzas": ("checklist", ("Margherita", "Funghi", "Diavola")),
    "money": ("counter", ("Rent", "Groceries", "Transport")),
    "drinks": ("counter", ("Water", "Tea", "Coffee")),
    "moves": ("counter", ("Push-ups", "Squats", "Kilometres")),
    "news": ("reader", ("Bridge opens early", "A record harvest", "Museum night returns", "A new park")),
    "meals": ("reader", ("Tomato soup", "Lemon pasta", "Bean chili", "Apple pie", "Rice bowl")),
    "places": ("reader", ("Old harbour", "Castle hill", "City museum", "Botanic garden", "Night market")),
    "rooms": ("reader", ("Family", "Book club", "Football team", "Neighbours")),
    "stars": ("reader", ("Orion", "Great Bear", "Swan", "Lyre")),
    "lines": ("reader", ("Line 1", "Line 5", "Line 12", "Night bus")),
    "photos": ("reader", ("Sunrise", "Street", "Pets", "Food")),
}
"""The first pages of the apps by what they are about: their kind, and what is on them."""
_SUMMARIES = {
    "checklist": "Keep your lists in one place and tick off what is done.",
    "reader": "Something new every day, easy to read and to keep for later.",
    "counter": "Count what matters to you with one tap and see the day at a glance.",
    "player": "Live stations and calm sounds, free of charge, wherever you are.",
    "game": "A quiet puzzle for the train: easy to learn and hard to put down.",
}
_ASKS = {
    "Travel": "location",
    "News": "location",
    "Health": "location",
    "Social": "contacts",
    "Food": "location",
}
"""What the apps of a category want to be allowed; the others, to send notifications."""
_PRICES = {"chessclubpro": 299, "starmap": 199}
_SPONSORED = {
    *("chessclubpro", "towerlands", "radiowavesfm", "shoppinglists", "waterlogger", "recipebook"),
    *("chatnestlite", "dailyposts"),
}


def _app(label: str, developer: str, category: str, icon: str, color: str, about: str, *facts: int) -> Entry:
    kind, lines = _PAGES[about]
    rating, reviews, size_mb = facts
    name = label.lower().replace(" ", "")
    return Entry(
        name,
        label,
        developer,
        category,
        icon,
        color,
        kind,
        lines,
        rating,
        reviews,
        size_mb,
        price_cents=_PRICES.get(name, 0),
        asks=_ASKS.get(category, "notifications"),
        summary=_SUMMARIES[kind],
        sponsored=name in _SPONSORED,
    )


ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (  # label, developer, category, icon, colour, page, rating, reviews, size
        _app("Chess Club", "Rook Labs", "Games", "extension", "#5d4037", "board", 46, 120, 38),
        _app("Chess Clubs", "Pawn Shop Apps", "Games", "grid_view", "#8d6e63", "board", 31, 2, 61),
        _app("Chess Club Pro", "Gambit", "Games", "extension", "#3e2723", "board", 38, 9, 44),
        _app("Light Puzzle", "Nine Tiles", "Games", "lightbulb", "#f9a825", "board", 44, 56, 22),
        _app("Light Puzzles", "Nine Tiles", "Games", "light_mode", "#ef6c00", "board", 42, 18, 35),
        _app("Tower Lands", "Keep Games", "Games", "sports_esports", "#4527a0", "board", 40, 310, 92),
        _app("Radio Wave", "Aerial", "Music", "radio", "#c62828", "stations", 45, 88, 18),
        _app("Radio Waves FM", "Static Ltd", "Music", "podcasts", "#ad1457", "stations", 33, 4, 29),
        _app("PodNest", "Nest Audio", "Music", "headphones", "#6a1b9a", "stations", 47, 64, 41),
        _app("Sleep Sounds", "Quiet Hours", "Music", "bedtime", "#283593", "stations", 48, 150, 55),
        _app("Taskly", "Checkmark", "Tools", "task_alt", "#1565c0", "tasks", 46, 97, 15),
        _app("Tasklist", "Done Inc", "Tools", "checklist", "#0277bd", "tasks", 37, 6, 24),
        _app("Shopping List", "Basket", "Tools", "shopping_bag", "#2e7d32", "groceries", 45, 73, 12),
        _app("Shopping Lists", "Bargain Soft", "Tools", "shopping_cart", "#558b2f", "groceries", 34, 3, 48),
        _app("Budget Book", "Penny", "Tools", "savings", "#00695c", "money", 43, 40, 20),
        _app("Star Map", "Night Sky", "Tools", "star", "#1a237e", "stars", 47, 33, 66),
        _app("Water Log", "Drop", "Health", "water_drop", "#0288d1", "drinks", 46, 51, 14),
        _app("Water Logger", "Hydro Ads", "Health", "water", "#00acc1", "drinks", 32, 2, 37),
        _app("FitTrack", "Stride", "Health", "fitness_center", "#d84315", "moves", 44, 205, 49),
        _app("Habit Loop", "Loop Works", "Health", "repeat", "#7b1fa2", "habits", 45, 39, 17),
        _app("Daily Post", "The Post", "News", "newspaper", "#37474f", "news", 41, 140, 33),
        _app("Daily Posts", "Clickwell", "News", "article", "#546e7a", "news", 29, 5, 52),
        _app("Tech Brief", "Byte Media", "News", "memory", "#0d47a1", "news", 44, 21, 19),
        _app("Recipe Box", "Home Kitchen", "Food", "restaurant_menu", "#e65100", "meals", 47, 82, 27),
        _app("Recipe Book", "Cook & Co", "Food", "menu_book", "#bf360c", "meals", 39, 11, 31),
        _app("Pizza Now", "Slice", "Food", "local_pizza", "#d32f2f", "pizzas", 42, 260, 58),
        _app("City Guide", "Wayfarer", "Travel", "map", "#00796b", "places", 45, 47, 62),
        _app("City Guides", "Tourist Trap", "Travel", "place", "#00897b", "places", 35, 4, 71),
        _app("Bus Times", "Transit Lab", "Travel", "directions_bus", "#455a64", "lines", 40, 68, 16),
        _app("Chat Nest", "Nest Social", "Social", "chat_bubble", "#00838f", "rooms", 43, 890, 54),
        _app("Chat Nest Lite", "Nestling", "Social", "chat", "#26a69a", "rooms", 36, 15, 21),
        _app("Photo Ring", "Aperture", "Social", "photo_camera", "#c2185b", "photos", 44, 430, 75),
    )
}
"""Every app of the store by name."""


def find(query: str) -> list[Entry]:
    """What a search shows: one that is sponsored, then the best match first."""
    wanted = query.lower().split()
    ranked: list[tuple[tuple[bool, int, int], Entry]] = []
    for entry in ENTRIES.values():
        words = f"{entry.label} {entry.category}".lower().split()
        shared = sum(any(word.startswith(each) for word in words) for each in wanted)
        if shared:
            ranked.append(((entry.label.lower() != query.lower(), -shared, -entry.reviews), entry))
    found = [entry for _, entry in sorted(ranked, key=lambda pair: pair[0])]
    paying = next((entry for entry in found if entry.sponsored), None)
    return ([paying] if paying is not None else []) + [entry for entry in found if entry is not paying]


def is_busy(state: State) -> bool:
    """Whether something is being downloaded."""
    return "store" in state["apps"] and bool(state["apps"]["store"]["downloads"])


def begin(state: State, app: str) -> None:
    """Starts the download of an app, or of its update."""
    state["apps"]["store"]["downloads"].setdefault(app, state["elapsed_s"])


def cancel(state: State, app: str) -> None:
    """Gives a download up."""
    state["apps"]["store"]["downloads"].pop(app, None)


def progress(state: State, app: str) -> float:
    """How much of a download is there, in [0, 1]."""
    since: int = state["apps"]["store"]["downloads"][app]
    elapsed: int = state["elapsed_s"]
    return min(1.0, (elapsed - since) / ENTRIES[app].download_s)


def advance(state: State) -> None:
    """Installs what has been downloaded by now."""
    if not is_busy(state):
        return
    store = state["apps"]["store"]
    for app in [app for app in store["downloads"] if progress(state, app) >= 1]:
        del store["downloads"][app]
        is_update = app in state["installed"]
        if is_update:
            store["updates"] = [name for name in store["updates"] if name != app]
        else:
            install(state, app)
        st.notify(state, "store", ENTRIES[app].label, "Updated" if is_update else "Installed")


def install(state: State, app: str) -> None:
    """Puts an app of the store onto the phone at once."""
    if app not in state["installed"]:
        state["installed"].append(app)
        state["stacks"][app] = [["root"]]
        state["apps"][app] = ENTRIES[app].data()


def uninstall(state: State, app: str) -> bool:
    """Removes an app with all that it has stored. Returns False for one that came with the phone."""
    if app not in ENTRIES or app not in state["installed"]:
        return False
    state["installed"].remove(app)
    for part in ("stacks", "apps"):
        del state[part][app]
    for part in ("fields", "scrolls"):
        state[part] = {key: value for key, value in state[part].items() if not key.startswith(app + ".")}
    state["permissions"].pop(app, None)
    if "store" in state["apps"]:
        store = state["apps"]["store"]
        store["updates"] = [name for name in store["updates"] if name != app]
        cancel(state, app)
    if state["focus"].startswith(app + "."):
        st.blur(state)
    if state["front"] == app:
        st.show(state, "launcher")
    return True


def ask_uninstall(state: State, app: str) -> None:
    """Asks whether an app is to be removed."""
    item = {"kind": "uninstall", "due_s": 0, "look": 0, "which": 0}
    state["overlay"] = {**item, "since_s": state["elapsed_s"], "app": app}
