"""A state directory and AVDs of each test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.workers.devices.avd import AvdStore
from distrl.workers.devices.processes import Registry


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state directory; nothing here looks at the user's own."""
    path = tmp_path / "state"
    monkeypatch.setenv("DISTRL_STATE_DIR", str(path))
    return path


@pytest.fixture
def store(tmp_path: Path, state: Path) -> AvdStore:
    """No AVDs yet."""
    home = tmp_path / "avd"
    home.mkdir()
    return AvdStore(home)


@pytest.fixture
def registry(state: Path) -> Registry:
    """No entries yet."""
    return Registry()
