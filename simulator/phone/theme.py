"""Colours (light and dark schemes, contrast) and the UI versions that `layout` chooses from.

A layout fixes where things are and how they look. Layouts 0 to 5 were made by hand. Every other number is
the seed of a layout that is drawn, in three ranges:

    TRAIN_LAYOUTS    none has anything that `HELD_OUT` names: some values and some combinations of values
    UNSEEN_LAYOUTS   each has at least one of them: these measure what is learned about interfaces never seen
    DRIFT_LAYOUTS    a family that interfaces change to while they are trained on: each has at least one of
                     them too, and `is_drifted`, which no layout of the other two ranges is
"""

from __future__ import annotations

import colorsys
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from distrl.core.errors import EnvError


@dataclass(frozen=True)
class Theme:
    """A colour scheme, with Material 3's roles.

    Attributes:
        dark: Whether it is a dark scheme.
        bg: Behind everything. card: Cards, rows and fields on it. raised: Dialogs, menus, keyboard.
        text, muted: Primary and secondary text. line: Outlines and dividers.
        primary, on_primary: Accent and what is written on it.
        tint, on_tint: Accent containers (FAB, chips, selected tab) and what is written on them.
    """

    dark: bool
    bg: str
    card: str
    raised: str
    text: str
    muted: str
    line: str
    primary: str
    on_primary: str
    tint: str
    on_tint: str


_LIGHT = Theme(
    dark=False,
    bg="#f3f4fb",
    card="#ffffff",
    raised="#e7e9f5",
    text="#1a1c23",
    muted="#565b69",
    line="#c6c9d6",
    primary="#2f5bd0",
    on_primary="#ffffff",
    tint="#d6e0ff",
    on_tint="#0a2368",
)
_DARK = Theme(
    dark=True,
    bg="#0f1416",
    card="#1d2528",
    raised="#283236",
    text="#e6eced",
    muted="#a3b0b3",
    line="#46545a",
    primary="#4fd8d0",
    on_primary="#00302d",
    tint="#0c4f4c",
    on_tint="#b4f4ee",
)


@dataclass(frozen=True)
class Layout:
    """One UI version.

    Attributes:
        wallpaper: Top and bottom colour, then the colours of the hills.
        icon_radius: Corner radius of launcher icons in dp (28 is a circle).
        grid: Rows of app names on the home page ("" leaves a gap); dock: Apps in the dock.
        grid_y, widget_y, search_y: Tops of the first row, the clock widget and the search pill in dp from the
            status bar; a negative one is from the navigation bar.
        fab: Where the round action button is: "right", "left" or "center".
        save: Where forms have their save button: "top" or "bottom".
        tabs: Where the tabs of the clock are: "bottom" or "top".
        picker: The time picker: "dial", "grid" (hours and minutes together) or "pages" (one after the other).
        nav: "gesture" (a pill) or "buttons" (back, home).
        switch_left: Whether switches stand left of their label.
        browser_top: Whether the browser's address bar is at the top.
    """

    light: Theme
    dark_scheme: Theme
    dark: bool
    wallpaper: tuple[str, ...]
    icon_radius: float
    grid: tuple[tuple[str, ...], ...]
    grid_y: float
    dock: tuple[str, ...]
    label: str
    widget_y: float
    search_y: float
    settings: tuple[str, ...]
    fab: str
    save: str
    tabs: str
    picker: str
    nav: str
    switch_left: bool
    browser_top: bool

    def theme(self, dark: bool) -> Theme:
        """The colours in light or dark mode."""
        return self.dark_scheme if dark else self.light


LAYOUTS: tuple[Layout, ...] = (
    Layout(
        light=_LIGHT,
        dark_scheme=replace(
            _DARK, primary="#b3c5ff", on_primary="#0a2368", tint="#24408f", on_tint="#dbe3ff"
        ),
        dark=False,
        wallpaper=("#7fb4ff", "#e9f2ff", "#5c8fe6", "#3b6fd0", "#27509f"),
        icon_radius=28,
        grid=(("weather", "notes", "calculator", "clock"),),
        grid_y=-304,
        dock=("contacts", "messages", "browser", "settings"),
        label="#ffffff",
        widget_y=56,
        search_y=-76,
        settings=("network", "devices", "display", "sound", "apps", "battery", "security", "about"),
        fab="right",
        save="bottom",
        tabs="bottom",
        picker="dial",
        nav="gesture",
        switch_left=False,
        browser_top=True,
    ),
    Layout(
        light=replace(
            _LIGHT, primary="#00696a", tint="#b9efeb", on_tint="#002020", bg="#eef6f5", raised="#dcebe9"
        ),
        dark_scheme=_DARK,
        dark=True,
        wallpaper=("#04090c", "#0d2a2e", "#0d4347", "#0a2f37", "#071d24"),
        icon_radius=16,
        grid=(("settings", "browser", "", ""), ("messages", "clock", "", "")),
        grid_y=150,
        dock=("calculator", "contacts", "weather", "notes"),
        label="#ffffff",
        widget_y=40,
        search_y=-190,
        settings=("display", "network", "battery", "apps", "sound", "devices", "about", "security"),
        fab="left",
        save="top",
        tabs="top",
        picker="grid",
        nav="gesture",
        switch_left=False,
        browser_top=True,
    ),
    Layout(
        light=replace(
            _LIGHT,
            bg="#fff1e2",
            card="#fffaf4",
            raised="#f6e0c8",
            text="#2a1a0b",
            muted="#75604c",
            line="#dcc3a8",
            primary="#b4530a",
            tint="#ffd3a6",
            on_tint="#4a2000",
        ),
        dark_scheme=replace(
            _DARK, bg="#17110b", card="#261d14", raised="#33281d", primary="#ffb876", tint="#6b3a0c"
        ),
        dark=False,
        wallpaper=("#ffd9a0", "#fff3df", "#f2a65a", "#dc7f36", "#b4561f"),
        icon_radius=12,
        grid=(("", "", "contacts", "weather"), ("", "", "settings", "notes")),
        grid_y=96,
        dock=("clock", "browser", "calculator", "messages"),
        label="#2a1a0b",
        widget_y=-300,
        search_y=20,
        settings=("sound", "about", "network", "security", "devices", "display", "battery", "apps"),
        fab="center",
        save="bottom",
        tabs="bottom",
        picker="pages",
        nav="buttons",
        switch_left=True,
        browser_top=False,
    ),
    Layout(
        light=replace(
            _LIGHT, bg="#fbeffa", primary="#8e3a9c", tint="#f6d3fb", on_tint="#35003f", raised="#efdcef"
        ),
        dark_scheme=Theme(
            dark=True,
            bg="#1d1030",
            card="#33204f",
            raised="#432c64",
            text="#f3e9ff",
            muted="#c2b0d8",
            line="#65508a",
            primary="#f3a6ff",
            on_primary="#47034f",
            tint="#7d3a94",
            on_tint="#ffe3ff",
        ),
        dark=True,
        wallpaper=("#2b1055", "#d76d9f", "#7b3f9d", "#552a80", "#361a5c"),
        icon_radius=20,
        grid=(("browser", "", "", "notes"), ("calculator", "", "", "clock"), ("contacts", "", "", "weather")),
        grid_y=164,
        dock=("settings", "messages"),
        label="#ffffff",
        widget_y=64,
        search_y=-164,
        settings=("security", "battery", "sound", "display", "about", "network", "apps", "devices"),
        fab="right",
        save="top",
        tabs="top",
        picker="dial",
        nav="buttons",
        switch_left=False,
        browser_top=True,
    ),
    Layout(
        light=replace(
            _LIGHT,
            bg="#e6f6e4",
            card="#f8fff6",
            raised="#cfe8cc",
            text="#12200f",
            muted="#4f634b",
            line="#b3cfae",
            primary="#c2185b",
            tint="#ffc9dc",
            on_tint="#5c0027",
        ),
        dark_scheme=replace(
            _DARK, bg="#0d150d", card="#1a261a", raised="#263526", primary="#ff9dbf", tint="#7a1c43"
        ),
        dark=False,
        wallpaper=("#c8f0d8", "#fdfde8", "#8fd18a", "#57ab63", "#2f7d4f"),
        icon_radius=24,
        grid=(("clock", "contacts", "", ""), ("notes", "settings", "", "")),
        grid_y=300,
        dock=("messages", "weather", "browser", "calculator"),
        label="#10182b",
        widget_y=48,
        search_y=230,
        settings=("devices", "sound", "security", "apps", "network", "about", "display", "battery"),
        fab="left",
        save="bottom",
        tabs="top",
        picker="pages",
        nav="gesture",
        switch_left=True,
        browser_top=True,
    ),
    Layout(
        light=replace(
            _LIGHT, bg="#f4efe9", primary="#8a3324", tint="#f7d9c4", on_tint="#3b0d02", raised="#e6dccf"
        ),
        dark_scheme=Theme(
            dark=True,
            bg="#1c2233",
            card="#2b3450",
            raised="#3a4567",
            text="#f7f1e8",
            muted="#b8bccb",
            line="#566087",
            primary="#ffc857",
            on_primary="#3a2500",
            tint="#8c3b2e",
            on_tint="#ffe9d6",
        ),
        dark=True,
        wallpaper=("#22304f", "#f4845f", "#5a4a6b", "#3c3a5c", "#20243f"),
        icon_radius=6,
        grid=(("", "notes", "browser", ""), ("", "messages", "contacts", "")),
        grid_y=330,
        dock=("weather", "settings", "clock", "calculator"),
        label="#ffffff",
        widget_y=196,
        search_y=112,
        settings=("apps", "security", "devices", "battery", "display", "sound", "network", "about"),
        fab="center",
        save="top",
        tabs="bottom",
        picker="grid",
        nav="buttons",
        switch_left=True,
        browser_top=False,
    ),
)
TRAIN_LAYOUTS = range(len(LAYOUTS), 1_000_000)
UNSEEN_LAYOUTS = range(1_000_000, 2_000_000)
DRIFT_LAYOUTS = range(2_000_000, 3_000_000)
KNOWN_LAYOUTS = range(DRIFT_LAYOUTS.stop)


def layout(index: int) -> Layout:
    """Layout `index`. Raises EnvError when there is none."""
    if index not in KNOWN_LAYOUTS:
        raise EnvError(f"layout must be 0 to {KNOWN_LAYOUTS[-1]}, got {index}.", "Correct the task's params.")
    return LAYOUTS[index] if index < len(LAYOUTS) else _drawn(index)


LEAST = 3.0
"""The contrast that signs and large text need (WCAG 2.2, success criterion 1.4.11)."""
_STEPS = 40


def channels(color: str) -> tuple[int, int, int]:
    """Red, green and blue of "#rrggbb"."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def luminance(color: str) -> float:
    """Relative luminance of "#rrggbb", 0 for black to 1 for white, as WCAG defines it."""
    parts = [value / 255 for value in channels(color)]
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours "#rrggbb", 1 (the same) to 21 (black and white)."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@lru_cache(maxsize=1024)
def legible(color: str, ground: str, least: float = LEAST) -> str:
    """`color`, as far towards black or white as it takes for a contrast of `least` with `ground`.

    Args:
        color, ground: "#rrggbb".
        least: At most 4.5, which black or white has with any colour.
    """
    end = max((0, 255), key=lambda value: contrast(f"#{value:02x}{value:02x}{value:02x}", ground))
    for step in range(_STEPS + 1):
        part = step / _STEPS
        mixed = "#" + "".join(f"{round(value + (end - value) * part):02x}" for value in channels(color))
        if contrast(mixed, ground) >= least:
            return mixed
    raise AssertionError("black or white has a contrast of 4.5 with any colour")


@lru_cache(maxsize=1024)
def _drawn(seed: int) -> Layout:
    rng = random.Random(seed)
    while True:
        drawn = _draw(rng)
        is_held_out = any(has(drawn) for has in HELD_OUT.values())
        if (is_held_out, is_drifted(drawn)) == (seed not in TRAIN_LAYOUTS, seed in DRIFT_LAYOUTS):
            return drawn


HUES = 12
"""Accents have one of so many hues, from red (0) on."""
HELD_OUT: dict[str, Callable[[Layout], bool]] = {
    "accent": lambda drawn: hue(drawn.light.primary) in (1, 5, 10),
    "grid": lambda drawn: len(drawn.grid) > 1 and is_staggered(drawn.grid),
    "clock": lambda drawn: (drawn.picker, drawn.tabs) == ("pages", "top"),
    "form": lambda drawn: (drawn.fab, drawn.save) == ("center", "top"),
}
"""What no training layout has: three accents, apps in a staggered grid, and two combinations of values that
each occur in training."""


def hue(color: str) -> int:
    """The nearest of `HUES` hues of "#rrggbb"."""
    red, green, blue = (value / 255 for value in channels(color))
    return round(HUES * colorsys.rgb_to_hls(red, green, blue)[0]) % HUES


def is_staggered(grid: Sequence[Sequence[str]]) -> bool:
    """Whether the apps of the second row are in columns in which the first has none."""
    return not any(above and below for above, below in zip(grid[0], grid[1], strict=True))


def is_drifted(version: Layout) -> bool:
    """Whether the address bar is at the bottom, right above the buttons to go back and home."""
    return version.nav == "buttons" and not version.browser_top


_FORMS = ("0123", "01", "02", "03", "12", "13", "23", "staggered")
"""How apps stand on the home page: in which columns of each row, or in every other one by turns."""
_LEAST_HEIGHT = 720.0
"""The height in dp of the lowest screen on which nothing of a drawn home page overlaps."""


def _draw(rng: random.Random) -> Layout:
    """Any layout there is."""
    apps = [name for row in (*LAYOUTS[0].grid, LAYOUTS[0].dock) for name in row]
    docked = rng.choice((2, 3, 4))
    rng.shuffle(apps)
    nav, dark = rng.choice(("gesture", "buttons")), rng.random() < 0.5
    grid = _grid(rng.choice(_FORMS), apps[docked:])
    accent, ground = rng.randrange(HUES) / HUES, rng.random()
    ink, wallpaper = _wallpaper(rng, dark)
    return Layout(
        light=_scheme(False, accent, ground),
        dark_scheme=_scheme(True, accent, ground),
        dark=dark,
        wallpaper=wallpaper,
        icon_radius=rng.choice((6, 10, 14, 18, 22, 28)),
        grid=grid,
        dock=tuple(apps[:docked]),
        label=ink,
        **_places(rng, 52.0 if nav == "buttons" else 24.0, 100.0 * len(grid)),
        settings=tuple(rng.sample(LAYOUTS[0].settings, len(LAYOUTS[0].settings))),
        fab=rng.choice(("right", "left", "center")),
        save=rng.choice(("top", "bottom")),
        tabs=rng.choice(("top", "bottom")),
        picker=rng.choice(("dial", "grid", "pages")),
        nav=nav,
        switch_left=rng.random() < 0.5,
        browser_top=rng.random() < 0.5,
    )


def _grid(form: str, apps: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    left = list(apps)
    rows: list[tuple[str, ...]] = []
    while left:
        columns = form if form != "staggered" else ("02", "13")[len(rows) % 2]
        rows.append(tuple(left.pop(0) if str(at) in columns and left else "" for at in range(4)))
    return tuple(rows)


def _places(rng: random.Random, nav_h: float, grid_h: float) -> dict[str, float]:
    """The tops of widget, search pill and grid, one below the other with gaps; the last ones from below."""
    heights = {"widget_y": 104.0, "search_y": 62.0, "grid_y": grid_h}
    below = 108.0  # the dock and what its icons stand out of it
    places = {}
    if rng.random() < 0.3:  # the pill is below the dock
        places["search_y"] = -76.0
        below += 72
        del heights["search_y"]
    order = rng.sample(sorted(heights), len(heights))
    room = _LEAST_HEIGHT - 32 - nav_h - below
    spare = room - sum(heights.values())
    cuts = sorted(rng.uniform(0, spare) for _ in order)
    num_top, above = rng.randrange(len(order) + 1), 0.0
    for place, (name, gap) in enumerate(zip(order, cuts, strict=True)):
        y = float(round(above + gap))
        if name == "widget_y":
            y += 6  # it begins so much above its text
        places[name] = y if place < num_top else y - room - below
        above += heights[name]
    return places


def _tone(hue: float, light: float, full: float) -> str:
    """ "#rrggbb" of a hue, a lightness and a saturation, each 0 to 1."""
    return "#" + "".join(f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(hue, light, full))


def _scheme(dark: bool, accent: float, ground: float) -> Theme:
    """A scheme with one hue of accents and one of surfaces; everything written has a contrast of 4.5."""
    bg, card, raised = (
        _tone(ground, light, 0.35) for light in ((0.09, 0.14, 0.2) if dark else (0.95, 0.985, 0.9))
    )
    tint = _tone(accent, 0.22 if dark else 0.88, 0.6)
    primary = legible(_tone(accent, 0.75 if dark else 0.38, 0.7), raised, 4.5)
    return Theme(
        dark=dark,
        bg=bg,
        card=card,
        raised=raised,
        text=_tone(ground, 0.93 if dark else 0.1, 0.2),
        muted=legible(_tone(ground, 0.7 if dark else 0.36, 0.12), raised, 4.5),
        line=_tone(ground, 0.36 if dark else 0.8, 0.2),
        primary=primary,
        on_primary=legible(_tone(accent, 0.1 if dark else 1.0, 0.8), primary, 4.5),
        tint=tint,
        on_tint=legible(_tone(accent, 0.92 if dark else 0.16, 0.8), tint, 4.5),
    )


def _wallpaper(rng: random.Random, dark: bool) -> tuple[str, tuple[str, ...]]:
    """The ink of what stands on a wallpaper, and its colours: sky, two hills, and one behind the dock."""
    ink = "#ffffff" if dark else "#10182b"
    hues = [rng.random() for _ in range(2)]
    tones = [
        _tone(rng.choice(hues), rng.uniform(0.1, 0.4) if dark else rng.uniform(0.65, 0.95), 0.5)
        for _ in range(4)
    ]
    front = legible(_tone(hues[0], 0.2 if dark else 0.5, 0.5), "#ffffff")
    return ink, (*(legible(tone, ink, 4.5) for tone in tones), front)
