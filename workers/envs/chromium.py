"""A headless Chromium: look (screenshots), touch (mouse and keys) and ask (JavaScript) the page in front.

The window is exactly the size that is looked at, so a screenshot needs no clipping. It takes 40 ms, since it
waits for the next frame; without a limit of the frame rate it would take 14 ms, and a step twice the CPU
time. All tabs share one process, so that a hundred pages can stay loaded.

A script in every page (page.js) draws the options of a <select>, which no screenshot shows otherwise.

It is one chromedriver process with its browser, controlled by selenium. They are a process group, so one
signal ends both. A watcher ends it when this process dies, however it dies. All that the browser writes is in
one temporary directory.
"""

from __future__ import annotations

import base64
import importlib.util
import io
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from distrl.core.errors import EnvError, MissingDependency

_log = logging.getLogger(__name__)

BROWSER_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
DRIVER_NAMES = ("chromedriver", "chromium.chromedriver")
BROWSER_VARIABLE = "DISTRL_CHROMIUM"
DRIVER_VARIABLE = "DISTRL_CHROMEDRIVER"

# Waits for the end of a pipe from this process. $0 is the process group to end then, $1 the directory to
# remove, which fails while a process still writes into it.
_WATCH = """
read _
kill -9 "-$0" 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9; do rm -rf -- "$1" 2>/dev/null && break; sleep 0.1; done
"""


def find_program(what: str, given: str | None, variable: str, names: Sequence[str]) -> str:
    """The path of a program: as given, else from an environment variable, else the first name on PATH."""
    wanted = given or os.environ.get(variable)
    for name in [wanted] if wanted else names:
        path = shutil.which(name)
        if path is not None:
            return path
    looked_for = repr(wanted) if wanted else ", ".join(names) + " on PATH"
    raise MissingDependency(
        f"{what} is needed and was not found (looked for {looked_for}).",
        f"Install it (Debian: apt install chromium chromium-driver) or set {variable} to its path.",
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
    "--process-per-site",
    "--disable-partial-raster",
    "--disable-smooth-scrolling",
    "--hide-scrollbars",
    "--mute-audio",
    "--lang=en-US",
    "--force-color-profile=srgb",
)

# Key codes of W3C WebDriver for the characters that are keys rather than text.
ENTER, ESCAPE, HOME_KEY, TAB, BACKSPACE = "\ue007", "\ue00c", "\ue011", "\ue004", "\ue003"
_ARROWS = {"←": "\ue012", "↑": "\ue013", "→": "\ue014", "↓": "\ue015"}
_AS_KEYS = {"\n": ENTER, "\t": TAB, "\b": BACKSPACE, **_ARROWS}
PAGE_SCRIPT = Path(__file__).with_name("page.js").read_text(encoding="utf-8")


MAX_TABS = 128
DRAG_MS = 80
START_S = 60.0  # how long the browser may take to start


class Chromium:
    """One browser; everything happens to the tab in front.

    Args:
        size: Width and height of the pages in CSS pixels.
        browser, driver: Paths; by default from DISTRL_CHROMIUM and DISTRL_CHROMEDRIVER, or on PATH.
        sandbox: Whether Chromium's sandbox is on. It does not work for root or in most containers.
        deadline_s: Longest wait for one command.

    The browser writes only into the temporary directory `home`. `remote` is selenium's session, None once the
    browser is gone.

    Raises:
        MissingDependency: Chromium, chromedriver or selenium is not installed.
        EnvError: It did not start. Every method raises it when the browser fails; the browser is gone then.
    """

    def __init__(
        self,
        size: tuple[int, int],
        scale: float = 1.0,
        browser: str | None = None,
        driver: str | None = None,
        sandbox: bool = False,
        deadline_s: float = 30.0,
    ) -> None:
        if importlib.util.find_spec("selenium") is None:
            raise MissingDependency(
                "A browser is controlled by selenium, which is not installed.",
                "Install it: pip install 'distrl[browser]'.",
            )
        browser_path = find_program("Chromium", browser, BROWSER_VARIABLE, BROWSER_NAMES)
        driver_path = find_program("chromedriver", driver, DRIVER_VARIABLE, DRIVER_NAMES)
        all_flags = [*FLAGS, *([] if sandbox else ["--no-sandbox"])]
        self.size, self._scale = size, scale
        self.home = Path(tempfile.mkdtemp(prefix="distrl-browser-"))
        self.remote: Any = None
        self._service = self._launch(driver_path)
        watch = ["/bin/sh", "-c", _WATCH, str(self.process_group), str(self.home)]
        self._watcher = subprocess.Popen(watch, stdin=subprocess.PIPE, start_new_session=True)
        with self._deadline("newSession"):
            self._open_session(self._service.service_url, browser_path, all_flags, deadline_s)
        self._front: str = self.command("w3cGetCurrentWindowHandle")
        # Address -> tab, least recently shown first.
        self._tabs: dict[str, str] = {}
        self._set_up()

    @property
    def process_group(self) -> int:
        """The id of the process group that holds the driver and the browser."""
        pid: int = self._service.process.pid
        return pid

    def command(self, name: str, **parameters: Any) -> Any:
        """Sends a command of `selenium.webdriver.remote.command.Command`, e.g. "get"; returns its value.

        Raises:
            EnvError: The browser refused, died or did not answer in time. All processes are killed then,
                because nothing is known about the page any more.
        """
        if self.remote is None:
            raise EnvError("the browser is not running.", "Reset the environment: it starts a fresh one.")
        with self._deadline(name):
            return self.remote.execute(name, parameters)["value"]

    def open(self, url: str) -> None:
        self._tabs = {address: tab for address, tab in self._tabs.items() if tab != self._front}
        self.command("get", url=url)
        self._tabs[url] = self._front

    def show(self, url: str) -> None:
        """Brings the tab that shows `url` to the front, as it was left; loads it if there is none.

        Coming back costs a third of loading. Beyond `MAX_TABS` the least recently shown tab is given up; a
        hundred pages of MiniWoB take 0.9 GB.
        """
        tab = self._tabs.pop(url, None)
        if tab is not None:
            self._tabs[url] = tab
            self._bring_to_front(tab)
            return
        if len(self._tabs) < MAX_TABS:
            if self._tabs:
                self._bring_to_front(self.command("newWindow", type="tab")["handle"])
                self._set_up()
        else:
            self._bring_to_front(next(iter(self._tabs.values())))
        self.open(url)

    def run(self, script: str, *args: Any) -> Any:
        """Runs the body of a JavaScript function in the page; `arguments` are `args`; returns its value."""
        return self.command("w3cExecuteScript", script=script, args=list(args))

    def screenshot(self) -> Image.Image:
        """What the page shows now, RGB, `size` times `scale` pixels."""
        reply = self._cdp("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True})
        encoded: bytes = base64.b64decode(reply["data"])
        image: Image.Image = Image.open(io.BytesIO(encoded)).convert("RGB")
        return image

    def click(self, x: float, y: float, hold_ms: int = 0, times: int = 1) -> None:
        """Presses the mouse at (x, y), fractions of the page's size, and releases it after `hold_ms`."""
        self._mouse([self._move(x, y), *[_DOWN, {"type": "pause", "duration": hold_ms}, _UP] * times])

    def scroll(self, start: tuple[float, float], end: tuple[float, float]) -> bool:
        """Scrolls what lies at `start` as a finger does that moves to `end`; False if it cannot scroll."""
        (x, y), (width, height) = start, self.size
        by = [(end[0] - x) * width, (end[1] - y) * height]
        at = [min(x * width, width - 1), min(y * height, height - 1)]
        return bool(self.run("return distrl.scroll(...arguments)", *at, *by))

    def select(self, x: float, y: float) -> bool:
        """Selects the paragraph at (x, y); False if there is none, or if it takes clicks itself."""
        width, height = self.size
        return bool(self.run("return distrl.select(...arguments)", x * width, y * height))

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drags the mouse from `start` to `end`, fractions of the page's size.

        It goes a little further and back: lists that are sorted by dragging move an entry only once the mouse
        is past the middle of another.
        """
        (x, y), (to_x, to_y) = start, end
        beyond = (to_x + 0.02 * ((to_x > x) - (to_x < x)), to_y + 0.02 * ((to_y > y) - (to_y < y)))
        way = [
            ((2 * x + to_x) / 3, (2 * y + to_y) / 3),
            ((x + 2 * to_x) / 3, (y + 2 * to_y) / 3),
            beyond,
            end,
        ]
        moves = [self._move(*point, duration_ms=DRAG_MS // len(way)) for point in way]
        self._mouse([self._move(x, y), _DOWN, *moves, _UP])

    def rest_mouse(self) -> None:
        """Moves the mouse to the corner, so that it hovers over nothing of interest."""
        self._mouse([self._move(0.0, 0.0)])

    def type_keys(self, text: str) -> None:
        """Presses and releases one key per character; newline, tab, backspace and arrows are their keys."""
        keys = [_AS_KEYS.get(character, character) for character in text]
        events = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        if events:
            self.command("actions", actions=[{"type": "key", "id": "keyboard", "actions": events}])

    def close(self) -> None:
        """Kills driver and browser and removes `home`. May be called twice."""
        self.remote = None
        if self._watcher.returncode is None:
            self._watcher.communicate()
            self._service.process.wait()

    def _launch(self, driver: str) -> Any:
        """Selenium's service, whose process is the driver."""
        from selenium.common.exceptions import WebDriverException
        from selenium.webdriver.chrome.service import Service

        home, log = str(self.home), self.home / "driver.log"
        environment = dict(os.environ, HOME=home, TMPDIR=home)
        environment |= {"XDG_CONFIG_HOME": f"{home}/config", "XDG_CACHE_HOME": f"{home}/cache"}
        try:
            with log.open("wb") as output:
                own_group = {"start_new_session": True}
                service = Service(driver, log_output=output, env=environment, popen_kw=own_group)
                service.start()
        except (WebDriverException, OSError) as error:
            printed = log.read_text(encoding="utf-8", errors="replace")[-300:].strip()
            shutil.rmtree(self.home, ignore_errors=True)
            raise EnvError(
                f"chromedriver did not start: {printed or error}.", "Run it by hand with --port=0 to see why."
            ) from error
        return service

    def _open_session(self, address: str, browser: str, flags: Sequence[str], deadline_s: float) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.remote_connection import ChromeRemoteConnection
        from selenium.webdriver.common.proxy import Proxy, ProxyType
        from selenium.webdriver.remote.client_config import ClientConfig

        wait_ms = int(deadline_s * 1000)
        # urllib3 would repeat a command that got no answer.
        once = {"init_args_for_pool_manager": {"retries": False}}
        direct = Proxy({"proxyType": ProxyType.DIRECT})
        settings = ClientConfig(address, init_args_for_pool_manager=once, proxy=direct)
        settings.timeout = START_S
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for flag in (*flags, f"--user-data-dir={self.home / 'profile'}"):
            options.add_argument(flag)
        options.unhandled_prompt_behavior = "dismiss"  # an alert() would otherwise block the page for ever
        options.timeouts = {"pageLoad": wait_ms, "script": wait_ms, "implicit": 0}
        connection = ChromeRemoteConnection(address, client_config=settings)
        self.remote = webdriver.Remote(connection, options=options)
        settings.timeout = deadline_s

    @contextmanager
    def _deadline(self, name: str) -> Iterator[None]:
        import urllib3.exceptions as http
        from selenium.common.exceptions import WebDriverException

        try:
            yield
        except (http.HTTPError, OSError, ValueError, KeyError, WebDriverException) as error:
            self.close()
            what = f"the browser's driver went away ({type(error).__name__}: {error})"
            if isinstance(error, http.TimeoutError | TimeoutError):
                what = f"the browser did not answer {name!r} in time"
            elif isinstance(error, WebDriverException):
                reason = str(error.msg or error).split("\n", 1)[0]
                what = f"the browser refused {name!r}: {reason}"
            raise EnvError(f"{what}.") from error

    def _bring_to_front(self, tab: str) -> None:
        if tab != self._front:
            self.command("switchToWindow", handle=tab)
            self._cdp("Page.bringToFront", {})
            self._front = tab

    def _set_up(self) -> None:
        """Gives the tab in front the size that is looked at, and its pages page.js."""
        width, height = self.size
        metrics = {"width": width, "height": height, "deviceScaleFactor": self._scale, "mobile": False}
        self._cdp("Emulation.setDeviceMetricsOverride", metrics)
        self._cdp("Page.addScriptToEvaluateOnNewDocument", {"source": PAGE_SCRIPT})

    def _move(self, x: float, y: float, duration_ms: int = 0) -> dict[str, Any]:
        width, height = self.size
        column, row = (
            max(0, min(int(at), most - 1)) for at, most in ((x * width, width), (y * height, height))
        )
        return {"type": "pointerMove", "duration": duration_ms, "x": column, "y": row}

    def _mouse(self, events: list[dict[str, Any]]) -> None:
        kind = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}}
        self.command("actions", actions=[{**kind, "actions": events}])

    def _cdp(self, method: str, params: dict[str, Any]) -> Any:
        return self.command("executeCdpCommand", cmd=method, params=params)


_DOWN: dict[str, Any] = {"type": "pointerDown", "button": 0}
_UP: dict[str, Any] = {"type": "pointerUp", "button": 0}
