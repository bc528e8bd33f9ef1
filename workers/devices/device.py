"""The device interface: one screen that is looked at, touched and typed on, with snapshots of its state."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from PIL import Image


class Key(str, Enum):
    """The keys that a device has besides the keyboard."""

    BACK = "back"
    HOME = "home"
    ENTER = "enter"


@dataclass(frozen=True)
class Screen:
    """What a device shows at one moment.

    Attributes:
        picture: Gives its RGB picture.
        key: Equal for equal pictures, where that is known without one (a simulated screen), else None. A
            screen that was seen before need not be drawn again.
    """

    picture: Callable[[], Image.Image]
    key: Hashable | None = None

    @classmethod
    def of(cls, image: Image.Image) -> Screen:
        """A screen whose picture has been taken."""
        return cls(lambda: image)


class Device(Protocol):
    """One phone. Used by one thread at a time. Failures raise `EnvError` with fault "device"."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the screen in pixels."""

    def screenshot(self) -> Image.Image:
        """The screen as an RGB picture; the caller owns it."""

    def screen(self) -> Screen:
        """The present screen, which may be drawn later; a real device takes its screenshot now."""

    def tap(self, x: int, y: int) -> None:
        """A short touch at pixel (x, y)."""

    def double_tap(self, x: int, y: int) -> None:
        """Two short touches at pixel (x, y), close enough to be one gesture."""

    def long_press(self, x: int, y: int) -> None:
        """A long touch at pixel (x, y)."""

    def swipe(self, x1: int, y1: int, x2: int, y2: int, duration_ms: int = 300) -> None:
        """A finger that moves from (x1, y1) to (x2, y2), in pixels."""

    def type_text(self, text: str) -> None:
        """Text into the focused field."""

    def key(self, key: Key) -> None:
        """Presses a key."""

    def open_app(self, name: str) -> bool:
        """Brings the app of this name to the front; see `distrl.workers.devices.apps`.

        Returns:
            Whether there is one that starts; else nothing happens.
        """

    def hierarchy(self) -> str:
        """The screen's elements as uiautomator XML."""

    def foreground(self) -> str:
        """The name of the app in front."""

    def save_state(self, name: str) -> None:
        """Keeps a snapshot of everything on the device under `name`, in place of an older one."""

    def load_state(self, name: str) -> None:
        """Brings back the snapshot `name`. Raises EnvError when there is none."""

    def close(self) -> None:
        """Releases the device. May be called twice."""
