"""The options of the AndroidWorld environment: the emulators, and how long the package may take."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from distrl.core.errors import ConfigError, MissingDependency
from distrl.core.fields import first_problem

FAMILY = "android_world"
"""The package's whole suite, in the words of its registry."""


class Ports(BaseModel):
    """Where one running emulator is reached.

    Attributes:
        console: The console port, even; its serial is emulator-<console>.
        adb: The adb port, console + 1 when not given.
        grpc: The port that the emulator was started with by `-grpc`.
        adb_server: The adb server that knows the emulator. android_env restarts it when a command fails, so
            it should serve no other device.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    console: int = Field(5554, ge=1, le=65534)
    adb: int = Field(0, ge=0, le=65535)
    grpc: int = Field(8554, ge=1, le=65535)
    adb_server: int = Field(5037, ge=1, le=65535)

    @model_validator(mode="after")
    def _adb_follows_the_console(self) -> Ports:
        # android_env makes the serial of the adb port: emulator-<adb - 1>.
        if self.adb not in (0, self.console + 1):
            raise ValueError(f"adb is {self.adb}; android_env needs console + 1, {self.console + 1}")
        return self

    @property
    def numbers(self) -> dict[str, int]:
        """The ports by name."""
        return {**self.model_dump(), "adb": self.console + 1}


class Deadlines(BaseModel):
    """Seconds that the package may take for each part of an episode; past them its process is ended."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    attach_s: float = Field(300.0, gt=0.0)
    reset_s: float = Field(300.0, gt=0.0)
    step_s: float = Field(90.0, gt=0.0)
    score_s: float = Field(120.0, gt=0.0)
    tear_down_s: float = Field(180.0, gt=0.0)


class Options(BaseModel):
    """The environment's options.

    Attributes:
        devices: The emulators, by their ports. Each slot takes one that is free; with several, each has an
            adb server of its own.
        adb_path: The adb program; by default the one on PATH or in the Android SDK.
        accessibility: How the package reads the screen's elements: see its `A11yMethod`.
        setup: Whether the package installs its apps first: once for each new emulator.
        freeze_time: Whether the clock is set to the package's date, as its tasks expect.
        wait: Whether a step ends when the package finds the screen stable, rather than at once.
        deadlines: See `Deadlines`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    devices: tuple[Ports, ...] = Field((Ports(),), min_length=1)
    adb_path: str | None = None
    accessibility: Literal["a11y_forwarder_app", "uiautomator", "none"] = "a11y_forwarder_app"
    setup: bool = False
    freeze_time: bool = True
    wait: bool = True
    deadlines: Deadlines = Deadlines()


def checked(fields: Mapping[str, object]) -> Options:
    """The options in a configuration.

    Raises:
        ConfigError: One is unknown or wrong, or two emulators share a port.
    """
    try:
        options = Options.model_validate(fields)
    except ValidationError as error:
        raise ConfigError(f"{first_problem(error, 'env.options')}.", "See docs/androidworld.md.") from error
    for name in ("console", "grpc", "adb_server"):
        ports = [getattr(device, name) for device in options.devices]
        if len(set(ports)) != len(ports):
            raise ConfigError(
                f"env.options.devices: two emulators share the {name} port {max(ports, key=ports.count)}.",
                "Each has its own; so has the adb server, which android_env restarts when a command fails.",
            )
    return options


def find_adb(path: str | None) -> str:
    """The adb program's full path: android_env expands nothing.

    Args:
        path: Where it is; None looks on PATH and in the Android SDK.

    Raises:
        MissingDependency: It is not there.
    """
    sdk = os.environ.get("ANDROID_HOME") or os.environ.get("ANDROID_SDK_ROOT") or "~/Android/Sdk"
    places = [path] if path else [shutil.which("adb"), f"{sdk}/platform-tools/adb"]
    for place in filter(None, places):
        found = Path(place).expanduser()
        if found.is_file():
            return str(found.absolute())
    raise MissingDependency(
        f"there is no adb program{f' {path}' if path else ' on PATH or in the Android SDK'}.",
        "Install the SDK's platform tools, or set env.options.adb_path.",
    )
