"""The Android system as a whole: snapshots, reboots, power, and what follows what is on the screen."""

from __future__ import annotations

import pytest

from distrl.core.errors import EnvError
from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.files import ROOT, SHELL


def _use(system: AndroidSystem) -> None:
    """Leaves traces everywhere."""
    system.device.tap(270, 1100)
    system.activities.open("settings", ["section", "display"])
    system.files.write("/sdcard/Download/a.bin", bytes(range(256)), mtime=5)
    system.files.mkdir("/data/local/tmp/d", 0o700)
    system.files.symlink("/sdcard", "/data/local/tmp/l")
    system.properties["debug.x"] = "1"
    system.settings.put("global", "window_animation_scale", "0")
    system.settings.put("global", "wifi_on", "0")
    system.packages.update("org.simphone.weather", granted=frozenset())
    system.log.write("I", "tag", "a message")
    system.files.uid = ROOT
    system.power(False)


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\x80", b"\x81\xa6format\x63"])
def test_what_is_no_snapshot_is_refused(system: AndroidSystem, data: bytes) -> None:
    before = system.dump()
    with pytest.raises(EnvError, match="snapshot"):
        system.load(data)
    assert system.dump() == before


def test_names_that_are_not_text_survive_a_snapshot(system: AndroidSystem) -> None:
    system.files.write("/sdcard/\udcff", b"x")
    saved = system.dump()
    system.files.remove("/sdcard/\udcff")
    system.load(saved)
    assert system.files.read("/sdcard/\udcff") == b"x"


def test_a_reboot_keeps_what_android_keeps(system: AndroidSystem) -> None:
    _use(system)
    system.state["fields"]["notes.text"] = "unsaved"
    system.properties["persist.sys.timezone"] = "Asia/Tokyo"
    boot_id = system.boot_id
    system.reboot()
    assert system.device.foreground() == "launcher"
    assert system.screen_on
    assert system.state["stacks"]["settings"] == [["root"]]
    assert system.state["fields"] == {}
    assert system.state["apps"]["settings"]["wifi"] is False
    assert "debug.x" not in system.properties
    assert system.properties["persist.sys.timezone"] == "Asia/Tokyo"
    assert system.properties["sys.boot_completed"] == "1"
    assert system.files.read("/sdcard/Download/a.bin") == bytes(range(256))
    assert system.settings.get("global", "window_animation_scale") == "0"
    assert system.settings.get("global", "boot_count") == "2"
    assert [task.package.name for task in system.activities.tasks()] == ["org.simphone.launcher"]
    assert system.files.uid == SHELL  # adbd is root only until then
    assert system.boot_id != boot_id
    assert "a message" not in [entry.message for entry in system.log.entries()]


def test_apps_that_are_opened_by_hand_get_tasks_and_processes(system: AndroidSystem) -> None:
    """Whoever opens an app, by a tap or by adb, the book-keeping follows the screen."""
    from distrl.simulator.phone.nodes import find

    icon = find(system.device.phone.tree(), "app_settings")
    assert icon is not None
    scale = 540 / 360
    system.device.tap(round((icon.x + icon.w / 2) * scale), round((icon.y + icon.h / 2) * scale))
    assert system.activities.front.package.name == "org.simphone.settings"
    first = system.activities.front
    assert system.processes.find("org.simphone.settings") is not None
    system.device.phone.home()
    assert system.activities.front.package.home
    assert [task.package.name for task in system.activities.tasks()][1] == "org.simphone.settings"
    system.activities.open("settings")
    assert system.activities.front == first
