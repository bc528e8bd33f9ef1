"""The stand-in's snapshots on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulator_programs import bystander

from distrl.simulator.adb.machine import AvdSnapshots
from distrl.workers.devices.errors import SnapshotFailed, SnapshotMissing

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
