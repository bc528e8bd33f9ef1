"""The emulator's console: a line of text in, lines of text out, OK or KO at the end.

Each command has a connection of its own, with greeting and authentication, and one deadline for all of it.
The secret is the first line of a file in the user's home directory that the emulator makes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from distrl.workers.devices.adb import Connection, Deadline
from distrl.workers.devices.errors import (
    DeviceDisconnected,
    DeviceError,
    DeviceNotFound,
    EmulatorError,
    EmulatorExited,
    LowDisk,
    ServerUnavailable,
    ServiceRejected,
    SnapshotFailed,
    SnapshotPending,
)

CALL_S = 5.0
LOAD_S, SAVE_S = 60.0, 120.0
TOKEN = Path("~/.emulator_console_auth_token")
"""Where the emulator keeps the secret of its console."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
UNLOADABLE = (
    "Use the emulator version, GPU mode, cores, memory and feature flags that it was made with, or make it "
    "again with `distrl snapshot-avd create`."
)
"""The remedy for a snapshot that does not load."""
_READ_ONLY = "Start the emulator without -read-only: with it, it has no snapshots."
_SPACE = "Free some disk space; a snapshot is about as large as the emulator's memory."
_REASONS: tuple[tuple[str, type[EmulatorError], str], ...] = (
    ("pending", SnapshotPending, "Wait until the other snapshot operation ends, then try again."),
    ("read-only", SnapshotFailed, _READ_ONLY),
    ("disk space", LowDisk, _SPACE),
    ("no space", LowDisk, _SPACE),
)


def require_name(name: str, what: str) -> None:
    """Raises EmulatorError if an emulator would take a name for several words, or for a path."""
    if not NAME.fullmatch(name):
        raise EmulatorError(
            f"{name!r} is not a valid {what} name.",
            "Use letters, digits, dots, hyphens and underscores, with a letter or a digit first.",
        )


class Console:
    """The console of one emulator on this machine; `token_path` is the file with the secret."""

    def __init__(self, port: int, token_path: Path = TOKEN) -> None:
        self.port = port
        self.serial = f"emulator-{port}"
        self._token_path = token_path

    def command(self, text: str, timeout_s: float = CALL_S) -> list[str]:
        """The lines before OK in the answer to one command, which is one line of text.

        `timeout_s` is for everything together. Raises DeviceNotFound if no console listens, and
        ServiceRejected if it answers KO or does not accept the secret.
        """
        if not text.isprintable():
            raise ValueError(f"a console command is one line of text, got {text!r}")
        deadline = Deadline(timeout_s, f"the console's {text!r}", self.serial)
        with self._connect(deadline) as connection:
            lines = _Lines(connection)
            self._greet(lines)
            connection.send(text.encode("utf-8") + b"\r\n")
            return lines.answer(text)

    def _connect(self, deadline: Deadline) -> Connection:
        try:
            return Connection(self.port, deadline)
        except ServerUnavailable as error:
            raise DeviceNotFound(
                f"no emulator console listens at port {self.port}.",
                "Is the emulator running? Its console port is the number in its serial.",
                serial=self.serial,
                evidence=error.evidence,
            ) from error

    def _greet(self, lines: _Lines) -> None:
        greeting = " ".join(lines.answer("the greeting"))
        if "Authentication required" not in greeting:
            return
        path = self._token_path.expanduser()
        try:
            token = path.read_text(encoding="utf-8").strip()
            if not token.isprintable() or not token:
                raise ValueError("it does not hold one line of text")
        except (OSError, ValueError) as error:
            raise ServiceRejected(
                f"its console requires the secret in {path}, which cannot be read ({error}).",
                "Run as the user who started the emulator, or restart the emulator.",
                serial=self.serial,
            ) from error
        lines.connection.send(b"auth " + token.encode("utf-8") + b"\r\n")
        lines.answer("auth")

    def require_running(self) -> None:
        """Raises EmulatorExited if nothing listens at the console's port any more."""
        try:
            with self._connect(Deadline(CALL_S, "the console", self.serial)):
                return
        except DeviceNotFound as error:
            why = error.__cause__
            if why is None or not isinstance(why.__cause__, ConnectionRefusedError):
                return  # it is busy: while it loads a snapshot it may take no connections
            raise EmulatorExited(
                f"the emulator has ended: nothing listens at its console port {self.port} any more.",
                "See its log, and start it again.",
                serial=self.serial,
            ) from error

    def kill(self, timeout_s: float = CALL_S) -> None:
        """Makes the emulator end; whether it did shows at its process."""
        try:
            self.command("kill", timeout_s)
        except DeviceDisconnected:
            return  # it hung up before it said OK: it ends

    def snapshot(
        self, verb: Literal["save", "load", "delete"], name: str, timeout_s: float | None = None
    ) -> None:
        """Saves everything as snapshot `name`, in place of an older one, or loads or deletes that one."""
        require_name(name, "snapshot")
        try:
            self.command(f"avd snapshot {verb} {name}", timeout_s or (SAVE_S if verb == "save" else LOAD_S))
        except ServiceRejected as error:
            raise self._snapshot_error(verb, name, error) from error

    def _snapshot_error(self, verb: str, name: str, error: ServiceRejected) -> DeviceError:
        said = error.evidence
        for part, kind, remedy in _REASONS:
            if part in said.lower():
                return kind(
                    f"cannot {verb} snapshot {name!r}: {said}.", remedy, serial=self.serial, evidence=said
                )
        return SnapshotFailed(
            f"cannot {verb} snapshot {name!r}: {said or 'no reason given'}.",
            UNLOADABLE if verb == "load" else "See the emulator's log.",
            serial=self.serial,
            evidence=said,
        )


class _Lines:
    """The console's lines on one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._inbox = b""

    def answer(self, asked: str) -> list[str]:
        """The lines up to OK."""
        lines: list[str] = []
        while True:
            line = self._line()
            if line == "OK" or line.startswith("OK:"):
                return lines
            if line == "KO" or line.startswith("KO:"):
                reason = line[3:].strip().rstrip(".")
                raise ServiceRejected(
                    f"its console refuses {asked!r}: {reason or 'no reason given'}.",
                    "See the console's `help`.",
                    serial=self.connection.serial,
                    evidence=reason,
                )
            if line:
                lines.append(line)

    def _line(self) -> str:
        while b"\n" not in self._inbox:
            part = self.connection.read()
            if not part:
                raise self.connection.broken("the console hung up after " + repr(self._inbox[-100:]))
            self._inbox += part
        line, _, self._inbox = self._inbox.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")
