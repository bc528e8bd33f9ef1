"""The emulator's log: followed as it grows, and what its known lines mean as errors with a remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from distrl.workers.devices.emulator import acceleration
from distrl.workers.devices.errors import (
    AvdLocked,
    EmulatorError,
    EmulatorExited,
    LowDisk,
    NoAcceleration,
    PortInUse,
    SnapshotFailed,
    SnapshotMissing,
    SnapshotPending,
)

_MAX_LINE = 4096
_PREFIX = re.compile(r"^(?:emulator: )?(?:(?:FATAL|ERROR|WARNING|INFO|PANIC)\s*[|:]?\s*)?", re.IGNORECASE)
Make = Callable[[re.Match[str], str], EmulatorError]


class LogFollower:
    """Reads what a growing log has got since the last look.

    Args:
        path: The log; it need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0
        self._rest = b""

    def lines(self) -> list[str]:
        """The lines that were completed since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return []
        self._position += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-_MAX_LINE:]
        return [line.decode("utf-8", "replace").rstrip("\r") for line in whole]

    def tail(self, max_bytes: int = 4096) -> str:
        """The end of the log, for an error's evidence."""
        try:
            with self.path.open("rb") as file:
                file.seek(0, 2)
                file.seek(max(0, file.tell() - max_bytes))
                return file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""


def fault_of(line: str, serial: str = "") -> EmulatorError | None:
    """The error that a line of the log announces; None if it is none that ends a start.

    Args:
        line: One line.
        serial: The emulator's.
    """
    for pattern, make in _FATAL:
        match = pattern.search(line)
        if match is not None:
            error = make(match, serial)
            error.evidence = line
            return error
    return None


def snapshot_fault_of(line: str, serial: str = "") -> EmulatorError | None:
    """The same for an emulator that was told to start from a snapshot.

    Without it the emulator goes on and boots cold: these lines are warnings then, and an error to whoever
    wanted the snapshot.
    """
    match = re.search(r"does not have the requested snapshot '([^']*)'", line)
    if match is not None:
        return SnapshotMissing(
            f"the AVD has no snapshot {match[1]!r}.",
            "See `distrl snapshot-avd list`, and make it with `create`.",
            serial=serial,
            evidence=line,
        )
    match = re.search(r"Failed to load snapshot '([^']*)'", line)
    if match is not None:
        return SnapshotFailed(
            f"the snapshot {match[1]!r} does not load.",
            "It is damaged, or was made by another emulator version or GPU mode; make it anew with "
            "`distrl snapshot-avd create`.",
            serial=serial,
            evidence=line,
        )
    match = re.search(r"[Cc]old boot\b:?\s*(.*)|(ignoring -snapshot option\b.*)", line)
    if match is not None:
        return SnapshotFailed(
            f"the emulator boots cold instead of loading the snapshot: {match[1] or match[2] or 'no reason'}",
            "If the AVD's config.ini has fastboot.forceColdBoot=yes, take that out; else make the snapshot "
            "anew, with this emulator and GPU mode, by `distrl snapshot-avd create`.",
            serial=serial,
            evidence=line,
        )
    return None


def bare(line: str) -> str:
    """A line without the level in front of it."""
    return _PREFIX.sub("", line).strip()


def last_complaint(text: str) -> str:
    """The last line of a log that names an error, else its last line."""
    lines = [line for line in text.splitlines() if line.strip()]
    complaints = [line for line in lines if re.search(r"\b(FATAL|ERROR|PANIC)\b", line)]
    return bare((complaints or lines or [""])[-1])[:300]


def _low_disk(match: re.Match[str], serial: str) -> EmulatorError:
    return LowDisk(
        f"the emulator says: {bare(match.string).removesuffix(' Exiting...')}",
        "Free some GB on the disk of the AVD, for instance by deleting snapshots that nobody uses.",
        serial=serial,
    )


def _pending(match: re.Match[str], serial: str) -> EmulatorError:
    return SnapshotPending(
        f"another process saves or loads a snapshot of the AVD {match[1]!r} and was not done after 10 s.",
        "Wait for it; if no emulator runs, remove snapshot.lock in the AVD's directory and see that you may "
        "write there.",
        serial=serial,
    )


def _locked(match: re.Match[str], serial: str) -> EmulatorError:
    return AvdLocked(
        "another emulator uses the AVD.",
        "Stop it (`distrl cleanup` shows those of this tool), clone the AVD, or start all of its emulators "
        "read-only.",
        serial=serial,
    )


def _no_acceleration(match: re.Match[str], serial: str) -> EmulatorError:
    found = acceleration.probe()
    if found.usable:
        reason, remedy = f"although {found.reason}", "Ask the emulator why: `emulator -accel-check`."
    else:
        reason, remedy = f"because {found.reason}", found.remedy
    return NoAcceleration(f"the emulator cannot use hardware acceleration, {reason}", remedy, serial=serial)


def _ports(match: re.Match[str], serial: str) -> EmulatorError:
    return PortInUse(
        "the emulator could not listen on its ports.",
        "Another program was faster; start again, or choose another even --port.",
        serial=serial,
    )


def _option(match: re.Match[str], serial: str) -> EmulatorError:
    return EmulatorExited(
        f"this emulator does not know the option {match[1]}.",
        "Update it (`sdkmanager emulator`), or remove the option.",
        serial=serial,
    )


def _unknown_avd(match: re.Match[str], serial: str) -> EmulatorError:
    return EmulatorExited(
        f"the emulator finds no AVD {match[1]!r}.",
        "Is ANDROID_AVD_HOME the same for it as for this tool? See `emulator -list-avds`.",
        serial=serial,
    )


def _broken_image(match: re.Match[str], serial: str) -> EmulatorError:
    return EmulatorExited(
        f"the emulator says: {bare(match.string)}",
        "The AVD's system image is not in this SDK; `sdkmanager` installs what its config.ini names.",
        serial=serial,
    )


_FATAL: tuple[tuple[re.Pattern[str], Make], ...] = (
    (re.compile(r"Not enough disk space to run AVD|Not enough space to create userdata"), _low_disk),
    (re.compile(r"A snapshot operation for '([^']*)' is pending and timeout has expired"), _pending),
    (re.compile(r"Running multiple emulators with the same AVD"), _locked),
    (re.compile(r"nother emulator instance (?:is )?running"), _locked),
    (re.compile(r"emulation currently requires hardware acceleration"), _no_acceleration),
    (re.compile(r"too many emulator instances are running", re.IGNORECASE), _ports),
    (re.compile(r"^unknown option: (\S+)"), _option),
    (re.compile(r"Unknown AVD name \[([^\]]*)\]"), _unknown_avd),
    (re.compile(r"Broken AVD system path|Cannot find AVD system path"), _broken_image),
)
