"""The simulated phone's settings provider: the tables system, secure and global.

Settings that the phone itself shows (Wi-Fi, dark theme, brightness, …) are not kept twice: they are read from
and written to the phone's state, so that a switch that is tapped and a `settings put` are the same thing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NAMESPACES = ("system", "secure", "global")
Values = dict[str, Any]
_DEFAULTS: dict[str, dict[str, str]] = {
    "system": {
        "font_scale": "1.0",
        "haptic_feedback_enabled": "1",
        "pointer_location": "0",
        "screen_brightness_mode": "0",
        "screen_off_timeout": "2147483647",
        "show_touches": "0",
        "sound_effects_enabled": "1",
        "time_12_24": "12",
        "user_rotation": "0",
        "volume_ring": "5",
    },
    "secure": {
        "android_id": "5e1f9a4c0d3b7286",
        "default_input_method": "org.simphone.keyboard/.SoftKeyboard",
        "enabled_input_methods": "org.simphone.keyboard/.SoftKeyboard",
        "install_non_market_apps": "1",
        "long_press_timeout": "400",
        "navigation_mode": "2",
        "show_ime_with_hard_keyboard": "1",
        "user_setup_complete": "1",
    },
    "global": {
        "adb_enabled": "1",
        "animator_duration_scale": "1.0",
        "boot_count": "1",
        "development_settings_enabled": "1",
        "device_name": "Simphone One",
        "device_provisioned": "1",
        "stay_on_while_plugged_in": "1",
        "transition_animation_scale": "1.0",
        "verifier_verify_adb_installs": "0",
        "window_animation_scale": "1.0",
    },
}


@dataclass(frozen=True)
class _Mirror:
    """A setting that lives in the phone's own settings.

    Attributes:
        on, off: The values that stand for on and off.
        scale: For a slider, the value that stands for 100 percent; 0 for a switch.
    """

    key: str
    on: str = "1"
    off: str = "0"
    scale: int = 0

    def percent(self, text: str) -> int:
        return min(100, round(int(text) * 100 / self.scale))

    def get(self, values: Values, put: str | None) -> str:
        """The value; of a slider the text that was `put`, unless the slider has been moved since."""
        if not self.scale:
            return self.on if values[self.key] else self.off
        if put is not None and self.percent(put) == values[self.key]:
            return put
        return str(round(values[self.key] * self.scale / 100))

    def put(self, values: Values, text: str) -> None:
        if not self.scale:
            values[self.key] = text != self.off
        elif text.isdecimal():
            values[self.key] = self.percent(text)


_MIRRORS: dict[tuple[str, str], _Mirror] = {
    ("global", "airplane_mode_on"): _Mirror("airplane"),
    ("global", "bluetooth_on"): _Mirror("bluetooth"),
    ("global", "low_power"): _Mirror("saver"),
    ("global", "mobile_data"): _Mirror("data"),
    ("global", "wifi_on"): _Mirror("wifi"),
    ("global", "zen_mode"): _Mirror("dnd"),
    ("secure", "location_mode"): _Mirror("location", on="3"),
    ("secure", "night_display_activated"): _Mirror("night_light"),
    ("secure", "ui_night_mode"): _Mirror("dark", on="2", off="1"),
    ("system", "accelerometer_rotation"): _Mirror("rotate"),
    ("system", "screen_brightness"): _Mirror("brightness", scale=255),
    ("system", "vibrate_when_ringing"): _Mirror("vibrate"),
    ("system", "volume_music"): _Mirror("volume", scale=15),
}


class Settings:
    """The three tables.

    Args:
        phone: Gives the phone's own settings, `state["apps"]["settings"]`.
        change: Runs a change of the phone's own settings and shows it on the screen.
    """

    def __init__(
        self, phone: Callable[[], Values], change: Callable[[Callable[[Values], None]], None]
    ) -> None:
        self._phone = phone
        self._change = change
        self._tables = {name: dict(table) for name, table in _DEFAULTS.items()}

    def get(self, namespace: str, key: str) -> str | None:
        """The value of `key`, None when it is not set."""
        mirror, kept = _MIRRORS.get((namespace, key)), self._tables[namespace].get(key)
        return mirror.get(self._phone(), kept) if mirror else kept

    def put(self, namespace: str, key: str, value: str) -> None:
        """Sets `key`."""
        mirror = _MIRRORS.get((namespace, key))
        if mirror is not None:
            self._change(lambda values: mirror.put(values, value))
        if mirror is None or (mirror.scale and value.isdecimal()):
            self._tables[namespace][key] = value

    def delete(self, namespace: str, key: str) -> bool:
        """Forgets `key`; False when it was not set, or is the phone's own."""
        return (namespace, key) not in _MIRRORS and self._tables[namespace].pop(key, None) is not None

    def list(self, namespace: str) -> list[tuple[str, str]]:
        """All entries of a table, by key."""
        table = dict(self._tables[namespace])
        for (space, key), mirror in _MIRRORS.items():
            if space == namespace:
                table[key] = mirror.get(self._phone(), table.get(key))
        return sorted(table.items())

    def reset(self, namespace: str, key: str = "") -> None:
        """Brings a table, or one key, back to what it is on a new phone."""
        fresh = _DEFAULTS[namespace]
        if not key:
            self._tables[namespace] = dict(fresh)
        elif key in fresh:
            self._tables[namespace][key] = fresh[key]
        else:
            self._tables[namespace].pop(key, None)

    def dump(self) -> dict[str, dict[str, str]]:
        """The tables as plain data; of the phone's own settings only what sliders were set to."""
        return {name: dict(table) for name, table in self._tables.items()}

    def load(self, tables: dict[str, dict[str, str]]) -> None:
        """Replaces the tables by what `dump` gave."""
        self._tables = {name: dict(tables[name]) for name in NAMESPACES}
