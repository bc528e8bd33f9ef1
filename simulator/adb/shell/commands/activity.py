"""Starting and stopping apps: am, monkey."""

from __future__ import annotations

import re

from distrl.simulator.adb.packages import Package
from distrl.simulator.adb.shell.call import Call, Command, Failure
from distrl.simulator.adb.shell.commands import intents
from distrl.simulator.adb.shell.commands.intents import Intent, Target
from distrl.simulator.adb.shell.commands.options import run_verb

_FRONT = "Warning: Activity not started, its current task has been brought to the front"
_SAME = "Warning: Activity not started, intent has been delivered to currently running top-most instance."
_AIRPLANE = "android.intent.action.AIRPLANE_MODE"


async def _start(call: Call, args: list[str]) -> int:
    intent = intents.read(args)
    await call.line(f"Starting: {intent}")
    intent.flags |= 0x10000000
    target = intents.resolve(call.system, intent)
    if target is None:
        return await _unresolved(call, intent)
    if "-S" in intent.options:
        call.system.activities.stop(target.package.name)
    before = call.system.activities.front.package.name
    running = bool(call.system.processes.find(target.package.name))
    if target.app is None:
        _crash(call, target.package)
        return 0
    call.system.activities.open(target.app, *target.pages)
    warning = ""
    if before == target.package.name and not target.pages and "-S" not in intent.options:
        warning = _FRONT if "android.intent.category.LAUNCHER" in intent.categories else _SAME
        await call.error(warning)
    if "-W" in intent.options:
        state = "UNKNOWN (0)" if warning else "HOT" if running else "COLD"
        await call.write(
            f"Status: ok\nLaunchState: {state}\nActivity: {target.package.component}\n"
            f"TotalTime: {0 if warning else 97}\nWaitTime: {2 if warning else 101}\nComplete\n"
        )
    return 0


async def _unresolved(call: Call, intent: Intent) -> int:
    if intent.component:
        await call.error("Error type 3")
        await call.error(f"Error: Activity class {{{intents.full(intent.component)}}} does not exist.")
    else:
        await call.error(f"Error: Activity not started, unable to resolve {intent}")
    return 1


def _crash(call: Call, package: Package) -> None:
    """Starts an app that was installed: this phone cannot run it, so it ends at once."""
    pid = call.system.processes.fresh_pid()
    log = call.system.log
    log.write(
        "I",
        "ActivityTaskManager",
        f"START u0 {{cmp={package.component}}} from uid 2000 result code=0",
        buffer="system",
    )
    for line in (
        "FATAL EXCEPTION: main",
        f"Process: {package.name}, PID: {pid}",
        f"java.lang.UnsatisfiedLinkError: {package.name} cannot run on the simulated phone",
    ):
        log.write("E", "AndroidRuntime", line, pid=pid, uid=package.uid, buffer="crash")


async def _broadcast(call: Call, args: list[str]) -> int:
    intent = intents.read(args)
    intent.flags |= 0x400000
    await call.line(f"Broadcasting: {intent}")
    code, data = call.system.ime.broadcast(intent.action, intent.extras)
    if intent.action == _AIRPLANE and call.system.uid != 0:
        message = f"Permission Denial: not allowed to send broadcast {_AIRPLANE} from pid=1, uid=2000"
        raise Failure(
            f"\nException occurred while executing 'broadcast':\njava.lang.SecurityException: {message}",
            255,
            False,
        )
    await call.line(f"Broadcast completed: result={code}" + ("" if data is None else f', data="{data}"'))
    return 0


async def _stop(call: Call, args: list[str]) -> int:
    names = _names(args)
    if not names:
        raise Failure('Error: Argument expected after "force-stop"', 255, prefixed=False)
    for name in names:
        call.system.activities.stop(name)
    return 0


def _names(args: list[str]) -> list[str]:
    """The arguments without `--user N`."""
    return [
        arg
        for place, arg in enumerate(args)
        if arg != "--user" and (place == 0 or args[place - 1] != "--user")
    ]


async def _kill(call: Call, args: list[str]) -> int:
    """Only apps in the background die."""
    front = call.system.activities.front.package.name
    for name in _names(args):
        if name != front:
            call.system.activities.stop(name)
    return 0


async def _kill_all(call: Call, args: list[str]) -> int:
    for task in call.system.activities.tasks()[1:]:
        if not task.package.home:
            call.system.activities.stop(task.package.name)
    return 0


async def _stack(call: Call, args: list[str]) -> int:
    width, height = call.system.device.size
    if args[:1] == ["list"]:
        density = call.system.density
        text = []
        for place, task in enumerate(call.system.activities.tasks()):
            bounds = f"bounds=[0,0][{width},{height}]"
            kind = "home" if task.package.home else "standard"
            text.append(f"RootTask id={task.id} {bounds} displayId=0 userId=0\n")
            text.append(
                " configuration={1.0 310mcc260mnc [en_US] ldltr sw360dp w360dp "
                f"h{height * 360 // width}dp {density}dpi nrml long port finger -keyb/v/h -nav/h "
                f"winConfig={{ mBounds=Rect(0, 0 - {width}, {height}) mRotation=ROTATION_0 "
                f"mActivityType={kind} mWindowingMode=fullscreen }} s.1}}\n"
            )
            visible = "true" if place == 0 else "false"
            text.append(
                f"  taskId={task.id}: {task.long_name} {bounds} userId=0 visible={visible} "
                f"topActivity=ComponentInfo{{{task.long_name}}}\n\n"
            )
        await call.write("".join(text))
        return 0
    if args[:1] == ["remove"] and len(args) > 1:
        for task in call.system.activities.tasks():
            if str(task.id) == args[1] and not task.package.home:
                call.system.activities.stop(task.package.name)
    return 0


async def _task(call: Call, args: list[str]) -> int:
    """Locking a task (screen pinning) is accepted, without effect."""
    if args[:1] == ["lock"]:
        await call.line(
            "Activity manager is in lockTaskMode"
            if args[1:2] != ["stop"]
            else "Activity manager is not in lockTaskMode"
        )
    return 0


async def _config(call: Call, args: list[str]) -> int:
    language, _, country = (call.system.properties.get("persist.sys.locale") or "en-US").partition("-")
    height = call.system.device.size[1] * 360 // call.system.device.size[0]
    night = "night" if call.system.state["apps"]["settings"]["dark"] else "notnight"
    size = f"ldltr-sw360dp-w360dp-h{height}dp-normal-long-notround-nowidecg-lowdr-port-{night}"
    density = {240: "hdpi", 320: "xhdpi", 480: "xxhdpi", 640: "xxxhdpi"}.get(call.system.density)
    tail = "finger-keysexposed-nokeys-navhidden-nonav"
    await call.line(
        f"config: {language}-r{country or 'US'}-{size}-{density or f'{call.system.density}dpi'}-{tail}"
        f"-v{call.system.api_level}"
    )
    await call.line("abi: x86_64,arm64-v8a")
    return 0


async def _user(call: Call, args: list[str]) -> int:
    await call.line("0")
    return 0


async def _nothing(call: Call, args: list[str]) -> int:
    return 0


async def _refuse(call: Call, args: list[str]) -> int:
    raise Failure(f"Error: `am {call.args[0]}` is not on the simulated phone", 1, prefixed=False)


_VERBS = {
    "broadcast": _broadcast,
    "clear-debug-app": _nothing,
    "crash": _stop,
    "force-stop": _stop,
    "get-config": _config,
    "get-current-user": _user,
    "idle-maintenance": _nothing,
    "instrument": _refuse,
    "kill": _kill,
    "kill-all": _kill_all,
    "make-uid-idle": _nothing,
    "profile": _refuse,
    "dumpheap": _refuse,
    "set-debug-app": _nothing,
    "stack": _stack,
    "start": _start,
    "start-activity": _start,
    "start-foreground-service": _refuse,
    "start-service": _refuse,
    "startservice": _refuse,
    "stop-app": _stop,
    "stopservice": _nothing,
    "switch-user": _refuse,
    "task": _task,
    "wait-for-broadcast-idle": _nothing,
}


async def am(call: Call) -> int:
    """am COMMAND [ARG…]; also `cmd activity COMMAND`."""
    return await run_verb(call, _VERBS, "Activity manager (activity)")


async def monkey(call: Call) -> int:
    """monkey -p PACKAGE [-c CATEGORY] [COUNT]: starts the app; no random events are made."""
    args, packages = list(call.args), []
    options = {"-c": 1, "-s": 1, "--throttle": 1, "--pct-syskeys": 1, "--pct-touch": 1, "--pct-motion": 1}
    while args and args[0].startswith("-"):
        option = args.pop(0)
        if option == "-p" and args:
            packages.append(args.pop(0))
        elif option in options and args:
            args.pop(0)
    count = call.integer(args[0]) if args and re.fullmatch(r"\d+", args[0]) else 0
    await call.error(f"  bash arg: {call.args}" if "-v" in call.args else "args: " + str(call.args))
    targets: list[Target] = []
    for name in packages:
        intent = Intent(action="android.intent.action.MAIN", package=name)
        found = intents.resolve(call.system, intent)
        if found is not None:
            targets.append(found)
    if not targets:
        await call.line("** No activities found to run, monkey aborted.")
        return 252
    if targets[0].app is None:
        _crash(call, targets[0].package)
    else:
        call.system.activities.open(targets[0].app)
    await call.write(
        f"Events injected: {count or 1}\n"
        "## Network stats: elapsed time=12ms (0ms mobile, 0ms wifi, 12ms not connected)\n"
    )
    return 0


COMMANDS: dict[str, Command] = {"am": am, "monkey": monkey}
