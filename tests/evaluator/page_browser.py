"""What tests of the page do in the browser."""

from __future__ import annotations

from typing import Any

from waiting import until

from distrl.workers.envs.chromium import Chromium

HARM = "<img src=x onerror='window.harm = 1'><script>window.harm = 1</script>"
_KEYS = {"ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40, "End": 35, "Home": 36, "Escape": 27}


def holds(browser: Chromium, script: str, *args: Any) -> None:
    """Waits until the script returns something true."""
    until(lambda: browser.run(script, *args), script)


def text(browser: Chromium, selector: str) -> str:
    found: str = browser.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)
    return found


def press(browser: Chromium, key: str) -> None:
    """Presses a key where the keyboard is."""
    for kind in ("keyDown", "keyUp"):
        event = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        browser.command("executeCdpCommand", cmd="Input.dispatchKeyEvent", params=event)


def assert_harmless(browser: Chromium) -> None:
    """Nothing of `HARM` has become a part of the page."""
    assert browser.run("return window.harm") is None
    assert browser.run("return document.querySelectorAll('[onerror], body script').length") == 0
