"""Colours (light and dark schemes, contrast) and the six UI versions that `layout` chooses from.

A layout fixes where things are and how they look. Layouts 0-3 are for training; 4 is held out to measure
what is learned about interfaces never seen; 5 is what an interface changes to while it is trained on.
"""

from __future__ import annotations

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
TRAIN_LAYOUTS = (0, 1, 2, 3)
UNSEEN_LAYOUTS = (4,)


def layout(index: int) -> Layout:
    """Layout `index`. Raises EnvError when there is none."""
    if not 0 <= index < len(LAYOUTS):
        raise EnvError(f"layout must be 0 to {len(LAYOUTS) - 1}, got {index}.", "Correct the task's params.")
    return LAYOUTS[index]


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
