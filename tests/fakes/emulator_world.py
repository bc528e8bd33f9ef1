"""Stand-in emulators behind a real adb server of our own: SDK, AVDs, state and home of a test module."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import adb_programs
import pytest
import sim_phones

from distrl.simulator.emulator.sdk import SimSdk, make_avd, make_sdk
from distrl.workers.devices.adb import AdbClient
from distrl.workers.devices.avd import Avd
from distrl.workers.devices.claims import claim_ports
from distrl.workers.devices.emulator import EmulatorOptions, EmulatorProcess
from distrl.workers.devices.processes import Registry
from distrl.workers.devices.sdk import find_sdk

WIDTH, HEIGHT = 270, 600
CONFIG = {"sim.lock_s": "0.1", "sim.boot_s": "0"}


@dataclass(frozen=True)
class EmulatorWorld:
    """The SDK and the adb server; the environment names both."""

    sdk: SimSdk
    adb_port: int

    def avd(self, name: str, fault: str = "") -> Avd:
        """A new AVD."""
        config = CONFIG | ({"sim.fault": fault} if fault else {})
        return make_avd(self.sdk.store, name, WIDTH, HEIGHT, config=config)

    @contextlib.contextmanager
    def running(self, avd: Avd, *, in_use: bool = False, is_booted: bool = True) -> Iterator[EmulatorProcess]:
        """An emulator that runs from it, as if a user had started it, or another process of ours."""
        ports = claim_ports(sim_phones.free_pair())
        process = EmulatorProcess(find_sdk(), avd, ports, EmulatorOptions(), adb_server_port=self.adb_port)
        try:
            process.start()
            client = AdbClient(ports.serial, self.adb_port)
            process.wait_booted(client) if is_booted else client.wait_ready(20.0)
            if in_use:
                _pretend_owner(os.getppid())
            yield process
        finally:
            process.stop()
            ports.release()


def _pretend_owner(pid: int) -> None:
    """Makes another living process the owner of all entries."""
    from dataclasses import asdict

    from distrl.workers.devices.processes import key_of

    key = key_of(pid)
    assert key is not None
    for path in Registry().directory.glob("*.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"owner": asdict(key)}))


@contextlib.contextmanager
def emulator_world(folder: Path) -> Iterator[EmulatorWorld]:
    """The world; skips where there is no adb program. At the end nothing may be left running."""
    program = adb_programs.bundled() or adb_programs.debian()
    if program is None:
        pytest.skip("needs adb, or the package adbutils, which brings one")
    environ = {"HOME": "home", "XDG_RUNTIME_DIR": "run", "DISTRL_STATE_DIR": "state"}
    for name in environ.values():
        (folder / name).mkdir()
    sdk = make_sdk(folder / "sdk")
    paths = {variable: str(folder / name) for variable, name in environ.items()}
    with adb_programs.server(program, folder / "home") as port:
        variables = {**paths, **sdk.environ, "ANDROID_ADB_SERVER_PORT": str(port)}
        with mock.patch.dict(os.environ, variables):
            yield EmulatorWorld(sdk, port)
            assert [entry.what for entry in Registry().entries() if entry.is_running] == []
