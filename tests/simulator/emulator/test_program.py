"""The stand-in as a process: what it prints and answers, how it ends, what it leaves; and the SDK with it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from pathlib import Path

import pytest
from emulator_programs import program
from PIL import Image

from distrl.core.errors import ConfigError, DistrlError
from distrl.simulator.emulator.phone import DATA
from distrl.simulator.emulator.sdk import SimSdk, make_avd, make_sdk
from distrl.workers.devices.avd import Avd
from distrl.workers.devices.emulator import running
from distrl.workers.devices.errors import SnapshotFailed
from distrl.workers.devices.sdk import find_sdk

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
    emulator.console.snapshot("save", "base")
    assert "base" in " ".join(emulator.console.command("avd snapshot list"))
    with pytest.raises(SnapshotFailed, match="cannot load snapshot 'other'"):
        emulator.console.snapshot("load", "other")
    emulator.console.kill()
    assert emulator.process.wait(END_S) == 0
    assert not mine(emulator.process)
    assert not (avd.directory / "hardware-qemu.ini.lock").exists()
    assert [path.name for path in avd.snapshots.iterdir()] == ["base"]

    shared = run("-avd", "pixel", "-read-only", "-snapshot", "base")
    shared.says("Successfully loaded snapshot 'base'")
    shared.says("Boot completed")
    with pytest.raises(SnapshotFailed, match="read-only"):
        shared.console.snapshot("save", "more")
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


def test_faults_of_its_console(run, avd: Avd) -> None:
    emulator = run("-avd", "pixel", "-no-snapshot")
    emulator.says("Boot completed")
    emulator.console.command("sim fault blank")
    emulator.console.snapshot("save", "black")
    with Image.open(avd.snapshots / "black" / "screenshot.png") as picture:
        assert picture.getcolors() == [(270 * 600, (0, 0, 0))]
    with contextlib.suppress(DistrlError):
        emulator.console.command("sim fault crash")
    assert emulator.process.wait(END_S) == -signal.SIGKILL


def test_what_cannot_run_ends_with_one_line(run, sdk: SimSdk, avd: Avd) -> None:
    (avd.directory / DATA).write_bytes(b"half of it")
    make_avd(sdk.store, "square", 600, 600)
    for arguments, line in (
        (["-avd", "pixel", "-no-snapshot"], f"{DATA} is damaged. Start with -wipe-data."),
        (["-avd", "square"], "a screen must be at least 64 pixels wide"),
    ):
        refused = run(*arguments)
        assert refused.process.wait(END_S) == 1
        assert line in refused.log.read_text().splitlines()[-1]
    wiped = run("-avd", "pixel", "-wipe-data")
    wiped.says("Boot completed")


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["-list-avds"], 0, "pixel\n"),
        (["-version"], 0, "Android emulator version"),
        (["-accel-check"], 0, "accel:\n0\n"),
        (["-avd", "none"], 1, "Unknown AVD name [none]"),
    ],
)
def test_questions_are_answered_without_an_avd(run, arguments: list[str], status: int, text: str) -> None:
    answered = run(*arguments)
    assert answered.process.wait(END_S) == status
    assert text in answered.log.read_text()


def test_making_it_again_keeps_the_avds(sdk: SimSdk, avd: Avd) -> None:
    assert make_sdk(sdk.root).store.list() == [avd]
    with pytest.raises(ConfigError, match="the AVD 'pixel' already exists"):
        make_avd(sdk.store, "pixel")
    with pytest.raises(ConfigError, match="not a valid AVD name"):
        make_avd(sdk.store, "a b")


def test_a_real_sdk_is_not_overwritten(tmp_path: Path) -> None:
    real = program(tmp_path / "emulator" / "emulator", "the real thing")
    with pytest.raises(ConfigError, match="is a real Android SDK"):
        make_sdk(tmp_path)
    assert "the real thing" in real.read_text()


def test_avdmanager_makes_lists_and_deletes(sdk: SimSdk) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(find_sdk().need_avdmanager()), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, input="no\n")

    made = run("create", "avd", "-n", "new", "-k", "system-images;android-34;google_apis;x86_64")
    assert made.returncode == 0, made.stderr
    assert "android-34" in sdk.store.get("new").config()["image.sysdir.1"]
    assert "Name: new" in run("list", "avd").stdout
    wrong = run("create", "avd", "-n", "other", "-k", "system-images;android-99;x;y")
    assert wrong.returncode == 1
    assert "system-images;android-34;google_apis;x86_64" in wrong.stderr
    assert run("delete", "avd", "-n", "new").returncode == 0
    assert sdk.store.list() == []
