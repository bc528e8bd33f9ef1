"""The section `devices`: a pool of devices, each leased for an episode, and how it is kept healthy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from distrl.configs.section import Count, Positive, Section
from distrl.core.errors import ConfigError

PORT_VARIABLE = "ANDROID_ADB_SERVER_PORT"
DEFAULT_PORT = 5037

Port = Annotated[int, Field(ge=1, le=65535)]
Side = Annotated[int, Field(ge=64, le=4320)]
Serial = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*$")]
Pattern = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.:_*?\[\]!-]+$")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class SimMembers(Section):
    """Simulated phones inside the process. `count` is their number, `width` and `height` the size of their
    screens in pixels.
    """

    kind: Literal["sim"]
    count: Count = 1
    width: Side = 540
    height: Side = 1200


class RealMembers(Section):
    """Common keys of devices that may be real. Simulated phones need none of them.

    `recipe` resets and checks a device before an episode (fields of
    `distrl.workers.devices.recipes.Recipe`). `guard` blocks calls, messages and purchases (fields of
    `distrl.workers.devices.guard.GuardPolicy`); "physical" means all rules on a physical phone and none on
    an emulator.
    """

    recipe: dict[str, Any] = {}
    guard: dict[str, Any] | Literal["physical"] | None = None


class DisplayMembers(RealMembers):
    """Common keys of devices that may have several displays, such as foldable phones.

    `display` is the physical ID of the display for screenshots (`screencap -d`), and `input_display` the
    logical ID of that for inputs (`input -d`); null means Android's choice.
    """

    display: Annotated[int, Field(ge=0, lt=2**64)] | None = None
    input_display: Annotated[int, Field(ge=0)] | None = None


class AdbMembers(DisplayMembers):
    """Devices that are started elsewhere, and that may come and go during the run.

    `serials` lists serials, or patterns with `*`, `?` or `[…]` for all devices that match. `snapshot` is a
    snapshot of an emulator from which episodes start, and which is loaded when milder repairs fail.
    """

    kind: Literal["adb"]
    serials: Annotated[list[Pattern], Field(min_length=1)]
    guard: dict[str, Any] | Literal["physical"] | None = "physical"
    snapshot: Name | None = None


class AvdMembers(RealMembers):
    """Emulators of one virtual device, which the process starts and stops.

    `avd` is the name of the virtual device, and `count` the number of emulators, each with its own clone of
    the AVD. `snapshot` is the snapshot from which episodes start; null means a cold boot. `sdk` is the
    directory of the Android SDK, by default that of ANDROID_HOME, ANDROID_SDK_ROOT or the emulator on the
    PATH. `avd_home` is the directory of the AVDs, by default that of the emulator's environment variables.
    `options` are added to the emulator's command line. `boot_s` is the longest time of a boot or a start from
    the snapshot, in seconds.
    """

    kind: Literal["avd"]
    avd: Name
    count: Count = 1
    snapshot: Name | None = None
    sdk: str | None = None
    avd_home: str | None = None
    options: list[str] = []
    boot_s: Positive = 180.0


class PhoneMembers(DisplayMembers):
    """Physical phones. They have no snapshots: the recipe resets them, and by default the guard has all its
    rules.

    `serials` lists the serials of the phones. `reboot` allows restarting a phone when milder repairs fail.
    """

    kind: Literal["phone"]
    serials: Annotated[list[Serial], Field(min_length=1)]
    guard: dict[str, Any] | Literal["physical"] | None = {}
    reboot: bool = False


Members = Annotated[SimMembers | AdbMembers | AvdMembers | PhoneMembers, Field(discriminator="kind")]


class DevicesConfig(Section):
    """The pool of devices.

    `adb_server_port` is the port of the adb server, by default ANDROID_ADB_SERVER_PORT, else 5037. `pool`
    lists the devices; while it is empty, each slot makes a device of its own from the section `env`.
    """

    adb_server_port: Port | None = None
    pool: list[Members] = []

    @model_validator(mode="after")
    def _a_device_is_named_once(self) -> DevicesConfig:
        seen: set[str] = set()
        for members in self.pool:
            if isinstance(members, AdbMembers | PhoneMembers):
                for serial in members.serials:
                    if serial in seen:
                        raise ValueError(f"the serial {serial!r} is listed twice; list it once")
                    seen.add(serial)
        avds = [members.avd for members in self.pool if isinstance(members, AvdMembers)]
        if len(set(avds)) < len(avds):
            raise ValueError("an AVD is listed twice; list it once and set its count")
        return self

    @property
    def num_named(self) -> int:
        """The least number of devices; a pattern counts as one."""
        counted = [
            members.count if isinstance(members, SimMembers | AvdMembers) else len(members.serials)
            for members in self.pool
        ]
        return sum(counted)

    @property
    def close_s(self) -> float:
        """The time limit for closing the pool, which may have to stop emulators or an adb server."""
        if any(isinstance(members, AvdMembers) for members in self.pool):
            return 15.0
        return 5.0 if any(not isinstance(members, SimMembers) for members in self.pool) else 1.0

    def server_port(self, environment: Mapping[str, str] = os.environ) -> int:
        """The adb server's port.

        Raises:
            ConfigError: The environment variable is not a port.
        """
        if self.adb_server_port is not None:
            return self.adb_server_port
        text = environment.get(PORT_VARIABLE, "") or str(DEFAULT_PORT)
        if not text.isdecimal() or not 1 <= int(text) <= 65535:
            raise ConfigError(
                f"{PORT_VARIABLE}={text!r} is not a valid port.", "Set it to a number from 1 to 65535."
            )
        return int(text)
