"""The two adb functions that the adapter uses."""

from __future__ import annotations

from typing import Any


def generate_swipe_command(
    start_x: int, start_y: int, end_x: int, end_y: int, duration_ms: int | None = None
) -> list[str]:
    return ["shell", "input", "swipe", *map(str, (start_x, start_y, end_x, end_y, duration_ms or ""))]


def issue_generic_request(args: Any, env: Any, timeout_sec: float | None = 10) -> None:
    env.env.log(f"adb {' '.join(args)}")
