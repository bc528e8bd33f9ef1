"""The package adbutils with a simulated phone."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from client_world import World

adbutils = pytest.importorskip("adbutils", reason="needs adbutils: not installed")

TMP = "/data/local/tmp"


@pytest.fixture
def device(any_world: World, monkeypatch: pytest.MonkeyPatch) -> adbutils.AdbDevice:
    """The phone."""
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(any_world.server_port))
    client = adbutils.AdbClient(host="127.0.0.1", port=any_world.server_port)
    return client.device(any_world.phone.serial)


def test_shells_of_both_versions(device: adbutils.AdbDevice) -> None:
    assert device.shell("echo hi") == "hi"
    first = device.shell2("echo out; false")
    assert (first.returncode, first.output) == (1, "out\n")
    second = device.shell2("echo out; echo err >&2; exit 3", v2=True)
    assert (second.returncode, second.stdout, second.stderr) == (3, "out\n", "err\n")


def test_what_it_reads_from_the_phone(device: adbutils.AdbDevice, any_world: World) -> None:
    assert device.get_state() == "device"
    assert "shell_v2" in device.get_features()
    assert tuple(device.window_size()) == (any_world.phone.width, any_world.phone.height)
    assert device.getprop("ro.build.version.sdk") == "34"
    assert device.is_screen_on()
    assert device.rotation() == 0
    assert "<hierarchy" in device.dump_hierarchy()
    assert device.app_current().package
    assert device.list_packages()


def test_pictures_by_png_and_by_framebuffer(device: adbutils.AdbDevice) -> None:
    by_png = device.screenshot(error_ok=False)
    assert by_png.convert("RGB").tobytes() == device.framebuffer().convert("RGB").tobytes()


def test_files(device: adbutils.AdbDevice, tmp_path: Path) -> None:
    data = bytes(range(256)) * 1000
    assert device.sync.push(io.BytesIO(data), f"{TMP}/f", check=True) == len(data)
    assert device.sync.read_bytes(f"{TMP}/f") == data
    assert device.sync.stat(f"{TMP}/f").size == len(data)
    assert "f" in [entry.path for entry in device.sync.list(TMP)]
    device.sync.pull(f"{TMP}/f", str(tmp_path / "f"))
    assert (tmp_path / "f").read_bytes() == data
    assert not device.sync.exists("/nowhere")


def test_ports(device: adbutils.AdbDevice) -> None:
    device.reverse("tcp:6101", "tcp:7101")
    assert [(item.remote, item.local) for item in device.reverse_list()] == [("tcp:6101", "tcp:7101")]
    with pytest.raises(adbutils.AdbError):
        device.create_connection(adbutils.Network.TCP, 6199)


def test_inputs(device: adbutils.AdbDevice, any_world: World) -> None:
    before = device.screenshot().tobytes()
    device.swipe(270, 900, 270, 300, 0.2)
    after = device.screenshot().tobytes()
    device.keyevent("HOME")
    assert before != after
    assert device.screenshot().tobytes() != after
