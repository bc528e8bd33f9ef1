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
    """Simulated phones inside the process."""

    kind: Literal["sim"]
    count: Count = 1
    width: Side = 540
    height: Side = 1200


class RealMembers(Section):
    """Base of all that may be real devices.

    `recipe` resets and checks a device before an episode (fields of `distrl.workers.devices.recipes.Recipe`),
    `guard` keeps it from calls, messages and purchases (fields of `distrl.workers.devices.guard.GuardPolicy`;
    null: no guard; "physical": with all its rules on a physical phone, none on an emulator). Simulated phones
    need neither.
    """

    recipe: dict[str, Any] = {}
    guard: dict[str, Any] | Literal["physical"] | None = None


class DisplayMembers(RealMembers):
    """Base of devices that may have several displays, as foldable phones have.

    `display` is the display that screenshots are taken of, by its physical ID (`screencap -d`), and
    `input_display` the one that inputs go to, by its logical ID (`input -d`). Unless set, Android chooses.
    """

    display: Annotated[int, Field(ge=0, lt=2**64)] | None = None
    input_display: Annotated[int, Field(ge=0)] | None = None


class AdbMembers(DisplayMembers):
    """Devices that were started elsewhere, by serial; one with `*`, `?` or `[…]` stands for all that fit.

    They may come and go during the run. `snapshot` is an emulator's: episodes start from it, and it is
    loaded when nothing milder repairs the emulator.
    """

    kind: Literal["adb"]
    serials: Annotated[list[Pattern], Field(min_length=1)]
    guard: dict[str, Any] | Literal["physical"] | None = "physical"
    snapshot: Name | None = None


class AvdMembers(RealMembers):
    """`count` emulators of the virtual device `avd`, started and stopped by the process.

    `mode`: "writable-clone" gives each a clone of the AVD of its own, reset by loading `snapshot`;
    "read-only" lets all share the AVD, reset by a restart from it. `sdk` and `avd_home` are where the
    emulator's usual variables say, unless set. `options` are added to the emulator's command line.
    """

    kind: Literal["avd"]
    avd: Name
    count: Count = 1
    snapshot: Name | None = None
    mode: Literal["writable-clone", "read-only"] = "writable-clone"
    sdk: str | None = None
    avd_home: str | None = None
    options: list[str] = []
    boot_s: Positive = 180.0


class PhoneMembers(DisplayMembers):
    """Physical phones by serial. They have no snapshots: the recipe resets them, and the guard is on.

    `reboot`: whether a phone that nothing milder repairs may be restarted.
    """

    kind: Literal["phone"]
    serials: Annotated[list[Serial], Field(min_length=1)]
    guard: dict[str, Any] | Literal["physical"] | None = {}
    reboot: bool = False


Members = Annotated[SimMembers | AdbMembers | AvdMembers | PhoneMembers, Field(discriminator="kind")]


class HealthConfig(Section):
    """How devices are watched.

    An idle device is probed every `probe_every_s`. With `max_faults` faults within `fault_window_s` a
    device rests; a rest takes `pause_s`, then twice as long each time, up to `max_pause_s`. A device that
    joined by a pattern and is away for `forget_after_s` is forgotten. The newest `postmortems` are kept,
    `postmortem_bytes` in all.
    """

    probe_every_s: Positive = 10.0
    probe_timeout_s: Positive = 5.0
    max_faults: Count = 3
    fault_window_s: Positive = 600.0
    pause_s: Positive = 10.0
    max_pause_s: Positive = 300.0
    forget_after_s: Positive = 600.0
    postmortems: Count = 100
    postmortem_bytes: Count = 256 * 2**20


class DevicesConfig(Section):
    """The pool of devices; while `pool` is empty each slot makes a device of its own, as `env` says.

    `adb_server_port` is, unless set, the variable ANDROID_ADB_SERVER_PORT, else 5037.
    """

    adb_server_port: Port | None = None
    pool: list[Members] = []
    health: HealthConfig = HealthConfig()

    @model_validator(mode="after")
    def _a_device_is_named_once(self) -> DevicesConfig:
        seen: set[str] = set()
        for members in self.pool:
            if isinstance(members, AdbMembers | PhoneMembers):
                for serial in members.serials:
                    if serial in seen:
                        raise ValueError(f"the pool names {serial!r} twice; name it once")
                    seen.add(serial)
        avds = [members.avd for members in self.pool if isinstance(members, AvdMembers)]
        if len(set(avds)) < len(avds):
            raise ValueError("the pool names an AVD twice; name it once, with its count")
        return self

    @property
    def num_named(self) -> int:
        """How many devices there are at least; a pattern stands for one."""
        counted = [
            members.count if isinstance(members, SimMembers | AvdMembers) else len(members.serials)
            for members in self.pool
        ]
        return sum(counted)

    @property
    def close_s(self) -> float:
        """How long the pool may take to end: it may have emulators, or an adb server, to stop."""
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
            raise ConfigError(f"{PORT_VARIABLE} is {text!r}, no port.", "Give a number from 1 to 65535.")
        return int(text)
