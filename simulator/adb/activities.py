"""Activities of the simulated phone: which is in front, tasks and processes, starting, stopping, clearing.

The phone's state says which app is in front; this book-keeping follows it (`observe`) and names things as
Android names them: components, tasks, records, processes, log lines.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distrl.simulator.adb.packages import LAUNCHER, Package
from distrl.simulator.adb.runtime import Process
from distrl.simulator.apps import APPS, launcher
from distrl.simulator.apps.webshop import shop_state
from distrl.simulator.phone import interruptions
from distrl.simulator.phone import state as st
from distrl.simulator.phone.state import State
from distrl.workers.devices.apps import SIMPHONE

if TYPE_CHECKING:
    from distrl.simulator.adb.android import AndroidSystem


@dataclass(frozen=True)
class Task:
    """A task, with its one activity."""

    id: int
    package: Package

    @property
    def long_name(self) -> str:
        """The component with the class written out, as windows have it."""
        return f"{self.package.name}/{self.package.activity}"

    @property
    def record(self) -> str:
        """The activity's record as dumps print it."""
        return f"ActivityRecord{{{token('record', self)} u0 {self.package.component} t{self.id}}}"

    @property
    def window(self) -> str:
        """The activity's window as dumps print it."""
        return f"Window{{{token('window', self)} u0 {self.long_name}}}"


def token(kind: str, task: Task) -> str:
    """A stable stand-in for the address that Android prints of an object."""
    return f"{zlib.crc32(f'{kind}/{task.package.name}/{task.id}'.encode()):08x}"[1:]


class Activities:
    """The activity manager of one phone."""

    def __init__(self, system: AndroidSystem) -> None:
        self._system = system
        self._next = 1
        self._order: list[str] = []
        self._tasks: dict[str, int] = {}
        self._seen = ""

    def reset(self) -> None:
        """Forgets all tasks, as a reboot does."""
        self._next, self._order, self._tasks, self._seen = 1, [], {}, ""

    def observe(self, log: bool = True) -> None:
        """Follows which app is in front and which are gone; with `log` writes it to the log."""
        self._forget_removed()
        front = self._system.device.phone.front
        if front == self._seen:
            return
        self._seen = front
        package = self._system.packages.get(SIMPHONE + front)
        if package is None:
            return
        if front not in self._tasks:
            self._tasks[front] = self._next
            self._next += 1
        if front in self._order:
            self._order.remove(front)
        self._order.insert(0, front)
        started = self._system.processes.start(package.name, package.uid)
        if log:
            self._launched(package, started)

    def _forget_removed(self) -> None:
        kept = {"launcher", *self._system.state["installed"]}
        for app in [app for app in self._order if app not in kept]:
            self._order.remove(app)
            self._tasks.pop(app, None)
            self._system.processes.end(SIMPHONE + app)

    def _launched(self, package: Package, started: Process | None) -> None:
        log, category = self._system.log, "HOME" if package.home else "LAUNCHER"
        log.note(
            "ActivityTaskManager",
            f"START u0 {{act=android.intent.action.MAIN cat=[android.intent.category.{category}] "
            f"flg=0x10000000 cmp={package.component}}} with LAUNCH_SINGLE_TASK from uid 10001 result code=0",
        )
        if started is not None:
            log.note(
                "ActivityManager",
                f"Start proc {started.pid}:{package.name}/u0a{package.uid - 10000} for next-top-activity "
                f"{{{package.name}/{package.activity}}}",
            )
        log.note("ActivityTaskManager", f"Displayed {package.component} for user 0: +97ms")

    @property
    def front(self) -> Task:
        """The task in front."""
        self.observe()
        return self._task(self._order[0])

    def tasks(self) -> list[Task]:
        """All tasks, the one in front first."""
        self.observe()
        return [self._task(app) for app in self._order]

    def _task(self, app: str) -> Task:
        package = self._system.packages.get(SIMPHONE + app)
        assert package is not None, "what is gone has been forgotten"
        return Task(self._tasks[app], package)

    def open(self, app: str, *page: st.Page) -> None:
        """Brings an app of the phone (or "launcher") to the front; `page` goes on top of its root page."""

        def edit(state: State) -> None:
            self._system.device.phone.leave()
            if state["front"] == app and not page:
                return
            state["toast"] = ""
            if app != "launcher" and page:
                st.reset(state, app, *page)
                if app == "browser":
                    shop_state.close(state)
            st.show(state, app)

        self._system.change(edit)
        self.observe()

    def stop(self, package: str) -> bool:
        """Ends an app: its pages and its unsaved input are gone. False when it is not an app of the phone."""
        app = self._system.packages.app(package)
        if package != LAUNCHER:
            self._system.processes.end(package)
        if app is None:
            return False
        if app in APPS:
            self._system.change(lambda state: _close(state, app))
            self._tasks.pop(app, None)
            if app in self._order:
                self._order.remove(app)
            if self._seen == app:
                self._seen = ""
        self.observe()
        return True

    def fail_to_start(self, package: Package) -> None:
        """Starts an app that adb installed: this phone cannot run it, so it ends at once."""
        pid, log = self._system.processes.fresh_pid(), self._system.log
        log.note("ActivityTaskManager", f"START u0 {{cmp={package.component}}} from uid 2000")
        for line in (
            "FATAL EXCEPTION: main",
            f"Process: {package.name}, PID: {pid}",
            f"java.lang.UnsatisfiedLinkError: {package.name} cannot run on the simulated phone",
        ):
            log.write("E", "AndroidRuntime", line, pid=pid, buffer="crash")

    def clear(self, package: str) -> None:
        """Forgets everything that an app has stored, and ends it."""
        self.stop(package)
        app = self._system.packages.app(package)
        if app in APPS:
            self._system.change(lambda state: _forget(state, app))


def _close(state: State, app: str) -> None:
    if app in (state["front"], state["overlay"].get("app")):
        interruptions.leave(state)
    state["stacks"][app] = [["root"]]
    # The shops are a part of the browser, with fields of their own names.
    prefixes = (app + ".", "shop.", "web.") if app == "browser" else (app + ".",)
    for fields in (state["fields"], state["scrolls"]):
        for key in [key for key in fields if key.startswith(prefixes)]:
            del fields[key]
    if state["front"] == app:
        state["toast"] = ""
        st.show(state, "launcher")
        launcher.close(state)


_LASTING = ("edition", "dark", "cities", "albums", "updates")
"""What of an app's data comes with the phone, or from its store: clearing the app leaves it."""


def _forget(state: State, app: str) -> None:
    before, fresh = state["apps"][app], APPS[app].data()
    fresh |= {key: before[key] for key in _LASTING if key in before}
    if app == "music":
        fresh["playlists"] = {}  # whose songs may be on no album here
    elif app == "weather":
        fresh["shown"] = fresh["cities"][:3]
    elif "web" in before:
        fresh["web"] = shop_state.web(before["web"]["sites"])
        for key, shop in before["web"]["shops"].items():
            fresh["web"]["shops"][key] |= {name: shop[name] for name in ("sold_out", "ads")}
    state["apps"][app] = fresh
