"""The stand-in as a process: what it prints and answers, how it ends, what it leaves."""

from __future__ import annotations

import signal
import subprocess

import pytest

from distrl.workers.devices.avd import Avd
from distrl.workers.devices.emulator import running
from distrl.workers.devices.errors import SnapshotFailed, SnapshotMissing

END_S = 60.0


def mine(process: subprocess.Popen[bytes]) -> list:
    return [one for one in running() if one.key.pid == process.pid]


def test_it_boots_answers_and_ends_by_its_console(run, avd: Avd) -> None:
    emulator = run("-avd", "pixel", "-no-window", "-no-snapshot-save")
    emulator.says("Boot completed in ")
    assert "Android emulator version" in emulator.log.read_text()
    (found,) = mine(emulator.process)
    assert (found.avd_name, found.avd_dir) == ("pixel", avd.directory)
    assert found.console_port == emulator.port
    assert emulator.console.command("avd name") == ["pixel"]
    assert emulator.console.command("avd path") == [str(avd.directory)]
    emulator.console.avd_snapshot_save("base")
    assert emulator.console.avd_snapshot_list() == ["base"]
    with pytest.raises(SnapshotMissing):
        emulator.console.avd_snapshot_load("other")
    emulator.console.kill()
    assert emulator.process.wait(END_S) == 0
    assert not mine(emulator.process)
    assert not (avd.directory / "hardware-qemu.ini.lock").exists()
    assert [path.name for path in avd.snapshots.iterdir()] == ["base"]

    shared = run("-avd", "pixel", "-read-only", "-snapshot", "base")
    shared.says("Successfully loaded snapshot 'base'")
    shared.says("Boot completed")
    with pytest.raises(SnapshotFailed, match="read-only"):
        shared.console.avd_snapshot_save("more")
    shared.process.send_signal(signal.SIGTERM)
    assert shared.process.wait(END_S) == 0


def test_a_crash_leaves_its_locks_and_the_next_run_takes_them(run, avd: Avd) -> None:
    (avd.directory / "config.ini").write_text("sim.fault=crash:0.2\nhw.lcd.width=270\nhw.lcd.height=600\n")
    broken = run("-avd", "pixel", "-no-snapshot")
    assert broken.process.wait(END_S) == -signal.SIGKILL
    assert (avd.directory / "hardware-qemu.ini.lock").exists()
    assert not mine(broken.process)
    (avd.directory / "config.ini").write_text("hw.lcd.width=270\nhw.lcd.height=600\n")
    emulator = run("-avd", "pixel")
    emulator.says("Boot completed")
    emulator.process.send_signal(signal.SIGTERM)
    assert emulator.process.wait(END_S) == 0
    assert "Saving state" in emulator.log.read_text()
    assert (avd.snapshots / "default_boot").is_dir()


def test_a_missing_snapshot_is_a_warning_and_a_cold_boot(run) -> None:
    emulator = run("-avd", "pixel", "-snapshot", "none")
    emulator.says("Boot completed")
    text = emulator.log.read_text()
    assert "Device 'cache' does not have the requested snapshot 'none'" in text
    assert "WARNING      | Failed to load snapshot 'none'" in text


def test_what_it_refuses_it_refuses_with_exit_status_1(run) -> None:
    for arguments, text in (
        (("-no-such",), "unknown option: -no-such"),
        (("-avd", "none"), "Unknown AVD name [none]"),
        (("-avd", "pixel", "-port", "1"), "even integer"),
    ):
        refused = run(*arguments)
        assert refused.process.wait(END_S) == 1
        assert text in refused.log.read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-list-avds"], "pixel\n"),
        (["-version"], "Android emulator version"),
        (["-accel-check"], "accel:\n0\n"),
    ],
)
def test_questions_are_answered_without_an_avd(run, arguments: list[str], text: str) -> None:
    answered = run(*arguments)
    assert answered.process.wait(END_S) == 0
    assert text in answered.log.read_text()
