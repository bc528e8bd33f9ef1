"""Roboto and the Material icons: glyph masks and text widths, cached and safe to use from many threads."""

from __future__ import annotations

import threading
from functools import lru_cache
from importlib import resources

from PIL import Image, ImageDraw, ImageFont

_LOCK = threading.Lock()
_FOLDER = resources.files("distrl.simulator.phone") / "fonts"
CAP_HEIGHT = 0.711
"""Roboto's cap height in em: what looks vertically centred."""


@lru_cache(maxsize=1)
def icons() -> dict[str, str]:
    """Icon names and their characters."""
    lines = (_FOLDER / "icons.txt").read_text(encoding="utf-8").split("\n")
    return {name: chr(int(code, 16)) for name, code in (line.split() for line in lines if line)}


@lru_cache(maxsize=256)
def font(file: str, px: int) -> ImageFont.FreeTypeFont:
    """The font in `file`, `px` pixels to the em."""
    with resources.as_file(_FOLDER / file) as path, _LOCK:
        return ImageFont.truetype(str(path), px, layout_engine=ImageFont.Layout.BASIC)


def roboto(bold: bool) -> str:
    """The file of the regular or the medium weight."""
    return "Roboto-Medium.ttf" if bold else "Roboto-Regular.ttf"


@lru_cache(maxsize=8192)
def text_width(text: str, bold: bool, px: int) -> float:
    """Advance width of `text` in pixels."""
    face = font(roboto(bold), px)
    with _LOCK:
        return float(face.getlength(text))


@lru_cache(maxsize=4096)
def text_mask(text: str, bold: bool, px: int) -> tuple[Image.Image, int]:
    """The text's coverage and the pixels from the mask's top to the baseline."""
    face = font(roboto(bold), px)
    width = int(text_width(text, bold, px)) + 4
    ascent = int(px * 1.05) + 1
    mask = Image.new("L", (width, ascent + int(px * 0.35) + 1), 0)
    with _LOCK:
        ImageDraw.Draw(mask).text((1, ascent), text, fill=255, font=face, anchor="ls")
    return mask, ascent


@lru_cache(maxsize=1024)
def icon_mask(name: str, px: int) -> Image.Image:
    """The icon's coverage, `px` by `px`."""
    face = font("MaterialIconsRound.ttf", px)
    mask = Image.new("L", (px, px), 0)
    with _LOCK:
        ImageDraw.Draw(mask).text((0, px), icons()[name], fill=255, font=face, anchor="ls")
    return mask


@lru_cache(maxsize=4096)
def wrap(text: str, bold: bool, px: int, width: float, lines: int) -> tuple[str, ...]:
    """`text` broken into at most `lines` lines of at most `width` pixels; the last ends in … when cut."""
    rows: list[str] = []
    for line in text.split("\n"):
        rows.append("")
        for word in line.split(" "):
            trial = f"{rows[-1]} {word}" if rows[-1] else word
            if not rows[-1] or text_width(trial, bold, px) <= width:
                rows[-1] = trial
            else:
                rows.append(word)
    kept = rows[:lines]
    if len(rows) > lines:
        kept[-1] = f"{kept[-1]} {rows[lines]}"
    return tuple(_ellipsis(row, bold, px, width) for row in kept)


def _ellipsis(row: str, bold: bool, px: int, width: float) -> str:
    if text_width(row, bold, px) <= width:
        return row
    while row and text_width(row + "…", bold, px) > width:
        row = row[:-1]
    return row.rstrip() + "…"
