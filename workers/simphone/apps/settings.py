"""Settings: a root list with coloured icons, nested pages with switches, sliders and facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distrl.workers.simphone import state as st
from distrl.workers.simphone import widgets
from distrl.workers.simphone.apps.base import App, Args
from distrl.workers.simphone.nodes import WIDTH, Node
from distrl.workers.simphone.state import State
from distrl.workers.simphone.ui import STATUS_H, Ui, viewport


@dataclass(frozen=True)
class Toggle:
    """A setting that is on or off."""

    key: str
    label: str
    note: str
    icon: str


@dataclass(frozen=True)
class Slider:
    """A setting from 0 to 100."""

    key: str
    label: str
    icon: str


@dataclass(frozen=True)
class Fact:
    """Something that is only shown."""

    label: str
    value: str


Entry = Toggle | Slider | Fact


@dataclass(frozen=True)
class Section:
    """A page of settings, and its row on the root page."""

    title: str
    note: str
    icon: str
    color: str
    entries: tuple[Entry, ...]


SECTIONS: dict[str, Section] = {
    "network": Section(
        "Network & internet",
        "Wi-Fi, mobile, hotspot",
        "wifi",
        "#1a73e8",
        (
            Toggle("wifi", "Wi-Fi", "Home network", "wifi"),
            Toggle("airplane", "Airplane mode", "No wireless connections", "airplanemode_active"),
            Toggle("hotspot", "Hotspot", "Share the connection", "wifi_tethering"),
            Toggle("data", "Mobile data", "Use data when away from Wi-Fi", "signal_cellular_alt"),
        ),
    ),
    "devices": Section(
        "Connected devices",
        "Bluetooth, pairing",
        "devices",
        "#12a150",
        (
            Toggle("bluetooth", "Bluetooth", "Pair with nearby devices", "bluetooth"),
            Toggle("nfc", "NFC", "Contactless payments", "nfc"),
            Toggle("cast", "Cast", "Show the screen on a TV", "cast"),
        ),
    ),
    "apps": Section(
        "Apps",
        "Permissions, default apps",
        "apps",
        "#7b51d3",
        (
            Toggle("unused", "Pause unused apps", "Frees up space", "hourglass_empty"),
            Fact("Installed apps", "8"),
            Fact("Default browser", "Browser"),
        ),
    ),
    "battery": Section(
        "Battery",
        "76%, about 1 day left",
        "battery_full",
        "#0b8f83",
        (
            Toggle("saver", "Battery saver", "Extends battery life", "battery_saver"),
            Fact("Battery level", "76%"),
            Fact("Screen time", "2 h 14 min"),
        ),
    ),
    "display": Section(
        "Display",
        "Dark theme, brightness",
        "brightness_6",
        "#f29900",
        (
            Slider("brightness", "Brightness", "brightness_6"),
            Toggle("dark", "Dark theme", "Easier on the eyes", "dark_mode"),
            Toggle("night_light", "Night light", "Tints the screen amber", "nightlight"),
            Toggle("rotate", "Auto-rotate", "Turns with the phone", "screen_rotation"),
        ),
    ),
    "sound": Section(
        "Sound & vibration",
        "Volume, do not disturb",
        "volume_up",
        "#d93879",
        (
            Slider("volume", "Media volume", "volume_up"),
            Toggle("dnd", "Do Not Disturb", "Only important alerts", "do_not_disturb_on"),
            Toggle("vibrate", "Vibration", "Vibrate for calls", "vibration"),
        ),
    ),
    "security": Section(
        "Security & location",
        "Screen lock, location",
        "security",
        "#d23f31",
        (
            Toggle("location", "Location", "Apps may use the location", "location_on"),
            Toggle("lock", "Screen lock", "Ask for the PIN", "lock"),
            Fact("Last update", "May 5"),
        ),
    ),
    "about": Section(
        "About phone",
        "Simphone One",
        "info",
        "#5f6b7a",
        (
            Fact("Device name", "Simphone One"),
            Fact("Model", "SP-1"),
            Fact("System version", "1.0"),
            Fact("Storage", "23 GB of 128 GB used"),
        ),
    ),
}
TOGGLES: dict[str, tuple[str, Toggle]] = {
    entry.key: (name, entry)
    for name, section in SECTIONS.items()
    for entry in section.entries
    if isinstance(entry, Toggle)
}
"""Every switch by key: the section it is on, and itself."""


def data() -> State:
    """Values of all settings, as a new phone has them (dark mode is set by the layout)."""
    on = {"wifi", "data", "nfc", "rotate", "vibrate", "location", "lock"}
    values: State = {key: key in on for key in TOGGLES}
    return values | {"brightness": 60, "volume": 40}


def view(ui: Ui) -> list[Node]:
    """The root list or one section."""
    top = st.page(ui.state, "settings")
    return _section(ui, SECTIONS[str(top[1])]) if top[0] == "section" else _root(ui)


def _root(ui: Ui) -> list[Node]:
    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes = [ui.text(24, y, 280, 72, "Settings", 32, rid="title")]
        y += 76
        rows: list[Node] = []
        for place, name in enumerate(ui.layout.settings):
            section = SECTIONS[name]
            top = y + place * widgets.ROW_H
            lead = ui.disc(widgets.MARGIN + 14, top + 14, 44, section.icon, section.color)
            rows.append(
                widgets.row(
                    ui,
                    top,
                    section.title,
                    section.note,
                    lead=lead,
                    tap=("settings", "section", name),
                    rid="section_" + name,
                )
            )
        height = widgets.ROW_H * len(rows)
        nodes.append(widgets.card(ui, y, height, rows))
        return nodes, y + height + 12

    return [viewport(ui, "settings.root", STATUS_H, ui.bottom, build)]


def _section(ui: Ui, section: Section) -> list[Node]:
    def build(y: float) -> tuple[Sequence[Node], float]:
        y += 8
        nodes: list[Node] = []
        for entry in section.entries:
            nodes.append(_entry(ui, y, entry, section.color))
            y += nodes[-1].h + 8
        return nodes, y

    top = STATUS_H + widgets.BAR_H
    return [
        viewport(ui, "settings." + section.icon, top, ui.bottom, build),
        widgets.app_bar(ui, section.title),
    ]


def _entry(ui: Ui, y: float, entry: Entry, color: str) -> Node:
    values = ui.state["apps"]["settings"]
    if isinstance(entry, Toggle):
        event = ("settings", "toggle", entry.key)
        on = values[entry.key]
        return widgets.switch_row(
            ui, y, entry.label, entry.note, on, event, "switch_" + entry.key, fill=ui.theme.card, h=84
        )
    if isinstance(entry, Slider):
        return _slider(ui, y, entry, values[entry.key], color)
    return widgets.row(ui, y, entry.label, entry.value, fill=ui.theme.card)


def _slider(ui: Ui, y: float, entry: Slider, value: int, color: str) -> Node:
    x, w = widgets.MARGIN + 64, WIDTH - 2 * widgets.MARGIN - 88
    track_y = y + 62
    parts = [
        ui.disc(widgets.MARGIN + 12, y + 42, 40, entry.icon, color),
        ui.text(widgets.MARGIN + 20, y + 8, 240, 28, f"{entry.label}: {value}%", 17),
        Node(x, track_y - 8, w, 16, fill=ui.theme.tint, radius=8),
        Node(x, track_y - 8, max(16.0, w * value / 100), 16, fill=ui.theme.primary, radius=8),
        Node(x + w * value / 100 - 2, track_y - 22, 5, 44, fill=ui.theme.primary, radius=2.5),
    ]
    for step in range(11):
        parts.append(
            Node(
                x + w * step / 10 - w / 20,
                track_y - 24,
                w / 10,
                48,
                "widget.SeekBar",
                f"slider_{entry.key}_{step * 10}",
                desc=f"{entry.label} {step * 10}%",
                tap=("settings", "slide", entry.key, step * 10),
            )
        )
    return widgets.card(ui, y, 100, parts, rid="slider_" + entry.key)


def act(state: State, verb: str, args: Args) -> None:
    """Opens a section, flips a switch or moves a slider."""
    values = state["apps"]["settings"]
    key = str(args[0])
    if verb == "section":
        st.push(state, "settings", "section", key)
    elif verb == "toggle":
        values[key] = not values[key]
        if key == "airplane" and values[key]:
            values["wifi"] = values["bluetooth"] = False
    elif verb == "slide":
        values[key] = args[1]


APP = App("settings", "Settings", "settings", "#5b6472", data, view, act)
