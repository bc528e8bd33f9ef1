"""The phone's state: plain JSON-able data, and the few operations that every app needs on it.

layout, time (minutes after midnight), elapsed_s     the UI version and the clock
installed                                             names of the apps on the phone
front, stacks                                         the app in front; each app's open pages, last on top
fields, focus, shift, symbols                         text in fields by key, the focused key, keyboard modes
home_page                                             the page of the home screen that is shown, from 0
shade                                                 whether the notification shade is open; None without one
notifications                                         what the shade lists, newest first: app, title, text
opened                                                notifications that were opened, and so left the shade
flashlight                                            whether it is on
overlay, pending, permissions                         interruptions: on the screen, to come; what apps may do
scrolls                                               scroll offsets in dp by key
toast                                                 a message shown until the next input
apps                                                  each app's own data
kept                                                  what lasted of the task's start, see `tasks.state_diff`
"""

from __future__ import annotations

from typing import Any

from distrl.simulator.phone.nodes import Arg

State = dict[str, Any]
Page = list[Arg]
STEP_S = 2
"""Seconds of phone time that one input takes."""
MAX_TEXT = 200
"""Most characters that a text field holds."""
MAX_PAGES = 12
"""Most pages of an app kept open; beyond it the oldest above the root is forgotten."""
MAX_ITEMS = 40
"""Most entries of any list that a user can add to."""
DRAWER_SEARCH = "launcher.apps"
"""The search field of the launcher's drawer."""
SEARCH_FIELDS = ("browser.query", "shop.query", "browser.address", "web.query", "store.query")
"""Fields that a new focus empties, as search boxes select their text."""


def page(state: State, app: str) -> Page:
    """The page of `app` that is on top: its name and arguments."""
    top: Page = state["stacks"][app][-1]
    return top


def push(state: State, app: str, *target: Arg) -> None:
    """Opens a page of `app` on top of the present one and brings the app to the front."""
    stack = state["stacks"][app]
    stack.append(list(target))
    if len(stack) > MAX_PAGES:
        del stack[1]
    show(state, app)


def open_form(state: State, app: str, target: Page, fields: dict[str, str], focused: str = "") -> None:
    """Opens a page of `app` whose text fields hold `fields`; `focused` gets the focus, "" is none."""
    state["fields"].update(fields)
    push(state, app, *target)
    if focused:
        focus(state, focused)


def pop(state: State, app: str) -> bool:
    """Closes the top page of `app`; False when only its root is open."""
    stack = state["stacks"][app]
    if len(stack) <= 1:
        return False
    stack.pop()
    blur(state)
    return True


def reset(state: State, app: str, *targets: Page) -> None:
    """Replaces the open pages of `app` by its root and `targets`."""
    del state["stacks"][app][1:]
    state["stacks"][app].extend(list(target) for target in targets)
    blur(state)


def show(state: State, app: str) -> None:
    """Brings `app` to the front, scrolled to the top."""
    state["front"] = app
    state["scrolls"] = {}
    blur(state)


def blur(state: State) -> None:
    """Takes the focus from any text field: the keyboard closes."""
    state["focus"] = ""
    state["shift"] = False
    state["symbols"] = False


def focus(state: State, key: str) -> None:
    """Gives text field `key` the focus."""
    if state["focus"] != key and key in SEARCH_FIELDS:
        state["fields"][key] = ""
    state["focus"] = key
    state["fields"].setdefault(key, "")
    state["shift"] = False
    state["symbols"] = False


def text(state: State, key: str) -> str:
    """The text in field `key`."""
    value: str = state["fields"].get(key, "")
    return value


def take(state: State, key: str) -> str:
    """The trimmed text in field `key`, which is then empty."""
    value: str = state["fields"].pop(key, "")
    return " ".join(value.split())


def clock_text(minutes: int, period: bool = False) -> str:
    """Minutes after midnight as "9:41" on a twelve-hour clock, with "AM" or "PM" after it if `period`."""
    hour, minute = divmod(minutes % 1440, 60)
    suffix = (" AM" if hour < 12 else " PM") if period else ""
    return f"{(hour - 1) % 12 + 1}:{minute:02d}{suffix}"


def now(state: State) -> int:
    """The phone's time in minutes after midnight."""
    start: int = state["time"]
    elapsed: int = state["elapsed_s"]
    return (start + elapsed // 60) % 1440


def notify(state: State, app: str, title: str, text: str) -> None:
    """Puts a notification of `app` on top of the list, if the phone has a shade."""
    if state["shade"] is not None:
        newest = {"app": app, "title": title, "text": text}
        state["notifications"] = [newest, *state["notifications"]][:MAX_ITEMS]


def unnotify(state: State, app: str, title: str, text: str) -> None:
    """Takes a notification off the list."""
    gone = {"app": app, "title": title, "text": text}
    state["notifications"] = [notice for notice in state["notifications"] if notice != gone]
