"""Which app an agent means by a name, among the launcher's activities: adb tells packages, not labels.

A name is matched with the package's: as it is ("com.android.settings"), by a well-known app's name
("Chrome"), by the package's last part ("Clock" for org.simphone.clock), by any part ("calendar" for
a.calendar.pro), and by its words ("Simple Calendar Pro" for com.simplemobiletools.calendar.pro). The first
rule that fits anything decides, if it fits one package alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

LAUNCHABLE = (
    "cmd package query-activities --brief -a android.intent.action.MAIN -c android.intent.category.LAUNCHER"
)
"""Asks for the activities that a launcher shows, from Android 7."""
SIMPHONE = "org.simphone."
"""Packages of the simulated phone's own apps are this and the app's name."""
_COMPONENT = re.compile(r"^\s*([\w.]+)/([\w.$]+)\s*$", re.MULTILINE)
_WORD = re.compile(r"[^\W_]+")
_KNOWN: dict[str, tuple[str, ...]] = {
    "browser": ("com.android.chrome", "org.chromium.webview_shell", "com.android.browser"),
    "camera": ("com.google.android.GoogleCamera", "com.sec.android.app.camera", "com.android.camera2"),
    "chrome": ("com.android.chrome",),
    "clock": (
        "com.google.android.deskclock",
        "com.android.deskclock",
        "com.sec.android.app.clockpackage",
    ),
    "drive": ("com.google.android.apps.docs",),
    "files": (
        "com.google.android.apps.nbu.files",
        "com.google.android.documentsui",
        "com.android.documentsui",
        "com.sec.android.app.myfiles",
    ),
    "gallery": ("com.sec.android.gallery3d", "com.android.gallery3d", "com.google.android.apps.photos"),
    "gmail": ("com.google.android.gm",),
    "google": ("com.google.android.googlequicksearchbox",),
    "messages": (
        "com.google.android.apps.messaging",
        "com.samsung.android.messaging",
        "com.android.messaging",
        "com.android.mms",
    ),
    "phone": ("com.google.android.dialer", "com.samsung.android.dialer", "com.android.dialer"),
    "play store": ("com.android.vending",),
}
"""Apps whose packages do not show by what name people know them."""


def components(text: str) -> dict[str, str]:
    """The activities in an answer to `LAUNCHABLE`, by package; of several, the first."""
    found: dict[str, str] = {}
    for package, activity in _COMPONENT.findall(text):
        found.setdefault(package, f"{package}/{activity}")
    return found


def find(name: str, packages: Iterable[str]) -> str | None:
    """The package that `name` means, None for none of them, or for more than one.

    Args:
        name: As the agent has it: a package, or the app's name, with or without "app" behind it.
        packages: Those that can be opened.
    """
    known = {package.lower(): package for package in sorted(packages)}
    if name.strip().lower() in known:
        return known[name.strip().lower()]
    words = _WORD.findall(name.lower())
    words = words[:-1] if len(words) > 1 and words[-1] == "app" else words
    words = words[1:] if len(words) > 1 and words[0] in ("google", "the") else words
    if not words:
        return None
    for package in _KNOWN.get(" ".join(words), ()):
        if package.lower() in known:
            return package
    whole = "".join(words)
    parts = {package: [part.rstrip("0123456789") or part for part in package.split(".")] for package in known}
    several = len(words) > 1  # one word alone, "on" for example, is within many a package
    for fits in (
        [package for package, of in parts.items() if whole == of[-1]],
        [package for package, of in parts.items() if whole in of[1:]],
        [package for package, of in parts.items() if several and _has(of[1:], words)],
    ):
        if fits:
            return known[fits[0]] if len(fits) == 1 else None
    return None


def _has(parts: Sequence[str], words: Iterable[str]) -> bool:
    return all(any(word in part for part in parts) for word in words)
