"""The package manager: pm, and `cmd package`."""

from __future__ import annotations

from datetime import datetime, timezone

from distrl.simulator.adb.packages import Package
from distrl.simulator.adb.packages_install import InstallFailure
from distrl.simulator.adb.shell.call import CHUNK, Call, Command, Failure
from distrl.simulator.adb.shell.commands import intents
from distrl.simulator.adb.shell.commands.options import run_verb

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


def _split(args: list[str], valued: str = "") -> tuple[list[str], list[str]]:
    """Options and other arguments; `--user N` and the options in `valued` take their values along."""
    options, rest, queue = [], [], list(args)
    while queue:
        arg = queue.pop(0)
        if arg == "--user" or arg in valued.split():
            options.append(f"{arg}={queue.pop(0) if queue else ''}")
        elif arg.startswith("-") and len(arg) > 1:
            options.append(arg)
        else:
            rest.append(arg)
    return options, rest


def _known(call: Call, name: str) -> Package:
    package = call.system.packages.get(name)
    if package is None:
        message = f"Unknown package: {name}"
        raise Failure(
            f"\nException occurred while executing '{call.args[0]}':\n"
            f"java.lang.IllegalArgumentException: {message}",
            255,
            prefixed=False,
        )
    return package


def _needed(call: Call, rest: list[str], what: str) -> str:
    if not rest:
        raise Failure(f"Error: {what} not specified", 1, prefixed=False)
    return rest[0]


async def _list(call: Call, args: list[str]) -> int:
    what = args[0] if args else ""
    options, rest = _split(args[1:])
    if what in ("package", "packages"):
        found = [package for package in call.system.packages.all() if _listed(package, options)]
        if rest:
            found = [package for package in found if rest[0] in package.name]
        await call.write("".join(f"{_listed_line(package, options)}\n" for package in found))
        return 0
    if what == "features":
        await call.write("".join(f"feature:{name}\n" for name in _FEATURES))
        return 0
    if what == "libraries":
        await call.write("library:android.test.base\nlibrary:org.apache.http.legacy\n")
        return 0
    if what == "users":
        await call.write("Users:\n\tUserInfo{0:Owner:c13} running\n")
        return 0
    if what in ("instrumentation", "permission-groups", "permissions", "staged-sessions"):
        return 0
    raise Failure(f"Error: unknown list type '{what}'", 255, prefixed=False)


def _listed(package: Package, options: list[str]) -> bool:
    wanted = {
        "-3": not package.system,
        "-s": package.system,
        "-d": not package.enabled,
        "-e": package.enabled,
    }
    return all(wanted.get(option, True) for option in options)


def _listed_line(package: Package, options: list[str]) -> str:
    path = f"{package.path}=" if "-f" in options else ""
    line = f"package:{path}{package.name}"
    if "--show-versioncode" in options:
        line += f" versionCode:{package.version_code}"
    if "-i" in options:
        line += f"  installer={package.installer or 'null'}"
    return line + (f" uid:{package.uid}" if "-U" in options else "")


async def _path(call: Call, args: list[str]) -> int:
    _, rest = _split(args)
    package = call.system.packages.get(_needed(call, rest, "no package"))
    if package is None:
        return 1
    await call.line(f"package:{package.path}")
    return 0


async def _clear(call: Call, args: list[str]) -> int:
    _, rest = _split(args)
    name = _needed(call, rest, "no package")
    if call.system.packages.get(name) is None:
        await call.line("Failed")
        return 1
    call.system.installer.clear(name)
    await call.line("Success")
    return 0


async def _install(call: Call, args: list[str]) -> int:
    options, rest = _split(args, "-S -i --abi --install-location --install-reason --pkg --originating-uri")
    size = next((option[3:] for option in options if option.startswith("-S=")), "")
    try:
        data = await _apk(call, size, rest[0] if rest and rest[0] != "-" else "")
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


async def _session(call: Call, args: list[str]) -> int:
    """install-create, install-write, install-commit, install-abandon."""
    installer, verb = call.system.installer, call.args[0]
    options, rest = _split(args, "-S -i --abi --install-location --install-reason --pkg")
    try:
        if verb == "install-create":
            await call.line(f"Success: created install session [{installer.create()}]")
            return 0
        number = call.integer(_needed(call, rest, "session"))
        if verb == "install-write":
            size = next((option[3:] for option in options if option.startswith("-S=")), "")
            name = rest[1] if len(rest) > 1 else "base.apk"
            session = installer.session(number)
            data = await _apk(call, size, rest[2] if len(rest) > 2 and rest[2] != "-" else "")
            session.parts[name] = data
            await call.line(f"Success: streamed {len(data)} bytes")
            return 0
        if verb == "install-abandon":
            installer.abandon(number)
        else:
            installer.commit(number)
    except InstallFailure as failure:
        await call.line(f"Failure [{failure}]")
        return 1
    await call.line("Success")
    return 0


async def _uninstall(call: Call, args: list[str]) -> int:
    _, rest = _split(args, "--versionCode")
    try:
        call.system.installer.uninstall(_needed(call, rest, "package name"))
    except InstallFailure as failure:
        await call.line(f"Failure [{failure}]")
        return 1
    await call.line("Success")
    return 0


async def _grant(call: Call, args: list[str]) -> int:
    _, rest = _split(args)
    package = _known(call, _needed(call, rest, "no package"))
    if len(rest) < 2:
        raise Failure("Error: no permission specified", 1, prefixed=False)
    name = rest[1]
    if name not in package.requested:
        message = f"Package {package.name} has not requested permission {name}"
        raise Failure(
            f"\nException occurred while executing '{call.args[0]}':\njava.lang.SecurityException: {message}",
            255,
            False,
        )
    granted = package.granted | {name} if call.args[0] == "grant" else package.granted - {name}
    call.system.packages.update(package.name, granted=granted)
    return 0


async def _enable(call: Call, args: list[str]) -> int:
    _, rest = _split(args)
    package = _known(call, _needed(call, rest, "no package").partition("/")[0])
    on = call.args[0] in ("enable", "default-state", "unhide")
    if not on and call.system.packages.app(package.name) is not None:
        raise Failure(
            f"Error: {package.name} is a part of the simulated phone and cannot be disabled", 1, False
        )
    call.system.packages.update(package.name, enabled=on)
    await call.line(f"Package {package.name} new state: {'enabled' if on else 'disabled-user'}")
    return 0


async def _resolve(call: Call, args: list[str]) -> int:
    brief = "--brief" in args or "--components" in args
    wanted = [arg for arg in args if arg not in ("--brief", "--components")]
    target = intents.resolve(call.system, intents.read(wanted))
    if target is None:
        await call.line("No activity found")
        return 0
    if "--components" in args:
        await call.line(target.package.component)
    elif brief:
        await call.line("priority=0 preferredOrder=0 match=0x108000 specificIndex=-1 isDefault=true")
        await call.line(target.package.component)
    else:
        await call.write(
            "priority=0 preferredOrder=0 match=0x108000 specificIndex=-1 isDefault=true\nActivityInfo:\n"
            f"  name={target.package.activity}\n  packageName={target.package.name}\n"
            "  enabled=true exported=true\n"
        )
    return 0


async def _query(call: Call, args: list[str]) -> int:
    wanted = [arg for arg in args if arg not in ("--brief", "--components")]
    intent = intents.read(wanted)
    if "android.intent.category.LAUNCHER" in intent.categories and not intent.package:
        found = [
            each for each in call.system.packages.all() if each.activity and each.enabled and not each.home
        ]
    else:
        target = intents.resolve(call.system, intent)
        found = [target.package] if target is not None else []
    if "--components" in args:
        await call.write("".join(f"{package.component}\n" for package in found))
        return 0
    await call.line(f"{len(found)} activities found:")
    for place, package in enumerate(found):
        await call.write(
            f"  Activity #{place}:\n"
            "    priority=0 preferredOrder=0 match=0x108000 specificIndex=-1 isDefault=true\n"
            f"    {package.component}\n"
        )
    return 0


async def _nothing(call: Call, args: list[str]) -> int:
    return 0


async def _minus_one(call: Call, args: list[str]) -> int:
    await call.line(
        "0[auto]" if call.args[0] == "get-install-location" else "2" if "max" in call.args[0] else "Success"
    )
    return 0


async def _dump(call: Call, args: list[str]) -> int:
    return await call.shell.call(["dumpsys", "package", *args])


async def _compile(call: Call, args: list[str]) -> int:
    await call.line("Success")
    return 0


def stamp(milliseconds: int) -> str:
    """A time as the package manager prints it."""
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


_VERBS = {
    "clear": _clear,
    "compile": _compile,
    "default-state": _enable,
    "disable": _enable,
    "disable-user": _enable,
    "dump": _dump,
    "enable": _enable,
    "get-install-location": _minus_one,
    "get-max-users": _minus_one,
    "grant": _grant,
    "hide": _enable,
    "install": _install,
    "install-abandon": _session,
    "install-commit": _session,
    "install-create": _session,
    "install-write": _session,
    "list": _list,
    "path": _path,
    "query-activities": _query,
    "resolve-activity": _resolve,
    "revoke": _grant,
    "set-home-activity": _compile,
    "trim-caches": _nothing,
    "unhide": _enable,
    "uninstall": _uninstall,
}


async def pm(call: Call) -> int:
    """pm COMMAND [ARG…]; also `cmd package COMMAND`."""
    return await run_verb(call, _VERBS, "Package manager (package)")


COMMANDS: dict[str, Command] = {"pm": pm}
