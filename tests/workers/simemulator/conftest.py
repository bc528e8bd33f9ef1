"""An SDK with the stand-in, and a state and a home of each test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.workers.devices.emulator.avd import Avd
from distrl.workers.simemulator.fake_sdk import SimSdk, make_avd, make_sdk


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimSdk:
    """An SDK, which the environment names."""
    for variable, folder in (("HOME", "home"), ("XDG_RUNTIME_DIR", "run"), ("DISTRL_STATE_DIR", "state")):
        (tmp_path / folder).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / folder))
    made = make_sdk(tmp_path / "sdk")
    for variable, value in made.environ.items():
        monkeypatch.setenv(variable, value)
    return made


@pytest.fixture
def avd(sdk: SimSdk) -> Avd:
    """An AVD that has no patience with locks."""
    return make_avd(sdk.store, "pixel", 270, 600, config={"sim.lock_s": "0.1", "sim.boot_s": "0"})
