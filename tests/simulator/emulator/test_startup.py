"""How the stand-in starts: its command line, faults, checks and locks; and its snapshots on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from emulator_programs import bystander, dead_pid
from waiting import until

from distrl.simulator.adb.machine import AvdSnapshots
from distrl.simulator.emulator.sdk import SimSdk
from distrl.simulator.emulator.startup import (
    PLAIN,
    VALUED,
    Fault,
    Locks,
    Refused,
    fault_of,
    find_avd,
    parse,
    take_locks,
)
from distrl.workers.devices.avd import Avd, read_ini
from distrl.workers.devices.emulator import EmulatorOptions
from distrl.workers.devices.emulator_log import fault_of as error_of
from distrl.workers.devices.errors import (
    AvdLocked,
    EmulatorExited,
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


def test_all_locks_are_held_while_it_runs_and_one_file_stays(avd: Avd) -> None:
    locks = start(avd)
    assert (avd.directory / "hardware-qemu.ini.lock").read_text() == str(os.getpid())
    assert not (avd.directory / "snapshot.lock").exists()
    assert read_ini(avd.directory / "hardware-qemu.ini")["avd.name"] == "pixel"
    locks.release()
    names = {path.name for path in avd.directory.iterdir()}
    assert "multiinstance.lock" in names
    assert "hardware-qemu.ini.lock" not in names
    assert not [name for name in names if name.endswith(".tmp")]


def test_a_second_writer_is_refused(avd: Avd) -> None:
    with held(avd.directory / "hardware-qemu.ini.lock"):
        line = refusal(avd)
    assert "Running multiple emulators with the same AVD" in line
    assert isinstance(error_of(line), AvdLocked)
    assert not (avd.directory / "snapshot.lock").exists()


def test_readers_share_and_exclude_a_writer(avd: Avd) -> None:
    one = start(avd, "-read-only")
    start(avd, "-read-only").release()
    line = refusal(avd)
    assert isinstance(error_of(line), AvdLocked)
    assert "Another emulator instance is running." in line
    assert not (avd.directory / "hardware-qemu.ini.lock").exists()
    one.release()
    writer = start(avd)
    assert "Another emulator instance is running." in refusal(avd, "-read-only")
    writer.release()


def test_a_pending_snapshot_comes_before_the_writer_s_lock(avd: Avd) -> None:
    with held(avd.directory / "snapshot.lock"), held(avd.directory / "hardware-qemu.ini.lock"):
        line = refusal(avd)
    assert line == (
        "FATAL        | A snapshot operation for 'pixel' is pending and timeout has expired. Exiting..."
    )
    assert isinstance(error_of(line), SnapshotPending)


def test_locks_of_the_dead_are_taken_over(avd: Avd) -> None:
    for name in ("snapshot.lock", "hardware-qemu.ini.lock"):
        (avd.directory / name).write_text(str(dead_pid()))
    start(avd).release()


def test_a_lock_that_is_given_back_in_time_is_waited_for(avd: Avd) -> None:
    (avd.directory / "config.ini").write_text("sim.lock_s=60\n")
    with ThreadPoolExecutor() as pool:
        with held(avd.directory / "hardware-qemu.ini.lock"):
            starting = pool.submit(start, avd)
            until(lambda: (avd.directory / "snapshot.lock").exists(), "the wait for the second lock")
            assert not starting.done()
        starting.result(60.0).release()


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


def test_an_unknown_avd_gets_the_emulator_s_three_lines(sdk: SimSdk) -> None:
    with pytest.raises(Refused) as caught:
        find_avd("none")
    first, second, third = caught.value.lines
    assert isinstance(error_of(first), EmulatorExited)
    assert "there is no file none.ini" in second
    assert third.startswith("(Note: Directories are searched in the order $ANDROID_AVD_HOME")
    with pytest.raises(Refused, match="No AVD specified"):
        find_avd("")


def test_it_knows_all_that_we_tell_an_emulator() -> None:
    told = EmulatorOptions(snapshot="base", read_only=True).flags("pixel", 5580)
    options = parse(told)
    assert (options.avd, options.port, options.values["gpu"]) == ("pixel", 5580, "swiftshader_indirect")
    assert (options.snapshot, options.read_only, options.saves_on_exit) == ("base", True, False)
    assert "grpc-use-token" in options.plain


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["-no-such"], ("unknown option: -no-such", "please use -help for a list of valid options")),
        (["-avd"], ("option -avd must be followed by a parameter",)),
        (
            ["pixel"],
            (
                "invalid command-line parameter: pixel.",
                "Hint: use '@foo' to launch a virtual device named 'foo'.",
                "please use -help for more information",
            ),
        ),
        (
            ["-port", "odd"],
            ("option -port must be followed by an even integer number between 5554 and 5682",),
        ),
        *(
            (
                ["-ports", ports],
                ("option -ports must be followed by two different ports: <consoleport>,<adbport>",),
            )
            for ports in ("5554", "5554,", "a,b", "5554,5554", "5554,70000", "1,5555", "1,2,3")
        ),
    ],
)
def test_mistakes_get_the_emulator_s_message(arguments: list[str], lines: tuple[str, ...]) -> None:
    with pytest.raises(Refused) as caught:
        parse(arguments)
    assert caught.value.lines == lines


def test_the_other_ways_to_say_it() -> None:
    assert parse(["@pixel"]).avd == "pixel"
    assert parse(["-avd", "pixel", "-port", "5581"]).port == 5580
    assert (parse(["-ports", "7001,9000"]).port, parse(["-ports", "7001,9000"]).adb_port) == (7001, 9000)
    assert parse(["-no_window"]).plain == {"no-window"}
    assert parse(["-verbose", "-qemu", "-m", "4096"]).plain == {"verbose"}
    assert not PLAIN & VALUED


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


def test_faults_by_the_variable_or_the_avd() -> None:
    assert fault_of({}, {}) == Fault()
    assert fault_of({"sim.fault": "crash:2.5"}, {}) == Fault("crash", 2.5)
    environ = {"DISTRL_SIMEMULATOR_FAULT": "hang_boot"}
    assert fault_of({"sim.fault": "crash:1"}, environ).name == "hang_boot"
    for wrong in ("fire", "crash:soon", "crash:-1", "crash:nan", "low_disk:3"):
        with pytest.raises(Refused):
            fault_of({"sim.fault": wrong}, {})


HARDWARE = {"hw.gpu.mode": "host", "hw.lcd.width": "540", "avd.name": "pixel"}


@pytest.fixture
def snapshots(tmp_path: Path) -> AvdSnapshots:
    return AvdSnapshots(tmp_path, HARDWARE, lambda: b"PNG")


def test_what_is_saved_is_loaded_by_another_run(snapshots: AvdSnapshots, tmp_path: Path) -> None:
    snapshots.save("base", b"state", 12.5)
    snapshots.save("base", b"newer", 13.5)
    again = AvdSnapshots(tmp_path, HARDWARE | {"avd.name": "clone"})
    assert again.load("base") == b"newer"
    (listed,) = again.list()
    assert (listed.name, listed.size, listed.clock_s) == ("base", 5, 13.5)
    files = {path.name for path in (tmp_path / "snapshots" / "base").iterdir()}
    assert files == {"ram.bin", "snapshot.pb", "hardware.ini", "screenshot.png"}
    assert not (tmp_path / "snapshot.lock").exists()


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


def test_other_hardware_refuses_it(snapshots: AvdSnapshots, tmp_path: Path) -> None:
    snapshots.save("base", b"state")
    with pytest.raises(SnapshotFailed, match=r"hw\.gpu\.mode differs"):
        AvdSnapshots(tmp_path, HARDWARE | {"hw.gpu.mode": "off"}).load("base")


def test_the_fault_refuses_all(snapshots: AvdSnapshots, tmp_path: Path) -> None:
    snapshots.save("base", b"state")
    with pytest.raises(SnapshotFailed):
        AvdSnapshots(tmp_path, HARDWARE, is_corrupt=True).load("base")


def test_saving_waits_its_turn(snapshots: AvdSnapshots, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("distrl.simulator.adb.machine._LOCK_S", 0.1)
    other = bystander()
    (tmp_path / "snapshot.lock").write_text(str(other.pid))
    with pytest.raises(SnapshotFailed, match="pending"):
        snapshots.save("base", b"state")
    other.communicate()
    snapshots.save("base", b"state")


@pytest.mark.parametrize("name", ["../out", ".hidden", "a/b"])
def test_names_stay_inside(snapshots: AvdSnapshots, name: str) -> None:
    with pytest.raises(SnapshotFailed):
        snapshots.save(name, b"state")
    with pytest.raises(SnapshotMissing):
        snapshots.delete(name)
