"""Which activity is in front, and the shell that tells: what recipes and the guard ask a real device."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from distrl.workers.devices.errors import OutputInvalid, ServiceRejected

ASK_S = 10.0
"""Deadline of one question to the device's shell."""

_RESUMED = re.compile(r"ResumedActivity[:=]\s*ActivityRecord\{\S+ u\d+ ([\w.]+)/([\w.$]+)")
_COMPONENT = re.compile(r"^([\w.]+)/([\w.$]+)\s*$", re.MULTILINE)


class Output(Protocol):
    """What a shell command left; `distrl.workers.devices.adb.shell.ShellResult` is one."""

    @property
    def out(self) -> bytes:
        """Standard output."""
        ...

    @property
    def err(self) -> bytes:
        """Standard error."""
        ...

    @property
    def status(self) -> int:
        """Exit status."""
        ...


class Shell(Protocol):
    """The shell of one device; `distrl.workers.devices.adb.client.AdbClient` is one."""

    @property
    def serial(self) -> str:
        """The device."""
        ...

    def shell(self, command: str, timeout_s: float, reads: bool = False) -> Output:
        """Runs `command` within `timeout_s`. With `reads` it may be run again after a broken connection.

        Raises:
            DeviceError: The device did not answer.
        """
        ...


@dataclass(frozen=True)
class Component:
    """An activity: its package, and its class with the package written out."""

    package: str
    activity: str

    def __str__(self) -> str:
        return f"{self.package}/{self.activity}"


def require_input(result: Output, serial: str) -> None:
    """Returns unless Android refused an input because adb may not send any.

    Raises:
        ServiceRejected: With what to switch on.
    """
    said = (result.out + result.err).decode("utf-8", "replace")
    if "INJECT_EVENTS" in said:
        raise ServiceRejected(
            "it does not let adb send inputs (INJECT_EVENTS).",
            "On Xiaomi, Redmi and POCO phones switch on `USB debugging (Security settings)` in the developer "
            "options, and restart the phone.",
            serial=serial,
            evidence=said[:500],
        )


def ask(shell: Shell, command: str, timeout_s: float = ASK_S) -> str:
    """The standard output of a command that changes nothing, as text without white space around it."""
    return shell.shell(command, timeout_s, reads=True).out.decode("utf-8", "replace").strip()


def in_front(shell: Shell, timeout_s: float = ASK_S) -> list[Component]:
    """The resumed activities, the top one first: one, or one for each part of a split screen.

    While activities change there may be none.
    """
    text = ask(shell, "dumpsys activity activities | grep -E 'ResumedActivity'", timeout_s)
    found = [_component(package, activity) for package, activity in _RESUMED.findall(text)]
    return list(dict.fromkeys(found))


def home_package(shell: Shell) -> str:
    """The package of the home screen.

    Raises:
        OutputInvalid: The device names none.
    """
    text = ask(
        shell,
        "cmd package resolve-activity --brief -a android.intent.action.MAIN -c android.intent.category.HOME",
    )
    match = _COMPONENT.search(text)
    if match is None:
        raise OutputInvalid(
            "it names no home screen.",
            "Choose a default home app.",
            serial=shell.serial,
            evidence=text[-300:],
        )
    return match[1]


def _component(package: str, activity: str) -> Component:
    return Component(package, f"{package}{activity}" if activity.startswith(".") else activity)
