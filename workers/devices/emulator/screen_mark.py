"""What a snapshot's screen looks like: a checksum and, because clocks go on, a coarse picture to compare.

The status bar is left out. Equal checksums are equal screens; else the share of coarse cells that differ
counts: a date on the home page changes a few of them, another page most.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from distrl.workers.devices.errors import FrameTruncated
from distrl.workers.devices.settle import STATUS_BAR

COLUMNS, ROWS = 18, 38
CELL_TOLERANCE = 12
"""Levels of 256 by which each colour of a cell may differ and still be the same."""
MAX_CHANGED = 0.05
"""Share of the cells that may differ on the same screen."""


@dataclass(frozen=True)
class ScreenMark:
    """One screen.

    Attributes:
        width, height: Its size in pixels.
        sha256: Of its RGB bytes without the status bar.
        cells: Its mean colour in ROWS x COLUMNS cells, row by row, as hexadecimal RGB bytes.
    """

    width: int
    height: int
    sha256: str
    cells: str

    def changed(self, other: ScreenMark) -> float:
        """The share of cells that differ, 0 for the same screen; 1 for screens of another size."""
        if (self.width, self.height) != (other.width, other.height):
            return 1.0
        if self.sha256 == other.sha256:
            return 0.0
        mine, theirs = self._cells(), other._cells()
        if mine.shape != theirs.shape:
            return 1.0
        return float((np.abs(mine - theirs) > CELL_TOLERANCE).any(axis=1).mean())

    def _cells(self) -> NDArray[np.int16]:
        """One row of three colours for each cell."""
        return np.frombuffer(bytes.fromhex(self.cells), np.uint8).astype(np.int16).reshape(-1, 3)


def mark_of(png: bytes, serial: str = "") -> ScreenMark:
    """The mark of a screenshot.

    Args:
        png: The screenshot's PNG bytes.
        serial: For the error.

    Raises:
        FrameTruncated: If these bytes are no picture.
    """
    try:
        with Image.open(io.BytesIO(png)) as opened:
            image = opened.convert("RGB")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise FrameTruncated(
            f"the screenshot of {len(png)} bytes is no picture: {error}.", "Look again.", serial=serial
        ) from error
    width, height = image.size
    body = image.crop((0, round(STATUS_BAR[3] * height), width, height))
    cells = body.resize((COLUMNS, ROWS), Image.Resampling.BOX)
    return ScreenMark(width, height, hashlib.sha256(body.tobytes()).hexdigest(), cells.tobytes().hex())
