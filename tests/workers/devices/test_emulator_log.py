"""What lines of the emulator's log mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.workers.devices.emulator_log import LogFollower, fault_of, last_complaint
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

# As emulators of several years print them: with a level in front, with "emulator:", bare.
LINES: list[tuple[str, type[EmulatorError], str]] = [
    ("FATAL        | Not enough disk space to run AVD 'pixel'. Exiting...", LowDisk, "Free some GB"),
    (
        "ERROR   | Not enough space to create userdata partition. Available: 3306.98 MB at /a, need 7372.80.",
        LowDisk,
        "Free some GB",
    ),
    (
        "emulator: ERROR: A snapshot operation for 'pixel' is pending and timeout has expired. Exiting...",
        SnapshotPending,
        "snapshot.lock",
    ),
    ("FATAL        | Running multiple emulators with the same AVD ", AvdLocked, "clone the AVD"),
    (
        "ERROR        | Another emulator instance is running. Please close it or run all emulators with "
        "-read-only flag.",
        AvdLocked,
        "read-only",
    ),
    (
        "emulator: ERROR: There's another emulator instance running with the current AVD 'pixel'. Exiting...",
        AvdLocked,
        "clone the AVD",
    ),
    ("ERROR   | x86_64 emulation currently requires hardware acceleration!", NoAcceleration, ""),
    (
        "ERROR | It seems too many emulator instances are running on this machine. Aborting.",
        PortInUse,
        "--port",
    ),
    ("unknown option: -no-such-option", EmulatorExited, "Update it"),
    (
        "PANIC: Unknown AVD name [pixel], use -list-avds to see valid list.",
        EmulatorExited,
        "ANDROID_AVD_HOME",
    ),
    ("PANIC: Cannot find AVD system path. Please define ANDROID_SDK_ROOT", EmulatorExited, "sdkmanager"),
]


@pytest.mark.parametrize(("line", "kind", "remedy"), LINES)
def test_each_known_line_has_its_error_and_remedy(line: str, kind: type[EmulatorError], remedy: str) -> None:
    error = fault_of(line, "emulator-5554")
    assert type(error) is kind
    assert remedy in error.remedy
    assert error.serial == "emulator-5554"
    assert error.evidence == line
    assert "\n" not in str(error)
    assert error.remedy.endswith(".")


@pytest.mark.parametrize(
    "line",
    [
        "INFO         | Android emulator version 36.1.9.0 (build_id 1) (CL:N/A)",
        "WARNING      | Failed to load snapshot 'default_boot'",
        "INFO         | Boot completed in 41234 ms",
        "ERROR        | Unable to connect to adb daemon on port: 5037",
        "",
    ],
)
def test_other_lines_end_nothing(line: str) -> None:
    assert fault_of(line) is None


def test_who_wanted_a_snapshot_is_told_that_it_does_not_load() -> None:
    failed = fault_of("WARNING      | Failed to load snapshot 'base'", from_snapshot=True)
    assert type(failed) is SnapshotFailed
    assert "'base' does not load" in failed.message
    missing = fault_of(
        "WARNING | Device 'cache' does not have the requested snapshot 'base'", from_snapshot=True
    )
    assert type(missing) is SnapshotMissing
    assert fault_of("INFO | Successfully loaded snapshot 'base'", from_snapshot=True) is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "WARNING      | Cold boot: selected renderer 'auto' doesn't support snapshots",
            "selected renderer 'auto' doesn't support snapshots",
        ),
        ("emulator: Cold boot: different AVD configuration", "different AVD configuration"),
        ("WARNING | Resetting for cold boot: bad snapshot", "bad snapshot"),
        ("WARNING | Cold boot based on user configuration", "based on user configuration"),
        (
            "emulator: WARNING: ignoring -snapshot option due to the use of -no-snapshot.",
            "ignoring -snapshot option due to the use of -no-snapshot.",
        ),
    ],
)
def test_who_wanted_a_snapshot_is_told_that_the_emulator_boots_cold(line: str, reason: str) -> None:
    """Those do not name the snapshot, and the emulator goes on as if nothing were wrong."""
    error = fault_of(line, from_snapshot=True)
    assert type(error) is SnapshotFailed
    assert error.message.endswith(f"instead of loading the snapshot: {reason}")
    assert "forceColdBoot" in error.remedy
    assert fault_of(line) is None


def test_the_last_complaint_is_the_one_that_counts() -> None:
    log = "INFO | a\nERROR | first thing\nemulator: ERROR: second thing\nINFO | bye\n\n"
    assert last_complaint(log) == "second thing"
    assert last_complaint("INFO | a\nsomething else\n") == "something else"
    assert last_complaint("") == ""


def test_a_log_is_followed_line_by_line(tmp_path: Path) -> None:
    follower = LogFollower(tmp_path / "log")
    assert follower.lines() == []
    with follower.path.open("wb", buffering=0) as file:
        file.write(b"one\r\ntw")
        assert follower.lines() == ["one"]
        file.write(b"o\n\xff\n")
        assert follower.lines() == ["two", "\ufffd"]
        assert follower.lines() == []
    assert follower.tail(4) == "o\n\ufffd\n"
