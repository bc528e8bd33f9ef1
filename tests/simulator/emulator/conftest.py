"""An SDK with the stand-in, and a state and a home of each test's own; the stand-in as a process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sim_phones
from waiting import until

from distrl.simulator.emulator.sdk import SimSdk, make_avd, make_sdk
from distrl.workers.devices.avd import Avd
from distrl.workers.devices.console import Console


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


class Run:
    """One run of the program, at free ports, its output in a file."""

    def __init__(self, sdk: SimSdk, log: Path, *arguments: str) -> None:
        self.log = log
        self.port = sim_phones.free_pair()
        command = [str(sdk.root / "emulator" / "emulator"), "-port", str(self.port), *arguments]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Nobody listens there: which adb server hears of it is no matter here.
                env={**os.environ, "ANDROID_ADB_SERVER_PORT": str(sim_phones.free_pair())},
            )

    def says(self, text: str) -> None:
        """Waits until it has printed `text`."""
        until(
            lambda: text in self.log.read_text(),
            text,
            meanwhile=lambda: self._lives(text),
            details=self.log.read_text,
        )

    def _lives(self, text: str) -> None:
        if self.process.poll() is not None and text not in self.log.read_text():
            raise AssertionError(f"it ended with {self.process.returncode}: {self.log.read_text()}")

    @property
    def console(self) -> Console:
        return Console(self.port, Path(os.environ["HOME"]) / ".emulator_console_auth_token")


@pytest.fixture
def run(sdk: SimSdk, avd: Avd, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Runs the program; whatever still runs at the end is killed."""
    runs: list[Run] = []

    def _run(*arguments: str) -> Run:
        runs.append(Run(sdk, tmp_path / f"log-{len(runs)}", *arguments))
        return runs[-1]

    yield _run
    for one in runs:
        one.process.kill()
        one.process.wait()
