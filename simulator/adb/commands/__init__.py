"""The commands of the phone's shell; a new one is a coroutine and a line in its file's `COMMANDS`."""

from __future__ import annotations

from distrl.simulator.adb import uiautomator
from distrl.simulator.adb.call import Command
from distrl.simulator.adb.commands import apps, dumpsys, files, packages, screen, system

COMMANDS: dict[str, Command] = {
    **apps.COMMANDS,
    **dumpsys.COMMANDS,
    **files.COMMANDS,
    **packages.COMMANDS,
    **screen.COMMANDS,
    **system.COMMANDS,
    "app_process": uiautomator.app_process,
}
