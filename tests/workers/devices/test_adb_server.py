"""The adb server: listing, following, connecting; starting our own and leaving others alone."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import adb_programs
import pytest
from adb_server_fake import FakeDevice, fake_server
from emulator_programs import program

from distrl.workers.devices import adb_server
from distrl.workers.devices.adb import AdbClient
from distrl.workers.devices.adb_server import AdbServer
from distrl.workers.devices.errors import (
    DeviceError,
    DeviceNotFound,
    DeviceUnauthorized,
    OutputInvalid,
    ServerUnavailable,
)

NEEDS_ADB = pytest.mark.skipif(
    shutil.which("adb") is None and find_spec("adbutils") is None,
    reason="needs adb, or adbutils which has it",
)


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
    return port


@pytest.fixture
def own(free_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdbServer]:
    """A server object that no emulator on this machine is found by."""
    monkeypatch.setenv("ADB_LOCAL_TRANSPORT_MAX_PORT", "5554")
    server = AdbServer(port=free_port)
    yield server
    adb_programs.kill(free_port)


def test_following_the_devices_tells_each_change() -> None:
    stop = threading.Event()
    with fake_server(a=FakeDevice()) as fake:
        seen = AdbServer(port=fake.port).track(stop)
        assert next(seen) == {"a": "device"}
        new = FakeDevice("no permissions (missing udev rules?); see [http://developer.android.com]")
        fake.change(lambda devices: devices.update({"10.0.0.1:5555": new}))
        assert next(seen) == {"a": "device", "10.0.0.1:5555": "no permissions"}
        fake.change(lambda devices: devices.clear())
        assert next(seen) == {}
        stop.set()
        assert list(seen) == []


def test_following_survives_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, starts = threading.Event(), 0
    with fake_server(a=FakeDevice()) as fake:
        server = AdbServer(port=fake.port)

        def start() -> None:
            nonlocal starts
            starts += 1
            if starts in (2, 3):
                raise ServerUnavailable("the port is in use.")

        monkeypatch.setattr(server, "ensure_running", start)
        monkeypatch.setattr(adb_server, "_AGAIN_S", 0.01)
        seen = server.track(stop)
        assert next(seen) == {"a": "device"}
        fake.hang_up()
        assert next(seen) is None  # it is gone, and so is what is known of the devices
        assert next(seen) == {"a": "device"}
        assert starts == 4
    assert next(seen) is None
    threading.Timer(0.1, stop.set).start()  # while it tries to connect again and again
    assert list(seen) == []


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("connected to h:1", None),
        ("already connected to h:1", None),
        ("failed to connect to h:1", DeviceNotFound),
        ("cannot connect to h:1: Connection refused", DeviceNotFound),
        ("failed to authenticate to h:1", DeviceUnauthorized),
        ("", DeviceNotFound),
    ],
)
def test_connecting_believes_the_text_and_not_the_okay(
    said: str, error: type[DeviceError] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = AdbServer()
    monkeypatch.setattr(server, "ask", lambda request, timeout_s: said)
    if error is None:
        server.connect("h:1")
    else:
        with pytest.raises(error, match="h:1"):
            server.connect("h:1")


@NEEDS_ADB
def test_a_missing_server_is_started_once_and_then_used(own: AdbServer) -> None:
    with ThreadPoolExecutor(8) as executor:
        for done in [executor.submit(own.ensure_running) for _ in range(8)]:
            done.result(60.0)
    assert (own.version(), own.devices()) == (41, {})
    with pytest.raises(DeviceNotFound):
        AdbClient("emulator-5554", own.port).state()
    with pytest.raises(DeviceError, match=r"no connection to 127\.0\.0\.1:1"):
        own.connect("127.0.0.1:1")


def test_another_program_at_the_port_is_not_fought(free_port: int) -> None:
    def greet(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        with sock:
            sock.sendall(b"220 mail.example ESMTP\r\n")
            sock.recv(100)

    with socket.create_server(("127.0.0.1", free_port)) as listener:
        thread = threading.Thread(target=greet, args=(listener,), daemon=True)
        thread.start()
        with pytest.raises(OutputInvalid, match="another program"):
            AdbServer(port=free_port).ensure_running()
        thread.join(10)


@pytest.mark.parametrize(
    ("script", "why"), [("echo cannot bind; exit 1", "cannot bind"), ("exec sleep 60", "timed out")]
)
def test_a_server_that_does_not_come_up_is_explained(
    script: str, why: str, free_port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = program(tmp_path / "adb", script)
    monkeypatch.setattr("distrl.workers.devices.adb_server.adb_path", lambda: str(path))
    with pytest.raises(ServerUnavailable, match=why):
        AdbServer(port=free_port).ensure_running(1.0)
