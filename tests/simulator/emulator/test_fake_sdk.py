"""The SDK with the stand-in."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from emulator_programs import program

from distrl.core.errors import ConfigError
from distrl.simulator.emulator.__main__ import VERSION
from distrl.simulator.emulator.sdk import SimSdk, make_avd, make_sdk
from distrl.workers.devices.avd import Avd
from distrl.workers.devices.sdk import emulator_version, find_sdk


def test_it_is_found_as_an_sdk_and_its_emulator_runs(sdk: SimSdk) -> None:
    found = find_sdk()
    assert found.root == sdk.root
    assert emulator_version(found, 60.0) == VERSION
    assert found.avdmanager is not None


def test_making_it_again_keeps_the_avds(sdk: SimSdk, avd: Avd) -> None:
    assert make_sdk(sdk.root).store.list() == [avd]
    with pytest.raises(ConfigError, match="the AVD 'pixel' already exists"):
        make_avd(sdk.store, "pixel")
    with pytest.raises(ConfigError, match="not a valid AVD name"):
        make_avd(sdk.store, "a b")


def test_a_real_sdk_is_not_overwritten(tmp_path: Path) -> None:
    real = program(tmp_path / "emulator" / "emulator", "the real thing")
    with pytest.raises(ConfigError, match="is a real Android SDK"):
        make_sdk(tmp_path)
    assert "the real thing" in real.read_text()


def test_avdmanager_makes_lists_and_deletes(sdk: SimSdk) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(find_sdk().need_avdmanager()), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, input="no\n")

    made = run("create", "avd", "-n", "new", "-k", "system-images;android-34;google_apis;x86_64")
    assert made.returncode == 0, made.stderr
    assert sdk.store.get("new").api_level() == 34
    assert "Name: new" in run("list", "avd").stdout
    wrong = run("create", "avd", "-n", "other", "-k", "system-images;android-99;x;y")
    assert wrong.returncode == 1
    assert "system-images;android-34;google_apis;x86_64" in wrong.stderr
    assert run("delete", "avd", "-n", "new").returncode == 0
    assert sdk.store.list() == []
