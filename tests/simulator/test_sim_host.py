"""`distrl sim-host`: what it prints, its failures as one line, and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sim_phones import free_pair
from typer.testing import CliRunner

from distrl.cli.main import app

DEADLINE_S = 120.0


def start(tmp_path: Path, *options: str) -> tuple[subprocess.Popen[str], int]:
    """The command with one small phone that tells no adb server; the port 3000 beyond is free too."""
    port = free_pair(3000)
    command = [sys.executable, "-m", "distrl", "sim-host", "--num", "1", "--width", "90", "--height", "200"]
    command += ["--base-port", str(port), "--adb-server-port", "0", "--token-file", str(tmp_path / "token")]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    return process, port


def test_it_says_when_the_phones_are_ready_and_stops_all_at_a_signal(tmp_path: Path) -> None:
    process, port = start(tmp_path, "--json")
    killer = threading.Timer(DEADLINE_S, process.kill)
    killer.start()
    try:
        assert process.stdout is not None
        (device,) = json.loads(process.stdout.readline())["devices"]
        assert (device["serial"], device["adb_port"]) == (f"emulator-{port}", port + 1)
        assert (device["width"], device["height"]) == (90, 200)
        os.kill(device["pid"], 0)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors
        with pytest.raises(ProcessLookupError):
            os.kill(device["pid"], 0)
        assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    finally:
        killer.cancel()
        process.kill()


def test_grpc_without_its_package_is_one_line_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distrl.core.process.install_signals", lambda grace_s: threading.Event())
    monkeypatch.setitem(sys.modules, "grpc.aio", None)
    result = CliRunner().invoke(app, ["sim-host", "--grpc"])
    assert result.exit_code == 7
    assert result.output == (
        "error: gRPC needs the package grpcio, which is not installed. "
        'Install the extra "android-env", e.g. pip install "distrl[android-env]".\n'
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--base-port", "5555"], "must be even"),
        (["--faults", "emulator-5554"], "has no '='"),
        (["--faults", "emulator-5554=dance"], "'dance' is not a fault"),
        (["--width", "10"], "a screen must be at least 64 pixels wide"),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(
    options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrl.core.process.install_signals", lambda grace_s: threading.Event())
    result = CliRunner().invoke(app, ["sim-host", *options])
    assert result.exit_code in (2, 8)
    assert message in result.output
    assert result.output.startswith("error: ")
    assert result.output.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--fault", "fire", "'fire' is not a valid fault."),
        ("--fault", "crash:soon", "'crash:soon' is not a valid fault."),
        ("--width", "10", "a screen must be at least 64 pixels wide"),
    ],
)
def test_an_sdk_whose_phones_could_not_start_is_refused(
    tmp_path: Path, option: str, value: str, message: str
) -> None:
    result = CliRunner().invoke(app, ["sim-sdk", str(tmp_path / "sdk"), option, value])
    assert result.exit_code == 2
    assert result.output.startswith(f"error: {message}")
    assert not (tmp_path / "sdk").exists()
