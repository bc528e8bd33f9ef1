"""The package adb-shell, which speaks with the phone itself: no adb server, old protocol, checksums."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
import sim_phones
from waiting import until

adb_device = pytest.importorskip("adb_shell.adb_device", reason="needs adb_shell: not installed")
exceptions = pytest.importorskip("adb_shell.exceptions", reason="needs adb_shell: not installed")

TMP = "/data/local/tmp"


@pytest.fixture(scope="module")
def device() -> Iterator[adb_device.AdbDeviceTcp]:
    """The phone."""
    with sim_phones.phones() as (phone,):
        client = adb_device.AdbDeviceTcp("127.0.0.1", phone.adb_port, default_transport_timeout_s=30)
        assert client.connect()
        yield client
        client.close()


def test_shell_and_exec(device: adb_device.AdbDeviceTcp) -> None:
    assert device.shell("echo hi; echo err >&2") == "hi\nerr\n"
    assert device.exec_out("echo hi", decode=False) == b"hi\n"
    assert list(device.streaming_shell("echo one; echo two")) != []


def test_a_screenshot(device: adb_device.AdbDeviceTcp) -> None:
    assert device.exec_out("screencap -p", decode=False).startswith(b"\x89PNG\r\n")


def test_files(device: adb_device.AdbDeviceTcp) -> None:
    data, back = bytes(range(256)) * 3000, io.BytesIO()
    device.push(io.BytesIO(data), f"{TMP}/f", mtime=1_234_567_890)
    assert device.stat(f"{TMP}/f")[1:] == (len(data), 1_234_567_890)
    device.pull(f"{TMP}/f", back)
    assert back.getvalue() == data
    assert b"f" in [bytes(entry.filename) for entry in device.list(TMP)]
    with pytest.raises(exceptions.AdbCommandFailureException, match="No such file"):
        device.pull("/nowhere", io.BytesIO())


def test_root_and_reboot(device: adb_device.AdbDeviceTcp) -> None:
    device.root()
    device.close()
    assert device.connect()
    assert device.shell("id -u") == "0\n"
    device.shell("setprop debug.volatile 1")
    device.reboot()
    until(lambda: says(device, "getprop debug.volatile") == "\n", "the phone after its reboot")
    assert device.shell("getprop sys.boot_completed") == "1\n"


def says(device: adb_device.AdbDeviceTcp, command: str) -> str:
    """What the phone says on a new connection; nothing while there is none."""
    device.close()
    try:
        device.connect()
        return str(device.shell(command, transport_timeout_s=1, read_timeout_s=1))
    except (OSError, exceptions.TcpTimeoutException, exceptions.AdbTimeoutError):
        return ""
