"""AVDs on disk and their locks."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from avds import avd_with_snapshot, qcow2
from emulator_programs import bystander, dead_pid

from distrl.simulator.emulator.sdk import make_avd
from distrl.workers.devices import avd
from distrl.workers.devices.avd import (
    AvdStore,
    avd_home,
    clone,
    partial_clones,
    read_ini,
    rebase,
    write_ini,
)
from distrl.workers.devices.claims import Claims
from distrl.workers.devices.errors import AvdLocked, EmulatorError, LowDisk, SnapshotPending

pytestmark = pytest.mark.usefixtures("state")


def test_of_the_places_that_exist_the_first_counts(tmp_path: Path) -> None:
    """In avdmanager's order, then the emulator's: both pass over what is not there."""
    variables = {
        "ANDROID_AVD_HOME": "",
        "ANDROID_USER_HOME": "avd",
        "ANDROID_PREFS_ROOT": ".android/avd",
        "ANDROID_SDK_HOME": ".android/avd",
        "XDG_CONFIG_HOME": ".android/avd",
        "HOME": ".android/avd",
        "ANDROID_EMULATOR_HOME": "avd",
    }
    environ = {variable: str(tmp_path / variable) for variable in variables}
    assert avd_home(environ) == tmp_path / "ANDROID_AVD_HOME"
    assert avd_home({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == Path("/h/.android/avd")
    for variable, inside in variables.items():
        (tmp_path / variable / inside).mkdir(parents=True)
    for variable, inside in variables.items():
        assert avd_home(environ) == tmp_path / variable / inside
        shutil.rmtree(tmp_path / variable)
    (tmp_path / "ANDROID_SDK_HOME" / "avd").mkdir(parents=True)  # as the emulator takes it, too
    assert avd_home(environ) == tmp_path / "ANDROID_SDK_HOME" / "avd"


def test_an_avd_in_another_place_is_pointed_to(
    store: AvdStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """avdmanager puts it below XDG_CONFIG_HOME, where no emulator looks."""
    other = AvdStore(tmp_path / "config" / ".android" / "avd")
    make_avd(other, "pixel")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with pytest.raises(EmulatorError, match=f"It is in {other.home}: set ANDROID_AVD_HOME"):
        store.get("pixel")


@pytest.mark.parametrize(
    ("name", "said", "message"),
    [
        ("pathless", b"target=android-34\n", "pathless.ini names no directory"),
        ("garbage", bytes(range(256)) * 4, "garbage.ini names no directory"),
        ("gone", b"path=/not/there.avd\n", "has no directory /not/there.avd"),
        ("my pixel", b"path=/tmp\n", "'my pixel' is not a valid AVD name. Use .* hyphens and underscores"),
        ("dir", None, r"dir\.ini cannot be read: Is a directory"),
    ],
)
def test_each_way_to_be_broken_has_its_message(
    store: AvdStore, name: str, said: bytes | None, message: str
) -> None:
    ini = store.home / f"{name}.ini"
    ini.mkdir() if said is None else ini.write_bytes(said)
    with pytest.raises(EmulatorError, match=message):
        store.get(name)
    assert (store.list(), list(store.broken())) == ([], [name])


def test_a_moved_home_is_found_by_the_relative_path(store: AvdStore) -> None:
    made = [make_avd(store, name) for name in ("tablet", "pixel")]
    assert [avd.name for avd in store.list()] == ["pixel", "tablet"]
    assert store.get("tablet") == made[0]
    moved = AvdStore(store.home.parent / "elsewhere" / "avd")
    moved.home.parent.mkdir()
    store.home.rename(moved.home)
    assert moved.get("pixel").directory == moved.home / "pixel.avd"


def test_an_unknown_name_gets_the_nearest(store: AvdStore) -> None:
    make_avd(store, "pixel_6")
    with pytest.raises(EmulatorError, match="Did you mean 'pixel_6'"):
        store.get("pixel6")
    with pytest.raises(EmulatorError, match="There are: pixel_6"):
        store.get("tablet")
    for name in ("../../etc/passwd", "a b", "", "-x"):
        with pytest.raises(EmulatorError, match="is not a valid AVD name"):
            store.get(name)
        with pytest.raises(EmulatorError, match="is not a valid AVD name"):
            store.delete(name)


def test_delete_takes_all_of_it_also_what_is_half_made_or_half_removed(store: AvdStore) -> None:
    avd_with_snapshot(store)
    store.delete("pixel")
    avd = make_avd(store, "pixel")
    avd.ini.unlink()
    store.delete("pixel")
    avd = make_avd(store, "pixel")
    shutil.rmtree(avd.directory)
    store.delete("pixel")
    assert list(store.home.iterdir()) == []
    with pytest.raises(EmulatorError, match="there is no AVD"):
        store.delete("pixel")
    (store.home / "thesis").mkdir()
    store.ini("pixel").write_text(f"path={store.home / 'thesis'}\n")
    store.delete("pixel")
    assert [one.name for one in store.home.iterdir()] == ["thesis"], "it is no AVD's"


@pytest.fixture
def emulator() -> Iterator[int]:
    process = bystander("-avd", "pixel")
    yield process.pid
    process.kill()
    process.communicate()


def test_a_living_writer_locks_it_and_the_dead_lock_nothing(store: AvdStore, emulator: int) -> None:
    avd = avd_with_snapshot(store)
    lock = avd.directory / "hardware-qemu.ini.lock"
    for name in (lock.name, "snapshot.lock"):
        (avd.directory / name).write_text(f"{dead_pid()}")
    avd.require_unused()
    lock.write_text(f"{emulator}")
    with pytest.raises(AvdLocked, match=rf"in use by process {emulator} .*clone"):
        avd.require_unused(shared=True)
    with pytest.raises(AvdLocked):
        store.delete("pixel")
    with pytest.raises(AvdLocked):
        clone(store, "pixel", "pixel-2")
    assert not store.exists("pixel-2")
    (avd.directory / "snapshot.lock").write_text(f"{emulator}\0")
    with pytest.raises(SnapshotPending, match="Wait until it is done"):
        avd.require_unused()


def test_a_number_that_became_a_stranger_s_is_named(store: AvdStore) -> None:
    avd = make_avd(store, "pixel")
    stranger = bystander(name="editor")
    (avd.directory / "hardware-qemu.ini.lock").write_text(f"{stranger.pid}")
    with pytest.raises(AvdLocked, match=r"by process \d+ \(editor.*not an emulator, remove .*ini\.lock"):
        avd.require_unused()
    stranger.communicate()


def test_read_only_emulators_stop_only_who_wants_it_alone(store: AvdStore) -> None:
    avd = make_avd(store, "pixel")
    descriptor = os.open(avd.directory / "multiinstance.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    avd.require_unused(shared=True)
    with pytest.raises(AvdLocked):
        avd.require_unused()
    os.close(descriptor)
    avd.require_unused()


def test_ini_files_are_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "config.ini"
    path.write_bytes(b"# path=comment\nhw.ramSize = 2048\n\npath=/a=b\nno value\nlast=\nname=\xff\xfe\n")
    found = read_ini(path)
    assert found == {"hw.ramSize": "2048", "path": "/a=b", "last": "", "name": "\udcff\udcfe"}
    write_ini(path, {**found, "path": "c"})
    assert path.read_bytes() == b"hw.ramSize=2048\npath=c\nlast=\nname=\xff\xfe\n"
    assert [one.name for one in tmp_path.iterdir()] == ["config.ini"]
    with pytest.raises(EmulatorError, match=r"none\.ini"):
        read_ini(tmp_path / "none.ini")


def hidden_paths(directory: Path, needle: str) -> list[str]:
    """The files that mention `needle`."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return sorted(path.name for path in files if needle.encode() in path.read_bytes())


def test_no_path_of_the_old_one_is_left_and_that_stays_as_it_was(store: AvdStore) -> None:
    old = avd_with_snapshot(store)
    before = {path: path.read_bytes() for path in store.home.rglob("*") if path.is_file()}
    new = clone(store, "pixel", "pixel-2")
    assert {path: path.read_bytes() for path in before} == before
    assert hidden_paths(new.directory, str(old.directory)) == []
    assert store.get("pixel-2").directory == store.home / "pixel-2.avd"
    assert read_ini(new.ini)["path.rel"] == "avd/pixel-2.avd"
    assert new.config()["AvdId"] == "pixel-2"
    hardware = read_ini(new.directory / "hardware-qemu.ini")
    assert hardware["disk.dataPartition.path"] == f"{new.directory}/userdata-qemu.img"
    assert hardware["kernel.path"] == "/sdk/kernel"
    saved = read_ini(new.snapshots / "base" / "hardware.ini")
    assert saved["disk.cachePartition.path"] == f"{new.directory}/cache.img"
    assert (
        f"{new.directory}/userdata-qemu.img\0".encode()
        in (new.directory / "userdata-qemu.img.qcow2").read_bytes()
    )


def test_holes_stay_holes_and_what_belongs_to_a_run_is_left_out(store: AvdStore) -> None:
    old = avd_with_snapshot(store).directory / "userdata-qemu.img"
    os.truncate(old, 8 * 2**20)
    new = clone(store, "pixel", "pixel-2")
    names = {path.name for path in new.directory.rglob("*")}
    data = new.directory / "userdata-qemu.img"
    assert (data.stat().st_size, avd.disk_usage(data)) == (8 * 2**20, avd.disk_usage(old))
    assert {"ram.bin", "userdata-qemu.img", "config.ini"} <= names
    assert not names & {"hardware-qemu.ini.lock", "multiinstance.lock", "emu-launch-params.txt"}


def test_a_name_that_is_taken_or_none_is_refused(store: AvdStore) -> None:
    avd_with_snapshot(store)
    with pytest.raises(EmulatorError, match="is an AVD 'pixel' already"):
        clone(store, "pixel", "pixel")
    with pytest.raises(EmulatorError, match="underscores"):
        clone(store, "pixel", "../elsewhere")


def test_a_full_disk_is_seen_before_anything_is_copied(store: AvdStore, monkeypatch) -> None:
    avd_with_snapshot(store)
    monkeypatch.setattr(avd, "RESERVE_BYTES", 2**60)
    with pytest.raises(LowDisk, match=r" GB, and .* more\. .* are free"):
        clone(store, "pixel", "pixel-2")
    assert sorted(path.name for path in store.home.iterdir()) == ["pixel.avd", "pixel.ini"]


def test_a_clone_that_broke_off_is_begun_again_unless_another_process_makes_it(
    store: AvdStore, state: Path
) -> None:
    avd_with_snapshot(store)
    rest = store.home / "pixel-2.avd.distrl-partial"
    (rest / "old").mkdir(parents=True)
    other = Claims(state / "clones")
    assert other.take(rest.name)
    with pytest.raises(EmulatorError, match="another process is making pixel-2"):
        clone(store, "pixel", "pixel-2")
    assert partial_clones(store.home) == []
    other.release_all()
    assert partial_clones(store.home) == [rest]
    new = clone(store, "pixel", "pixel-2")
    assert not (new.directory / "old").exists()
    assert partial_clones(store.home) == []


def test_the_name_of_the_image_beneath_is_changed_if_there_is_room(tmp_path: Path) -> None:
    image, other = tmp_path / "x.qcow2", tmp_path / "y"
    qcow2(image, "/short")
    for name in ("/a/much/longer/name", "/s"):
        rebase(image, lambda base, name=name: name)
        seen: list[str] = []
        rebase(image, lambda base, seen=seen: seen.append(base) or base)
        assert seen == [name]
    assert b"longer" not in image.read_bytes()
    qcow2(image, "/short", room=128)
    with pytest.raises(EmulatorError, match="does not fit"):
        rebase(image, lambda base: base + "x" * 100)
    assert b"/short\0" in image.read_bytes()
    for content in (b"ANDROID!" * 100, b"QFI"):
        other.write_bytes(content)
        rebase(other, lambda base: "never")
        assert other.read_bytes() == content
