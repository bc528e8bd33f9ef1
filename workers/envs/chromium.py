"""A headless Chromium: look (screenshots), touch (mouse and keys) and ask (JavaScript) the page in front.

The window is exactly the size that is looked at, so a screenshot needs no clipping, and the frame rate is not
limited, so nothing waits for a display's next refresh: a screenshot takes a few milliseconds instead of 50.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

from PIL import Image

from distrl.workers.envs.chromedriver import (
    BROWSER_NAMES,
    BROWSER_VARIABLE,
    DRIVER_NAMES,
    DRIVER_VARIABLE,
    ChromeDriver,
    find_program,
)

FLAGS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-default-apps",
    "--disable-breakpad",
    "--disable-dev-shm-usage",
    "--disable-frame-rate-limit",
    "--disable-partial-raster",
    "--hide-scrollbars",
    "--mute-audio",
    "--lang=en-US",
    "--force-color-profile=srgb",
)

# Key codes of W3C WebDriver for the characters that are keys rather than text.
ENTER, ESCAPE, HOME_KEY, TAB, BACKSPACE = "\ue007", "\ue00c", "\ue011", "\ue004", "\ue003"
_AS_KEYS = {"\n": ENTER, "\t": TAB, "\b": BACKSPACE}


MAX_TABS = 8


class Chromium:
    """One browser; everything happens to the tab in front.

    Args:
        size: Width and height of the pages in CSS pixels.
        scale: Screenshot pixels per CSS pixel.
        browser, driver: Paths; found by environment variable or on PATH when None.
        sandbox: Whether Chromium's sandbox is on. It does not work for root or in most containers.
        flags: Further command-line flags.
        deadline_s, start_deadline_s: Longest wait for one command, and for the start.

    Raises:
        MissingDependency: Chromium or chromedriver is not installed.
        EnvError: It did not start. Every method raises it when the browser fails; the browser is gone then.
    """

    def __init__(
        self,
        size: tuple[int, int],
        scale: float = 1.0,
        browser: str | None = None,
        driver: str | None = None,
        sandbox: bool = False,
        flags: Sequence[str] = (),
        deadline_s: float = 30.0,
        start_deadline_s: float = 60.0,
    ) -> None:
        browser_path = find_program("Chromium", browser, BROWSER_VARIABLE, BROWSER_NAMES)
        driver_path = find_program("chromedriver", driver, DRIVER_VARIABLE, DRIVER_NAMES)
        all_flags = [*FLAGS, *([] if sandbox else ["--no-sandbox"]), *flags]
        self.size = size
        self._scale = scale
        self.driver = ChromeDriver(driver_path, browser_path, all_flags, deadline_s, start_deadline_s)
        self._front: str = self.driver.command("window")
        # Address -> tab, least recently shown first.
        self._tabs: dict[str, str] = {}
        self._fit()

    @property
    def alive(self) -> bool:
        """Whether the browser can still be used."""
        return self.driver.alive

    def open(self, url: str) -> None:
        """Loads `url` in the tab in front and waits for its load event."""
        self._tabs = {address: tab for address, tab in self._tabs.items() if tab != self._front}
        self.driver.command("url", {"url": url})
        self._tabs[url] = self._front

    def show(self, url: str) -> None:
        """Brings the tab that shows `url` to the front, as it was left; loads it if there is none.

        Coming back costs a fraction of loading. Beyond `MAX_TABS` the least recently shown tab is given up.
        """
        tab = self._tabs.pop(url, None)
        if tab is not None:
            self._tabs[url] = tab
            self._bring_to_front(tab)
            return
        if len(self._tabs) < MAX_TABS:
            if self._tabs:
                self._bring_to_front(self.driver.command("window/new", {"type": "tab"})["handle"])
                self._fit()
        else:
            self._bring_to_front(next(iter(self._tabs.values())))
        self.open(url)

    def run(self, script: str, *args: Any) -> Any:
        """Runs the body of a JavaScript function in the page; `arguments` are `args`; returns its value."""
        return self.driver.command("execute/sync", {"script": script, "args": list(args)})

    def screenshot(self) -> Image.Image:
        """What the page shows now, RGB, `size` times `scale` pixels."""
        reply = self._cdp("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True})
        encoded: bytes = base64.b64decode(reply["data"])
        image: Image.Image = Image.open(io.BytesIO(encoded)).convert("RGB")
        return image

    def click(self, x: float, y: float, hold_ms: int = 0) -> None:
        """Presses the mouse at (x, y), fractions of the page's size, and releases it after `hold_ms`."""
        self._mouse([self._move(x, y), _DOWN, *([_pause(hold_ms)] if hold_ms else []), _UP])

    def drag(self, start: tuple[float, float], end: tuple[float, float], duration_ms: int = 200) -> None:
        """Drags the mouse from `start` to `end`, fractions of the page's size."""
        self._mouse([self._move(*start), _DOWN, self._move(*end, duration_ms=duration_ms), _UP])

    def rest_mouse(self) -> None:
        """Moves the mouse to the corner, so that it hovers over nothing of interest."""
        self._mouse([self._move(0.0, 0.0)])

    def type_keys(self, text: str) -> None:
        """Presses and releases one key per character; newline, tab and backspace become their keys."""
        keys = [_AS_KEYS.get(character, character) for character in text]
        events = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        if events:
            self._actions({"type": "key", "id": "keyboard", "actions": events})

    def close(self) -> None:
        """Ends the browser and all its processes. May be called twice."""
        self.driver.close()

    def _bring_to_front(self, tab: str) -> None:
        if tab != self._front:
            self.driver.command("window", {"handle": tab})
            self._cdp("Page.bringToFront", {})
            self._front = tab

    def _fit(self) -> None:
        """Gives the tab in front exactly the size that is looked at."""
        width, height = self.size
        metrics = {"width": width, "height": height, "deviceScaleFactor": self._scale, "mobile": False}
        self._cdp("Emulation.setDeviceMetricsOverride", metrics)

    def _move(self, x: float, y: float, duration_ms: int = 0) -> dict[str, Any]:
        width, height = self.size
        column, row = min(int(x * width), width - 1), min(int(y * height), height - 1)
        return {"type": "pointerMove", "duration": duration_ms, "x": column, "y": row}

    def _mouse(self, events: list[dict[str, Any]]) -> None:
        self._actions(
            {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": events}
        )

    def _actions(self, source: dict[str, Any]) -> None:
        self.driver.command("actions", {"actions": [source]})

    def _cdp(self, method: str, params: dict[str, Any]) -> Any:
        return self.driver.command("goog/cdp/execute", {"cmd": method, "params": params})


_DOWN: dict[str, Any] = {"type": "pointerDown", "button": 0}
_UP: dict[str, Any] = {"type": "pointerUp", "button": 0}


def _pause(duration_ms: int) -> dict[str, Any]:
    return {"type": "pause", "duration": duration_ms}
