"""Snapshots on disk and their manifests; tests/cli/test_snapshot_avd.py saves and loads them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from distrl.simulator.emulator.sdk import make_avd
from distrl.workers.devices import snapshots
from distrl.workers.devices.avd import Avd, AvdStore, write_ini
from distrl.workers.devices.errors import SnapshotFailed, SnapshotMismatch, SnapshotMissing
from distrl.workers.devices.snapshots import (
    Manifest,
    Snapshotter,
    delete_files,
    get_snapshot,
    hardware_of,
    require_same_hardware,
    snapshots_of,
    write_manifest,
)

MANIFEST = Manifest(1.0, 34, "google/34", "host", "36", {"org.notes": 3}, 420, 108, 240)


@pytest.fixture
def avd(store: AvdStore) -> Avd:
    made = make_avd(store, "pixel")
    (made.snapshots / "base").mkdir(parents=True)
    return made


class Look(Snapshotter):
    """Of a device that is as the manifest in its field `gpu` says."""

    def _look(self) -> Manifest:
        return self.gpu  # type: ignore[return-value]


class Console:
    def snapshot(self, verb: str, name: str) -> None:
        """The folder is there."""


def look(avd: Avd, shows: Manifest) -> Look:
    return Look(avd, Console(), None, shows, "36")  # type: ignore[arg-type]


def test_a_saved_snapshot_has_its_manifest(avd: Avd) -> None:
    assert look(avd, MANIFEST).save("base") == MANIFEST
    assert get_snapshot(avd, "base").manifest == MANIFEST
    with pytest.raises(SnapshotFailed, match="ANDROID_AVD_HOME"):  # the console writes elsewhere
        look(avd, MANIFEST).save("other")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"api_level": 33, "image": "x"}, "the API level is 33, the manifest says 34; the system image is x"),
        ({"gpu": "off"}, "the GPU mode is off, the manifest says host"),
        ({"apps": {"org.notes": 4}}, "the version of org.notes is 4, the manifest says 3"),
        ({"apps": {}}, "the version of org.notes is absent, the manifest says 3"),
        ({"apps": {"org.notes": 3, "org.more": 1}}, "the version of org.more is 1, the manifest says absent"),
        ({"width": 1080}, "the screen is 1080x240 at 420 dpi, the manifest says 108x240"),
    ],
)
def test_each_difference_is_named(avd: Avd, change: dict[str, Any], said: str) -> None:
    write_manifest(MANIFEST, avd.snapshots / "base")
    look(avd, replace(MANIFEST, emulator="37")).verify("base")  # of no importance
    with pytest.raises(SnapshotMismatch) as caught:
        look(avd, replace(MANIFEST, **change)).verify("base")
    assert said in caught.value.message
    assert "distrl snapshot-avd create pixel base" in caught.value.remedy


CONFIG = {"hw.cpu.ncore": "4", "hw.ramSize": "2G"}
OPTIONS = ("-feature", "Vulkan,-GLDMA")


@pytest.mark.parametrize(
    ("keys", "options", "said"),
    [
        ({"hw.ramSize": "2048M"}, OPTIONS, ""),  # the same, in other words
        ({"hw.cpu.ncore": "2"}, OPTIONS, "cores: 4 when it was saved, 2 now"),
        ({"hw.ramSize": "1536"}, OPTIONS, "MB of RAM: 2048 when it was saved, 1536 now"),
        ({}, ("-cores", "8", *OPTIONS), "cores: 4 when it was saved, 8 now"),
        ({}, (), "feature flags: -GLDMA,Vulkan when it was saved, none now"),
    ],
)
def test_a_snapshot_of_other_hardware_is_refused_with_the_reason(
    avd: Avd, keys: dict[str, str], options: tuple[str, ...], said: str
) -> None:
    hardware = hardware_of(CONFIG, OPTIONS)
    assert hardware == {"cores": 4, "MB of RAM": 2048, "feature flags": "-GLDMA,Vulkan"}
    write_manifest(replace(MANIFEST, hardware=hardware), avd.snapshots / "base")
    write_ini(avd.directory / "config.ini", {**CONFIG, **keys})
    if not said:
        require_same_hardware(avd, "base", options)
        return
    with pytest.raises(SnapshotFailed, match=said) as caught:
        require_same_hardware(avd, "base", options)
    assert "hw.cpu.ncore and hw.ramSize in" in caught.value.remedy


def test_a_snapshot_of_other_making_is_listed_and_cannot_be_verified(avd: Avd) -> None:
    with pytest.raises(SnapshotMismatch, match="has no manifest: it was not saved by this tool"):
        look(avd, MANIFEST).verify("base")
    with pytest.raises(SnapshotMissing, match=r"no snapshot 'bsae'; it has: base.*create pixel bsae"):
        get_snapshot(avd, "bsae")
    with (avd.snapshots / "base" / "hole.bin").open("wb") as file:
        file.truncate(10**9)
    assert get_snapshot(avd, "base").size_bytes < 10**6  # what it takes on disk
    (avd.snapshots / "base" / snapshots.FILE).write_text('{"gpu": 3}')
    (info,) = snapshots_of(avd)
    assert (info.manifest, "cannot be used" in info.problem) == (None, True)
    with pytest.raises(SnapshotMismatch, match="cannot be used"):
        look(avd, MANIFEST).verify("base")
    delete_files(avd, "base")
    assert snapshots_of(avd) == []
