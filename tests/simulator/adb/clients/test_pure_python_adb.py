"""The package pure-python-adb with a simulated phone."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from client_world import World
from PIL import Image

ppadb = pytest.importorskip("ppadb.client", reason="needs ppadb: not installed")
device_module = pytest.importorskip("ppadb.device", reason="needs ppadb: not installed")

TMP = "/data/local/tmp"


@pytest.fixture
def device(any_world: World) -> device_module.Device:
    """The phone."""
    found = ppadb.Client("127.0.0.1", any_world.server_port).device(any_world.phone.serial)
    assert found is not None
    return found


def test_shell_and_properties(device: device_module.Device) -> None:
    assert device.shell("echo hi") == "hi\n"
    assert device.get_properties()["ro.build.version.sdk"] == "34"
    assert device.get_state() == "device"


def test_the_screen(device: device_module.Device, any_world: World) -> None:
    size = device.wm_size()
    assert (size.width, size.height) == (any_world.phone.width, any_world.phone.height)
    assert device.wm_density() == round(any_world.phone.width * 160 / 360) // 160  # it gives the factor
    assert Image.open(io.BytesIO(bytes(device.screencap()))).size == (size.width, size.height)


def test_inputs_change_the_screen(device: device_module.Device) -> None:
    before = bytes(device.screencap())
    device.input_swipe(270, 900, 270, 300, 200)
    assert bytes(device.screencap()) != before
    device.input_keyevent("KEYCODE_HOME")
    device.input_tap(270, 600)


def test_files(device: device_module.Device, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(range(256)) * 1000)
    device.push(str(tmp_path / "f"), f"{TMP}/f")
    device.pull(f"{TMP}/f", str(tmp_path / "g"))
    assert (tmp_path / "g").read_bytes() == (tmp_path / "f").read_bytes()


def test_packages(device: device_module.Device) -> None:
    packages = device.list_packages()
    assert packages
    assert device.is_installed(packages[0])
    assert not device.is_installed("org.nowhere")
