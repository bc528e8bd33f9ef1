"""`dumpsys`: the state of system services, in the lines that clients look for."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from distrl.simulator.adb.activities import Task
from distrl.simulator.adb.call import Call, Command, Failure
from distrl.simulator.adb.commands.screen import DISPLAY_ID
from distrl.simulator.adb.image import BATTERY_PERCENT, SERVICES
from distrl.simulator.adb.packages import Package
from distrl.simulator.phone import hierarchy
from distrl.simulator.phone.nodes import WIDTH, Node

if TYPE_CHECKING:
    from distrl.simulator.adb.android import AndroidSystem

Dump = Callable[["AndroidSystem", list[str]], str]
_SYSTEM_WINDOWS = ("StatusBar", "NavigationBar0")
_FOCUS_IN_WINDOWS = 28
"""The last API level whose `dumpsys window windows` names the focus; later ones do so in `displays`."""


def _activities(system: AndroidSystem) -> str:
    tasks = system.activities.tasks()
    front = tasks[0]
    text = [
        "ACTIVITY MANAGER ACTIVITIES (dumpsys activity activities)\n"
        "Display #0 (activities from top to bottom):\n"
    ]
    for task in tasks:
        shown = str(task is front).lower()
        kind = "home" if task.package.home else "standard"
        text.append(
            f"  * Task{{{task.id:x}a7c31 #{task.id} type={kind} A={task.package.uid}:{task.package.name} U=0 "
            f"visible={shown} visibleRequested={shown} mode=fullscreen translucent=false sz=1}}\n"
        )
        if task is front:
            text.append(f"    topResumedActivity={task.record}\n    mResumedActivity: {task.record}\n")
        text.append(f"    * Hist  #0: {task.record}\n")
    text.append(
        f"\n  ResumedActivity: {front.record}\n\nActivityTaskSupervisor state:\n"
        "  KeyguardController:\n    mKeyguardShowing=false\n    mAodShowing=false\n"
    )
    return "".join(text)


def _top(system: AndroidSystem, tasks: list[Task]) -> str:
    text = ["TASK MANAGER (dumpsys activity top)\n"]
    for task in reversed(tasks):
        process = system.processes.find(task.package.name)
        text.append(
            f"TASK {task.package.name} id={task.id} userId=0\n"
            f"  ACTIVITY {task.package.component} {task.id:x}f2b4c1 pid={process.pid if process else 0}\n"
            f"    Local Activity {task.id:x}a1b2c3 State:\n"
            f"      mResumed={str(task is tasks[0]).lower()} "
            f"mStopped={str(task is not tasks[0]).lower()} mFinished=false\n"
        )
        if task is tasks[0]:
            text.append(_views(system))
    return "".join(text)


def _views(system: AndroidSystem) -> str:
    """The view hierarchy of the activity in front, as the framework prints it: bounds inside the parent."""
    lines = ["    View Hierarchy:", "      DecorView@f00d001[MainActivity]"]
    _view(lines, system.device.phone.tree(), (0, 0), system.device.size[0] / WIDTH, 8)
    return "".join(f"{line}\n" for line in lines)


def _view(lines: list[str], node: Node, parent: tuple[int, int], scale: float, indent: int) -> None:
    left, top, right, bottom = (round(edge * scale) for edge in node.box)
    x, y = parent
    tap = "C" if node.clickable else "."
    name = f" #7f0a0001 app:id/{node.rid}" if node.rid else ""
    address = zlib.crc32(f"{node.rid}/{node.cls}/{left}/{top}".encode()) >> 4
    lines.append(
        f"{' ' * indent}{hierarchy.class_name(node)}{{{address:07x} "
        f"V{'F' if node.clickable else '.'}E...{tap}.. "
        f"........ {left - x},{top - y}-{right - x},{bottom - y}{name}}}"
    )
    for child in node.children:
        _view(lines, child, (left, top), scale, indent + 2)


def _activity(system: AndroidSystem, args: list[str]) -> str:
    """dumpsys activity [activities|top|recents|PACKAGE]"""
    tasks = system.activities.tasks()
    what = args[0] if args else ""
    if what == "top":
        return _top(system, tasks)
    if what == "recents":
        lines = [
            f"  * Recent #{place}: Task{{{task.id:x}a7c31 #{task.id} type=standard A={task.package.uid}:"
            f"{task.package.name}}}\n    id={task.id} userId=0 hasTask=true lastActiveTime=1\n"
            for place, task in enumerate(tasks)
            if not task.package.home
        ]
        return "ACTIVITY MANAGER RECENT TASKS (dumpsys activity recents)\n  Recent tasks:\n" + "".join(lines)
    if what not in ("", "activities"):
        chosen = [
            task for task in tasks if what in (task.package.name, task.package.component, task.long_name)
        ]
        return _top(system, chosen) if chosen else f"No activities match: {what}\n"
    text = _activities(system)
    return text if what else f"{text}\n{_top(system, tasks[:1])}"


def _focus(system: AndroidSystem) -> str:
    task = system.activities.front
    # A display that is off has no focused window.
    window = task.window if system.screen_on else "null"
    return f"  mCurrentFocus={window}\n  mFocusedApp={task.record}\n"


def _displays(system: AndroidSystem) -> str:
    width, height = system.device.size
    return (
        "WINDOW MANAGER DISPLAY CONTENTS (dumpsys window displays)\n"
        "  Display: mDisplayId=0 (organized)\n"
        f"    init={width}x{height} {system.density}dpi cur={width}x{height} app={width}x{height}\n"
        f"{_focus(system)}"
        "  DisplayRotation\n    mRotation=ROTATION_0 mDeferredRotationPauseCount=0\n"
        f"  DisplayFrames w={width} h={height} r=0\n\n"
    )


def _windows(system: AndroidSystem) -> str:
    names = [f"Window{{{0xABC1000 + place:x} u0 {name}}}" for place, name in enumerate(_SYSTEM_WINDOWS)]
    if system.ime.shown:
        names.append("Window{abc1002 u0 InputMethod}")
    tasks = system.activities.tasks()
    names += [task.window for task in tasks]
    text = ["WINDOW MANAGER WINDOWS (dumpsys window windows)\n"]
    for place, name in enumerate(names):
        is_hidden = name in [task.window for task in tasks[0 if not system.screen_on else 1 :]]
        text.append(f"  Window #{place} {name}:\n    mDisplayId=0 isVisible={str(not is_hidden).lower()}\n")
    text.append("\n  mTopFocusedDisplayId=0\n")
    if system.api_level <= _FOCUS_IN_WINDOWS:
        text.append(_focus(system))
    return "".join(text)


def _policy(system: AndroidSystem) -> str:
    on = str(system.screen_on).lower()
    return (
        "WINDOW MANAGER POLICY STATE (dumpsys window policy)\n"
        f"    mSystemReady=true mSystemBooted=true\n    mAwake={on} mScreenOnEarly={on} mScreenOnFully={on}\n"
        "    mCurrentAppOrientation=SCREEN_ORIENTATION_UNSPECIFIED mCurrentRotation=ROTATION_0\n"
        "    mShowingDream=false mDreamingLockscreen=false mShowingLockscreen=false\n\n"
    )


def _window(system: AndroidSystem, args: list[str]) -> str:
    """dumpsys window [windows|displays]"""
    sections = {"displays": _displays, "windows": _windows}
    if args:
        found = sections.get(args[0])
        return found(system) if found else f"Bad window command, or no windows match: {args[0]}\n"
    return (
        "WINDOW MANAGER LAST ANR (dumpsys window lastanr)\n  <no ANR has occurred since boot>\n\n"
        + _policy(system)
        + _displays(system)
        + _windows(system)
        + "  mCurrentRotation=ROTATION_0\n"
    )


def _input(system: AndroidSystem, args: list[str]) -> str:
    width, height = system.device.size
    turned = "SurfaceOrientation" if system.api_level < 33 else "InputDeviceOrientation"
    return (
        "INPUT MANAGER (dumpsys input)\n\n"
        "Input Reader State (Nums of device: 1):\n  Device 1: virtio_input_multi_touch_1\n"
        "    Touch Input Mapper (mode - DIRECT):\n"
        f"      Viewport INTERNAL: displayId=0, uniqueId=local:{DISPLAY_ID}, port=0, orientation=0, "
        f"logicalFrame=[0, 0, {width}, {height}], physicalFrame=[0, 0, {width}, {height}], "
        f"deviceSize=[{width}, {height}], isActive=[1]\n"
        f"      PhysicalWidth: {width}px\n      PhysicalHeight: {height}px\n      {turned}: 0\n"
        f"  FocusedApplications:\n    displayId=0, name='{system.activities.front.record}'\n"
    )


def _display(system: AndroidSystem, args: list[str]) -> str:
    width, height = system.device.size
    return (
        "DISPLAY MANAGER (dumpsys display)\n"
        "  mViewports=[DisplayViewport{type=INTERNAL, valid=true, "
        f"isActive=true, displayId=0, uniqueId='local:{DISPLAY_ID}', physicalPort=0, orientation=0, "
        f"logicalFrame=Rect(0, 0 - {width}, {height}), physicalFrame=Rect(0, 0 - {width}, {height}), "
        f"deviceWidth={width}, deviceHeight={height}}}]\n"
        f"  mScreenState={'ON' if system.screen_on else 'OFF'}\n  mCurrentOrientation=0\n"
    )


def _surface_flinger(system: AndroidSystem, args: list[str]) -> str:
    """dumpsys SurfaceFlinger --display-id"""
    if args == ["--display-id"]:
        return f'Display {DISPLAY_ID} (HWC display 0): port=0 pnpId=GGL displayName="EMU_display_0"\n'
    return "the simulated phone takes --display-id\n"


def _input_method(system: AndroidSystem, args: list[str]) -> str:
    methods, shown = system.ime, str(system.ime.shown).lower()
    names = "".join(f"  InputMethod #{place}:\n    mId={name}\n" for place, name in enumerate(methods.all()))
    front = system.activities.front.package.name
    focus = system.state["focus"]
    return (
        f"Current Input Method Manager state:\n  Input Methods: mMethodMapUpdateCount=1\n{names}"
        f"  mCurMethodId={methods.current}\n"
        f"  mCurId={methods.current} mHaveConnection=true mBoundToMethod=true "
        f"mVisibleBound={shown}\n"
        f"  mCurFocusedWindowClient=ClientState{{mUid={system.activities.front.package.uid}}}\n"
        f"  mShowRequested={shown} mShowExplicitlyRequested=false mShowForced=false mInputShown={shown}\n"
        f"  mSystemReady=true mInteractive={str(system.screen_on).lower()}\n"
        f"  mServedView={'android.widget.EditText{' + focus + '}' if focus else 'null'}\n"
        f"  EditorInfo: packageName={front} inputType=0x{1 if focus else 0:x}\n"
    )


def _battery(system: AndroidSystem, args: list[str]) -> str:
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
    if not args:
        return "Packages:\n" + "".join(_described(each) for each in system.packages.all())
    package = system.packages.get(args[-1])
    if package is None:
        return f"Unable to find package: {args[-1]}\n"
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
        f"    dataDir=/data/user/0/{package.name}\n    timeStamp={_stamp(package.updated_ms)}\n"
        f"    firstInstallTime={_stamp(package.installed_ms)}\n"
        f"    lastUpdateTime={_stamp(package.updated_ms)}\n"
        f"    installerPackageName={package.installer or 'null'}\n"
        f"    signatures=PackageSignatures{{{package.uid:x} version:2, signatures:[{package.uid:08x}], "
        "past signatures:[]}\n"
        f"    requested permissions:\n{permissions}    User 0: ceDataInode=0 installed=true hidden=false "
        f"suspended=false stopped=false enabled=0\n      runtime permissions:\n"
        f"{granted}"
    )


def _stamp(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def _meminfo(system: AndroidSystem, args: list[str]) -> str:
    found = system.processes.find(args[-1]) if args else None
    if found is None:
        return f"No process found for: {' '.join(args)}\n"
    return (
        f"Applications Memory Usage (in Kilobytes):\nUptime: {int(system.uptime * 1000)}\n\n"
        f"** MEMINFO in pid {found.pid} [{found.name}] **\n                   Pss  Private\n"
        "                 Total    Dirty\n  Native Heap    12000    11000\n  Dalvik Heap     8000     7000\n"
        "        TOTAL    48000    30000\n\n App Summary\n"
        "           TOTAL PSS:    48000            TOTAL RSS:   123456\n"
    )


def _telephony(system: AndroidSystem, args: list[str]) -> str:
    return "last known state:\n  Phone Id=0\n    mCallState=0\n    mCallIncomingNumber=\n"


_DUMPS: dict[str, Dump] = {
    "SurfaceFlinger": _surface_flinger,
    "activity": _activity,
    "battery": _battery,
    "display": _display,
    "input": _input,
    "input_method": _input_method,
    "meminfo": _meminfo,
    "package": _package,
    "power": _power,
    "telephony.registry": _telephony,
    "window": _window,
}
_WITH_ARGUMENTS = ("SurfaceFlinger", "activity", "meminfo", "package", "window")


async def dumpsys(call: Call) -> int:
    """dumpsys [-l] [-t SECONDS] [--skip NAMES] [SERVICE [ARG…]]"""
    args = list(call.args)
    while args and args[0] in ("-t", "-T", "--priority", "--skip"):
        del args[:2]
    if args == ["-l"]:
        await call.write("Currently running services:\n" + "".join(f"  {name}\n" for name in SERVICES))
    elif not args:
        for name, dump in _DUMPS.items():
            await call.write(f"{'-' * 79}\nDUMP OF SERVICE {name}:\n{dump(call.system, [])}")
    elif args[0] in _DUMPS:
        if args[1:] and args[0] not in _WITH_ARGUMENTS:
            raise Failure(f"`{' '.join(args)}` is not on the simulated phone")
        await call.write(_DUMPS[args[0]](call.system, args[1:]))
    else:
        await call.error(f"Can't find service: {args[0]}")
    return 0


COMMANDS: dict[str, Command] = {"dumpsys": dumpsys}
