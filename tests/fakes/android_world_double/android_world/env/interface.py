"""AsyncAndroidEnv over the double's emulator: a counter that `click` counts up, and an answer cache."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from typing import Any

import numpy as np
from android_env.loader import SIZE

from android_world.env import json_action, representation_utils


@dataclasses.dataclass(frozen=True)
class State:
    pixels: np.ndarray
    forest: Any
    ui_elements: list[Any]
    auxiliaries: dict[str, Any] | None = None


class AsyncAndroidEnv:
    interaction_cache = ""

    def __init__(self, controller: Any) -> None:
        self._controller = controller
        self.interaction_cache = ""

    @property
    def controller(self) -> Any:
        return self._controller

    def reset(self, go_home: bool = False) -> State:
        emulator = self._controller.env
        emulator.log(f"reset go_home={go_home}")
        if go_home:
            emulator.phone = {**emulator.phone, "app": "launcher"}
        self.interaction_cache = ""
        return self.get_state()

    def get_state(self, wait_to_stabilize: bool = False) -> State:
        if wait_to_stabilize:
            time.sleep(0.001)
        phone = self._controller.env.phone
        grey = min(255, 20 * phone["count"] + 5)
        pixels = np.full((SIZE[1], SIZE[0], 3), grey, dtype=np.uint8)
        box = representation_utils.BoundingBox(0, SIZE[0] / 2, 0, SIZE[1] / 4)
        counter = representation_utils.UIElement(
            text=str(phone["count"]),
            class_name="android.widget.Button",
            bbox_pixels=box,
            is_checkable=False,
            is_clickable=True,
            is_enabled=True,
            resource_name="com.counter:id/count",
        )
        return State(pixels, None, [counter, representation_utils.UIElement(text="nowhere")])

    def execute_action(self, action: json_action.JSONAction) -> None:
        emulator = self._controller.env
        emulator.log(f"action {json.dumps(action.as_dict())}")
        print("the package prints as it likes")
        if action.action_type == "answer":
            self.interaction_cache = action.text or ""
        elif action.action_type == "click":
            emulator.phone = {**emulator.phone, "count": emulator.phone["count"] + 1}
        elif action.action_type == "open_app":
            self._open(action.app_name or "")

    def _open(self, name: str) -> None:
        emulator = self._controller.env
        if name == "hang":
            time.sleep(600)
        if name == "crash":
            print("about to crash", flush=True)
            os._exit(3)
        if name == "nothing":
            raise ValueError("No app name provided")
        if name == "lost":
            raise RuntimeError("emulator lost")
        emulator.phone = {**emulator.phone, "app": name}

    def hide_automation_ui(self) -> None:
        self._controller.env.log("hide_automation_ui")

    @property
    def foreground_activity_name(self) -> str:
        return f"com.{self._controller.env.phone['app']}/.Main"

    def close(self) -> None:
        self._controller.env.log("close")
