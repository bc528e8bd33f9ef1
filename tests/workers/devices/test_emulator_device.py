"""An emulator as a device: its console by its serial, snapshots, and the wait until it answers again."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from adb_console_fake import fake_console
from adb_server_fake import FakeDevice, Peer, fake_server, runs

from distrl.workers.devices.adb import AdbClient
from distrl.workers.devices.adb_device import EmulatorDevice, console_port
from distrl.workers.devices.console import Console
from distrl.workers.devices.device import Device
from distrl.workers.devices.errors import EmulatorExited, ServiceRejected, SnapshotMissing


def test_the_console_is_at_the_port_in_the_serial() -> None:
    assert EmulatorDevice(AdbClient("emulator-5580")).console.port == 5580
    assert console_port("emulator-5554") == 5554
    for serial in ("R58M", "192.168.0.9:5555", "emulator-", "emulator-55x"):
        with pytest.raises(ServiceRejected, match="not the serial of an emulator"):
            EmulatorDevice(AdbClient(serial))


def test_states_are_snapshots_and_loading_waits_for_the_device(tmp_path: Path) -> None:
    """After a load the old connection is silent; the device answers once it has been reconnected."""
    token = tmp_path / "token"
    token.write_text("secret")
    fake = FakeDevice()

    def respond(line: str) -> bytes:
        if "load" in line:
            fake.serve = silent_until_reconnected
        return b"OK\r\n"

    def silent_until_reconnected(service: str, peer: Peer) -> None:
        if fake.reconnects:
            runs(lambda command: "")(service, peer)
        else:
            peer.hang()

    with fake_server(emulator=fake) as server, fake_console(respond) as console:
        device: Device = EmulatorDevice(AdbClient("emulator", server.port), Console(console.port, token))
        device.save_state("start")
        device.load_state("start")
        assert fake.reconnects >= 1
        assert fake.asked[-1] == "shell,v2,raw:true"
    assert console.commands == ["avd snapshot save start", "avd snapshot load start"]


def test_an_emulator_that_dies_after_the_load_is_not_waited_for() -> None:
    """adb may go on listing it, and stay silent, for longer than anybody should wait."""
    fake = FakeDevice(serve=lambda service, peer: peer.hang())

    def respond(line: str) -> bytes:
        dies.set()
        return b"OK\r\n"

    dies = threading.Event()
    with fake_server(emulator=fake) as server, fake_console(respond, token="") as console:
        device = EmulatorDevice(AdbClient("emulator", server.port), Console(console.port))
        killer = threading.Thread(target=lambda: (dies.wait(), console.stop_listening()))
        killer.start()
        with pytest.raises(EmulatorExited, match="nothing listens at its console port"):
            device.load_state("start")
        killer.join()


def test_a_missing_snapshot_is_said_so(tmp_path: Path) -> None:
    def respond(line: str) -> bytes:
        return b"There is no snapshot available.\r\nOK\r\n" if "list" in line else b"KO: bad\r\n"

    with fake_server() as server, fake_console(respond, token="") as console:
        device = EmulatorDevice(AdbClient("emulator", server.port), Console(console.port))
        with pytest.raises(SnapshotMissing, match="no snapshot 'start'"):
            device.load_state("start")
