"""Colours that can be told from what is behind them."""

from __future__ import annotations

from functools import lru_cache

LEAST = 3.0
"""The contrast that signs and large text need (WCAG 2.2, success criterion 1.4.11)."""
LEAST_TEXT = 4.5
"""The contrast that other text needs (criterion 1.4.3)."""
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
