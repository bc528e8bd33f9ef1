"""Attaches to the double's emulator: a directory with a journal and a phone in JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from android_env.components import config_classes

SIZE = (90, 160)


class Emulator:
    """What android_env's environment is here: the phone's state on disk, and the journal."""

    def __init__(self, config: config_classes.AndroidEnvConfig) -> None:
        with open(config.task.path) as task_file:  # the real loader reads it
            assert "id:" in task_file.read()
        launcher, adb = config.simulator.emulator_launcher, config.simulator.adb_controller
        assert os.path.isabs(adb.adb_path), "android_env expands no path"
        assert launcher.adb_port == launcher.emulator_console_port + 1
        self.folder = Path(os.environ["ANDROID_WORLD_DOUBLE"])
        self.console = launcher.emulator_console_port
        if not (self.folder / "running").exists():
            raise RuntimeError(f"no emulator at gRPC port {launcher.grpc_port}")
        self.log(f"attach grpc={launcher.grpc_port} adb_server={adb.adb_server_port}")

    def log(self, line: str) -> None:
        with open(self.folder / f"events-{self.console}.txt", "a") as file:
            file.write(line + "\n")

    @property
    def phone(self) -> dict[str, Any]:
        path = self.folder / f"phone-{self.console}.json"
        return json.loads(path.read_text()) if path.exists() else {"app": "launcher", "count": 0}

    @phone.setter
    def phone(self, state: dict[str, Any]) -> None:
        (self.folder / f"phone-{self.console}.json").write_text(json.dumps(state))


def load(config: config_classes.AndroidEnvConfig) -> Emulator:
    return Emulator(config)
