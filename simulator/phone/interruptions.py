"""Interruptions and their looks: pop-ups, advertisements, prompts, updates, ratings, low battery, messages.

A task's parameter `interruptions` names kinds of them; `plan` draws when each comes and what it looks like.
They are plain data in the state:

pending      those to come: kind, due_s (phone time), look (its design), which (its words)
overlay      the one on the screen, the same with since_s and the app it came over; {} for none
permissions  whether an app may do what it asked for, by app

A modal one takes all input until it is answered or left by the home key.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from distrl.simulator.apps import APPS, launcher, store_catalog
from distrl.simulator.phone import state as st
from distrl.simulator.phone.nodes import WIDTH, Arg, Event, Node, button, group, icon_button, image, text_box
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, nav_height

KINDS = ("popup", "ad", "permission", "update", "rating", "low_battery", "message")
"""The kinds that a task can ask for."""
LOOKS = 3
"""Designs of each kind."""
LATEST_S = 14
"""Latest phone time at which one becomes due; it comes when it next can."""
QUIET_S = 4
"""Phone time between one and the next."""
AD_S = 4
"""Phone time until an advertisement can be closed."""
MESSAGE_S = 8
"""Phone time after which a heads-up notification goes by itself."""
IN_APPS = ("popup", "ad", "rating")
"""Kinds that come over an app, never over the home screen."""
POPUPS = (
    ("Turn on backup?", "Keep your photos, contacts and settings safe.", "cloud", "Turn on", "Not now"),
    ("Stay in the loop", "Tips and offers in your inbox, once a week.", "mail", "Subscribe", "No thanks"),
    ("What's new", "A fresh look, a faster start and small fixes.", "auto_awesome", "Take a tour", "Skip"),
    ("Sign in to sync", "Use one account on all of your devices.", "account_circle", "Sign in", "Later"),
    ("Go Premium", "No limits and no advertisements for a month.", "diamond", "Try it free", "Dismiss"),
)
"""Title, words, icon, and the labels of yes and no."""
ADS = (
    ("Brew & Bean", "Coffee that comes to you", "The first bag is half price", "Order now", "coffee"),
    ("Tower Lands", "Build. Defend. Conquer.", "Three million players", "Play now", "sports_esports"),
    ("Jetaway", "City trips from $39", "This week only", "Book a trip", "flight_takeoff"),
    ("Greenbox", "Vegetables every Friday", "Fresh from the farm", "Get a box", "eco"),
    ("Sleepwell", "Mattresses up to 40% off", "Free delivery", "Shop now", "bed"),
)
"""Brand, headline, line, the button's label, icon."""
MESSAGES = (
    ("messages", "Maria", "Are you on your way?"),
    ("messages", "Ben", "The meeting has moved to four"),
    ("weather", "Weather alert", "Strong wind from 3 PM"),
    ("clock", "Bedtime", "Time to wind down soon"),
    ("contacts", "Missed call", "Grace, 2 minutes ago"),
)
"""App, title and text of notifications."""
NOTICES = (
    ("settings", "Battery saver is off", "76%, about 1 day left"),
    ("weather", "Rain in Harbour", "Starting around noon"),
    ("messages", "Anna", "Thanks for yesterday!"),
)
"""What the shade of a phone lists at the start of a task, as far as the apps are there."""


def plan(kinds: Sequence[str], rng: random.Random) -> list[dict[str, Any]]:
    """When each of `kinds` comes and how it looks, the earliest first."""
    drawn = [
        {
            "kind": kind,
            "due_s": 0 if kind == "permission" else st.STEP_S * rng.randrange(LATEST_S // st.STEP_S + 1),
            "look": rng.randrange(LOOKS),
            "which": rng.randrange(5),
        }
        for kind in kinds
    ]
    return sorted(drawn, key=lambda item: (item["due_s"], item["kind"]))


def is_modal(state: State) -> bool:
    """Whether something takes all input."""
    return bool(state["overlay"].get("kind", "message") != "message")


def is_timed(state: State) -> bool:
    """Whether something is on the screen that time alone changes."""
    return state["overlay"].get("kind") in ("ad", "message")


def is_low(state: State) -> bool:
    """Whether the battery has been reported as low."""
    return any(notice["title"] == LOW[0] for notice in state["notifications"])


LOW = ("Battery is low", "15% left")


def closable(state: State) -> bool:
    """Whether the advertisement on the screen can be closed already."""
    return bool(state["elapsed_s"] - state["overlay"]["since_s"] >= AD_S)


def advance(state: State) -> None:
    """Takes a notification away when its time is over, and shows what is due and can come now."""
    overlay = state["overlay"]
    if overlay:
        if overlay["kind"] == "message" and state["elapsed_s"] - overlay["since_s"] >= MESSAGE_S:
            _done(state)
        return
    if state["shade"]:
        return
    for item in state["pending"]:
        if item["due_s"] <= state["elapsed_s"] and _fits(state, item):
            _show(state, item)
            return


def _fits(state: State, item: dict[str, Any]) -> bool:
    kind, front = item["kind"], state["front"]
    if kind == "permission":
        return front not in ("launcher", "settings", "store") and front not in state["permissions"]
    if kind == "message":
        return MESSAGES[item["which"]][0] in state["installed"]
    return kind not in IN_APPS or front != "launcher"


def _show(state: State, item: dict[str, Any]) -> None:
    if item["kind"] != "permission":  # which comes again with the next app
        state["pending"].remove(item)
    state["overlay"] = {**item, "since_s": state["elapsed_s"], "app": state["front"]}
    if item["kind"] == "message":
        app, title, text = MESSAGES[item["which"]]
        st.notify(state, app, title, text)
    elif item["kind"] == "low_battery":
        st.notify(state, "settings", *LOW)


def _done(state: State) -> None:
    """Takes the overlay away; the next does not come at once."""
    state["overlay"] = {}
    for item in state["pending"]:
        if item["kind"] != "permission":
            item["due_s"] = max(item["due_s"], state["elapsed_s"] + QUIET_S)


def leave(state: State) -> None:
    """The home key, or another app in front: what is modal goes; a permission is asked for again later."""
    if is_modal(state):
        _done(state)


def back(state: State) -> None:
    """The back key on something modal: the same as "no"; an advertisement must be closable first."""
    if state["overlay"]["kind"] != "ad" or closable(state):
        act(state, "dismiss", ())


def act(state: State, verb: str, args: tuple[Arg, ...]) -> None:
    """Answers what is on the screen: "dismiss", "accept", or "star" with a number."""
    overlay = state["overlay"]
    if verb == "star":
        overlay["stars"] = int(args[0])
        return
    if overlay["kind"] == "permission":
        state["permissions"][overlay["app"]] = verb == "accept"
    elif overlay["kind"] == "message":
        app, title, text = MESSAGES[overlay["which"]]
        st.unnotify(state, app, title, text)
    _done(state)
    if verb == "accept":
        _accept(state, overlay)


def _accept(state: State, overlay: dict[str, Any]) -> None:
    kind = overlay["kind"]
    if kind == "update":
        restart(state)
        state["elapsed_s"] += 60
        state["toast"] = "The system is up to date"
    elif kind == "rating":
        state["toast"] = "Thank you for rating"
    elif kind == "low_battery":
        state["apps"]["settings"]["saver"] = True
        state["toast"] = "Battery saver is on"
    elif kind == "message":
        st.show(state, MESSAGES[overlay["which"]][0])
    elif kind == "uninstall":
        store_catalog.uninstall(state, overlay["app"])
    elif kind != "permission":  # what someone wants to sell: the store, or the browser, comes to the front
        st.show(state, "store" if kind == "ad" and "store" in state["installed"] else "browser")


def restart(state: State) -> None:
    """What a restart of the phone does: it closes every app and all that the system shows."""
    leave(state)
    launcher.close(state)
    state["shade"] = None if state["shade"] is None else False
    state["stacks"] = {name: [["root"]] for name in state["stacks"]}
    state["fields"] = {}
    state["flashlight"] = False
    state["toast"] = ""
    st.show(state, "launcher")


_SCRIM = "#00000099"
_DISMISS: Event = ("overlay", "dismiss")
_ACCEPT: Event = ("overlay", "accept")
_PERMISSIONS = {
    "location": ("location_on", "access this device's location"),
    "contacts": ("contacts", "access your contacts"),
    "microphone": ("mic", "record audio"),
    "camera": ("photo_camera", "take pictures and record video"),
    "photos": ("photo_library", "access photos on your device"),
    "notifications": ("notifications", "send you notifications"),
}
_ONCE = ("location", "microphone", "camera")
"""Permissions that can be given for one time only."""
_AD_COLORS = ("#4e342e", "#311b92", "#0d47a1", "#1b5e20", "#1a237e")
Choice = tuple[str, Event, str]
"""A button's label, event and resource id; the first of several is the one that is recommended."""


def view(ui: Ui) -> list[Node]:
    """The nodes of what is on the screen, none if nothing is."""
    overlay = ui.state["overlay"]
    return _VIEWS.get(overlay["kind"], _question_view)(ui, overlay) if overlay else []


def nav_ink(ui: Ui) -> str:
    """The colour of the navigation bar on the shade, a bottom sheet, or something dark."""
    overlay = ui.state["overlay"]
    is_sheet = overlay.get("look") == 1 and overlay["kind"] not in ("ad", "permission")
    return ui.theme.text if ui.state["shade"] or is_sheet else "#ffffff"


def _bottom(ui: Ui) -> float:
    return ui.height - nav_height(ui.layout)


def _scrim(ui: Ui, *children: Node) -> list[Node]:
    return [Node(0, 0, WIDTH, ui.height, "view.View", "overlay", fill=_SCRIM, children=children)]


def _panel(
    ui: Ui, x: float, y: float, w: float, h: float, children: Sequence[Node], radius: float = 28
) -> Node:
    fill, cls = panel_fill(ui), "widget.FrameLayout"
    return group(x, y, w, h, "overlay_panel", children, fill=fill, radius=radius, cls=cls)


def _radius(ui: Ui) -> float:
    return max(8.0, ui.layout.icon_radius)


def _ask(
    ui: Ui, look: int, icon: str, title: str, words: str, choices: Sequence[Choice], body_h: float = 0
) -> tuple[list[Node], float]:
    """A question in one of three designs: dialog, bottom sheet, or card with a banner.

    Args:
        body_h: Room in dp that is left between the words and the buttons.

    Returns:
        The nodes, and the y at which that room begins.
    """
    stacked = (
        look == 1 or ui.layout.switch_left or len(choices) > 2 or any(len(each[0]) > 12 for each in choices)
    )
    buttons_h = 60 * len(choices) if stacked else 60
    banner = 96 if look == 2 else 0
    height = 176 + banner / 2 + body_h + buttons_h
    w, x = (WIDTH, 0.0) if look == 1 else (WIDTH - 56, 28.0)
    y = _bottom(ui) - height if look == 1 else (ui.height - height) / 2
    panel_h = height + (nav_height(ui.layout) + 40 if look == 1 else 0)
    theme = ui.theme
    parts: list[Node] = []
    if look == 1:
        parts.append(Node(WIDTH / 2 - 20, y + 10, 40, 4, fill=theme.line, radius=2))
    if look == 2:
        parts.append(Node(x, y, w, banner + 20, fill=theme.tint, radius=_radius(ui)))
        parts.append(Node(x, y + banner - 10, w, 30, fill=panel_fill(ui)))
        parts.append(ui.disc(WIDTH / 2 - 32, y + 16, 64, icon, theme.primary, theme.on_primary))
    else:
        parts.append(image(x, y + 26, w, 32, icon, 30, theme.primary))
    top = y + 66 + banner / 2 - (6 if look == 2 else 0)
    parts.append(ui.text(x + 20, top, w - 40, 32, title, 22, align="c", rid="overlay_title"))
    parts.append(
        ui.text(x + 28, top + 38, w - 56, 52, words, 16, theme.muted, align="c", lines=2, rid="overlay_text")
    )
    parts += _buttons(ui, x, top + 98 + body_h, w, choices, stacked)
    return _scrim(ui, _panel(ui, x, y, w, panel_h, parts, _radius(ui))), top + 94


def panel_fill(ui: Ui) -> str:
    """The colour of dialogs."""
    return ui.theme.raised if ui.theme.dark else ui.theme.card


def _buttons(ui: Ui, x: float, y: float, w: float, choices: Sequence[Choice], stacked: bool) -> list[Node]:
    """One below the other, else side by side with the recommended one on this layout's side."""
    styles = ["filled", *["text"] * len(choices)]
    if stacked:
        return [
            ui.button(x + 20, y + 60 * place, w - 40, label, tap, rid, styles[place])
            for place, (label, tap, rid) in enumerate(choices)
        ]
    width = (w - 52) / 2
    spots = (x + 20, x + 32 + width)
    right_first = ui.layout.save == "bottom"
    return [
        ui.button(spots[1 - place if right_first else place], y, width, label, tap, rid, styles[place])
        for place, (label, tap, rid) in enumerate(choices)
    ]


def _choices(yes: str, no: str) -> list[Choice]:
    return [(yes, _ACCEPT, "overlay_accept"), (no, _DISMISS, "overlay_dismiss")]


def _question_view(ui: Ui, overlay: dict[str, Any]) -> list[Node]:
    """A pop-up, an update, a low battery, or whether to uninstall an app."""
    look, kind = overlay["look"], overlay["kind"]
    if kind == "popup":
        title, words, icon, yes, no = POPUPS[overlay["which"]]
    elif kind == "uninstall":
        title, icon, look = f"Uninstall {APPS[overlay['app']].label}?", "delete", 0
        words, yes, no = "Its data will be deleted from this phone.", "Uninstall", "Cancel"
    else:
        title, words, icon, yes, no = _QUESTIONS[kind]
    return _ask(ui, look, icon, title, words, _choices(yes, no))[0]


_QUESTIONS = {
    "update": (
        "System update",
        "Version 1.1 is ready. The phone restarts to install it.",
        "system_update",
        "Restart now",
        "Later",
    ),
    "low_battery": (
        LOW[0],
        "15% left. Battery saver makes it last longer.",
        "battery_alert",
        "Turn on",
        "No thanks",
    ),
}
"""Title, words, icon, and the labels of yes and no."""


def _permission_view(ui: Ui, overlay: dict[str, Any]) -> list[Node]:
    app = APPS[overlay["app"]]
    icon, words = _PERMISSIONS[app.asks]
    once: list[Choice] = [("Only this time", _ACCEPT, "overlay_once")]
    choices: list[Choice] = [
        ("While using the app" if app.asks in _ONCE else "Allow", _ACCEPT, "overlay_allow"),
        *(once if app.asks in _ONCE else []),
        ("Don't allow", _DISMISS, "overlay_dismiss"),
    ]
    h, x, w = 132 + 60 * len(choices), 28.0, WIDTH - 56
    y = (ui.height - h) / 2 if overlay["look"] else _bottom(ui) - h - 24
    theme = ui.theme
    sentence = f"Allow {app.label} to {words}?"
    parts = [
        image(x, y + 22, w, 28, icon, 28, theme.primary),
        ui.text(x + 24, y + 56, w - 48, 56, sentence, 18, align="c", lines=2, rid="overlay_title"),
    ]
    for place, (label, tap, rid) in enumerate(choices):
        parts.append(ui.button(x + 20, y + 118 + 60 * place, w - 40, label, tap, rid, "tonal", 54))
    return _scrim(ui, _panel(ui, x, y, w, h, parts, _radius(ui)))


def _rating_view(ui: Ui, overlay: dict[str, Any]) -> list[Node]:
    label = APPS[overlay["app"]].label
    choices = _choices("Submit", "Not now")
    words = "Tap a star to rate it in the store."
    nodes, y = _ask(ui, overlay["look"], "favorite", f"Enjoying {label}?", words, choices, 60)
    stars = [
        Node(
            WIDTH / 2 - 120 + 48 * place,
            y,
            48,
            52,
            "widget.ImageButton",
            f"overlay_star_{place + 1}",
            desc=f"{place + 1} stars",
            tap=("overlay", "star", place + 1),
            icon="star" if place < overlay.get("stars", 0) else "star_border",
            icon_size=38,
            color="#f9ab00",
        )
        for place in range(5)
    ]
    panel = nodes[0].children[0]
    return [nodes[0].with_children(panel.with_children(*panel.children, *stars))]


def _ad_view(ui: Ui, overlay: dict[str, Any]) -> list[Node]:
    """The whole screen, or a card on it; after some seconds a small cross in one of three places."""
    look, which = overlay["look"], overlay["which"]
    brand, headline, line, label, icon = ADS[which]
    color, rid, bottom = _AD_COLORS[which], "overlay_accept", _bottom(ui)
    x, y, w, h = (24.0, 120.0, WIDTH - 48, bottom - 240) if look == 1 else (0.0, 0.0, WIDTH, ui.height)
    middle = y + h * 0.36
    parts = [
        ui.text(x + 20, y + (44 if look != 1 else 16), 160, 24, f"Ad · {brand}", 14, "#ffffffb0"),
        image(WIDTH / 2 - 76, middle - 84, 152, 152, icon, 92, "#ffffff", "#ffffff26", 76),
        ui.text(x + 20, middle + 92, w - 40, 72, headline, 28, "#ffffff", True, "c", 2, "overlay_title"),
        ui.text(x + 20, middle + 166, w - 40, 28, line, 17, "#ffffffd0", align="c"),
        button(x + 40, middle + 218, w - 80, 54, label, _ACCEPT, rid, 17, color, "#ffffff", 27, bold=True),
        _cross(ui, overlay, x, y, w, bottom),
    ]
    radius = 20 if look == 1 else 0
    body = group(x, y, w, h, "overlay_panel", parts, fill=color, radius=radius, cls="widget.FrameLayout")
    return _scrim(ui, body)


def _cross(ui: Ui, overlay: dict[str, Any], x: float, y: float, w: float, bottom: float) -> Node:
    top = y + (38 if overlay["look"] != 1 else 8)
    left = x + w - 50
    if overlay["look"] == 2:
        left, top = (16.0, bottom - 56) if ui.layout.switch_left else (WIDTH - 56, bottom - 56)
    if closable(ui.state):
        return icon_button(
            left, top, 40, "close", "Close ad", _DISMISS, "overlay_close", "#ffffffc0", size=20
        )
    seconds = AD_S - (ui.state["elapsed_s"] - overlay["since_s"])
    look: dict[str, Any] = {"radius": 14, "rid": "overlay_countdown", "border": "#ffffff90"}
    return text_box(left + 6, top + 6, 28, 28, str(seconds), 14, "#ffffffd0", **look)


def _message_view(ui: Ui, overlay: dict[str, Any]) -> list[Node]:
    """A notification that drops in at the top and can be swiped away; the app below it can be used."""
    name, title, text = MESSAGES[overlay["which"]]
    app, theme, y = APPS[name], ui.theme, STATUS_H + 4
    parts = (
        ui.disc(28, y + 16, 40, app.icon, app.color),
        ui.text(80, y + 10, 180, 26, title, 16, bold=True),
        ui.text(WIDTH - 92, y + 10, 64, 26, "now", 13, theme.muted, align="r"),
        ui.text(80, y + 36, WIDTH - 110, 26, text, 15, theme.muted),
    )
    look = {"cls": "widget.FrameLayout", "swipe": _DISMISS, "shadow": 6}
    fill, radius = panel_fill(ui), _radius(ui)
    card = group(12, y, WIDTH - 24, 72, "heads_up", parts, title, _ACCEPT, fill, radius, **look)
    return [Node(0, 0, WIDTH, y + 76, "widget.FrameLayout", "overlay", children=(card,))]


_VIEWS = {"ad": _ad_view, "permission": _permission_view, "rating": _rating_view, "message": _message_view}
