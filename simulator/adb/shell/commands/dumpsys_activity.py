"""`dumpsys activity`: tasks, the activity in front and its views."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from distrl.simulator.adb.android_activities import Task
from distrl.simulator.phone import hierarchy
from distrl.simulator.phone.nodes import WIDTH, Node

if TYPE_CHECKING:
    from distrl.simulator.adb.android import AndroidSystem


def _activities(system: AndroidSystem) -> str:
    width, height = system.device.size
    tasks = system.activities.tasks()
    text = [
        "ACTIVITY MANAGER ACTIVITIES (dumpsys activity activities)\n"
        "Display #0 (activities from top to bottom):\n"
    ]
    for place, task in enumerate(tasks):
        shown = place == 0
        kind = "home" if task.package.home else "standard"
        text.append(
            f"  * Task{{{task.id:x}a7c31 #{task.id} type={kind} A={task.package.uid}:{task.package.name} U=0 "
            f"visible={str(shown).lower()} visibleRequested={str(shown).lower()} mode=fullscreen "
            f"translucent=false sz=1}}\n"
            f"    mBounds=Rect(0, 0 - {width}, {height})\n"
            f"    userId=0 effectiveUid=u0a{task.package.uid - 10000}\n"
        )
        if shown:
            text.append(f"    topResumedActivity={task.record}\n    mResumedActivity: {task.record}\n")
        process = next(iter(system.processes.find(task.package.name)), None)
        text.append(
            f"    * Hist  #0: {task.record}\n"
            f"      packageName={task.package.name} processName={task.package.name}\n"
            f"      launchedFromUid=10001 launchedFromPackage=org.simphone.launcher userId=0\n"
            f"      app=ProcessRecord{{{process.pid if process else 0}:{task.package.name}/"
            f"u0a{task.package.uid - 10000}}}\n"
            f"      state={'RESUMED' if shown else 'STOPPED'} nowVisible={str(shown).lower()}\n"
        )
    front = tasks[0]
    text.append(
        f"\n  ResumedActivity: {front.record}\n\nActivityTaskSupervisor state:\n"
        f"  topDisplayFocusedRootTask=Task{{{front.id:x}a7c31 "
        f"#{front.id}}}\n  mLastOrientationSource=null\n  KeyguardController:\n    mKeyguardShowing=false\n"
        "    mAodShowing=false\n    mKeyguardGoingAway=false\n    mDismissalRequested=false\n"
        "  LockTaskController:\n"
        "    mLockTaskModeState=NONE\n"
    )
    return "".join(text)


def _top(system: AndroidSystem, tasks: list[Task]) -> str:
    text = ["TASK MANAGER (dumpsys activity top)\n"]
    for task in reversed(tasks):
        process = next(iter(system.processes.find(task.package.name)), None)
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


def activity(system: AndroidSystem, args: list[str]) -> str:
    """dumpsys activity [activities|top|recents|processes|PACKAGE]"""
    tasks = system.activities.tasks()
    what = args[0] if args else ""
    if what in ("top", "all"):
        return _top(system, tasks)
    if what in ("recents", "r"):
        lines = [
            f"  * Recent #{place}: Task{{{task.id:x}a7c31 #{task.id} type=standard A={task.package.uid}:"
            f"{task.package.name}}}\n    id={task.id} userId=0 hasTask=true lastActiveTime=1\n"
            for place, task in enumerate(tasks)
            if not task.package.home
        ]
        return "ACTIVITY MANAGER RECENT TASKS (dumpsys activity recents)\n  Recent tasks:\n" + "".join(lines)
    if what in ("processes", "p"):
        return "ACTIVITY MANAGER RUNNING PROCESSES (dumpsys activity processes)\n" + "".join(
            f"  *APP* UID {process.uid} ProcessRecord{{{process.pid}:{process.name}}}\n"
            for process in system.processes
            if process.uid >= 10000
        )
    if what in ("services", "broadcasts", "providers", "intents", "exit-info", "settings"):
        return f"ACTIVITY MANAGER {what.upper()} (dumpsys activity {what})\n  (nothing)\n"
    if what not in ("", "activities", "a"):
        chosen = [
            task for task in tasks if what in (task.package.name, task.package.component, task.long_name)
        ]
        return _top(system, chosen) if chosen else f"No activities match: {what}\n"
    text = _activities(system)
    return text if what else f"{text}\n{_top(system, tasks[:1])}"
