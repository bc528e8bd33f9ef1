"""Sorting and filtering results: five designs of the buttons, the sheets they open, and the filter page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distrl.simulator.apps.web import search
from distrl.simulator.apps.web.header import Area
from distrl.simulator.apps.web.kit import Choice, Site, chips
from distrl.simulator.phone.nodes import WIDTH, Node
from distrl.simulator.phone.ui import viewport

Placed = tuple[list[Node], float, float]
"""The fixed tools of the results page, and the top and bottom of the list in dp."""

SHEETS = {"sort": "Sort by", "brand": "Brand", "band": "Price", "filter": "Filter"}
"""Panels over the results, and their titles."""


def tools(site: Site, area: Area) -> Placed:
    """The shop's tools over `area`."""
    return _TOOLS[site.shop.tools](site, area)


def sorts(site: Site) -> list[Choice]:
    """The orders."""
    return [
        (key, label, site.event("sort", key), site.data["sort"] == key) for key, label in search.SORTS.items()
    ]


def brands(site: Site) -> list[Choice]:
    """The brands among the results, whatever brand they are narrowed to."""
    data = site.data
    found = search.find(site.shop.key, data["query"], data["category"], "", data["band"])
    names = sorted({product.brand for product in found} | ({data["brand"]} - {""}))
    return [(name, name, site.event("brand", name), data["brand"] == name) for name in names]


def bands(site: Site) -> list[Choice]:
    """The price ranges."""
    return [
        (key, label, site.event("band", key), site.data["band"] == key)
        for key, (label, _, _) in search.BANDS.items()
    ]


def sheet_choices(site: Site, panel: str) -> list[Choice]:
    """What the sheet `panel` offers."""
    return {"sort": sorts, "brand": brands, "band": bands}[panel](site)


def _strip(site: Site, y: float, h: float, children: list[Node]) -> Node:
    return Node(0, y, WIDTH, h, "view.ViewGroup", "tools", fill=site.colors.bg, children=tuple(children))


def _opener(site: Site, x: float, y: float, w: float, name: str, label: str, on: bool, icon: str) -> Node:
    """A button that opens a sheet, with its icon on the left or an arrow on the right."""
    colors = site.colors
    ink = colors.on_brand if on else colors.text
    arrow = icon == "arrow_drop_down"
    mark = Node(
        x + (w - 28 if arrow else 10), y, 24, 44, "widget.ImageView", icon=icon, icon_size=22, color=ink
    )
    text = site.text(x + (14 if arrow else 38), y, w - (38 if arrow else 44), 44, label, 14, ink, on)
    return Node(
        x,
        y,
        w,
        44,
        "view.ViewGroup",
        "open_" + name,
        desc=label,
        tap=site.event("panel", name),
        fill=colors.brand if on else colors.card,
        border="" if on else colors.line,
        radius=min(site.shop.radius * 2, 22),
        children=(text, mark),
    )


def _chips(site: Site, area: Area) -> Placed:
    y, data = area[0] + 8, site.data
    band = search.BANDS[data["band"]][0] if data["band"] else "Price"
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
    label = search.SORTS[site.data["sort"]] if site.data["sort"] != "best" else "Sort"
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
    row.append(
        Node(
            WIDTH - 52,
            y,
            44,
            44,
            "widget.ImageButton",
            "open_filter",
            desc="Filter",
            tap=site.event("panel", "filter"),
            fill=colors.brand if on else colors.card,
            radius=site.shop.radius,
            icon="filter_list",
            color=colors.on_brand if on else colors.text,
        )
    )
    return [_strip(site, area[0], 60, row)], area[0] + 60, area[1]


def _floating(site: Site, area: Area) -> Placed:
    colors, y = site.colors, area[1] - 60
    cells = []
    for place, (name, label, icon) in enumerate(
        (("sort", "SORT", "swap_vert"), ("filter", "FILTER", "tune"))
    ):
        x = 60 + 120 * place
        mark = Node(x + 14, y, 24, 48, "widget.ImageView", icon=icon, icon_size=20, color=colors.on_brand)
        text = site.text(x + 44, y, 70, 48, label, 13, colors.on_brand, True)
        cells.append(
            Node(
                x,
                y,
                120,
                48,
                "view.ViewGroup",
                "open_" + name,
                desc=label.title(),
                tap=site.event("panel", name),
                children=(mark, text),
            )
        )
    bar = Node(60, y, 240, 48, "view.ViewGroup", "tools", fill=colors.brand, radius=24, shadow=4)
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
        mark = Node(
            x + width - 26, y, 22, 48, "widget.ImageView", icon="expand_more", icon_size=20, color=color
        )
        cells.append(
            Node(
                x,
                y,
                width,
                48,
                "view.ViewGroup",
                "open_" + name,
                desc=label,
                tap=site.event("panel", name),
                children=(text, mark),
            )
        )
        x += width
    line = Node(0, y + 48, WIDTH, 1, fill=colors.line)
    return [_strip(site, y, 50, [*cells, line])], y + 50, area[1]


_TOOLS: dict[str, Callable[[Site, Area], Placed]] = {
    "chips": _chips,
    "buttons": _buttons,
    "segments": _segments,
    "floating": _floating,
    "line": _line,
}


def filters(site: Site, top: float, bottom: float) -> Node:
    """Brands and price ranges as chips, in a scrolling area."""

    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes: list[Node] = [site.text(20, y + 8, 300, 30, "Brand", 16, bold=True)]
        found, y = chips(site, y + 44, "brand", brands(site), 20)
        nodes += [*found, site.text(20, y + 8, 300, 30, "Price", 16, bold=True)]
        found, y = chips(site, y + 44, "band", bands(site), 20)
        return [*nodes, *found], y

    return viewport(site.ui, "web.filter", top, bottom, build)
