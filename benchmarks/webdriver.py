"""What a step in a browser costs through selenium and through one plain HTTP connection, on a MiniWoB++ page.

Both arms control the same session of a real Chromium and take turns, so that other load hits both. A step is
a click, the question whether the episode ended, and a screenshot.

Printed: steps per second of each arm (median over the turns), and the ratio selenium / plain.

    python benchmarks/webdriver.py [--steps 40] [--turns 10]
"""

from __future__ import annotations

import argparse
import base64
import http.client
import io
import json
import statistics
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from PIL import Image

from distrl.core.types import Task
from distrl.workers.envs.chromium import Chromium
from distrl.workers.envs.miniwob import SIZE, MiniWob

PAGE = "click-test-2"
STATE = "return {done: WOB_DONE_GLOBAL, raw: WOB_RAW_REWARD_GLOBAL};"
Step = Callable[[float, float], None]


def through_selenium(browser: Chromium) -> Step:
    """A step as `BrowserEnv` makes it."""

    def step(x: float, y: float) -> None:
        browser.click(x, y)
        browser.run(STATE)
        browser.screenshot()

    return step


def plain(browser: Chromium) -> Step:
    """The same step by `http.client`."""
    remote = browser.remote
    place = urlsplit(remote.command_executor.client_config.remote_server_addr)
    connection = http.client.HTTPConnection(place.hostname or "", place.port)

    def send(path: str, body: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"/session/{remote.session_id}/{path}", json.dumps(body), headers)
        return json.loads(connection.getresponse().read())["value"]

    def step(x: float, y: float) -> None:
        move = {"type": "pointerMove", "duration": 0, "x": int(x * SIZE[0]), "y": int(y * SIZE[1])}
        press = [{"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp")]
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}}
        send("actions", {"actions": [{**mouse, "actions": [move, *press]}]})
        send("execute/sync", {"script": STATE, "args": []})
        look = {"format": "png", "optimizeForSpeed": True}
        reply = send("goog/cdp/execute", {"cmd": "Page.captureScreenshot", "params": look})
        Image.open(io.BytesIO(base64.b64decode(reply["data"]))).convert("RGB")

    return step


def rate(step: Step, steps: int) -> float:
    """Steps per second; the clicks go across the page."""
    since = time.perf_counter()
    for number in range(steps):
        step(0.1 + 0.8 * number / steps, 0.95)
    return steps / (time.perf_counter() - since)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=40, help="Steps in each turn.")
    parser.add_argument("--turns", type=int, default=10, help="Turns of each arm.")
    given = parser.parse_args()
    site, browser = MiniWob(), Chromium(SIZE)
    task = Task(id="t", suite="t", template=PAGE, split="x", goal="", params={"env": PAGE}, seed=1)
    try:
        site.begin(browser, task)
        arms = {"plain": plain(browser), "selenium": through_selenium(browser)}
        rates: dict[str, list[float]] = {name: [] for name in arms}
        for _ in range(given.turns + 1):
            for name, step in arms.items():
                rates[name].append(rate(step, given.steps))
    finally:
        browser.close()
    medians = {name: statistics.median(found[1:]) for name, found in rates.items()}  # the first turn warms up
    for name, median in medians.items():
        print(f"{name:<9} {median:7.1f} steps/s   {1000 / median:6.2f} ms a step")
    print(f"selenium / plain: {medians['selenium'] / medians['plain']:.2f}")


if __name__ == "__main__":
    main()
