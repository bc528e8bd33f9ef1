"""What is written and drawn on the screens of daily use can be told from what is behind it, in both modes."""

from __future__ import annotations

import pytest
from phone_crawl import crawl, everyday
from PIL import Image, ImageStat

from distrl.simulator.phone import render, theme
from distrl.simulator.phone.nodes import Node
from distrl.simulator.phone.phone import Phone
from distrl.simulator.phone.theme import LAYOUTS

SIZE = (270, 600)
SIGNS = (15, 22)
"""Sizes of the signs on the wallpaper: notifications in the status bar, today's weather."""

LEAST_TEXT = 4.5
"""The contrast that text needs which is neither large nor bold (WCAG 2.2, criterion 1.4.3)."""


class Meter(render.Painter):
    """Notes the contrast of each text and icon with the mean colour of what it is painted on."""

    def __init__(self) -> None:
        super().__init__(*SIZE)
        self.found: list[tuple[float, Node]] = []
        self._drawn: Node | None = None

    def _icon(self, node: Node, clip: render.Clip) -> None:
        self._drawn = node
        super()._icon(node, clip)
        self._drawn = None

    def _text(self, node: Node, clip: render.Clip) -> None:
        self._drawn = node
        super()._text(node, clip)
        self._drawn = None

    def stamp(self, mask: Image.Image, x: int, y: int, color: str, clip: render.Clip) -> None:
        if self._drawn is not None:
            there = Image.new("L", self.image.size)
            there.paste(mask, (x, y))
            shown = Image.new("L", self.image.size)
            shown.paste(there.crop(clip), clip[:2])
            if shown.getbbox() is not None and len(color) == 7:
                ground = [round(value) for value in ImageStat.Stat(self.image, shown).mean]
                behind = "#" + "".join(f"{value:02x}" for value in ground)
                self.found.append((theme.contrast(color, behind), self._drawn))
        super().stamp(mask, x, y, color, clip)


def poor(tree: Node) -> list[Node]:
    """What has too little contrast: signs and large text less than 3, other text less than 4.5."""
    meter = Meter()
    meter.node(tree, (0, 0, *SIZE))
    return [
        node
        for ratio, node in meter.found
        if ratio < (theme.LEAST if node.icon or node.size >= 24 or node.bold else LEAST_TEXT)
    ]


def daily(layout: int, app: str, dark: bool) -> Phone:
    phone = everyday(layout, app)
    phone.state["apps"]["settings"]["dark"] = dark
    notes = phone.state["apps"]["notes"]["notes"]
    notes[0]["pinned"] = True
    notes.append({"title": "Packing", "items": [["Sunscreen", True], ["Towels", False]]})
    phone.state["apps"]["contacts"]["calls"] = [["Maria", "missed"]]
    phone.load(phone.dump())
    return phone


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
@pytest.mark.parametrize("app", ["weather", "notes", "files", "mail"])
def test_pages_can_be_read(app: str, layout: int, dark: bool) -> None:
    for tree in crawl(layout, 10, daily(layout, app, dark)):
        if tree.rid != "launcher":
            assert poor(tree) == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
def test_status_bar_and_weather_can_be_told_from_the_wallpaper(layout: int, dark: bool) -> None:
    phone = daily(layout, "weather", dark)
    phone.home()
    for city in range(3):
        phone.state["apps"]["weather"]["city"] = city
        phone.load(phone.dump())
        found = poor(phone.tree())
        assert [node for node in found if node.rid.startswith(("status_", "home_"))] == []
        assert [node for node in found if node.icon_size in SIGNS] == []


@pytest.mark.parametrize("ground", ["#ffffff", "#000000", "#777777", "#e69147", "#2b3450"])
def test_a_colour_goes_no_further_than_it_must(ground: str) -> None:
    for least in (theme.LEAST, LEAST_TEXT):
        for color in ("#f9ab00", "#8aa0b8", "#5c6bc0", ground):
            found = theme.legible(color, ground, least)
            assert theme.contrast(found, ground) >= least
            assert (found == color) == (theme.contrast(color, ground) >= least)


def test_contrast_is_that_of_the_standard() -> None:
    assert theme.contrast("#ffffff", "#000000") == pytest.approx(21.0)
    assert theme.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
