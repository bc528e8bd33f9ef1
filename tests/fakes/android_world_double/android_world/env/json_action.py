"""JSONAction with the checks that the real one makes."""

from __future__ import annotations

import dataclasses

_ACTION_TYPES = (
    *("click", "double_tap", "long_press", "scroll", "swipe", "input_text", "open_app", "status", "answer"),
    *("navigate_home", "navigate_back", "keyboard_enter", "wait", "unknown"),
)
_SCROLL_DIRECTIONS = ("left", "right", "down", "up")


@dataclasses.dataclass()
class JSONAction:
    action_type: str | None = None
    index: str | int | None = None
    x: int | None = None
    y: int | None = None
    text: str | None = None
    direction: str | None = None
    goal_status: str | None = None
    app_name: str | None = None
    keycode: str | None = None
    clear_text: bool | None = None

    def __post_init__(self) -> None:
        if self.action_type not in _ACTION_TYPES:
            raise ValueError(f"Invalid action type: {self.action_type}")
        if self.index is not None:
            self.index = int(self.index)
            if self.x is not None or self.y is not None:
                raise ValueError("Either an index or a <x, y> should be provided.")
        if self.direction and self.direction not in _SCROLL_DIRECTIONS:
            raise ValueError(f"Invalid scroll direction: {self.direction}")
        if self.text is not None and not isinstance(self.text, str):
            self.text = str(self.text)
        if self.keycode is not None and not self.keycode.startswith("KEYCODE_"):
            raise ValueError(f"Invalid keycode: {self.keycode}")

    def as_dict(self, skip_none: bool = True) -> dict[str, object]:
        return {key: value for key, value in self.__dict__.items() if value is not None}
