"""The fields of android_env's configuration that the adapter sets, with their real defaults."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class AdbControllerConfig:
    adb_path: str = "~/Android/Sdk/platform-tools/adb"
    adb_server_port: int = 5037


@dataclasses.dataclass
class EmulatorLauncherConfig:
    adb_port: int = 0
    emulator_console_port: int = 0
    grpc_port: int = 0


@dataclasses.dataclass
class EmulatorConfig:
    emulator_launcher: EmulatorLauncherConfig = dataclasses.field(default_factory=EmulatorLauncherConfig)
    adb_controller: AdbControllerConfig = dataclasses.field(default_factory=AdbControllerConfig)


@dataclasses.dataclass
class FilesystemTaskConfig:
    path: str = ""


@dataclasses.dataclass
class AndroidEnvConfig:
    task: FilesystemTaskConfig = dataclasses.field(default_factory=FilesystemTaskConfig)
    simulator: EmulatorConfig = dataclasses.field(default_factory=EmulatorConfig)
