"""What the system draws around the app: status bar, navigation bar, and the whole screen put together."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.simulator.apps import APPS
from distrl.simulator.phone import interruptions, keyboard, widgets
from distrl.simulator.phone.nodes import WIDTH, Node, image
from distrl.simulator.phone.state import clock_text
from distrl.simulator.phone.ui import STATUS_H, Ui


def status_bar(ui: Ui, color: str) -> Node:
    """Time on the left; connectivity and battery on the right."""
    settings = ui.state["apps"]["settings"]
    icons = ["battery_alert" if interruptions.is_low(ui.state) else "battery_6_bar"]
    if settings["airplane"]:
        icons.append("airplanemode_active")
    else:
        icons.append("signal_cellular_4_bar")
    if settings["wifi"]:
        icons.append("wifi")
    if settings["bluetooth"]:
        icons.append("bluetooth")
    if settings["dnd"]:
        icons.append("do_not_disturb_on")
    children = [ui.text(20, 0, 90, STATUS_H, clock_text(ui.time), 15, color, True, rid="status_clock")]
    for place, icon in enumerate(icons):
        children.append(
            image(WIDTH - 38 - 22 * place, 0, 20, STATUS_H, icon, 18, color, rid="status_" + icon)
        )
    children += _notices(ui, color)
    return Node(0, 0, WIDTH, STATUS_H, "widget.FrameLayout", "status_bar", children=tuple(children))


def _notices(ui: Ui, color: str) -> list[Node]:
    apps = list(dict.fromkeys(notice["app"] for notice in ui.state["notifications"]))[:3]
    return [
        image(70 + 20 * place, 0, 18, STATUS_H, APPS[app].icon, 15, color) for place, app in enumerate(apps)
    ]


def nav_bar(ui: Ui, color: str, fill: str) -> Node:
    """The gesture pill, or the back and home buttons."""
    if ui.layout.nav == "gesture":
        top = ui.height - 24
        pill = Node(WIDTH / 2 - 60, top + 11, 120, 4, fill=color, radius=2)
        event = ("system", "home")
        bar = Node(
            WIDTH / 2 - 80, top, 160, 24, "view.View", "nav_home", desc="Home", tap=event, children=(pill,)
        )
        return Node(0, top, WIDTH, 24, "widget.FrameLayout", "nav_bar", fill=fill, children=(bar,))
    top = ui.height - 52
    back = image(
        30, top, 120, 52, "chevron_left", 34, color, rid="nav_back", desc="Back", tap=("system", "back")
    )
    tap = ("system", "home")
    home = image(210, top, 120, 52, "radio_button_unchecked", 24, color, rid="nav_home", desc="Home", tap=tap)
    return Node(0, top, WIDTH, 52, "widget.FrameLayout", "nav_bar", fill=fill, children=(back, home))


def screen(
    ui: Ui, content: list[Node], wallpaper: bool, package: str, over: Sequence[Node] = (), over_ink: str = ""
) -> Node:
    """The whole screen: background, the app's content, keyboard, toast and system bars.

    Args:
        wallpaper: Whether the wallpaper is behind them.
        over: What the system draws over the app: the shade, a dialog, an advertisement, a notification.
        over_ink: The navigation bar's colour on that, if it takes all input away from the app; else "".
    """
    color = "#ffffff" if wallpaper and ui.layout.dark else ui.theme.text
    bar_color = color if not wallpaper or ui.layout.dark else ui.layout.light.text
    nav_color = "#ffffff" if wallpaper and ui.layout.nav == "gesture" else color
    if wallpaper:
        back = Node(0, 0, WIDTH, ui.height, "view.View", "wallpaper", art=("wallpaper", *ui.layout.wallpaper))
    else:
        back = Node(0, 0, WIDTH, ui.height, "view.View", "background", fill=ui.theme.bg)
    nodes = [back, *content]
    if ui.state["focus"] and not over_ink:
        nodes.append(keyboard.view(ui))
    if ui.state["toast"]:
        nodes.append(widgets.toast(ui, ui.state["toast"]))
    if not ui.state["shade"]:
        nodes.append(status_bar(ui, bar_color))
    fill = "" if wallpaper else (ui.theme.raised if ui.state["focus"] else ui.theme.bg)
    nodes += over
    if any(node.rid == "scrim" for node in content):
        fill = ""  # what dims the app dims the bar too
    if over_ink:
        nav_color, fill = over_ink, ""
    nodes.append(nav_bar(ui, nav_color, fill))
    return Node(0, 0, WIDTH, ui.height, "widget.FrameLayout", package, clip=True, children=tuple(nodes))
