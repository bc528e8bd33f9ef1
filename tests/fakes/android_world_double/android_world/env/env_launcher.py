"""The set-up of an attached environment."""

from __future__ import annotations

from typing import Any


def setup_env(env: Any, emulator_setup: bool = False, freeze_datetime: bool = True) -> None:
    env.controller.env.log(f"setup apps={emulator_setup} freeze={freeze_datetime}")
