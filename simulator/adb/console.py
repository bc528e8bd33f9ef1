"""The emulator's console: a line protocol on TCP, with the token, `avd …`, `kill`, and `sim fault …`.

One task per connection; commands run on the phone's event loop and answer with lines, then "OK" or "KO: why".
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import secrets
import time
from pathlib import Path

from distrl.core.errors import DistrlError
from distrl.simulator.adb.adbd.connection import listen
from distrl.simulator.adb.faults import parse
from distrl.simulator.adb.machine import Machine
from distrl.workers.devices.errors import EmulatorError, SnapshotMissing

TOKEN_FILE = "~/.emulator_console_auth_token"
"""Where the emulator, and `adb emu`, have the token."""
_BANNER = (
    "Android Console: Authentication required\r\n"
    "Android Console: type 'auth <auth_token>' to authenticate\r\n"
    "Android Console: you can find your <auth_token> in \r\n'{}'\r\nOK\r\n"
)
_WELCOME = "Android Console: type 'help' for a list of commands\r\nOK\r\n"
_MAX_LINE = 4096
_MAX_SESSIONS = 64
"""Most open connections; another is closed at once."""
_log = logging.getLogger(__name__)


def read_token(file: Path) -> str:
    """The token in `file`, which is made with a new one, readable by its owner only, if it is not there."""
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        fresh = file.with_name(f".{file.name}.{os.getpid()}")
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as out:
            out.write(secrets.token_urlsafe(12))
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.link(fresh, file)
        fresh.unlink()
        return read_token(file)


class ConsoleServer:
    """The console of one phone, on 127.0.0.1 only. Most commands need `token` first, "" for none."""

    def __init__(self, machine: Machine, token: str = "", token_file: str = TOKEN_FILE) -> None:
        self._machine = machine
        self._token = token
        self._token_file = token_file
        self._server: asyncio.Server | None = None
        self._sessions: set[asyncio.Task[None]] = set()

    async def start(self, port: int = 0) -> int:
        """Listens at `port`, 0 for a free one. Returns the port. Raises PortInUse."""

        def protocol() -> asyncio.Protocol:
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=_MAX_LINE), self._serve)

        self._server = await listen(protocol, port, self._machine.system.serial)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stops listening and ends the sessions. May be called twice, and from a session."""
        if self._server is not None:
            self._server.close()
            self._server = None
        others = [task for task in self._sessions if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._sessions) >= _MAX_SESSIONS:
            writer.close()
            return
        task = asyncio.ensure_future(self._session(reader, writer))
        self._sessions.add(task)
        task.add_done_callback(self._sessions.discard)

    async def _session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_known = not self._token
        try:
            writer.write((_WELCOME if is_known else _BANNER.format(self._token_file)).encode())
            while True:
                line = await reader.readuntil()
                words = line.decode("utf-8", "replace").strip()
                verb, _, given = words.partition(" ")
                if words in ("quit", "exit"):
                    return
                if verb == "auth":
                    token = self._token.encode()
                    matches = not token or hmac.compare_digest(given.strip().encode(), token)
                    is_known = is_known or matches
                    wrong = f"KO: authentication token does not match {self._token_file}\r\n"
                    writer.write((_WELCOME if matches else wrong).encode())
                elif words:
                    writer.write(self._answer(words, is_known))
                await writer.drain()
                if words == "kill" and is_known:
                    writer.close()
                    self._machine.kill()
                    return
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            _log.debug("%s: console: %s", self._machine.system.serial, error)
        finally:
            with contextlib.suppress(RuntimeError):  # the loop may be closing
                writer.close()

    def _answer(self, line: str, is_known: bool) -> bytes:
        try:
            lines = run_command(self._machine, line, is_known)
        except DistrlError as error:
            return f"KO: {error.message}\r\n".encode()
        text = "".join(f"{said}\r\n" for said in lines)
        return text.encode() if line == "kill" else f"{text}OK\r\n".encode()


_HELP = (
    "Android console commands:",
    "    auth             User authentication for the emulator console",
    "    ping             Check if the emulator is alive",
    "    avd              name, path, status, snapshot list|save|load|delete",
    "    sim              Faults of the simulated phone: sim fault NAME [ARG] [SECONDS]",
    "    kill             Terminate the emulator instance",
    "    quit             Quit control session",
)
_UNKNOWN = "unknown command, try 'help'"
_BEFORE_AUTH = ("help", "ping", "avd name", "avd path")
_LIST_HEAD = "{:<10}{:<20}{:>7}{:>20}{:>15}"


def run_command(machine: Machine, line: str, is_known: bool = True) -> list[str]:
    """The lines that answer one command, without the final "OK"; only harmless ones exist before the token.

    Raises EmulatorError, or another DistrlError, if it cannot be carried out.
    """
    words = line.split()
    if not is_known and " ".join(words) not in _BEFORE_AUTH:
        raise EmulatorError(_UNKNOWN)
    match words:
        case ["help"]:
            return list(_HELP)
        case ["ping"]:
            return ["I am alive!"]
        case ["kill"]:
            return ["OK: killing emulator, bye bye"]
        case ["sim", "fault", *rest]:
            if rest:
                machine.faults.set(parse(" ".join(rest)))
            return [f"fault: {machine.faults.kind.value}"]
        case ["avd", "snapshot", *rest]:
            return _snapshot(machine, rest)
        case ["avd", "name"]:
            return [machine.avd_name]
        case ["avd", "path"]:
            return [machine.avd_path]
        case ["avd", "status"]:
            return ["virtual device is running"]
        case ["avd", *rest]:
            raise EmulatorError("bad sub-command" if rest else "missing sub-command")
    raise EmulatorError(_UNKNOWN)


def _snapshot(machine: Machine, words: list[str]) -> list[str]:
    verbs = {"save": machine.save, "load": machine.load, "del": machine.delete, "delete": machine.delete}
    if words == ["list"]:
        return _listed(machine)
    if not words or words[0] not in verbs:
        raise EmulatorError("bad sub-command" if words else "missing sub-command")
    if len(words) < 2:
        raise EmulatorError(f"argument missing, try 'avd snapshot {words[0]} <name>'")
    try:
        verbs[words[0]](words[1])
    except SnapshotMissing as error:
        raise EmulatorError(f"Device 'cache' does not have the requested snapshot '{words[1]}'") from error
    return []


def _listed(machine: Machine) -> list[str]:
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
