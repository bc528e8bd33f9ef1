"""What an adb client can open on the phone: from a service's name to the coroutine that runs it.

Absent on purpose, and not among the features: `abb_exec:` and `track-app:`, so that clients install through
`exec:cmd package install`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from distrl.simulator.adb.adbd import framebuffer, shell_service, sync
from distrl.simulator.adb.adbd.stream import Stream
from distrl.simulator.adb.files import ROOT, SHELL

if TYPE_CHECKING:
    from distrl.simulator.adb.adbd.connection import Connection

Handler = Callable[[Stream], Awaitable[None]]
"""Serves one stream; it is closed when the call returns."""


def find(service: str, connection: Connection) -> Handler | None:
    """Who serves `service`, e.g. "shell:ls"; None when the phone has no such service.

    Args:
        service: The name that the client asked for.
        connection: Over which it asked.
    """
    system = connection.server.system
    name, _, argument = service.partition(":")
    kind, *options = name.split(",")
    if kind == "shell":
        return lambda stream: shell_service.shell(system, options, argument, stream)
    if kind == "exec":
        return lambda stream: shell_service.execute(system, argument, stream)
    if service == "sync:":
        return lambda stream: sync.serve(system.files, stream)
    if service == "framebuffer:":
        return lambda stream: framebuffer.serve(system, stream)
    if kind == "tcp":
        port = re.fullmatch(r"(\d{1,5})(?::(?:localhost|127\.0\.0\.1))?", argument)
        return system.network.answer(int(port[1])) if port else None
    if kind == "reverse":
        return lambda stream: stream.write(connection.reverse.request(argument))
    control = _CONTROLS.get(kind)
    return control(connection, argument) if control is not None else None


def _reboot(connection: Connection, argument: str) -> Handler:
    async def serve(stream: Stream) -> None:
        connection.restart(connection.server.reboot)

    return serve


def _root(connection: Connection, argument: str) -> Handler:
    return _become(connection, ROOT, "adbd is already running as root\n", "restarting adbd as root\n")


def _unroot(connection: Connection, argument: str) -> Handler:
    return _become(connection, SHELL, "adbd not running as root\n", "restarting adbd as non root\n")


def _become(connection: Connection, uid: int, already: str, changing: str) -> Handler:
    async def serve(stream: Stream) -> None:
        system = connection.server.system
        if system.uid == uid:
            await stream.write(already.encode())
            return
        system.uid = uid
        await stream.write(changing.encode())
        connection.restart()

    return serve


def _says(text: str) -> Callable[[Connection, str], Handler]:
    return lambda connection, argument: lambda stream: stream.write(text.format(argument).encode())


_CONTROLS: dict[str, Callable[[Connection, str], Handler]] = {
    "reboot": _reboot,
    "root": _root,
    "unroot": _unroot,
    "remount": _says("remount succeeded\n"),
    "tcpip": _says("restarting in TCP mode port: {}\n"),
    "usb": _says("restarting in USB mode\n"),
}
