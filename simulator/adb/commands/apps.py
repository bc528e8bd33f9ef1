"""Starting and stopping apps: am and monkey, and the intents on their command lines."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from distrl.simulator.adb.call import Call, Command, Failure, Verb, run_verb, thrown
from distrl.simulator.adb.packages import Package
from distrl.simulator.apps import browser, store_catalog
from distrl.simulator.apps.webshop.shops import HOSTS
from distrl.simulator.phone.state import Page, State
from distrl.workers.devices.apps import SIMPHONE

if TYPE_CHECKING:
    from distrl.simulator.adb.android import AndroidSystem

_MAIN, _VIEW = "android.intent.action.MAIN", "android.intent.action.VIEW"
LAUNCHER, HOME = "android.intent.category.LAUNCHER", "android.intent.category.HOME"
_EXTRAS = ("-e", "--es", "--ez", "--ei", "--el", "--ef", "--esa")
_FRONT = "Warning: Activity not started, its current task has been brought to the front"
_SAME = "Warning: Activity not started, intent has been delivered to currently running top-most instance."
_AIRPLANE = "android.intent.action.AIRPLANE_MODE"


@dataclass
class Intent:
    """An intent."""

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
            "cmp": _short(self.component),
        }
        parts = [f"{name}={text}" for name, text in fields.items() if text]
        if self.extras:
            parts.append("(has extras)")
        return f"Intent {{ {' '.join(parts)} }}"


def _safe(data: str) -> str:
    """An address as Android prints it in intents: only where it leads."""
    if web := re.fullmatch("(https?://[^/?#]*)(.*)", data, re.DOTALL):
        return web[1] + ("/..." if web[2] else "")
    scheme = data.partition(":")[0]
    if scheme in ("tel", "sms", "smsto", "mailto"):
        return f"{scheme}:" + re.sub(r"[^-@.]", "x", data.partition(":")[2])
    return data


def _short(component: str) -> str:
    """A component with the class in short form."""
    package, _, name = component.partition("/")
    return f"{package}/{name[len(package) :]}" if name.startswith(package + ".") else component


def _full(component: str) -> str:
    package, _, name = component.partition("/")
    return f"{package}/{package}{name}" if name.startswith(".") else component


def read_intent(args: list[str]) -> Intent:
    """Reads an intent, and the options of the command. Raises Failure as `am` fails."""
    intent, rest = Intent(), list(args)
    fields = {"-a": "action", "-d": "data", "-t": "type", "-p": "package", "-n": "component"}

    def value(option: str) -> str:
        if not rest:
            raise thrown("IllegalArgumentException", f'Argument expected after "{option}"', "start")
        return rest.pop(0)

    while rest:
        arg = rest.pop(0)
        if arg in fields:
            setattr(intent, fields[arg], value(arg))
        elif arg == "-c":
            intent.categories.append(value(arg))
        elif arg == "-f":
            intent.flags |= _number(value(arg))
        elif arg in _EXTRAS:
            key = value(arg)
            intent.extras[key] = value(arg)
        elif arg in ("-W", "-S"):
            intent.options.add(arg)
        else:
            raise Failure(f"Error: Unknown option: {arg}", 255, prefixed=False)
    if intent.component and "/" not in intent.component:
        raise thrown("IllegalArgumentException", f"Bad component name: {intent.component}", "start")
    return intent


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError as error:
        raise Failure(f"Error: bad flags {text}", 255, prefixed=False) from error


_SETTINGS_PAGES = {
    "AIRPLANE_MODE": "network",
    "APPLICATION": "apps",
    "BLUETOOTH": "devices",
    "DEVICE_INFO": "about",
    "DISPLAY": "display",
    "LOCATION_SOURCE": "security",
    "SECURITY": "security",
    "SOUND": "sound",
    "WIFI": "network",
}
"""Pages of the settings by the middle of android.settings.…_SETTINGS."""
_BY_SCHEME = {"http": "browser", "https": "browser", "sms": "messages", "smsto": "messages"}


@dataclass(frozen=True)
class Target:
    """What an intent opens: a package, its app on the phone if it is one, and the pages there."""

    package: Package
    app: str | None
    pages: tuple[Page, ...] = ()


def resolve(system: AndroidSystem, intent: Intent) -> Target | None:
    """What an intent starts, None if nothing."""
    if intent.component:
        package = system.packages.get(intent.component.partition("/")[0])
        if package is None or not package.activity or _full(intent.component) != _full(package.component):
            return None
        return Target(package, system.packages.app(package.name))
    found = _implicit(intent, system.state)
    if found is not None:
        package = system.packages.get(SIMPHONE + found[0])
        if package is None or intent.package not in ("", package.name):
            return None
        return Target(package, found[0], found[1])
    if intent.action in ("", _MAIN) and intent.package:
        package = system.packages.get(intent.package)
        if package is not None and package.activity:
            return Target(package, system.packages.app(package.name))
    return None


def _implicit(intent: Intent, state: State) -> tuple[str, tuple[Page, ...]] | None:
    """The phone's app that takes an intent without a component, and the pages to open there."""
    action, scheme = intent.action, intent.data.partition(":")[0].lower()
    if action == _MAIN and HOME in intent.categories:
        return "launcher", ()
    if action == "android.settings.SETTINGS":
        return "settings", ()
    page = re.fullmatch(r"android\.settings\.(\w+)_SETTINGS", action)
    if page and page.group(1) in _SETTINGS_PAGES:
        return "settings", (["section", _SETTINGS_PAGES[page.group(1)]],)
    if action == _VIEW and scheme == "market":
        return "store", _store_page(intent.data)
    if action in (_VIEW, "android.intent.action.SENDTO") and scheme in _BY_SCHEME:
        return _BY_SCHEME[scheme], _web(intent.data, state) if scheme.startswith("http") else ()
    if action == _VIEW and re.match(r"content://(com\.android\.)?contacts", intent.data):
        return "contacts", ()
    return None


def _parts(address: str) -> tuple[str, dict[str, str]]:
    """The host of an address and its query; both are empty if the address is not valid."""
    try:
        parts = urlsplit(address)
        return parts.netloc, dict(reversed(parse_qsl(parts.query)))
    except ValueError:
        return "", {}


def _store_page(address: str) -> tuple[Page, ...]:
    """The store's page for market://details?id=PACKAGE, or its first page."""
    name = _parts(address)[1].get("id", "").removeprefix(SIMPHONE)
    return (["app", name],) if store_catalog.ENTRIES.get(name) is not None else ()


def _web(address: str, state: State) -> tuple[Page, ...]:
    """The browser's page for a web address: a shop's, a search's, or the start page."""
    host, query = _parts(address)
    if browser.has_web(state) and (shop := HOSTS.get(host.lower().removeprefix("www."))):
        return (["site", shop, "home"],)
    if host == "market.example":
        return (["shop"],)
    words = "".join(filter(str.isprintable, query.get("q") or query.get("query") or ""))
    return (["results", words[:100]],) if words.strip() else ()


async def _start(call: Call, args: list[str]) -> int:
    intent = read_intent(args)
    await call.line(f"Starting: {intent}")
    intent.flags |= 0x10000000
    target = resolve(call.system, intent)
    if target is None:
        if intent.component:
            await call.error("Error type 3")
            await call.error(f"Error: Activity class {{{_full(intent.component)}}} does not exist.")
        else:
            await call.error(f"Error: Activity not started, unable to resolve {intent}")
        return 1
    activities = call.system.activities
    if "-S" in intent.options:
        activities.stop(target.package.name)
    before = activities.front.package.name
    was_running = call.system.processes.find(target.package.name) is not None
    if target.app is None:
        activities.fail_to_start(target.package)
        return 0
    activities.open(target.app, *target.pages)
    warning = ""
    if before == target.package.name and not target.pages and "-S" not in intent.options:
        warning = _FRONT if LAUNCHER in intent.categories else _SAME
        await call.error(warning)
    if "-W" in intent.options:
        state = "UNKNOWN (0)" if warning else "HOT" if was_running else "COLD"
        await call.write(
            f"Status: ok\nLaunchState: {state}\nActivity: {target.package.component}\n"
            f"TotalTime: {0 if warning else 97}\nWaitTime: {2 if warning else 101}\nComplete\n"
        )
    return 0


async def _broadcast(call: Call, args: list[str]) -> int:
    intent = read_intent(args)
    intent.flags |= 0x400000
    await call.line(f"Broadcasting: {intent}")
    if intent.action == _AIRPLANE and call.files.uid != 0:
        message = f"Permission Denial: not allowed to send broadcast {_AIRPLANE} from pid=1, uid=2000"
        raise thrown("SecurityException", message, "broadcast")
    code, data = call.system.ime.broadcast(intent.action, intent.extras)
    await call.line(f"Broadcast completed: result={code}" + ("" if data is None else f', data="{data}"'))
    return 0


async def _stop(call: Call, args: list[str]) -> int:
    if args[:1] == ["--user"]:
        args = args[2:]
    if len(args) != 1:
        raise Failure('Error: Argument expected after "force-stop"', 255, prefixed=False)
    call.system.activities.stop(args[0])
    return 0


async def _stack(call: Call, args: list[str]) -> int:
    """am stack list | remove TASK"""
    if args[:1] == ["remove"] and len(args) == 2:
        for task in call.system.activities.tasks():
            if str(task.id) == args[1] and not task.package.home:
                call.system.activities.stop(task.package.name)
        return 0
    if args != ["list"]:
        raise Failure(f"Error: unknown command 'stack {' '.join(args)}'", 255, prefixed=False)
    width, height = call.system.device.size
    bounds = f"bounds=[0,0][{width},{height}]"
    for place, task in enumerate(call.system.activities.tasks()):
        kind = "home" if task.package.home else "standard"
        await call.write(
            f"RootTask id={task.id} {bounds} displayId=0 userId=0\n"
            " configuration={1.0 310mcc260mnc [en_US] ldltr sw360dp w360dp "
            f"h{height * 360 // width}dp {call.system.density}dpi nrml long port finger -keyb/v/h -nav/h "
            f"winConfig={{ mBounds=Rect(0, 0 - {width}, {height}) mRotation=ROTATION_0 "
            f"mActivityType={kind} mWindowingMode=fullscreen }} s.1}}\n"
            f"  taskId={task.id}: {task.long_name} {bounds} userId=0 visible={str(place == 0).lower()} "
            f"topActivity=ComponentInfo{{{task.long_name}}}\n\n"
        )
    return 0


async def _task(call: Call, args: list[str]) -> int:
    """am task lock TASK: screen pinning is accepted, without effect."""
    if args[:1] != ["lock"]:
        raise Failure(f"Error: unknown command 'task {' '.join(args)}'", 255, prefixed=False)
    await call.line("Activity manager is in lockTaskMode")
    return 0


async def _config(call: Call, args: list[str]) -> int:
    language, _, country = (call.system.properties.get("persist.sys.locale") or "en-US").partition("-")
    height = call.system.device.size[1] * 360 // call.system.device.size[0]
    night = "night" if call.system.state["apps"]["settings"]["dark"] else "notnight"
    await call.line(
        f"config: {language}-r{country or 'US'}-ldltr-sw360dp-w360dp-h{height}dp-normal-long-notround"
        f"-nowidecg-lowdr-port-{night}-{call.system.density}dpi-finger-keysexposed-nokeys-navhidden-nonav"
        f"-v{call.system.api_level}"
    )
    return 0


_VERBS: dict[str, Verb] = {
    "broadcast": _broadcast,
    "force-stop": _stop,
    "get-config": _config,
    "stack": _stack,
    "start": _start,
    "task": _task,
}


async def am(call: Call) -> int:
    """am COMMAND [ARG…]; also `cmd activity COMMAND`."""
    return await run_verb(call, _VERBS)


async def monkey(call: Call) -> int:
    """monkey -p PACKAGE [-c CATEGORY] 1: starts the app; no random events are made."""
    options, rest = call.options("", "pc")
    if rest != ["1"] or "p" not in options:
        raise Failure("the simulated phone takes -p PACKAGE [-c CATEGORY] 1")
    await call.error(f"args: {call.args}")
    target = resolve(call.system, Intent(action=_MAIN, package=options["p"]))
    if target is None:
        await call.line("** No activities found to run, monkey aborted.")
        return 252
    if target.app is None:
        call.system.activities.fail_to_start(target.package)
    else:
        call.system.activities.open(target.app)
    await call.write(
        "Events injected: 1\n## Network stats: elapsed time=12ms (0ms mobile, 0ms wifi, 12ms not connected)\n"
    )
    return 0


COMMANDS: dict[str, Command] = {"am": am, "monkey": monkey}
