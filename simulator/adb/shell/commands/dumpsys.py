"""`dumpsys`: the state of system services in the lines that tools look for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from distrl.simulator.adb.android_proc import BATTERY_PERCENT, MEMORY_KIB
from distrl.simulator.adb.packages import Package
from distrl.simulator.adb.shell.call import Call, Command, Failure
from distrl.simulator.adb.shell.commands import dumpsys_window as screen
from distrl.simulator.adb.shell.commands.dumpsys_activity import activity
from distrl.simulator.adb.shell.commands.package import stamp
from distrl.simulator.adb.shell.commands.settings import SERVICES

if TYPE_CHECKING:
    from distrl.simulator.adb.android import AndroidSystem

Dump = Callable[["AndroidSystem", list[str]], str]


def _battery(system: AndroidSystem, args: list[str]) -> str:
    if args:
        return ""  # `set` and `reset` are accepted; the phone's battery stays as its settings page shows it
    return (
        "Current Battery Service state:\n  AC powered: true\n  USB powered: false\n"
        "  Wireless powered: false\n"
        "  Dock powered: false\n  Max charging current: 0\n  Max charging voltage: 0\n"
        "  Charge counter: 10000\n"
        f"  status: 2\n  health: 2\n  present: true\n  level: {BATTERY_PERCENT}\n  scale: 100\n"
        "  voltage: 5000\n"
        "  temperature: 250\n  technology: Li-ion\n"
    )


def _power(system: AndroidSystem, args: list[str]) -> str:
    on = str(system.screen_on).lower()
    wake = "Awake" if system.screen_on else "Asleep"
    return (
        "POWER MANAGER (dumpsys power)\n\nPower Manager State:\n  mDirty=0x0\n"
        f"  mWakefulness={wake}\n  mWakefulnessChanging=false\n  mIsPowered=true\n  mPlugType=1\n"
        f"  mBatteryLevel={BATTERY_PERCENT}\n  mStayOn={on}\n  mBootCompleted=true\n  mSystemReady=true\n"
        f"  mHoldingWakeLockSuspendBlocker=false\n  mHoldingDisplaySuspendBlocker={on}\n  mInteractive={on}\n"
        f"  mScreenOn={on}\n\nDisplay Power: state={'ON' if system.screen_on else 'OFF'}\n\n"
        "Wake Locks: size=0\n"
    )


def _package(system: AndroidSystem, args: list[str]) -> str:
    names = [arg for arg in args if not arg.startswith("-")]
    if not names:
        return "Packages:\n" + "".join(_described(each) for each in system.packages.all())
    package = system.packages.get(names[-1])
    if package is None:
        return f"Unable to find package: {names[-1]}\n"
    main = ""
    if package.activity:
        category = "HOME" if package.home else "LAUNCHER"
        main = (
            "Activity Resolver Table:\n  Non-Data Actions:\n      android.intent.action.MAIN:\n"
            f"        {package.uid:x} {package.component} filter {package.uid:x}f\n"
            '          Action: "android.intent.action.MAIN"\n'
            f'          Category: "android.intent.category.{category}"\n\n'
        )
    return f"{main}Packages:\n{_described(package)}"


def _described(package: Package) -> str:
    flags = "SYSTEM HAS_CODE" if package.system else "HAS_CODE ALLOW_CLEAR_USER_DATA"
    permissions = "".join(f"      {name}\n" for name in package.requested)
    granted = "".join(
        f"        {name}: granted={str(name in package.granted).lower()}, flags=[ USER_SET ]\n"
        for name in package.requested
    )
    return (
        f"  Package [{package.name}] ({package.uid:x}):\n    userId={package.uid}\n    appId={package.uid}\n"
        f"    pkg=Package{{{package.uid:x} {package.name}}}\n    codePath={package.path.rpartition('/')[0]}\n"
        f"    resourcePath={package.path.rpartition('/')[0]}\n    primaryCpuAbi=null\n"
        f"    versionCode={package.version_code} minSdk=24 targetSdk={package.target_sdk}\n"
        f"    versionName={package.version_name}\n    flags=[ {flags} ]\n    pkgFlags=[ {flags} ]\n"
        f"    dataDir=/data/user/0/{package.name}\n    timeStamp={stamp(package.updated_ms)}\n"
        f"    firstInstallTime={stamp(package.installed_ms)}\n"
        f"    lastUpdateTime={stamp(package.updated_ms)}\n"
        f"    installerPackageName={package.installer or 'null'}\n"
        f"    signatures=PackageSignatures{{{package.uid:x} version:2, signatures:[{package.uid:08x}], "
        "past signatures:[]}\n"
        f"    requested permissions:\n{permissions}    User 0: ceDataInode=0 installed=true hidden=false "
        f"suspended=false stopped=false enabled={0 if package.enabled else 3}\n      runtime permissions:\n"
        f"{granted}"
    )


def _meminfo(system: AndroidSystem, args: list[str]) -> str:
    names = [arg for arg in args if not arg.startswith("-")]
    if names:
        found = system.processes.find(names[0])
        if not found:
            return f"No process found for: {names[0]}\n"
        return (
            f"Applications Memory Usage (in Kilobytes):\nUptime: {int(system.uptime * 1000)}\n\n"
            f"** MEMINFO in pid {found[0].pid} [{names[0]}] **\n                   Pss  Private\n"
            "                 Total    Dirty\n  Native Heap    12000    11000\n"
            "  Dalvik Heap     8000     7000\n"
            "        TOTAL    48000    30000\n\n App Summary\n"
            "           TOTAL PSS:    48000            TOTAL RSS:   123456\n"
        )
    rows = "".join(
        f"     48,000K: {each.name} (pid {each.pid})\n" for each in system.processes if each.uid >= 10000
    )
    return (
        f"Applications Memory Usage (in Kilobytes):\n\nTotal PSS by process:\n{rows}\n"
        f"Total RAM: {MEMORY_KIB:,}K (status normal)\n Free RAM: 1,000,000K\n"
        f" Used RAM: {MEMORY_KIB - 1_000_000:,}K\n"
    )


def _cpuinfo(system: AndroidSystem, args: list[str]) -> str:
    return "Load: 0.0 / 0.0 / 0.0\n0% TOTAL: 0% user + 0% kernel\n"


def _telephony(system: AndroidSystem, args: list[str]) -> str:
    return "last known state:\n  Phone Id=0\n    mCallState=0\n    mCallIncomingNumber=\n"


def _wifi(system: AndroidSystem, args: list[str]) -> str:
    on = system.state["apps"]["settings"]["wifi"]
    ssid = '"Home network"' if on else "<unknown ssid>"
    return f"Wi-Fi is {'enabled' if on else 'disabled'}\nmWifiInfo SSID: {ssid}, BSSID: 02:00:00:00:00:00\n"


def _notification(system: AndroidSystem, args: list[str]) -> str:
    return "Current Notification Manager state:\n  Notification List:\n"


def _alarm(system: AndroidSystem, args: list[str]) -> str:
    return f"Current Alarm Manager state:\n  nowRTC={int(system.clock() * 1000)}\n"


_DUMPS: dict[str, Dump] = {
    "SurfaceFlinger": screen.surface_flinger,
    "activity": activity,
    "alarm": _alarm,
    "battery": _battery,
    "cpuinfo": _cpuinfo,
    "display": screen.display,
    "input": screen.input_,
    "input_method": screen.input_method,
    "meminfo": _meminfo,
    "notification": _notification,
    "package": _package,
    "power": _power,
    "telephony.registry": _telephony,
    "wifi": _wifi,
    "window": screen.window,
}


async def dumpsys(call: Call) -> int:
    """dumpsys [-l] [-t SECONDS] [--skip NAMES] [SERVICE [ARG…]]"""
    args = list(call.args)
    while args and args[0].startswith("-"):
        option = args.pop(0)
        if option == "-l":
            await call.write("Currently running services:\n" + "".join(f"  {name}\n" for name in SERVICES))
            return 0
        if option in ("-t", "-T", "--priority", "--skip") and args:
            args.pop(0)
        elif option in ("-h", "--help"):
            await call.error("usage: dumpsys [-l | --help | [-t SECONDS] SERVICE [ARGS]]")
            return 0
    if not args:
        for name, dump in sorted(_DUMPS.items()):
            line = "-" * 79
            await call.write(f"{line}\nDUMP OF SERVICE {name}:\n{dump(call.system, [])}")
        return 0
    found = _DUMPS.get(args[0])
    if found is not None:
        await call.write(found(call.system, args[1:]))
        return 0
    if args[0] in SERVICES:
        return 0
    raise Failure(f"Can't find service: {args[0]}", 0, prefixed=False)


COMMANDS: dict[str, Command] = {"dumpsys": dumpsys}
