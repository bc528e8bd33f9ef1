"""A phone as its shell shows it: what recipes, checks and the guard ask and change, in sixty lines.

Answers are worded as Android 14's; `refuse` makes commands fail, `sticky` is an app that does not go away.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field

from distrl.workers.devices.adb import ShellResult

HOME = "com.android.launcher3/.Launcher"


@dataclass
class ShellPhone:
    """One phone."""

    serial: str = "PHONE1"
    front: str = HOME
    home: str = HOME
    dialog: str = ""
    awake: bool = False
    locked: bool = True
    has_pin: bool = False
    in_call: bool = False
    free_kib: int = 4_000_000
    settings: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=lambda: {"persist.sys.timezone": "UTC"})
    lock_form: str = ""
    cleared: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    refuse: set[str] = field(default_factory=set)
    refusal: bytes = b"java.lang.SecurityException: no"
    sticky: str = ""
    on_key: dict[str, Callable[[], None]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    def shell(self, command: str, timeout_s: float, reads: bool = False) -> ShellResult:
        """Runs a line; `;` separates commands, and `| grep` filters nothing away that is asked for."""
        assert timeout_s > 0
        self.log.append(command)
        said = [self._run_either(part.strip()) for part in command.split(";")]
        outputs = [b"".join(getattr(one, name) for one in said) for name in ("out", "err")]
        return ShellResult(*outputs, said[-1].status)

    def _run_either(self, command: str) -> ShellResult:
        first, _, second = command.partition(" || ")
        result = self._run(first.split(" | ")[0])
        return self._run(second) if second and result.status else result

    def _run(self, command: str) -> ShellResult:
        if command in self.refuse:
            return ShellResult(b"", self.refusal, 255)
        words = shlex.split(command)
        name = re.sub(r"\W", "_", "_".join(words[:2]))
        method = getattr(self, f"_{name}", None)
        assert method is not None, f"the test's phone does not know {command!r}"
        answer = method(*words[2:])
        if isinstance(answer, ShellResult):
            return answer
        return ShellResult((answer + "\n" if answer else "").encode(), b"", 0)

    def _input_keyevent(self, key: str) -> str:
        self.on_key.get(key, lambda: None)()
        if key == "KEYCODE_WAKEUP":
            self.awake = True
        elif key == "KEYCODE_ENDCALL":
            self.in_call = False
        elif key in ("KEYCODE_HOME", "KEYCODE_BACK") and not self.sticky:
            self.front = HOME if key == "KEYCODE_HOME" else self.front
        return ""

    def _wm_dismiss_keyguard(self) -> str:
        self.locked = self.has_pin
        return ""

    def _cmd_statusbar(self, what: str) -> str:
        return ""

    def _am_broadcast(self, *words: str) -> str:
        assert words == ("-a", "android.intent.action.CLOSE_SYSTEM_DIALOGS", ">/dev/null", "2>&1", "&")
        self.dialog = ""
        return ""

    def _am_force_stop(self, package: str) -> str:
        self.stopped.append(package)
        return ""

    def _pm_clear(self, package: str) -> ShellResult:
        if package == "com.missing":
            return ShellResult(b"Failed\n", b"", 1)
        self.cleared.append(package)
        return ShellResult(b"Success\n", b"", 0)

    def _settings_get(self, namespace: str, key: str) -> str:
        return self.settings.get(f"{namespace}/{key}", "null")

    def _settings_put(self, namespace: str, key: str, value: str) -> str:
        self.settings[f"{namespace}/{key}"] = value
        return ""

    def _settings_delete(self, namespace: str, key: str) -> str:
        return f"Deleted {int(self.settings.pop(f'{namespace}/{key}', None) is not None)} rows"

    def _getprop_persist_sys_timezone(self) -> str:
        return self.properties["persist.sys.timezone"]

    def _cmd_alarm(self, verb: str, zone: str) -> ShellResult:
        return ShellResult(b"", b"Unknown command: set-timezone", 255)  # as before Android 12

    def _service_call(self, service: str, number: str, kind: str, zone: str) -> str:
        assert (service, number, kind) == ("alarm", "3", "s16")
        self.properties["persist.sys.timezone"] = zone
        return "Result: Parcel(00000000    '....')"

    def _dumpsys_power(self) -> str:
        return f"  mWakefulness={'Awake' if self.awake else 'Asleep'}"

    def _dumpsys_window(self) -> str:
        if self.lock_form == "silent":
            return ""
        return f"  mDreamingLockscreen={str(self.locked).lower()} mDreamingSleepToken=null"

    def _dumpsys_activity(self, what: str) -> str:
        shown = self.sticky or self.front
        return (
            f"  topResumedActivity=ActivityRecord{{2f4e1c3 u0 {shown} t12}}\n"
            f"  KeyguardController:\n    KeyguardShowing={'' if self.lock_form else str(self.locked).lower()}"
        )

    def _dumpsys_telephony_registry(self) -> str:
        return f"  mCallState={2 if self.in_call else 0}"

    def _cmd_package(self, *words: str) -> str:
        return f"priority=0 preferredOrder=0 match=0x108000 specificIndex=-1 isDefault=true\n{self.home}"

    def _df__k(self, path: str) -> str:
        used = 50_000_000 - self.free_kib
        return (
            "Filesystem      1K-blocks     Used Available Use% Mounted on\n"
            f"/dev/block/dm-44 50000000 {used} {self.free_kib} 40% /data"
        )
