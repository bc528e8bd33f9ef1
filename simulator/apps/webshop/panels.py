"""Sorting and filtering results; what opens over a shop's page: sheets, options, cookies, newsletter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from distrl.simulator.apps.webshop import goods
from distrl.simulator.apps.webshop.goods import PRODUCTS
from distrl.simulator.apps.webshop.product import offered
from distrl.simulator.apps.webshop.site import Area, Choice, Site, chips
from distrl.simulator.phone.nodes import WIDTH, Node, group, icon_button, image
from distrl.simulator.phone.state import page
from distrl.simulator.phone.ui import viewport

Placed = tuple[list[Node], float, float]
"""The fixed tools of the results page, and the top and bottom of the list in dp."""
SHEETS = {"sort": "Sort by", "brand": "Brand", "band": "Price", "filter": "Filter"}
"""Panels over the results, and their titles."""


def sorts(site: Site) -> list[Choice]:
    """The orders."""
    return [
        (key, label, site.event("sort", key), site.data["sort"] == key) for key, label in goods.SORTS.items()
    ]


def brands(site: Site) -> list[Choice]:
    """The brands among the results, whatever brand they are narrowed to."""
    data = site.data
    found = goods.find(site.shop.key, data["query"], data["category"], "", data["band"])
    names = sorted({product.brand for product in found} | ({data["brand"]} - {""}))
    return [(name, name, site.event("brand", name), data["brand"] == name) for name in names]


def bands(site: Site) -> list[Choice]:
    """The price ranges."""
    return [
        (key, label, site.event("band", key), site.data["band"] == key)
        for key, (label, _, _) in goods.BANDS.items()
    ]


def _strip(site: Site, y: float, h: float, children: list[Node]) -> Node:
    return group(0, y, WIDTH, h, "tools", children, fill=site.colors.bg)


def _opener(site: Site, x: float, y: float, w: float, name: str, label: str, on: bool, icon: str) -> Node:
    """A button that opens a sheet, with its icon on the left or an arrow on the right."""
    colors = site.colors
    ink = colors.on_brand if on else colors.text
    arrow = icon == "arrow_drop_down"
    mark = image(x + (w - 28 if arrow else 10), y, 24, 44, icon, 22, ink)
    text = site.text(x + (14 if arrow else 38), y, w - (38 if arrow else 44), 44, label, 14, ink, on)
    tap, radius = site.event("panel", name), min(site.shop.radius * 2, 22)
    fill, border = (colors.brand, "") if on else (colors.card, colors.line)
    return group(x, y, w, 44, "open_" + name, (text, mark), label, tap, fill, radius, border=border)


def _chips(site: Site, area: Area) -> Placed:
    y, data = area[0] + 8, site.data
    band = goods.BANDS[data["band"]][0] if data["band"] else "Price"
    row = [
        _opener(site, 12, y, 112, "sort", "Sort", data["sort"] != "best", "arrow_drop_down"),
        _opener(site, 130, y, 104, "brand", data["brand"] or "Brand", bool(data["brand"]), "arrow_drop_down"),
        _opener(site, 240, y, 108, "band", band, bool(data["band"]), "arrow_drop_down"),
    ]
    return [_strip(site, area[0], 58, row)], area[0] + 58, area[1]


def _is_narrowed(site: Site) -> bool:
    return bool(site.data["brand"] or site.data["band"])


def _buttons(site: Site, area: Area) -> Placed:
    y, width = area[0] + 2, (WIDTH - 36) / 2
    label = goods.SORTS[site.data["sort"]] if site.data["sort"] != "best" else "Sort"
    row = [
        _opener(site, 12, y, width, "filter", "Filter", _is_narrowed(site), "tune"),
        _opener(site, 24 + width, y, width, "sort", label, site.data["sort"] != "best", "swap_vert"),
    ]
    return [_strip(site, area[0], 52, row)], area[0] + 52, area[1]


def _segments(site: Site, area: Area) -> Placed:
    y, colors = area[0] + 8, site.colors
    short = {"best": "Best", "price_up": "Low $", "price_down": "High $", "rating": "Rating"}
    row = []
    for place, (key, label) in enumerate(short.items()):
        on = site.data["sort"] == key
        row.append(site.chip(8 + 74 * place, y, 72, label, site.event("sort", key), f"sort_{key}", on))
    on = _is_narrowed(site)
    ink, fill = (colors.on_brand, colors.brand) if on else (colors.text, colors.card)
    tap, radius = site.event("panel", "filter"), site.shop.radius
    x, icon, rid = WIDTH - 52, "filter_list", "open_filter"
    row.append(icon_button(x, y, 44, icon, "Filter", tap, rid, ink, fill, radius=radius))
    return [_strip(site, area[0], 60, row)], area[0] + 60, area[1]


def _floating(site: Site, area: Area) -> Placed:
    colors, y = site.colors, area[1] - 60
    cells = []
    for place, (name, label, icon) in enumerate(
        (("sort", "SORT", "swap_vert"), ("filter", "FILTER", "tune"))
    ):
        x = 60 + 120 * place
        mark = image(x + 14, y, 24, 48, icon, 20, colors.on_brand)
        text = site.text(x + 44, y, 70, 48, label, 13, colors.on_brand, True)
        cells.append(
            group(x, y, 120, 48, "open_" + name, (mark, text), label.title(), site.event("panel", name))
        )
    bar = group(60, y, 240, 48, "tools", fill=colors.brand, radius=24, shadow=4)
    return [bar.with_children(*cells)], area[0], area[1]


def _line(site: Site, area: Area) -> Placed:
    colors, y = site.colors, area[0]
    items = (("sort", "Sort", 100), ("brand", "Brands", 110), ("band", "Price range", 150))
    cells, x = [], 0.0
    chosen = {
        "sort": site.data["sort"] != "best",
        "brand": bool(site.data["brand"]),
        "band": bool(site.data["band"]),
    }
    for name, label, width in items:
        color = colors.accent if chosen[name] else colors.brand
        text = site.text(x + 16, y, width - 40, 48, label, 15, color, True)
        mark = image(x + width - 26, y, 22, 48, "expand_more", 20, color)
        cells.append(group(x, y, width, 48, "open_" + name, (text, mark), label, site.event("panel", name)))
        x += width
    line = Node(0, y + 48, WIDTH, 1, fill=colors.line)
    return [_strip(site, y, 50, [*cells, line])], y + 50, area[1]


TOOLS: dict[str, Callable[[Site, Area], Placed]] = {
    "chips": _chips,
    "buttons": _buttons,
    "segments": _segments,
    "floating": _floating,
    "line": _line,
}
"""The tools over the results, by their design."""


def filters(site: Site, top: float, bottom: float) -> Node:
    """Brands and price ranges as chips, in a scrolling area."""

    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes: list[Node] = [site.text(20, y + 8, 300, 30, "Brand", 16, bold=True)]
        found, y = chips(site, y + 44, "brand", brands(site), 20)
        nodes += [*found, site.text(20, y + 8, 300, 30, "Price", 16, bold=True)]
        found, y = chips(site, y + 44, "band", bands(site), 20)
        return [*nodes, *found], y

    return viewport(site.ui, "web.filter", top, bottom, build)


ROW_H = 50.0
BANNER_H = 60.0
COOKIES_H = 172.0


def over(site: Site) -> list[Node]:
    """Everything that lies over the page now, but for the question about cookies; the topmost last."""
    if site.ui.state["focus"]:
        return []
    name = site.data["panel"]
    nodes = []
    if name == "menu":
        nodes = _menu(site)
    elif name == "filter":
        nodes = _filter(site)
    elif name in SHEETS:
        nodes = _sheet(site, SHEETS[name], name, {"sort": sorts, "brand": brands, "band": bands}[name](site))
    elif name:
        nodes = _options(site, name)
    if _letter_shows(site):
        nodes += _letter(site)
    return nodes


def beside_cookies(site: Site) -> Site:
    """What the question about cookies leaves of the page, where it is a strip at its top or bottom."""
    if not _asks(site) or site.shop.consent == "dialog":
        return site
    if site.shop.consent == "top":
        return replace(site, top=site.top + COOKIES_H)
    return replace(site, bottom=site.bottom - COOKIES_H)


def _asks(site: Site) -> bool:
    return bool(site.data["cookies"] and not site.ui.state["focus"])


def banner(site: Site) -> list[Node]:
    """The strip that advertises the shop's app, at the top of its pages; nothing once it is closed."""
    if not site.data["banner"]:
        return []
    y, colors = site.top, site.colors
    close = site.icon(0, y + 6, "close", "Close", site.event("banner"), "banner_close", colors.muted)
    tap = site.event("say", "Not available in your country")
    get = site.button(WIDTH - 92, y + 8, 80, "Get", tap, "banner_get", h=44, size=15)
    parts = (
        close,
        site.ui.disc(52, y + 10, 40, site.shop.icon, colors.brand, colors.on_brand),
        site.text(102, y + 8, 160, 22, f"{site.shop.name} app", 14, bold=True),
        site.text(102, y + 30, 160, 20, "Shop faster in the app", 12, colors.muted),
        get,
    )
    return [group(0, y, WIDTH, BANNER_H, "app_banner", parts, fill=colors.card)]


def _scrim(site: Site, tap: bool = True) -> Node:
    """The darkened page; a tap on it closes the panel, unless an answer is wanted."""
    event = site.event("panel", "") if tap else ()
    rid = "scrim" if tap else "veil"
    desc = "Close" if tap else ""
    return Node(
        0, site.top, WIDTH, site.bottom - site.top, "view.View", rid, desc=desc, tap=event, fill="#00000080"
    )


def _surface(site: Site, y: float, h: float, rid: str, children: Sequence[Node], x: float = 0) -> Node:
    radius = site.shop.radius + 4
    fill = site.colors.card if site.ui.theme.dark else site.colors.bg
    return group(x, y, WIDTH - 2 * x, h, rid, children, fill=fill, radius=radius, shadow=4)


def _sheet(site: Site, title: str, name: str, choices: Sequence[Choice]) -> list[Node]:
    count = max(1, len(choices))
    step = min(ROW_H, (site.bottom - site.top - 90) / count)
    y = site.bottom - 64 - step * count
    close = site.icon(WIDTH - 56, y + 4, "close", "Close", site.event("panel", ""), "sheet_close")
    rows = [site.text(24, y, 240, 56, title, 19, bold=True), close]
    for place, (key, label, tap, on) in enumerate(choices):
        rows.append(_choice(site, y + 56 + step * place, step, f"{name}_{key}", label, tap, on))
    if not choices:
        rows.append(site.text(24, y + 56, 300, step, "Nothing to choose from", 15, site.colors.muted))
    sheet = _surface(site, y, site.bottom - y, "sheet", rows)
    return [_scrim(site), sheet]


def _choice(
    site: Site, y: float, h: float, rid: str, label: str, tap: tuple[str | int, ...], on: bool
) -> Node:
    colors = site.colors
    icon = "radio_button_checked" if on else "radio_button_unchecked"
    mark = image(22, y, 26, h, icon, 22, colors.brand if on else colors.muted)
    text = site.text(64, y, 270, h, label, 16, bold=on)
    return Node(
        0, y, WIDTH, h, "widget.RadioButton", rid, desc=label, tap=tap, checked=on, children=(mark, text)
    )


def _options(site: Site, name: str) -> list[Node]:
    item = PRODUCTS[int(page(site.ui.state, "browser")[3])]
    title = {"color": "Colour", "size": item.kind.ask, "count": "Quantity"}[name]
    return _sheet(site, title, name, offered(site, item, name))


def _filter(site: Site) -> list[Node]:
    """Brands and price ranges: a page of its own, or a sheet over most of the page."""
    y = site.top if site.shop.tools == "buttons" else site.top + 90
    parts = [
        site.text(20, y, 200, 56, "Filter", 20, bold=True),
        site.icon(WIDTH - 56, y + 4, "close", "Close", site.event("panel", ""), "sheet_close"),
        site.rule(y + 56),
        filters(site, y + 57, site.bottom - 68),
        site.button(16, site.bottom - 60, WIDTH - 32, "Show results", site.event("panel", ""), "apply", h=52),
    ]
    sheet = _surface(site, y, site.bottom - y, "sheet", parts)
    return [sheet] if y == site.top else [_scrim(site), sheet]


def _menu(site: Site) -> list[Node]:
    colors, y = site.colors, site.top
    rows = [
        site.text(24, y + 8, 180, 56, site.shop.mark, 22, colors.on_head, True),
        site.icon(212, y + 12, "close", "Close", site.event("panel", ""), "sheet_close"),
    ]
    y += 76
    for place, name in enumerate(site.shop.categories):
        rows.append(
            _menu_row(site, y, "chevron_right", name, site.event("category", name), f"menu_cat_{place}")
        )
        y += ROW_H
    rows.append(Node(24, y + 6, 220, 1, fill=colors.line))
    wish = site.event("open", "wish")
    rows.append(_menu_row(site, y + 12, "favorite_border", site.shop.wish, wish, "menu_wish"))
    panel = group(0, site.top, 268, site.bottom - site.top, "menu", rows, fill=colors.bg, shadow=4)
    return [_scrim(site), panel]


def _menu_row(site: Site, y: float, icon: str, label: str, tap: tuple[str | int, ...], rid: str) -> Node:
    text = site.text(24, y, 180, ROW_H, label, 17)
    mark = image(216, y, 28, ROW_H, icon, color=site.colors.muted)
    return group(0, y, 268, ROW_H, rid, (text, mark), label, tap)


def _letter_shows(site: Site) -> bool:
    """The newsletter waits until cookies are answered and nothing else is open, on its page."""
    here = page(site.ui.state, "browser")[2] == site.shop.letter
    return bool(here and site.data["letter"] and not site.data["cookies"] and not site.data["panel"])


def _letter(site: Site) -> list[Node]:
    colors = site.colors
    y = site.top + (site.bottom - site.top) / 2 - 150
    text = f"Hear from {site.shop.name} once a week. Unsubscribe at any time."
    tap = site.event("say", "Please enter an email address in your account")
    parts = [
        site.icon(WIDTH - 84, y + 6, "close", "Close", site.event("letter"), "letter_close", colors.muted),
        site.ui.disc(WIDTH / 2 - 34, y + 30, 68, "mail", colors.brand, colors.on_brand),
        site.text(48, y + 108, 264, 34, "10% off your next order", 20, bold=True, align="c"),
        site.text(52, y + 144, 256, 44, text, 14, colors.muted, align="c", lines=2),
        site.button(56, y + 200, 248, "Sign me up", tap, "letter_join"),
        site.button(56, y + 250, 248, "No, thanks", site.event("letter"), "letter_no", "text", 44),
    ]
    return [_scrim(site, tap=False), _surface(site, y, 304, "letter", parts, x=32)]


def cookies(site: Site) -> list[Node]:
    """The question about cookies, where this shop asks it; nothing once it is answered."""
    if not _asks(site):
        return []
    where, colors = site.shop.consent, site.colors
    text = f"{site.shop.name} and its partners use cookies to improve your visit."
    answer = site.event("cookies")
    if where == "dialog":
        y = site.top + (site.bottom - site.top) / 2 - 130
        parts = [
            site.ui.disc(WIDTH / 2 - 30, y + 24, 60, "cookie", colors.brand, colors.on_brand),
            site.text(52, y + 92, 256, 34, "Your privacy", 20, bold=True, align="c"),
            site.text(52, y + 126, 256, 60, text, 14, colors.muted, align="c", lines=3),
            site.button(48, y + 198, 126, "Reject all", answer, "cookies_reject", "outlined", size=15),
            site.button(186, y + 198, 126, "Accept all", answer, "cookies_accept", size=15),
        ]
        return [_scrim(site, tap=False), _surface(site, y, 264, "cookies", parts, x=32)]
    y = site.top if where == "top" else site.bottom - COOKIES_H
    parts = [
        image(16, y + 14, 32, 32, "cookie", 28, colors.brand),
        site.text(60, y + 12, 284, 64, text, 14, lines=3),
        site.button(16, y + 84, WIDTH - 32, "Accept all", answer, "cookies_accept", h=44),
        site.button(16, y + 128, WIDTH - 32, "Only necessary ones", answer, "cookies_reject", "text", 38, 14),
    ]
    return [_surface(site, y, COOKIES_H, "cookies", parts)]
