"""The pages of the settings: what is on each, which may be new in the second edition of the app."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar


@dataclass(frozen=True)
class Toggle:
    """A setting that is on or off."""

    key: str
    label: str
    note: str
    edition: int = 1


@dataclass(frozen=True)
class Slider:
    """A setting from 0 to 100."""

    key: str
    label: str
    icon: str
    edition: int = 1


@dataclass(frozen=True)
class Choice:
    """A setting that is one of several words; the first is what a new phone has."""

    key: str
    label: str
    icon: str
    options: tuple[str, ...]
    edition: int = 1


@dataclass(frozen=True)
class Link:
    """A row that opens a section below this one."""

    section: str
    edition: int = 1


@dataclass(frozen=True)
class Fact:
    """Something that is only shown; "{installed}" stands for the number of apps."""

    label: str
    value: str
    edition: int = 1


Entry = Toggle | Slider | Choice | Link | Fact


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
            Toggle("wifi", "Wi-Fi", "Home network"),
            Toggle("airplane", "Airplane mode", "No wireless connections"),
            Toggle("hotspot", "Hotspot", "Share the connection"),
            Toggle("data", "Mobile data", "Use data when away from Wi-Fi"),
            Toggle("roaming", "Data roaming", "Use data when abroad", edition=2),
            Toggle("data_saver", "Data saver", "Less data in the background", edition=2),
            Link("vpn", edition=2),
        ),
    ),
    "devices": Section(
        "Connected devices",
        "Bluetooth, pairing",
        "devices",
        "#12a150",
        (
            Toggle("bluetooth", "Bluetooth", "Pair with nearby devices"),
            Toggle("nfc", "NFC", "Contactless payments"),
            Toggle("cast", "Cast", "Show the screen on a TV"),
        ),
    ),
    "apps": Section(
        "Apps",
        "Permissions, default apps",
        "apps",
        "#7b51d3",
        (
            Toggle("unused", "Pause unused apps", "Frees up space"),
            Fact("Installed apps", "{installed}"),
            Fact("Default browser", "Browser"),
            Link("app_notices", edition=2),
        ),
    ),
    "battery": Section(
        "Battery",
        "76%, about 1 day left",
        "battery_full",
        "#0b8f83",
        (
            Toggle("saver", "Battery saver", "Extends battery life"),
            Toggle("percent", "Battery percentage", "Show it at the top", edition=2),
            Toggle("adaptive", "Adaptive charging", "Slower at night", edition=2),
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
            Toggle("dark", "Dark theme", "Easier on the eyes"),
            Toggle("night_light", "Night light", "Tints the screen amber"),
            Toggle("rotate", "Auto-rotate", "Turns with the phone"),
            Choice(
                "timeout",
                "Screen timeout",
                "timer_off",
                ("15 seconds", "30 seconds", "1 minute", "2 minutes", "5 minutes", "10 minutes"),
                edition=2,
            ),
            Choice("font", "Font size", "format_size", ("Default", "Small", "Large", "Largest"), edition=2),
            Toggle("raise", "Lift to wake", "Screen on when lifted", edition=2),
        ),
    ),
    "sound": Section(
        "Sound & vibration",
        "Volume, do not disturb",
        "volume_up",
        "#d93879",
        (
            Slider("volume", "Media volume", "volume_up"),
            Toggle("dnd", "Do Not Disturb", "Only important alerts"),
            Toggle("vibrate", "Vibration", "Vibrate for calls"),
            Slider("ring", "Ring volume", "ring_volume", edition=2),
            Slider("alarm_volume", "Alarm volume", "alarm", edition=2),
            Choice(
                "ringtone",
                "Ringtone",
                "music_note",
                ("Aurora", "Bells", "Canyon", "Drizzle", "Marimba", "Sunrise"),
                edition=2,
            ),
            Toggle("key_tones", "Keypad tones", "A sound for each key", edition=2),
            Toggle("touch_sounds", "Touch sounds", "A sound for each tap", edition=2),
        ),
    ),
    "security": Section(
        "Security & location",
        "Screen lock, location",
        "security",
        "#d23f31",
        (
            Toggle("location", "Location", "Apps may use the location"),
            Toggle("lock", "Screen lock", "Ask for the PIN"),
            Fact("Last update", "May 5"),
            Toggle("fingerprint", "Fingerprint", "Unlock with a finger", edition=2),
            Toggle("find", "Find my phone", "Locate a lost phone", edition=2),
            Link("privacy", edition=2),
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
            Link("language", edition=2),
            Link("legal", edition=2),
        ),
    ),
    "vpn": Section(
        "VPN and private DNS",
        "Off",
        "vpn_key",
        "#1a73e8",
        (
            Toggle("vpn", "VPN", "Office network"),
            Choice("dns", "Private DNS", "router", ("Automatic", "Off", "Custom")),
        ),
    ),
    "app_notices": Section(
        "Notifications",
        "Which apps may notify",
        "notifications",
        "#7b51d3",
        tuple(
            Toggle("notify_" + label.lower(), label, "Notifications")
            for label in ("Browser", "Calendar", "Clock", "Mail", "Messages", "Music", "Weather")
        ),
    ),
    "privacy": Section(
        "Privacy",
        "Camera, microphone",
        "privacy_tip",
        "#d23f31",
        (
            Toggle("camera", "Camera access", "Apps may use the camera"),
            Toggle("mic", "Microphone access", "Apps may listen"),
            Toggle("usage", "Share usage data", "Helps to find faults"),
        ),
    ),
    "language": Section(
        "Language and region",
        "English",
        "language",
        "#5f6b7a",
        (
            Choice(
                "language",
                "Language",
                "translate",
                ("English", "Deutsch", "Español", "Français", "Italiano", "Polski", "Português", "Svenska"),
            ),
            Choice("units", "Temperature", "thermostat", ("Celsius", "Fahrenheit")),
            Choice("first_day", "First day of the week", "today", ("Monday", "Saturday", "Sunday")),
        ),
    ),
    "legal": Section(
        "Legal information",
        "Licences",
        "policy",
        "#5f6b7a",
        (Fact("Fonts", "Roboto, Apache 2.0"), Fact("Icons", "Material, Apache 2.0")),
    ),
}
"""Every page: those of the root list in a layout's order, and those that a `Link` opens."""
_Kind = TypeVar("_Kind", Toggle, Slider, Choice, Link)


def _entries(kind: type[_Kind]) -> list[tuple[str, _Kind]]:
    found = [(name, entry) for name, section in SECTIONS.items() for entry in section.entries]
    return [(name, entry) for name, entry in found if isinstance(entry, kind)]


PARENTS: dict[str, str] = {link.section: name for name, link in _entries(Link)}
"""The section that has the link to a section which is not on the root list."""
TOGGLES: dict[str, tuple[str, Toggle]] = {toggle.key: (name, toggle) for name, toggle in _entries(Toggle)}
"""Every switch by key: the section it is on, and itself."""
SLIDERS: dict[str, str] = {slider.key: name for name, slider in _entries(Slider)}
"""The section that each slider is on."""
CHOICES: dict[str, tuple[str, Choice]] = {choice.key: (name, choice) for name, choice in _entries(Choice)}
"""Every choice by key: the section it is on, and itself."""
