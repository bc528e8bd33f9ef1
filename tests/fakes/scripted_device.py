"""A device that shows one picture and notes what was done to it."""

from __future__ import annotations

from PIL import Image

from distrl.workers.devices.device import Key, Screen


class ScriptedDevice:
    """White screen; every call is in `calls`. Its snapshots are names in `snapshots`."""

    size = (100, 200)

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.snapshots: set[str] = set()
        self.closed = 0

    def screenshot(self) -> Image.Image:
        return Image.new("RGB", self.size, "white")

    def screen(self) -> Screen:
        return Screen.of(self.screenshot())

    def tap(self, x: int, y: int) -> None:
        self.calls.append(("tap", x, y))

    def double_tap(self, x: int, y: int) -> None:
        self.calls.append(("double_tap", x, y))

    def long_press(self, x: int, y: int) -> None:
        self.calls.append(("long_press", x, y))

    def swipe(self, x1: int, y1: int, x2: int, y2: int, duration_ms: int = 300) -> None:
        self.calls.append(("swipe", x1, y1, x2, y2))

    def type_text(self, text: str) -> None:
        self.calls.append(("type", text))

    def key(self, key: Key) -> None:
        self.calls.append(("key", key))

    def open_app(self, name: str) -> bool:
        self.calls.append(("open_app", name))
        return True

    def hierarchy(self) -> str:
        return "<hierarchy/>"

    def foreground(self) -> str:
        return "com.android.launcher3"

    def save_state(self, name: str) -> None:
        self.snapshots.add(name)

    def load_state(self, name: str) -> None:
        self.calls.append(("load", name))

    def close(self) -> None:
        self.closed += 1
