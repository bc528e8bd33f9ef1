"""Where a command about virtual devices works: the SDK, the AVDs, the adb server, as its options say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from distrl.cli.avd.steps import Steps
from distrl.configs.devices import DevicesConfig
from distrl.core.errors import ConfigError
from distrl.workers.devices.adb_server import AdbServer
from distrl.workers.devices.avd import AvdStore
from distrl.workers.devices.emulator import EmulatorOptions, Session
from distrl.workers.devices.sdk import Sdk, find_sdk


@dataclass(frozen=True)
class Place:
    """The options that all verbs with an emulator take.

    Attributes:
        sdk_dir, avd_home: As the options --sdk and --avd-home; None for what the environment says.
        adb_port: The adb server's port; None for what the environment says.
        port: The console port of an emulator that is started; None for a free one.
        boot_s: Longest time for a boot; None for the usual.
    """

    sdk_dir: Path | None = None
    avd_home: Path | None = None
    adb_port: int | None = None
    port: int | None = None
    boot_s: float | None = None

    @property
    def store(self) -> AvdStore:
        """The AVDs."""
        if self.avd_home is not None and not self.avd_home.is_dir():
            raise ConfigError(
                f"--avd-home {self.avd_home} is not a directory.", "Pass the one with the .ini files."
            )
        return AvdStore(self.avd_home)

    @property
    def sdk(self) -> Sdk:
        """The SDK."""
        return find_sdk(self.sdk_dir)

    @property
    def server(self) -> AdbServer:
        """The adb server."""
        return AdbServer(port=self.adb_port or DevicesConfig().server_port())

    def session(self, avd: str, options: EmulatorOptions, steps: Steps, *, must_run: bool = False) -> Session:
        """An emulator to work with, as `Session`."""
        return Session(
            self.sdk,
            self.store.get(avd),
            options,
            self.server,
            console_port=self.port,
            boot_s=self.boot_s,
            must_run=must_run,
            note=steps.begin,
        )
