"""Reading and setting what a phone's user prefers: settings, language, time zone."""

from __future__ import annotations

import re
import shlex

from distrl.workers.devices.errors import ResetFailed
from distrl.workers.devices.front import ASK_S, Output, Shell, ask

UNSET = "null"
"""What `settings get` prints for a setting without a value, and what a recipe says to delete one."""


def read_setting(shell: Shell, name: str) -> str:
    """The value of "namespace/name", `UNSET` if it has none."""
    namespace, _, key = name.partition("/")
    return ask(shell, f"settings get {namespace} {key}")


def put_setting(shell: Shell, name: str, value: str) -> None:
    """Sets "namespace/name" and reads it back. Raises ResetFailed when it is another value then."""
    namespace, _, key = name.partition("/")
    if value == UNSET:
        command = f"settings delete {namespace} {key}"
    else:
        command = f"settings put {namespace} {key} {shlex.quote(value)}"
    result = shell.shell(command, ASK_S, reads=True)
    found = read_setting(shell, name)
    if not is_value(found, value):
        remedy = "Allow adb to change settings in the developer options, or leave the setting out."
        raise failed(shell, f"the setting {name} is {found!r}, not {value!r}", remedy, result)


def is_value(found: str, wanted: str) -> bool:
    """Whether a setting has the value that is wanted: the same text, or the same number."""
    try:
        return found == wanted or float(found) == float(wanted)
    except ValueError:
        return False


def read_locale(shell: Shell) -> str:
    """The language in use, as "de-DE"; "" if the phone does not say."""
    match = re.search(r"\b([a-z]{2,3})-r([A-Z]{2}|[0-9]{3})\b", ask(shell, "am get-config"))
    if match is not None:
        return f"{match[1]}-{match[2]}"
    names = ("settings get system system_locales", "getprop persist.sys.locale", "getprop ro.product.locale")
    for value in (ask(shell, name) for name in names):
        if value not in ("", UNSET):
            return value.split(",")[0]
    return ""


def set_locale(shell: Shell, wanted: str) -> None:
    """Makes `wanted` the language. Most phones take it over only at their next boot: then it fails.

    Raises:
        ResetFailed: The language is another one afterwards.
    """
    if read_locale(shell) == wanted:
        return
    result = shell.shell(f"settings put system system_locales {wanted}", ASK_S, reads=True)
    found = read_locale(shell)
    if found != wanted:
        remedy = "Choose it in the phone's settings once, or restart the phone; without root adb cannot."
        raise failed(shell, f"the language is {found or 'unknown'}, not {wanted}", remedy, result)


def read_time_zone(shell: Shell) -> str:
    """The time zone, as "Europe/Berlin"."""
    return ask(shell, "getprop persist.sys.timezone")


def set_time_zone(shell: Shell, wanted: str) -> None:
    """Makes `wanted` the time zone, by the alarm service's command or, on older Androids, its third call.

    Raises:
        ResetFailed: The time zone is another one afterwards.
    """
    result: Output | None = None
    for command in (f"cmd alarm set-timezone {wanted}", f"service call alarm 3 s16 {wanted}"):
        if read_time_zone(shell) == wanted:
            return
        result = shell.shell(command, ASK_S, reads=True)
    found = read_time_zone(shell)
    if found != wanted:
        remedy = "Choose it in the phone's settings, and switch the network's time zone off."
        raise failed(shell, f"the time zone is {found or 'unknown'}, not {wanted}", remedy, result)


def failed(shell: Shell, complaint: str, remedy: str, result: Output | None) -> ResetFailed:
    """The error for a step that did not work, with what the command said as evidence."""
    said = b"" if result is None else result.out[-500:] + b"\n" + result.err[-500:]
    return ResetFailed(
        f"{complaint}.", remedy, serial=shell.serial, evidence=said.decode("utf-8", "replace").strip()
    )
