"""The package android_env with a phone of ours: its configuration, its actions, what the phone then shows."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
from client_world import World
from PIL import Image
from waiting import until

TOUCH, LIFT, REPEAT, KEYDOWN, KEYUP, KEYPRESS = range(6)
"""android_env's types of actions."""
TASK = 'id: "phone"\nname: "A phone"\ndescription: "Nothing to do."\nmax_episode_sec: 0\n'


class Adb(World):
    """The phone by adb."""

    def wait(self) -> None:
        """Waits until the phone answers again: the load of a snapshot drops adb's connections."""
        until(lambda: self.run("shell", "true").returncode == 0, f"{self.phone.serial} after the load")

    def pixels(self) -> np.ndarray:
        """The screen as adb has it, height x width x RGB."""
        return np.asarray(
            Image.open(io.BytesIO(self.run("exec-out", "screencap", "-p").stdout)).convert("RGB")
        )

    def find(self, name: str) -> tuple[float, float]:
        """The middle of the first element with this text or description, as shares of width and height."""
        tree = ET.fromstring(self.out("exec-out", "uiautomator dump /dev/tty").rpartition(">")[0] + ">")
        height, width, _ = self.pixels().shape
        for node in tree.iter("node"):
            if name in (node.get("text"), node.get("content-desc")):
                left, top, right, bottom = map(int, re.findall(r"\d+", node.get("bounds", "")))
                return (left + right) / 2 / width, (top + bottom) / 2 / height
        raise AssertionError(f"no {name} on the screen")

    def front(self) -> str:
        """The package in front."""
        found = re.search(r"mCurrentFocus=.* (\S+?)/", self.out("shell", "dumpsys", "window"))
        assert found
        return found[1]


def configuration(adb: tuple[str, int], folder: Path, **launcher: Any) -> Any:
    """android_env's configuration.

    Args:
        adb: The adb program and the port of its server.
        folder: Where the task is written.
        launcher: Fields of `EmulatorLauncherConfig`.
    """
    from android_env.components import config_classes

    task = folder / "task.textproto"
    task.write_text(TASK, encoding="ascii")
    program, server_port = adb
    return config_classes.AndroidEnvConfig(
        task=config_classes.FilesystemTaskConfig(path=str(task), tmp_dir=str(folder)),
        coordinator=config_classes.CoordinatorConfig(enable_key_events=True),
        simulator=config_classes.EmulatorConfig(
            emulator_launcher=config_classes.EmulatorLauncherConfig(**launcher),
            adb_controller=config_classes.AdbControllerConfig(adb_path=program, adb_server_port=server_port),
        ),
    )


def act(env: Any, kind: int, at: tuple[float, float] = (0.0, 0.0), keycode: int = 0) -> np.ndarray:
    """Takes a step. Returns the pixels that are observed."""
    step = env.step(
        {
            "action_type": np.array(kind, np.int32),
            "touch_position": np.array(at, np.float32),
            "keycode": np.array(keycode, np.int32),
        }
    )
    pixels: np.ndarray = step.observation["pixels"]
    return pixels
