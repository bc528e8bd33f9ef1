"""The commands of the emulator's console, on one simulated phone: what each says, or why it refuses."""

from __future__ import annotations

import time
from collections.abc import Callable

from distrl.simulator.adb import faults as phone_faults
from distrl.simulator.adb.machine import Machine, Refused
from distrl.workers.devices.errors import SnapshotMissing

_HELP = (
    "Android console commands:",
    "",
    "    help|h|?         Print a list of commands",
    "    auth             User authentication for the emulator console",
    "    ping             Check if the emulator is alive",
    "    avd              Control virtual device execution",
    "    sim              Faults of the simulated phone: sim fault NAME [ARG] [SECONDS]",
    "    kill             Terminate the emulator instance",
    "    quit|exit        Quit control session",
    "",
    "Try 'help-verbose' for more description",
)
_AVD_HELP = (
    "allows you to control (e.g. start/stop) the execution of the virtual device",
    "",
    "available sub-commands:",
    *(f"    avd {name}" for name in ("stop", "start", "status", "heartbeat", "name", "id", "path")),
    "    avd snapshot",
    "    avd snapshotspath",
    "    avd snapshotpath",
)
_UNKNOWN = "unknown command, try 'help'"
_BEFORE_AUTH = ("help", "h", "?", "help-verbose", "ping", "avd name", "avd path", "avd id")
_LIST_HEAD = "{:<10}{:<20}{:>7}{:>20}{:>15}"


def run(machine: Machine, line: str, is_known: bool = True) -> list[str]:
    """Carries out one command.

    Args:
        machine: On what.
        line: The command.
        is_known: Whether the client has given the token; else only harmless commands exist.

    Returns:
        The lines it says, without the final "OK".

    Raises:
        Refused: If it cannot be carried out.
        DistrlError: If it fails.
    """
    words = line.split()
    if not is_known and " ".join(words) not in _BEFORE_AUTH:
        raise Refused(_UNKNOWN)
    command = _COMMANDS.get(words[0])
    if command is None:
        raise Refused(_UNKNOWN)
    return command(machine, words[1:])


def _help(machine: Machine, words: list[str]) -> list[str]:
    return list(_HELP)


def _ping(machine: Machine, words: list[str]) -> list[str]:
    return ["I am alive!"]


def _kill(machine: Machine, words: list[str]) -> list[str]:
    return ["OK: killing emulator, bye bye"]


def _sim(machine: Machine, words: list[str]) -> list[str]:
    if not words or words[0] != "fault":
        raise Refused("bad sub-command, try 'sim fault NAME [ARG] [SECONDS]'")
    if len(words) > 1:
        machine.faults.set(phone_faults.parse(" ".join(words[1:])))
    return [f"fault: {machine.faults.kind.value}"]


def _avd(machine: Machine, words: list[str]) -> list[str]:
    if not words:
        raise Refused("\r\n".join(("missing sub-command", *_AVD_HELP)))
    handler = _AVD.get(words[0])
    if handler is None:
        raise Refused("bad sub-command")
    return handler(machine, words[1:])


def _stop(machine: Machine, words: list[str]) -> list[str]:
    if machine.is_stopped:
        raise Refused("virtual device already stopped")
    machine.pause()
    return []


def _start(machine: Machine, words: list[str]) -> list[str]:
    if not machine.is_stopped:
        raise Refused("virtual device already running")
    machine.resume()
    return []


def _status(machine: Machine, words: list[str]) -> list[str]:
    return [f"virtual device is {'stopped' if machine.is_stopped else 'running'}"]


def _heartbeat(machine: Machine, words: list[str]) -> list[str]:
    return [f"heartbeat: {int(time.monotonic() - machine.booted_at)}"]


def _snapshots_path(machine: Machine, words: list[str]) -> list[str]:
    return [f"{machine.avd_path}/snapshots"]


def _snapshot_path(machine: Machine, words: list[str]) -> list[str]:
    if not words:
        raise Refused("Please specify a snapshot name")
    return [f"{machine.avd_path}/snapshots/{words[0]}"]


def _snapshot(machine: Machine, words: list[str]) -> list[str]:
    handler = _SNAPSHOT.get(words[0]) if words else None
    if handler is None:
        raise Refused("bad sub-command" if words else "missing sub-command")
    if handler is _list:
        return _list(machine, "")
    if len(words) < 2:
        raise Refused(f"argument missing, try 'avd snapshot {words[0]} <name>'")
    try:
        return handler(machine, words[1])
    except SnapshotMissing as error:
        raise Refused(f"Device 'cache' does not have the requested snapshot '{words[1]}'") from error


def _list(machine: Machine, name: str) -> list[str]:
    found = machine.snapshots.list()
    if not found:
        return ["There is no snapshot available."]
    lines = [
        "List of snapshots present on all disks:",
        _LIST_HEAD.format("ID", "TAG", "VM SIZE", "DATE", "VM CLOCK"),
    ]
    for one in found:
        date = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.saved_at))
        lines.append(_LIST_HEAD.format("--", one.name, _size(one.size), date, _clock(one.clock_s)))
    return lines


def _size(size: int) -> str:
    """Bytes as QEMU writes them: three digits and a letter."""
    value = float(size)
    for unit in ("", "K", "M"):
        if value < 999.5:
            return f"{value:.1f}{unit}" if 0 < value < 9.95 and unit else f"{value:.0f}{unit}"
        value /= 1024
    return f"{value:.1f}G"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours:02d}:{minutes:02d}:{rest:06.3f}"


def _save(machine: Machine, name: str) -> list[str]:
    machine.save(name)
    return []


def _load(machine: Machine, name: str) -> list[str]:
    machine.load(name)
    return []


def _delete(machine: Machine, name: str) -> list[str]:
    machine.delete(name)
    return []


_Handler = Callable[[Machine, list[str]], list[str]]
_COMMANDS: dict[str, _Handler] = {
    "help": _help,
    "h": _help,
    "?": _help,
    "help-verbose": _help,
    "ping": _ping,
    "kill": _kill,
    "avd": _avd,
    "sim": _sim,
}
_AVD: dict[str, _Handler] = {
    "stop": _stop,
    "start": _start,
    "status": _status,
    "heartbeat": _heartbeat,
    "name": lambda machine, words: [machine.avd_name],
    "id": lambda machine, words: [machine.avd_name],
    "path": lambda machine, words: [machine.avd_path],
    "snapshot": _snapshot,
    "snapshotspath": _snapshots_path,
    "snapshotpath": _snapshot_path,
}
_SNAPSHOT: dict[str, Callable[[Machine, str], list[str]]] = {
    "list": _list,
    "save": _save,
    "load": _load,
    "del": _delete,
    "delete": _delete,
}
