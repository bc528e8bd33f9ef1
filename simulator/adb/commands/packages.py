"""The package manager's commands: pm, and `cmd package`."""

from __future__ import annotations

from distrl.simulator.adb.call import CHUNK, Call, Command, Failure, Verb, run_verb, thrown
from distrl.simulator.adb.commands.apps import LAUNCHER, Intent, read_intent, resolve
from distrl.simulator.adb.packages import InstallFailure, Package

_FEATURES = (
    "reqGlEsVersion=0x30001",
    "android.hardware.bluetooth",
    "android.hardware.faketouch",
    "android.hardware.location",
    "android.hardware.microphone",
    "android.hardware.nfc",
    "android.hardware.screen.portrait",
    "android.hardware.telephony",
    "android.hardware.touchscreen",
    "android.hardware.touchscreen.multitouch",
    "android.hardware.wifi",
    "android.software.input_methods",
)
MAX_APK = 1 << 28
"""Most bytes of an APK."""
_MATCH = "priority=0 preferredOrder=0 match=0x108000 specificIndex=-1 isDefault=true\n"


def _split(args: list[str], allowed: str, valued: str = "") -> tuple[dict[str, str], list[str]]:
    """Options with their values, and other arguments. Raises Failure at any other option."""
    options, rest, queue = dict[str, str](), [], list(args)
    while queue:
        arg = queue.pop(0)
        if arg in valued.split():
            options[arg] = queue.pop(0) if queue else ""
        elif arg in allowed.split():
            options[arg] = ""
        elif arg.startswith("-") and len(arg) > 1:
            raise Failure(f"Error: Unknown option: {arg}", 255, prefixed=False)
        else:
            rest.append(arg)
    return options, rest


def _one(args: list[str], what: str) -> str:
    if not args:
        raise Failure(f"Error: {what} not specified", 1, prefixed=False)
    return args[0]


async def _list(call: Call, args: list[str]) -> int:
    what = args[0] if args else ""
    if what == "features":
        await call.write("".join(f"feature:{name}\n" for name in _FEATURES))
        return 0
    if what == "libraries":
        await call.write("library:android.test.base\nlibrary:org.apache.http.legacy\n")
        return 0
    if what != "packages":
        raise Failure(f"Error: unknown list type '{what}'", 255, prefixed=False)
    options, rest = _split(args[1:], "-f -d -e -s -3 -i -u --show-versioncode", "--user")
    for package in call.system.packages.all():
        if _is_listed(package, options) and all(text in package.name for text in rest):
            line = "package:" + (f"{package.path}=" if "-f" in options else "") + package.name
            if "--show-versioncode" in options:
                line += f" versionCode:{package.version_code}"
            await call.line(line + (f"  installer={package.installer or 'null'}" if "-i" in options else ""))
    return 0


def _is_listed(package: Package, options: dict[str, str]) -> bool:
    """Every package is enabled."""
    wanted = {"-3": not package.system, "-s": package.system, "-d": False}
    return all(wanted.get(option, True) for option in options)


async def _path(call: Call, args: list[str]) -> int:
    package = call.system.packages.get(_one(_split(args, "", "--user")[1], "no package"))
    if package is None:
        return 1
    await call.line(f"package:{package.path}")
    return 0


async def _clear(call: Call, args: list[str]) -> int:
    name = _one(_split(args, "", "--user")[1], "no package")
    if call.system.packages.get(name) is None:
        await call.line("Failed")
        return 1
    call.system.installer.clear(name)
    await call.line("Success")
    return 0


async def _install(call: Call, args: list[str]) -> int:
    options, rest = _split(args, "-d -f -g -l -r -s -t", "-S -i")
    try:
        data = await _apk(call, options.get("-S", ""), rest[0] if rest and rest[0] != "-" else "")
        call.system.installer.install(data, grant="-g" in options, downgrade="-d" in options)
    except InstallFailure as failure:
        await call.line(f"Failure [{failure}]")
        return 1
    await call.line("Success")
    return 0


async def _apk(call: Call, size: str, path: str) -> bytes:
    """An APK from a file, or `size` bytes of it from standard input."""
    if path:
        try:
            return call.files.read(call.path(path))
        except OSError as error:
            message = f"Error: failed to open file: {path}\nError: Can't open file: {path} ({error.strerror})"
            raise Failure(message, 255, prefixed=False) from error
    if not (size.isascii() and size.isdecimal()) or len(size) > 12 or int(size) > MAX_APK:
        raise Failure("Error: must either specify a package size or an APK file", 1, prefixed=False)
    data = bytearray()
    while len(data) < int(size):
        chunk = await call.stdin.read(min(CHUNK, int(size) - len(data)))
        if not chunk:
            raise Failure("Error: the package ends too early", 1, prefixed=False)
        data += chunk
    return bytes(data)


async def _uninstall(call: Call, args: list[str]) -> int:
    try:
        call.system.installer.uninstall(_one(_split(args, "-k", "--user")[1], "package name"))
    except InstallFailure as failure:
        await call.line(f"Failure [{failure}]")
        return 1
    await call.line("Success")
    return 0


async def _grant(call: Call, args: list[str]) -> int:
    name, permission = _one(args, "no package"), _one(args[1:], "no permission")
    package = call.system.packages.get(name)
    if package is None:
        raise thrown("IllegalArgumentException", f"Unknown package: {name}", "grant")
    if permission not in package.requested:
        message = f"Package {name} has not requested permission {permission}"
        raise thrown("SecurityException", message, "grant")
    call.system.packages.update(name, granted=package.granted | {permission})
    return 0


async def _resolve(call: Call, args: list[str]) -> int:
    target = resolve(call.system, _brief_intent(args))
    await call.write("No activity found\n" if target is None else f"{_MATCH}{target.package.component}\n")
    return 0


async def _query(call: Call, args: list[str]) -> int:
    intent = _brief_intent(args)
    if LAUNCHER in intent.categories and not intent.package:
        found = [each for each in call.system.packages.all() if each.activity and not each.home]
    else:
        target = resolve(call.system, intent)
        found = [target.package] if target is not None else []
    await call.line(f"{len(found)} activities found:")
    for place, package in enumerate(found):
        await call.write(f"  Activity #{place}:\n    {_MATCH}    {package.component}\n")
    return 0


def _brief_intent(args: list[str]) -> Intent:
    if args[:1] != ["--brief"]:
        raise Failure("Error: the simulated phone takes --brief INTENT", 255, prefixed=False)
    return read_intent(args[1:])


_VERBS: dict[str, Verb] = {
    "clear": _clear,
    "grant": _grant,
    "install": _install,
    "list": _list,
    "path": _path,
    "query-activities": _query,
    "resolve-activity": _resolve,
    "uninstall": _uninstall,
}


async def pm(call: Call) -> int:
    """pm COMMAND [ARG…]; also `cmd package COMMAND`."""
    return await run_verb(call, _VERBS)


COMMANDS: dict[str, Command] = {"pm": pm}
