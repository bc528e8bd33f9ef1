"""What opens over a shop's page: sheets, the menu, options, the question about cookies, the newsletter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distrl.simulator.apps.web import store, tools
from distrl.simulator.apps.web.goods import PRODUCTS
from distrl.simulator.apps.web.kit import Choice, Site
from distrl.simulator.phone.nodes import WIDTH, Node
from distrl.simulator.phone.state import page

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
    elif name in tools.SHEETS:
        nodes = _sheet(site, tools.SHEETS[name], name, tools.sheet_choices(site, name))
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
    """The strip that praises the shop's app, at the top of its pages; nothing once it is closed."""
    if not site.data["banner"]:
        return []
    y, colors = site.top, site.colors
    close = site.icon(0, y + 6, "close", "Close", site.event("banner"), "banner_close", colors.muted)
    get = site.button(
        WIDTH - 92,
        y + 8,
        80,
        "Get",
        site.event("say", "Not available in your country"),
        "banner_get",
        h=44,
        size=15,
    )
    parts = (
        close,
        site.ui.disc(52, y + 10, 40, site.shop.icon, colors.brand, colors.on_brand),
        site.text(102, y + 8, 160, 22, f"{site.shop.name} app", 14, bold=True),
        site.text(102, y + 30, 160, 20, "Shop faster in the app", 12, colors.muted),
        get,
    )
    return [Node(0, y, WIDTH, BANNER_H, "view.ViewGroup", "app_banner", fill=colors.card, children=parts)]


def _scrim(site: Site, tap: bool = True) -> Node:
    """The darkened page; a tap on it closes the panel, unless an answer is wanted."""
    return Node(
        0,
        site.top,
        WIDTH,
        site.bottom - site.top,
        "view.View",
        "scrim" if tap else "veil",
        desc="Close" if tap else "",
        tap=site.event("panel", "") if tap else (),
        fill="#00000080",
    )


def _surface(site: Site, y: float, h: float, rid: str, children: Sequence[Node], x: float = 0) -> Node:
    radius = site.shop.radius + 4
    return Node(
        x,
        y,
        WIDTH - 2 * x,
        h,
        "view.ViewGroup",
        rid,
        fill=site.colors.card if site.ui.theme.dark else site.colors.bg,
        radius=radius,
        shadow=4,
        children=tuple(children),
    )


def _sheet(site: Site, title: str, name: str, choices: Sequence[Choice]) -> list[Node]:
    """A list to choose from, at the bottom."""
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
    mark = Node(
        22,
        y,
        26,
        h,
        "widget.ImageView",
        icon="radio_button_checked" if on else "radio_button_unchecked",
        icon_size=22,
        color=colors.brand if on else colors.muted,
    )
    text = site.text(64, y, 270, h, label, 16, bold=on)
    return Node(
        0, y, WIDTH, h, "widget.RadioButton", rid, desc=label, tap=tap, checked=on, children=(mark, text)
    )


def _options(site: Site, name: str) -> list[Node]:
    """Colours, sizes or pieces of the product on the page."""
    shown = page(site.ui.state, "browser")
    product = PRODUCTS[int(shown[3])]
    item = store.choice(site.data, site.shop.key, product)
    offered: dict[str, Sequence[str | int]] = {
        "color": product.colors,
        "size": product.kind.sizes,
        "count": range(1, store.MAX_COUNT + 1),
    }
    title = {"color": "Colour", "size": product.kind.ask, "count": "Quantity"}[name]
    choices: list[Choice] = [
        (
            _token(value),
            str(value).capitalize() if name == "color" else str(value),
            site.event(name, product.id, value),
            item[name] == value,
        )
        for value in offered[name]
    ]
    return _sheet(site, title, name, choices)


def _token(value: str | int) -> str:
    return str(value).replace(" ", "_")


def _filter(site: Site) -> list[Node]:
    """Brands and price ranges: a page of its own, or a sheet over most of the page."""
    y = site.top if site.shop.tools == "buttons" else site.top + 90
    parts = [
        site.text(20, y, 200, 56, "Filter", 20, bold=True),
        site.icon(WIDTH - 56, y + 4, "close", "Close", site.event("panel", ""), "sheet_close"),
        site.rule(y + 56),
        tools.filters(site, y + 57, site.bottom - 68),
        site.button(16, site.bottom - 60, WIDTH - 32, "Show results", site.event("panel", ""), "apply", h=52),
    ]
    sheet = _surface(site, y, site.bottom - y, "sheet", parts)
    return [sheet] if y == site.top else [_scrim(site), sheet]


def _menu(site: Site) -> list[Node]:
    """The menu on the left: categories, wish list, cart."""
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
    panel = Node(
        0,
        site.top,
        268,
        site.bottom - site.top,
        "view.ViewGroup",
        "menu",
        fill=colors.bg,
        shadow=4,
        children=tuple(rows),
    )
    return [_scrim(site), panel]


def _menu_row(site: Site, y: float, icon: str, label: str, tap: tuple[str | int, ...], rid: str) -> Node:
    text = site.text(24, y, 180, ROW_H, label, 17)
    mark = Node(216, y, 28, ROW_H, "widget.ImageView", icon=icon, color=site.colors.muted)
    return Node(0, y, 268, ROW_H, "view.ViewGroup", rid, desc=label, tap=tap, children=(text, mark))


def _letter_shows(site: Site) -> bool:
    """The newsletter waits until cookies are answered and nothing else is open, on its page."""
    here = page(site.ui.state, "browser")[2] == site.shop.letter
    return bool(here and site.data["letter"] and not site.data["cookies"] and not site.data["panel"])


def _letter(site: Site) -> list[Node]:
    colors = site.colors
    y = site.top + (site.bottom - site.top) / 2 - 150
    parts = [
        site.icon(WIDTH - 84, y + 6, "close", "Close", site.event("letter"), "letter_close", colors.muted),
        site.ui.disc(WIDTH / 2 - 34, y + 30, 68, "mail", colors.brand, colors.on_brand),
        site.text(48, y + 108, 264, 34, "10% off your next order", 20, bold=True, align="c"),
        site.text(
            52,
            y + 144,
            256,
            44,
            f"Hear from {site.shop.name} once a week. Unsubscribe at any time.",
            14,
            colors.muted,
            align="c",
            lines=2,
        ),
        site.button(
            56,
            y + 200,
            248,
            "Sign me up",
            site.event("say", "Please enter an email address in your account"),
            "letter_join",
        ),
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
        Node(16, y + 14, 32, 32, "widget.ImageView", icon="cookie", icon_size=28, color=colors.brand),
        site.text(60, y + 12, 284, 64, text, 14, lines=3),
        site.button(16, y + 84, WIDTH - 32, "Accept all", answer, "cookies_accept", h=44),
        site.button(16, y + 128, WIDTH - 32, "Only necessary ones", answer, "cookies_reject", "text", 38, 14),
    ]
    return [_surface(site, y, COOKIES_H, "cookies", parts)]
