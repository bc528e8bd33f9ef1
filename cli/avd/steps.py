"""What the verbs of `distrl snapshot-avd` share: an emulator, its preparation, and lines about each step."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from rich.status import Status

from distrl.configs.devices import DevicesConfig
from distrl.core.errors import ConfigError
from distrl.core.terminal import Console
from distrl.workers.devices.adb import AdbClient
from distrl.workers.devices.adb_server import AdbServer
from distrl.workers.devices.avd import AvdStore
from distrl.workers.devices.console import require_name
from distrl.workers.devices.emulator import BOOT_S, GPU, EmulatorOptions, last_complaint, session
from distrl.workers.devices.errors import EmulatorError, NonZeroExit, ResetFailed
from distrl.workers.devices.sdk import find_sdk
from distrl.workers.devices.snapshots import Snapshotter

MAKE_S = 120.0
"""Longest time of avdmanager."""


class Steps:
    """Shows one step after another: a line that moves on a terminal, plain lines in a log."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._status: Status | None = None
        self._text = ""
        self._has_failed = False
        self._began_at = 0.0

    def __enter__(self) -> Steps:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._end("failed after " if kind is not None and not self._has_failed else "")

    def begin(self, text: str) -> None:
        """Ends the present step and begins another; on the way out of an error the present one has failed."""
        self._has_failed = sys.exc_info()[0] is not None
        self._end("failed after " if self._has_failed else "")
        self._text, self._began_at = text, time.monotonic()
        if self._console.is_terminal:
            self._status = self._console.status(self._console.render_str(text))
            self._status.start()

    def say(self, text: str) -> None:
        """Prints a line that stays."""
        self._console.print(text, soft_wrap=True)

    def _end(self, how: str) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
        if self._text:
            line = f"{self._text}: {how}{time.monotonic() - self._began_at:.1f} s"
            self._console.print(line, style="red" if how else None, soft_wrap=True)
        self._text = ""


def emulator_of(
    avd: str,
    steps: Steps,
    port: int | None = None,
    boot_s: float | None = None,
    gpu: str | None = None,
    extra: Sequence[str] | None = None,
    snapshot: str | None = None,
    must_run: bool = False,
) -> AbstractContextManager[Snapshotter]:
    """An emulator of the AVD, as `session`; with `snapshot` one that is started loads it, read-only."""
    options = EmulatorOptions(gpu or GPU, snapshot, snapshot is not None, tuple(extra or ()))
    server = AdbServer(port=DevicesConfig().server_port())
    return session(
        find_sdk(),
        AvdStore().get(avd),
        options,
        server,
        console_port=port,
        boot_s=boot_s or BOOT_S,
        must_run=must_run,
        note=steps.begin,
    )


def make_avd(name: str, image: str, device: str | None) -> None:
    """Makes an AVD by the SDK's avdmanager, from a system image such as "system-images;android-34;x;y"."""
    sdk, store = find_sdk(), AvdStore()
    require_name(name, "AVD")
    command = [str(sdk.need_avdmanager()), "create", "avd", "-n", name, "-k", image]
    command += ["-d", device] if device else []
    store.home.mkdir(parents=True, exist_ok=True)
    environ = dict(os.environ, ANDROID_AVD_HOME=str(store.home), ANDROID_HOME=str(sdk.root))
    try:
        # It asks whether to make a custom hardware profile.
        result = subprocess.run(
            command, input=b"no\n", capture_output=True, timeout=MAKE_S, check=False, env=environ
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmulatorError(
            f"avdmanager does not run: {error}.", "Install Java 17, and check that avdmanager is executable."
        ) from error
    if result.returncode:
        said = (result.stderr + result.stdout).decode("utf-8", "replace")
        raise EmulatorError(
            f"avdmanager could not create the AVD {name!r}: {last_complaint(said) or 'no output'}",
            f"Is the image installed? `sdkmanager '{image}'`.",
            evidence=said,
        )


def run_on_device(client: AdbClient, script: Path, timeout_s: float, steps: Steps) -> None:
    """Runs a shell script on the device, and shows what it prints. Raises NonZeroExit if it fails."""
    result = client.shell(script.read_text(encoding="utf-8"), timeout_s)
    if result.said:
        steps.say(result.said)
    if result.status:
        raise NonZeroExit(
            f"the set-up script {script} ended with exit status {result.status}.",
            "See its output above; no snapshot was saved.",
            serial=client.serial,
            evidence=result.said,
        )


def run_here(command: str, client: AdbClient, timeout_s: float) -> None:
    """Runs a command of the user on this machine, without a shell; ANDROID_SERIAL names the device to adb.

    The SDK's adb comes first in PATH. Raises ResetFailed if it fails, or is killed after `timeout_s`.
    """
    environ = dict(os.environ, ANDROID_SERIAL=client.serial, ANDROID_ADB_SERVER_PORT=str(client.port))
    sdk = find_sdk()
    if sdk.adb is not None:
        environ["PATH"] = f"{sdk.adb.parent}{os.pathsep}{environ.get('PATH', '')}"
    try:
        status = subprocess.run(shlex.split(command), env=environ, timeout=timeout_s, check=False).returncode
        problem = f"ended with exit status {status}" if status else ""
        remedy = "See its output above; no snapshot was saved."
    except (ValueError, IndexError, OSError) as error:
        raise ConfigError(f"--host-setup {command!r} cannot be run: {error}.", "Correct it.") from error
    except subprocess.TimeoutExpired:
        problem = f"was not done after {timeout_s:g} s"
        remedy = "Give it more with --setup-timeout; no snapshot was saved."
    if problem:
        raise ResetFailed(f"the command {command!r} {problem}.", remedy, serial=client.serial)


def size(num_bytes: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if num_bytes < 999.5:
            return f"{num_bytes:.0f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} GB"
