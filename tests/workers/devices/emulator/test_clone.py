"""Clones of AVDs."""

from __future__ import annotations

from pathlib import Path

import pytest
from avds import avd_with_snapshot, qcow2
from emulator_programs import bystander

from distrl.workers.devices import avd
from distrl.workers.devices.avd import AvdStore, base_of, clone, partial_clones, read_ini, set_base
from distrl.workers.devices.claims import Claims
from distrl.workers.devices.errors import AvdLocked, EmulatorError, LowDisk


def hidden_paths(directory: Path, needle: str) -> list[str]:
    """The files that mention `needle`."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return sorted(path.name for path in files if needle.encode() in path.read_bytes())


def test_no_path_of_the_old_one_is_left(store: AvdStore) -> None:
    old = avd_with_snapshot(store)
    new = clone(store, "pixel", "pixel-2")
    assert hidden_paths(new.directory, str(old.directory)) == []
    assert store.get("pixel-2").directory == store.home / "pixel-2.avd"
    assert read_ini(new.ini)["path.rel"] == "avd/pixel-2.avd"
    assert new.config()["AvdId"] == "pixel-2"
    hardware = read_ini(new.directory / "hardware-qemu.ini")
    assert hardware["disk.dataPartition.path"] == f"{new.directory}/userdata-qemu.img"
    assert hardware["kernel.path"] == "/sdk/kernel"
    saved = read_ini(new.snapshots / "base" / "hardware.ini")
    assert saved["disk.cachePartition.path"] == f"{new.directory}/cache.img"
    assert base_of(new.directory / "userdata-qemu.img.qcow2") == f"{new.directory}/userdata-qemu.img"


def test_the_old_one_stays_as_it_was(store: AvdStore) -> None:
    old = avd_with_snapshot(store)
    before = {path: path.read_bytes() for path in store.home.rglob("*") if path.is_file()}
    clone(store, "pixel", "pixel-2")
    assert {path: path.read_bytes() for path in before} == before
    assert base_of(old.directory / "userdata-qemu.img.qcow2") == f"{old.directory}/userdata-qemu.img"


def test_what_belongs_to_a_run_is_left_out(store: AvdStore) -> None:
    avd_with_snapshot(store)
    new = clone(store, "pixel", "pixel-2")
    names = {path.name for path in new.directory.rglob("*")}
    assert {"ram.bin", "userdata-qemu.img", "config.ini"} <= names
    assert not names & {"hardware-qemu.ini.lock", "multiinstance.lock", "emu-launch-params.txt"}


def test_progress_ends_at_the_whole(store: AvdStore) -> None:
    avd_with_snapshot(store)
    told: list[tuple[int, int]] = []
    clone(store, "pixel", "pixel-2", lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] > 1000


def test_a_name_that_is_taken_or_none_is_refused(store: AvdStore) -> None:
    avd_with_snapshot(store)
    with pytest.raises(EmulatorError, match="is an AVD 'pixel' already"):
        clone(store, "pixel", "pixel")
    with pytest.raises(EmulatorError, match="underscores"):
        clone(store, "pixel", "../elsewhere")


def test_one_that_is_written_is_not_copied(store: AvdStore) -> None:
    avd = avd_with_snapshot(store)
    emulator = bystander()
    (avd.directory / "hardware-qemu.ini.lock").write_text(f"{emulator.pid}")
    with pytest.raises(AvdLocked):
        clone(store, "pixel", "pixel-2")
    emulator.communicate()
    assert not store.exists("pixel-2")


def test_a_full_disk_is_seen_before_anything_is_copied(store: AvdStore, monkeypatch) -> None:
    avd_with_snapshot(store)
    monkeypatch.setattr(avd, "RESERVE_BYTES", 2**60)
    with pytest.raises(LowDisk, match=r"GB to spare, but .* are free"):
        clone(store, "pixel", "pixel-2")
    assert sorted(path.name for path in store.home.iterdir()) == ["pixel.avd", "pixel.ini"]


def test_a_clone_that_broke_off_is_begun_anew(store: AvdStore) -> None:
    avd_with_snapshot(store)
    rest = store.home / "pixel-2.avd.distrl-partial"
    (rest / "old").mkdir(parents=True)
    (rest / "config.ini").write_text("AvdId=rubbish\n")
    assert partial_clones(store.home) == [rest]
    new = clone(store, "pixel", "pixel-2")
    assert not (new.directory / "old").exists()
    assert partial_clones(store.home) == []


def test_two_at_the_same_time_do_not_mix(store: AvdStore, state: Path) -> None:
    avd_with_snapshot(store)
    rest = store.home / "pixel-2.avd.distrl-partial"
    rest.mkdir()
    other = Claims(state / "clones")
    assert other.take(rest.name)
    with pytest.raises(EmulatorError, match="another process is making pixel-2"):
        clone(store, "pixel", "pixel-2")
    assert partial_clones(store.home) == []
    assert rest.exists()
    other.release_all()
    clone(store, "pixel", "pixel-2")


def test_a_clone_of_a_clone(store: AvdStore) -> None:
    avd_with_snapshot(store)
    clone(store, "pixel", "two")
    three = clone(store, "two", "three")
    assert hidden_paths(three.directory, "two.avd") == []
    assert three.config()["avd.ini.displayname"] == "three"


def test_holes_stay_holes(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    with source.open("wb") as file:
        file.truncate(8 * 2**20)
        file.seek(4 * 2**20)
        file.write(b"data")
    assert avd.copy_file(source, target) == ""
    assert target.stat().st_size == 8 * 2**20
    assert target.read_bytes() == source.read_bytes()
    assert avd.disk_usage(target) <= avd.disk_usage(source) + 2**20


class TestBaseOfAnImage:
    def test_a_longer_name_fits_into_empty_room(self, tmp_path: Path) -> None:
        image = tmp_path / "x.qcow2"
        qcow2(image, "/short")
        set_base(image, "/a/much/longer/name")
        assert base_of(image) == "/a/much/longer/name"
        set_base(image, "/s")
        assert base_of(image) == "/s"
        assert b"longer" not in image.read_bytes()

    def test_a_name_that_does_not_fit_is_refused(self, tmp_path: Path) -> None:
        image = tmp_path / "x.qcow2"
        qcow2(image, "/short", room=128)
        with pytest.raises(EmulatorError, match="does not fit"):
            set_base(image, "/" + "x" * 100)
        assert base_of(image) == "/short"

    def test_other_files_have_none(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(b"ANDROID!" * 100)
        (tmp_path / "y").write_bytes(b"QFI")
        assert base_of(tmp_path / "x") is None
        assert base_of(tmp_path / "y") is None
