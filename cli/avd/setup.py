"""What prepares a device before its snapshot: a script that runs on it, a command that runs here."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

from distrl.core.errors import ConfigError
from distrl.workers.devices.adb import AdbClient
from distrl.workers.devices.errors import NonZeroExit, ResetFailed
from distrl.workers.devices.sdk import Sdk


def run_on_device(client: AdbClient, script: Path, timeout_s: float, say: Callable[[str], object]) -> None:
    """Runs a shell script on the device.

    Args:
        client: The way to the device.
        script: The script.
        timeout_s: Longest time.
        say: Called with what it printed.

    Raises:
        NonZeroExit: If it fails, with the end of its output.
        DeviceError: If the device does not answer, or not in time.
    """
    result = client.shell(script.read_text(encoding="utf-8"), timeout_s)
    if result.said:
        say(result.said)
    if result.status:
        raise NonZeroExit(
            f"the set-up script {script} ended with exit status {result.status}.",
            "See its output above; no snapshot was saved.",
            serial=client.serial,
            evidence=result.said,
            status=result.status,
        )


def run_here(command: str, client: AdbClient, sdk: Sdk, timeout_s: float) -> None:
    """Runs a command of the user on this machine; ANDROID_SERIAL names the device to adb and others.

    Args:
        command: Program and arguments; no shell looks at it.
        client: The way to the device.
        sdk: Whose adb comes first in PATH.
        timeout_s: Longest time; then the command is killed.

    Raises:
        ConfigError: If it cannot be started.
        ResetFailed: If it fails, or takes too long.
    """
    environ = dict(os.environ, ANDROID_SERIAL=client.serial, ANDROID_ADB_SERVER_PORT=str(client.port))
    if sdk.adb is not None:
        environ["PATH"] = f"{sdk.adb.parent}{os.pathsep}{environ.get('PATH', '')}"
    try:
        words = shlex.split(command)
        status = subprocess.run(words, env=environ, timeout=timeout_s, check=False).returncode
    except (ValueError, IndexError, OSError) as error:
        raise ConfigError(f"--host-setup {command!r} cannot be run: {error}.", "Correct it.") from error
    except subprocess.TimeoutExpired as error:
        raise ResetFailed(
            f"the command {command!r} was not done after {timeout_s:g} s.",
            "Give it more with --setup-timeout; no snapshot was saved.",
            serial=client.serial,
        ) from error
    if status:
        raise ResetFailed(
            f"the command {command!r} ended with exit status {status}.",
            "See its output above; no snapshot was saved.",
            serial=client.serial,
        )
