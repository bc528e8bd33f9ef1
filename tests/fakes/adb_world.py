"""One simulated phone behind a real adb server of our own, for whole test modules."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import adb_programs
import pytest
import sim_phones

from distrl.workers.devices.adb import AdbClient
from distrl.workers.devices.adb_device import EmulatorDevice
from distrl.workers.devices.console import Console


@dataclass(frozen=True)
class AdbWorld:
    """The phone and the way to it."""

    client: AdbClient
    console: Console

    def device(self) -> EmulatorDevice:
        """The phone as a device."""
        return EmulatorDevice(self.client, self.console)


@contextlib.contextmanager
def adb_world(home: Path, width: int, height: int) -> Iterator[AdbWorld]:
    """A phone; skips where there is no adb program."""
    program = adb_programs.bundled() or adb_programs.debian()
    if program is None:
        pytest.skip("needs adb, or the package adbutils, which brings one")
    with (
        adb_programs.server(program, home) as port,
        sim_phones.phones(1, port, width, height) as (phone,),
    ):
        client = AdbClient(phone.serial, port)
        client.wait_ready(60.0)
        yield AdbWorld(client, Console(phone.console_port))
