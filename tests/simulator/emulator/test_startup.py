"""How the stand-in starts: its command line, faults, checks and locks; and its snapshots on disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from emulator_programs import bystander, dead_pid

from distrl.simulator.adb.machine import AvdSnapshots
from distrl.simulator.emulator.startup import (
    Fault,
    Locks,
    Refused,
    parse,
    take_locks,
)
from distrl.workers.devices.avd import Avd
from distrl.workers.devices.emulator import EmulatorOptions
from distrl.workers.devices.emulator import fault_of as error_of
from distrl.workers.devices.errors import (
    AvdLocked,
    LowDisk,
    NoAcceleration,
    SnapshotFailed,
    SnapshotMissing,
    SnapshotPending,
)


def start(avd: Avd, *flags: str, fault: str = "") -> Locks:
    return take_locks(avd, parse(flags), Fault(fault))


def refusal(avd: Avd, *flags: str, fault: str = "") -> str:
    with pytest.raises(Refused) as caught:
        start(avd, *flags, fault=fault)
    return caught.value.lines[0]


@contextmanager
def held(path: Path) -> Iterator[None]:
    """A lock file in the name of a living process."""
    process = bystander()
    path.write_text(str(process.pid))
    yield
    process.communicate()


def test_a_second_writer_is_refused(avd: Avd) -> None:
    with held(avd.directory / "hardware-qemu.ini.lock"):
        line = refusal(avd)
    assert "Running multiple emulators with the same AVD" in line
    assert isinstance(error_of(line), AvdLocked)
    assert not (avd.directory / "snapshot.lock").exists()


def test_locks_of_the_dead_are_taken_over(avd: Avd) -> None:
    for name in ("snapshot.lock", "hardware-qemu.ini.lock"):
        (avd.directory / name).write_text(str(dead_pid()))
    start(avd).release()


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("low_disk", LowDisk),
        ("snapshot_pending", SnapshotPending),
        ("avd_locked", AvdLocked),
        ("no_accel", NoAcceleration),
    ],
)
def test_each_fault_says_what_an_emulator_says(avd: Avd, fault: str, kind: type) -> None:
    assert type(error_of(refusal(avd, fault=fault))) is kind
    start(avd).release()


def test_it_knows_all_that_we_tell_an_emulator() -> None:
    told = EmulatorOptions(snapshot="base", read_only=True).flags("pixel", 5580)
    options = parse(told)
    assert (options.avd, options.port, options.values["gpu"]) == ("pixel", 5580, "swiftshader_indirect")
    assert (options.snapshot, options.read_only, options.saves_on_exit) == ("base", True, False)
    assert "grpc-use-token" in options.plain


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["-no-such"], "unknown option: -no-such"),
        (["-avd"], "option -avd must be followed by a parameter"),
        (["pixel"], "invalid command-line parameter: pixel."),
        (["-port", "odd"], "option -port must be followed by an even integer number between 5554 and 5682"),
        *(
            (
                ["-ports", wrong],
                "option -ports must be followed by two different ports: <consoleport>,<adbport>",
            )
            for wrong in ("5554", "a,b", "5554,5554", "5554,70000", "1,2,3")
        ),
    ],
)
def test_mistakes_get_the_emulator_s_message(arguments: list[str], line: str) -> None:
    with pytest.raises(Refused) as caught:
        parse(arguments)
    assert caught.value.lines[0].startswith(line)


@pytest.mark.parametrize(
    ("arguments", "snapshot", "saves"),
    [
        ([], "default_boot", True),
        (["-no-snapshot-save"], "default_boot", False),
        (["-no-snapshot-load"], None, True),
        (["-no-snapshot"], None, False),
        (["-wipe-data"], None, True),
        (["-snapshot", "base"], "base", False),
        (["-read-only"], "default_boot", False),
    ],
)
def test_which_snapshot_begins_and_ends_a_run(
    arguments: list[str], snapshot: str | None, saves: bool
) -> None:
    options = parse(arguments)
    assert (options.snapshot, options.saves_on_exit) == (snapshot, saves)


@pytest.fixture
def snapshots(tmp_path: Path) -> AvdSnapshots:
    return AvdSnapshots(tmp_path)


def test_what_a_save_that_was_killed_has_left_is_not_listed(snapshots: AvdSnapshots) -> None:
    snapshots.save("base", b"state")
    shutil.copytree(snapshots.folder / "base", snapshots.folder / ".other.new")
    assert [one.name for one in snapshots.list()] == ["base"]
    snapshots.save("other", b"state")
    assert snapshots.load("other") == b"state"


def test_a_missing_one_is_told_from_a_damaged_one(snapshots: AvdSnapshots, tmp_path: Path) -> None:
    with pytest.raises(SnapshotMissing):
        snapshots.load("base")
    with pytest.raises(SnapshotMissing):
        snapshots.delete("base")
    snapshots.save("base", b"state")
    (tmp_path / "snapshots" / "base" / "ram.bin").write_bytes(b"stat")
    with pytest.raises(SnapshotFailed, match="Failed to load snapshot 'base': it is damaged"):
        snapshots.load("base")
    snapshots.delete("base")
    assert snapshots.list() == []
    snapshots.folder.rmdir()
    snapshots.folder.touch()
    with pytest.raises(SnapshotFailed, match="cannot be written"):  # as on a full disk
        snapshots.save("base", b"state")


def test_saving_waits_its_turn(snapshots: AvdSnapshots, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("distrl.simulator.adb.machine._LOCK_S", 0.1)
    other = bystander()
    (tmp_path / "snapshot.lock").write_text(str(other.pid))
    with pytest.raises(SnapshotFailed, match="pending"):
        snapshots.save("base", b"state")
    other.communicate()
    snapshots.save("base", b"state")
