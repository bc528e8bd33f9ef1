"""Intents on `am`'s command line: reading them, printing them, and which app of the phone takes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

from distrl.simulator.adb.packages import Package
from distrl.simulator.adb.shell.call import Failure
from distrl.simulator.apps import store_catalog
from distrl.simulator.phone.state import Page
from distrl.workers.devices.apps import SIMPHONE

if TYPE_CHECKING:
    from distrl.simulator.adb.android import AndroidSystem

_MAIN, _VIEW = "android.intent.action.MAIN", "android.intent.action.VIEW"
_LAUNCHER, _HOME = "android.intent.category.LAUNCHER", "android.intent.category.HOME"
_EXTRAS = {
    **dict.fromkeys(("-e", "--es", "--ez", "--ei", "--el", "--ef", "--ed", "--eu", "--ecn"), 2),
    **dict.fromkeys(("--eia", "--eial", "--ela", "--elal", "--efa", "--efal", "--esa", "--esal"), 2),
    "--esn": 1,
}
_VALUED = frozenset(
    [
        "--user",
        "--display",
        "--windowingMode",
        "--activityType",
        "--task",
        "-R",
        "--receiver-permission",
        "--start-profiler",
        "-P",
        "--sampling",
        "--allow-background-activity-starts-token",
    ]
)
_FLAGS = frozenset(
    [
        "-D",
        "-N",
        "-W",
        "-S",
        "--streaming",
        "--track-allocation",
        "--task-overlay",
        "--lock-task",
        "--async",
        "--selector",
        "--ephemeral",
        "--grant-read-uri-permission",
        "--grant-write-uri-permission",
        "--include-stopped-packages",
        "--exclude-stopped-packages",
        "--activity-clear-task",
        "--activity-clear-top",
        "--activity-single-top",
        "--activity-brought-to-front",
        "--activity-no-animation",
        "--activity-no-history",
        "--activity-reset-task-if-needed",
        "--receiver-foreground",
        "--receiver-registered-only",
    ]
)


@dataclass
class Intent:
    """An intent.

    Attributes:
        action, data, type, package, component: Its parts, "" for none.
        categories, extras: Its categories; its extras as text.
        flags: Its flags.
        options: Options of the command itself that were given, e.g. "-W".
    """

    action: str = ""
    data: str = ""
    type: str = ""
    package: str = ""
    component: str = ""
    flags: int = 0
    categories: list[str] = field(default_factory=list)
    extras: dict[str, str] = field(default_factory=dict)
    options: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        fields = {
            "act": self.action,
            "cat": f"[{','.join(self.categories)}]" if self.categories else "",
            "dat": _safe(self.data),
            "typ": self.type,
            "flg": f"0x{self.flags:x}" if self.flags else "",
            "pkg": self.package,
            "cmp": short(self.component),
        }
        parts = [f"{name}={text}" for name, text in fields.items() if text]
        if self.extras:
            parts.append("(has extras)")
        return f"Intent {{ {' '.join(parts)} }}"


def _safe(data: str) -> str:
    """An address as Android prints it in intents: only where it leads."""
    parts = urlsplit(data) if re.match(r"[a-z][a-z0-9+.-]*:", data) else None
    if parts is None or not parts.scheme:
        return data
    if parts.scheme in ("http", "https", "ftp", "rtsp"):
        return (
            f"{parts.scheme}://{parts.netloc}/..."
            if parts.path or parts.query
            else f"{parts.scheme}://{parts.netloc}"
        )
    if parts.scheme in ("tel", "sip", "sms", "smsto", "mailto", "nfc"):
        return f"{parts.scheme}:" + re.sub(r"[^-@.]", "x", data.partition(":")[2])
    return data


def short(component: str) -> str:
    """A component with the class in short form."""
    package, _, name = component.partition("/")
    return f"{package}/{name[len(package) :]}" if name.startswith(package + ".") else component


def full(component: str) -> str:
    """A component with the class written out."""
    package, _, name = component.partition("/")
    return f"{package}/{package}{name}" if name.startswith(".") else component


def read(args: list[str]) -> Intent:
    """Reads an intent, and the options of the command.

    Raises:
        Failure: As `am` fails, at an unknown option or a missing value.
    """
    intent, rest = Intent(), list(args)

    def value(option: str) -> str:
        if not rest:
            message = f'Argument expected after "{option}"'
            raise Failure(
                f"\nException occurred while executing:\njava.lang.IllegalArgumentException: {message}",
                255,
                False,
            )
        return rest.pop(0)

    setters: dict[str, Callable[[str], None]] = {
        "-a": lambda text: setattr(intent, "action", text),
        "-d": lambda text: setattr(intent, "data", text),
        "-t": lambda text: setattr(intent, "type", text),
        "-p": lambda text: setattr(intent, "package", text),
        "-n": lambda text: setattr(intent, "component", text),
        "-c": intent.categories.append,
        "-f": lambda text: setattr(intent, "flags", intent.flags | _number(text)),
    }
    while rest:
        arg = rest.pop(0)
        if arg in setters:
            setters[arg](value(arg))
        elif arg in _EXTRAS:
            key = value(arg)
            intent.extras[key] = value(arg) if _EXTRAS[arg] == 2 else ""
        elif arg in _VALUED:
            value(arg)
        elif arg in _FLAGS:
            intent.options.add(arg)
        elif arg.startswith("-"):
            raise Failure(f"Error: Unknown option: {arg}", 255, prefixed=False)
        else:
            _positional(intent, arg)
    if intent.component and "/" not in intent.component:
        message = f"Bad component name: {intent.component}"
        raise Failure(
            f"\nException occurred while executing:\njava.lang.IllegalArgumentException: {message}",
            255,
            False,
        )
    return intent


def _number(text: str) -> int:
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,8}", text):
        return int(text, 16)
    if not text.isdecimal() or len(text) > 10:
        raise Failure(f"Error: bad flags {text}", 255, prefixed=False)
    return int(text)


def _positional(intent: Intent, arg: str) -> None:
    """The intent's address: a URI, a component or a package."""
    if ":" in arg:
        intent.data = arg
        intent.action = intent.action or _VIEW
    elif "/" in arg:
        intent.component = arg
    elif arg:
        intent.package = arg
        intent.action = intent.action or _MAIN
        if not intent.categories and intent.action == _MAIN:
            intent.categories.append(_LAUNCHER)


_SETTINGS_PAGES = {
    "ACCESSIBILITY": "",
    "AIRPLANE_MODE": "network",
    "APN": "network",
    "APPLICATION": "apps",
    "APPLICATION_DETAILS": "apps",
    "BATTERY_SAVER": "battery",
    "BLUETOOTH": "devices",
    "CAST": "devices",
    "DATA_ROAMING": "network",
    "DATE": "",
    "DEVICE_INFO": "about",
    "DISPLAY": "display",
    "INPUT_METHOD": "",
    "INTERNAL_STORAGE": "about",
    "LOCALE": "",
    "LOCATION_SOURCE": "security",
    "MANAGE_ALL_APPLICATIONS": "apps",
    "MANAGE_APPLICATIONS": "apps",
    "NETWORK_OPERATOR": "network",
    "NFC": "devices",
    "NIGHT_DISPLAY": "display",
    "PRIVACY": "security",
    "SECURITY": "security",
    "SOUND": "sound",
    "WIFI": "network",
    "WIRELESS": "network",
    "ZEN_MODE": "sound",
}
"""Pages of the settings by the middle of android.settings.…_SETTINGS; "" for the first page."""
_BY_ACTION = {
    "android.intent.action.POWER_USAGE_SUMMARY": ("settings", "battery"),
    "android.intent.action.SHOW_ALARMS": ("clock", ""),
    "android.intent.action.SHOW_TIMERS": ("clock", ""),
    "android.intent.action.WEB_SEARCH": ("browser", ""),
}
_BY_SCHEME = {"http": "browser", "https": "browser", "sms": "messages", "smsto": "messages"}
_BY_CATEGORY = {
    "android.intent.category.APP_BROWSER": "browser",
    "android.intent.category.APP_CALCULATOR": "calculator",
    "android.intent.category.APP_CONTACTS": "contacts",
    "android.intent.category.APP_MARKET": "store",
    "android.intent.category.APP_MESSAGING": "messages",
    "android.intent.category.APP_WEATHER": "weather",
}


@dataclass(frozen=True)
class Target:
    """What an intent opens: a package, its app on the phone if it is one, and the pages there."""

    package: Package
    app: str | None
    pages: tuple[Page, ...] = ()


def resolve(system: AndroidSystem, intent: Intent) -> Target | None:
    """Who takes an intent, None for nobody."""
    if intent.component:
        package = system.packages.get(intent.component.partition("/")[0])
        if package is None or not package.activity or full(intent.component) != full(package.component):
            return None
        return Target(package, system.packages.app(package.name))
    found = _implicit(intent)
    if found is not None:
        package = system.packages.get(SIMPHONE + found[0])
        if package is None or intent.package not in ("", package.name):
            return None
        return Target(package, found[0], found[1])
    if intent.action in ("", _MAIN) and intent.package:
        package = system.packages.get(intent.package)
        if package is not None and package.activity and package.enabled:
            return Target(package, system.packages.app(package.name))
    return None


def _implicit(intent: Intent) -> tuple[str, tuple[Page, ...]] | None:
    """The phone's app that takes an intent without a component, and the pages to open there."""
    action, scheme = intent.action, intent.data.partition(":")[0].lower()
    if action == _MAIN and _HOME in intent.categories:
        return "launcher", ()
    if action in ("", _MAIN):
        chosen = next((_BY_CATEGORY[name] for name in intent.categories if name in _BY_CATEGORY), None)
        return (chosen, ()) if chosen else None
    if action == "android.settings.SETTINGS":
        return "settings", ()
    page = re.fullmatch(r"android\.settings\.(\w+)_SETTINGS", action)
    if page:
        name = _SETTINGS_PAGES.get(page.group(1))
        return None if name is None else ("settings", (["section", name],) if name else ())
    if action in _BY_ACTION:
        app, name = _BY_ACTION[action]
        if action.endswith("WEB_SEARCH") and intent.extras.get("query"):
            return app, (["results", intent.extras["query"][:100]],)
        return app, (["section", name],) if name else ()
    if action == _VIEW and scheme == "market":
        return "store", _store_page(intent.data)
    if action in (_VIEW, "android.intent.action.SENDTO") and scheme in _BY_SCHEME:
        return _BY_SCHEME[scheme], _web(intent.data) if scheme.startswith("http") else ()
    if action in (_VIEW, "android.intent.action.PICK") and re.match(
        r"content://(com\.android\.)?contacts", intent.data
    ):
        return "contacts", ()
    return None


def _store_page(address: str) -> tuple[Page, ...]:
    """The store's page for market://details?id=PACKAGE, or its first page."""
    name = (parse_qs(urlsplit(address).query).get("id") or [""])[0].removeprefix(SIMPHONE)
    return (["app", name],) if store_catalog.ENTRIES.get(name) is not None else ()


def _web(address: str) -> tuple[Page, ...]:
    """The browser's page for a web address: the shop's, a search's, or the start page."""
    try:
        parts = urlsplit(address)
        query = parse_qs(parts.query)
    except ValueError:
        return ()
    if parts.netloc == "market.example":
        return (["shop"],)
    words = (query.get("q") or query.get("query") or [""])[0]
    return (["results", unquote(words)[:100]],) if words.strip() else ()
