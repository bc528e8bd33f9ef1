"""Snapshots with manifests, on an emulator that is played here: a console and a shell over one state."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from PIL import Image

from distrl.simulator.emulator.sdk import make_avd
from distrl.workers.devices import snapshots
from distrl.workers.devices.adb import ShellResult
from distrl.workers.devices.avd import Avd, AvdStore, clone, write_ini
from distrl.workers.devices.errors import (
    EmulatorExited,
    SnapshotFailed,
    SnapshotMismatch,
    SnapshotMissing,
)
from distrl.workers.devices.snapshots import Snapshotter, delete_files, get_snapshot, snapshots_of


@dataclass
class Played:
    """An emulator: the console writes the AVD's directory, the shell tells the state."""

    avd: Avd
    serial: str = "emulator-5554"
    level: str = "34"
    image: str = "google/sdk_gphone64/34"
    apps: dict[str, int] = field(default_factory=lambda: {"org.notes": 3})
    colour: str = "#336699"
    warning: bytes = b""
    frames: list[str] = field(default_factory=list)
    did: list[str] = field(default_factory=list)
    has_ended: bool = False

    def avd_snapshot_save(self, name: str) -> None:
        folder = self.avd.snapshots / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ram.bin").write_text(json.dumps([self.level, self.image, self.apps, self.colour]))

    def avd_snapshot_load(self, name: str) -> None:
        self.did.append(f"load {name}")
        self.level, self.image, self.apps, self.colour = json.loads(
            (self.avd.snapshots / name / "ram.bin").read_text()
        )

    def avd_snapshot_delete(self, name: str) -> None:
        self.did.append(f"delete {name}")

    def wait_ready(self, timeout_s: float, check: Callable[[], object] = lambda: None) -> None:
        check()
        self.did.append("ready")

    def require_running(self) -> None:
        if self.has_ended:
            raise EmulatorExited("the emulator has ended.")

    def shell(self, command: str, timeout_s: float, *, reads: bool = False) -> ShellResult:
        assert reads
        packages = "".join(f"package:{name} versionCode:{code}\n" for name, code in self.apps.items())
        said = {
            "getprop ro.build.version.sdk": f"{self.level}\n",
            "getprop ro.build.fingerprint": f"{self.image}\n",
            "pm list packages -3 --show-versioncode": packages,
            "wm density": "Physical density: 420\n",
        }[command]
        return ShellResult(said.encode(), b"", 0)

    def exec_out(self, command: str, timeout_s: float, *, reads: bool = False) -> bytes:
        assert command == "screencap -p"
        out = io.BytesIO()
        shown = Image.new("RGB", (108, 240), self.frames.pop(0) if self.frames else self.colour)
        shown.putpixel((0, 0), (1, 2, 3))
        shown.save(out, "PNG")
        return self.warning + out.getvalue()


@pytest.fixture
def emulator(store: AvdStore) -> Played:
    return Played(make_avd(store, "pixel"))


def snapshotter(
    emulator: Played, gpu: str = "swiftshader_indirect", version: str = "36.1.9.0"
) -> Snapshotter:
    return Snapshotter(emulator.avd, emulator, emulator, gpu, version)


def test_a_saved_snapshot_has_a_manifest_with_everything(emulator: Played) -> None:
    saved = snapshotter(emulator).save("base")
    info = get_snapshot(emulator.avd, "base")
    assert info.manifest == saved
    assert (saved.snapshot, saved.avd) == ("base", "pixel")
    assert (saved.api_level, saved.image, saved.apps) == (34, "google/sdk_gphone64/34", {"org.notes": 3})
    assert (saved.gpu, saved.emulator, saved.density) == ("swiftshader_indirect", "36.1.9.0", 420)
    assert (saved.screen.width, saved.screen.height) == (108, 240)


def test_the_screen_is_taken_when_it_stands_still(emulator: Played) -> None:
    emulator.frames = ["red", "green"] * 20
    snapshotter(emulator).save("never")
    assert len(emulator.frames) == 30
    emulator.warning = b"[Warning] Multiple displays were found, but no display id was specified!\n"
    emulator.frames = ["red", "green", "blue", "#336699"]
    saved = snapshotter(emulator).save("base")
    assert emulator.frames == []
    emulator.frames = []
    assert snapshotter(emulator).verify("base").screen == saved.screen


def test_after_loading_all_is_as_the_manifest_says_also_on_a_clone(emulator: Played, store: AvdStore) -> None:
    one = snapshotter(emulator)
    one.save("base")
    emulator.apps, emulator.colour = {}, "black"
    one.load("base")
    assert emulator.did == ["load base", "ready"]
    assert one.verify("base").apps == {"org.notes": 3}
    snapshotter(replace(emulator, avd=clone(store, "pixel", "pixel-2"))).verify("base")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"level": "33"}, "the API level is 33, the manifest says 34"),
        ({"image": "other"}, "the system image is other, the manifest says google/sdk_gphone64/34"),
        ({"apps": {"org.notes": 4}}, "the version of org.notes is 4, the manifest says 3"),
        ({"apps": {}}, "the version of org.notes is absent, the manifest says 3"),
        ({"apps": {"org.notes": 3, "org.more": 1}}, "the version of org.more is 1, the manifest says absent"),
        ({"colour": "white"}, "100% of the screen looks different"),
    ],
)
def test_each_difference_is_named(emulator: Played, change: dict[str, Any], said: str) -> None:
    one = snapshotter(emulator)
    one.save("base")
    for key, value in change.items():
        setattr(emulator, key, value)
    with pytest.raises(SnapshotMismatch) as caught:
        one.verify("base")
    assert said in caught.value.message
    assert "distrl snapshot-avd create pixel base" in caught.value.remedy


CORES = {"hw.cpu.ncore": "4", "hw.ramSize": "2G"}


def with_hardware(emulator: Played, **keys: str) -> Snapshotter:
    """The emulator after a start with these keys in its config.ini, and with an option."""
    write_ini(emulator.avd.directory / "config.ini", {**emulator.avd.config(), **CORES, **keys})
    options = ("-feature", "Vulkan,-GLDMA")
    return Snapshotter(emulator.avd, emulator, emulator, "host", "36.1.9.0", options)


def test_the_manifest_holds_what_the_emulator_compares(emulator: Played) -> None:
    with_hardware(emulator).save("base")
    info = get_snapshot(emulator.avd, "base")
    assert info.manifest is not None
    assert info.manifest.hardware == {"cores": 4, "MB of RAM": 2048, "feature flags": "-GLDMA,Vulkan"}
    with_hardware(emulator, **{"hw.ramSize": "2048M"}).load("base")  # the same, in other words


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"hw.cpu.ncore": "2"}, "cores: 4 when it was saved, 2 now"),
        ({"hw.ramSize": "1536"}, "MB of RAM: 2048 when it was saved, 1536 now"),
    ],
)
def test_a_snapshot_of_other_hardware_is_refused_with_the_reason(
    emulator: Played, keys: dict[str, str], said: str
) -> None:
    with_hardware(emulator).save("base")
    with pytest.raises(SnapshotFailed, match=said) as caught:
        with_hardware(emulator, **keys).load("base")
    assert "hw.cpu.ncore and hw.ramSize in" in caught.value.remedy
    with pytest.raises(SnapshotFailed, match="feature flags: -GLDMA,Vulkan when it was saved, none now"):
        snapshotter(emulator).load("base")
    assert "load base" not in emulator.did


def test_another_emulator_version_is_none_and_all_differences_come_at_once(emulator: Played) -> None:
    snapshotter(emulator).save("base")
    snapshotter(emulator, version="37").verify("base")
    with pytest.raises(SnapshotMismatch, match="the GPU mode is host, the manifest says swiftshader"):
        snapshotter(emulator, gpu="host").verify("base")
    emulator.level, emulator.image = "33", "other"
    with pytest.raises(SnapshotMismatch, match=r"API level .*; the system image"):
        snapshotter(emulator).verify("base")


def test_a_snapshot_of_other_making_is_listed_and_cannot_be_verified(emulator: Played) -> None:
    assert snapshots_of(emulator.avd) == []
    emulator.avd_snapshot_save("default_boot")
    with pytest.raises(SnapshotMismatch, match="has no manifest: it was not saved by this tool"):
        snapshotter(emulator).verify("default_boot")
    with pytest.raises(SnapshotMissing, match=r"no snapshot 'bsae'; it has: default_boot.*create pixel bsae"):
        get_snapshot(emulator.avd, "bsae")
    with (emulator.avd.snapshots / "default_boot" / "hole.bin").open("wb") as file:
        file.truncate(10**9)
    assert get_snapshot(emulator.avd, "default_boot").size_bytes < 10**6  # what it takes on disk
    delete_files(emulator.avd, "default_boot")
    assert snapshots_of(emulator.avd) == []
    with pytest.raises(SnapshotMissing):
        delete_files(emulator.avd, "default_boot")


@pytest.mark.parametrize("text", ["{", '{"avd": 3}'])
def test_a_broken_manifest_is_told_of_and_lists_all_the_same(emulator: Played, text: str) -> None:
    snapshotter(emulator).save("base")
    (emulator.avd.snapshots / "base" / snapshots.FILE).write_text(text)
    (info,) = snapshots_of(emulator.avd)
    assert info.manifest is None
    assert "cannot be used" in info.problem
    with pytest.raises(SnapshotMismatch, match="cannot be used"):
        snapshotter(emulator).verify("base")


def test_a_console_that_writes_elsewhere_is_noticed(emulator: Played) -> None:
    emulator.avd_snapshot_save = lambda name: None  # type: ignore[method-assign]
    with pytest.raises(SnapshotFailed, match="ANDROID_AVD_HOME"):
        snapshotter(emulator).save("base")
