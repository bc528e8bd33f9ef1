"""Environments on the double of the `android_world` package."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from android_world_bench import DOUBLE, Emulators

from distrl.workers.envs.android_world import AndroidWorldEnv


@pytest.fixture
def emulators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Emulators:
    monkeypatch.syspath_prepend(str(DOUBLE))
    monkeypatch.setenv("ANDROID_WORLD_DOUBLE", str(tmp_path))
    monkeypatch.setenv("DISTRL_STATE_DIR", str(tmp_path))
    return Emulators(tmp_path)


@pytest.fixture
def make(emulators: Emulators) -> Iterator[Callable[..., AndroidWorldEnv]]:
    made = []

    def _make(**options: Any) -> AndroidWorldEnv:
        env = AndroidWorldEnv(adb_path=sys.executable, **options)
        made.append(env)
        return env

    yield _make
    for env in made:
        env.close()
