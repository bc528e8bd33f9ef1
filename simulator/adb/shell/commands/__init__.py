"""The commands of the phone's shell; a new one is a coroutine and a line in its file's `COMMANDS`."""

from __future__ import annotations

from distrl.simulator.adb.shell.call import Command
from distrl.simulator.adb.shell.commands import (
    activity,
    display,
    dumpsys,
    filesystem,
    finding,
    listing,
    logs,
    machine,
    package,
    processes,
    running,
    search,
    services,
    settings,
    test,
    text,
    touch_input,
)

COMMANDS: dict[str, Command] = {
    name: command
    for module in (
        activity,
        display,
        dumpsys,
        filesystem,
        finding,
        listing,
        logs,
        machine,
        package,
        processes,
        running,
        search,
        services,
        settings,
        test,
        text,
        touch_input,
    )
    for name, command in module.COMMANDS.items()
}
NAMES = sorted(COMMANDS)
