"""The emulator's log: followed as it grows, and what its known lines mean as errors with a remedy."""

from __future__ import annotations

import re
from pathlib import Path

from distrl.workers.devices import sdk
from distrl.workers.devices.console import UNLOADABLE
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


class LogFollower:
    """Reads what was added to a growing log since the last look; the log need not exist yet."""

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


def fault_of(line: str, serial: str = "", from_snapshot: bool = False) -> EmulatorError | None:
    """The error that a line of the log announces; None if it is not one that ends a start.

    With `from_snapshot` it should start from a snapshot. That it cannot is a warning of its own only.
    """
    if "emulation currently requires hardware acceleration" in line:
        found = sdk.probe_acceleration()
        reason = f"although {found.reason}" if found.usable else f"because {found.reason}"
        text = f"the emulator cannot use hardware acceleration, {reason}"
        remedy = found.remedy or "Ask the emulator why: `emulator -accel-check`."
        return NoAcceleration(text, remedy, serial=serial, evidence=line)
    for pattern, kind, message, remedy in (*_FATAL, *(_SNAPSHOT if from_snapshot else ())):
        if match := re.search(pattern, line):
            text = message.format(*match.groups(), line=bare(line).removesuffix(" Exiting..."))
            return kind(text, remedy, serial=serial, evidence=line)
    return None


def bare(line: str) -> str:
    """A line without the level in front of it."""
    return _PREFIX.sub("", line).strip()


def last_complaint(text: str) -> str:
    """The last line of a log that names an error, else its last line."""
    lines = [line for line in text.splitlines() if line.strip()]
    complaints = [line for line in lines if re.search(r"\b(FATAL|ERROR|PANIC)\b", line)]
    return bare((complaints or lines or [""])[-1])[:300]


# Pattern, error, message and remedy; in the message {0} is the pattern's first group, {line} the line.
_Meaning = tuple[str, type[EmulatorError], str, str]
_FATAL: tuple[_Meaning, ...] = (
    (
        "Not enough disk space to run AVD|Not enough space to create userdata",
        LowDisk,
        "the emulator reports: {line}",
        "Free some GB on the disk of the AVD, for instance by deleting unused snapshots.",
    ),
    (
        "A snapshot operation for '([^']*)' is pending and timeout has expired",
        SnapshotPending,
        "the emulator waited 10 s for a snapshot operation of the AVD {0!r} that another process has begun.",
        "Wait for it; if no emulator runs, remove snapshot.lock in the AVD's directory, and check that you "
        "may write there.",
    ),
    (
        "Running multiple emulators with the same AVD|nother emulator instance (?:is )?running",
        AvdLocked,
        "another emulator uses the AVD.",
        "Stop it (`distrl cleanup` shows those of this tool), clone the AVD, or start all of its emulators "
        "read-only.",
    ),
    (
        "(?i)too many emulator instances are running",
        PortInUse,
        "the emulator could not listen on its ports.",
        "Another program was faster; start again, or choose another even --port.",
    ),
    (
        r"^unknown option: (\S+)",
        EmulatorExited,
        "this emulator has no option {0}.",
        "Update it (`sdkmanager emulator`), or remove the option.",
    ),
    (
        r"Unknown AVD name \[([^\]]*)\]",
        EmulatorExited,
        "the emulator finds no AVD {0!r}.",
        "Is ANDROID_AVD_HOME the same for it as for this tool? See `emulator -list-avds`.",
    ),
    (
        "Broken AVD system path|Cannot find AVD system path",
        EmulatorExited,
        "the emulator reports: {line}",
        "The AVD's system image is not in this SDK; `sdkmanager` installs what its config.ini names.",
    ),
)
_SNAPSHOT: tuple[_Meaning, ...] = (
    (
        "does not have the requested snapshot '([^']*)'",
        SnapshotMissing,
        "the AVD has no snapshot {0!r}.",
        "See `distrl snapshot-avd list`, and make it with `create`.",
    ),
    (
        "Failed to load snapshot '([^']*)'",
        SnapshotFailed,
        "the snapshot {0!r} does not load.",
        UNLOADABLE,
    ),
    (
        r"(?:[Cc]old boot\b:?\s*|(?=ignoring -snapshot option\b))(.*)",
        SnapshotFailed,
        "the emulator boots cold instead of loading the snapshot: {0}",
        "If the AVD's config.ini has fastboot.forceColdBoot=yes, take that out; else make the snapshot "
        "again, with this emulator and GPU mode, by `distrl snapshot-avd create`.",
    ),
)
