"""The stand-in's checks and locks: their order, their messages, and what becomes of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from emulator_programs import bystander, dead_pid
from waiting import until

from distrl.simulator.emulator.sdk import SimSdk
from distrl.simulator.emulator.startup import Fault, Locks, Refused, find_avd, parse, take_locks
from distrl.workers.devices.avd import Avd, read_ini
from distrl.workers.devices.emulator_log import fault_of as error_of
from distrl.workers.devices.errors import AvdLocked, EmulatorExited, LowDisk, NoAcceleration, SnapshotPending


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
