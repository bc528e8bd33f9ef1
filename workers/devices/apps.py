"""Apps on a device: which one an agent means by a name, and which one is in front.

adb lists packages, not labels. A name is matched with the package's: as it is ("com.android.settings"), by a
well-known app's name ("Chrome"), by the package's last part ("Clock" for org.simphone.clock), by any part
("calendar" for a.calendar.pro), and by its words ("Simple Calendar Pro" for
com.simplemobiletools.calendar.pro). The first rule that fits anything decides, if it fits one package alone.
What is in front is read from the activity manager of Android 8 to 15.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from distrl.workers.devices.adb import AdbClient
from distrl.workers.devices.errors import OutputInvalid

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
"""Apps whose packages do not show their usual names."""


def components(text: str) -> dict[str, str]:
    """The activities in an answer to `LAUNCHABLE`, by package; of several, the first."""
    found: dict[str, str] = {}
    for package, activity in _COMPONENT.findall(text):
        found.setdefault(package, f"{package}/{activity}")
    return found


def find(name: str, packages: Iterable[str]) -> str | None:
    """The package that `name` means, None for none of them, or for more than one.

    `name` is as the agent has it: a package, or the app's name, with or without "app" behind it.
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


FLAGS = "dumpsys window | grep -E 'mAwake=|mCurrentFocus=|Window #| fl='"
"""Asks the window manager for each window's flags, which one has the focus, and whether the display is on."""
_FLAG_SECURE = 0x2000


def is_secure(text: str) -> bool:
    """Whether, by `text`, an answer to `FLAGS`, the display is on and the focused window secure.

    Android leaves such a window (FLAG_SECURE: passwords, payments, films) out of screenshots: they are black
    where it is.
    """
    focus = re.search(r"mCurrentFocus=Window\{(\S+) ", text)
    if focus is None or ("mAwake=false" in text and "mAwake=true" not in text):
        return False
    for block in re.split(r"^\s*(?=Window #)", text, flags=re.MULTILINE):
        if re.match(rf"Window #\d+ Window\{{{re.escape(focus[1])} ", block):
            # By name, as in "fl=LAYOUT_IN_SCREEN SECURE …"; on old devices a number, as in "fl=#81812100".
            found = re.search(r"\bfl=(?:#([0-9a-f]+)|([^\n]*))", block)
            if found is None:
                return False
            return bool(int(found[1], 16) & _FLAG_SECURE) if found[1] else "SECURE" in found[2].split()
    return False


ASK_S = 10.0
"""Deadline of one query to the device's shell."""

_RESUMED = re.compile(r"ResumedActivity[:=]\s*ActivityRecord\{\S+ u\d+ ([\w.]+)/([\w.$]+)")


@dataclass(frozen=True)
class Component:
    """An activity: its package, and its class with the package written out."""

    package: str
    activity: str

    def __str__(self) -> str:
        return f"{self.package}/{self.activity}"


def ask(shell: AdbClient, command: str, timeout_s: float = ASK_S) -> str:
    """The standard output of a command that changes nothing, as text without white space around it."""
    return shell.shell(command, timeout_s, reads=True).text.strip()


def in_front(shell: AdbClient, timeout_s: float = ASK_S) -> list[Component]:
    """The resumed activities, the top one first: one, or one for each part of a split screen.

    While activities change there may be none.
    """
    text = ask(shell, "dumpsys activity activities | grep -E 'ResumedActivity'", timeout_s)
    found = [_component(package, activity) for package, activity in _RESUMED.findall(text)]
    return list(dict.fromkeys(found))


def home_package(shell: AdbClient) -> str:
    """The package of the home screen. Raises OutputInvalid if the device names none."""
    text = ask(
        shell,
        "cmd package resolve-activity --brief -a android.intent.action.MAIN -c android.intent.category.HOME",
    )
    match = _COMPONENT.search(text)
    if match is None:
        raise OutputInvalid(
            "it names no home screen.",
            "Choose a default home app.",
            serial=shell.serial,
            evidence=text[-300:],
        )
    return match[1]


def _component(package: str, activity: str) -> Component:
    return Component(package, f"{package}{activity}" if activity.startswith(".") else activity)
