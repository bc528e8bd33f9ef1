"""Making a virtual device with the SDK's avdmanager."""

from __future__ import annotations

import os
import subprocess

from distrl.workers.devices.avd import Avd, AvdStore, require_name
from distrl.workers.devices.emulator_log import last_complaint
from distrl.workers.devices.errors import EmulatorError
from distrl.workers.devices.sdk import Sdk

_LIMIT_S = 120.0


def make(sdk: Sdk, store: AvdStore, name: str, image: str, device: str | None) -> Avd:
    """Makes an AVD.

    Args:
        sdk: Whose avdmanager.
        store: Where.
        name: Its name.
        image: The system image's package, e.g. "system-images;android-34;google_apis;x86_64".
        device: The hardware profile, e.g. "pixel_6"; avdmanager's usual one when None.

    Raises:
        MissingDependency: If the SDK has no avdmanager.
        EmulatorError: If it refuses, with its reason.
    """
    require_name(name)
    command = [str(sdk.need_avdmanager()), "create", "avd", "-n", name, "-k", image]
    command += ["-d", device] if device else []
    store.home.mkdir(parents=True, exist_ok=True)
    environ = dict(os.environ, ANDROID_AVD_HOME=str(store.home))
    if sdk.root is not None:
        environ["ANDROID_HOME"] = str(sdk.root)
    try:
        # It asks whether to make a custom hardware profile.
        result = subprocess.run(
            command, input=b"no\n", capture_output=True, timeout=_LIMIT_S, check=False, env=environ
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmulatorError(
            f"avdmanager does not run: {error}.", "It needs Java 17; see its output."
        ) from error
    if result.returncode:
        said = (result.stderr + result.stdout).decode("utf-8", "replace")
        raise EmulatorError(
            f"avdmanager did not make the AVD {name!r}: {last_complaint(said) or 'it says nothing'}",
            f"Is the image installed? `sdkmanager '{image}'`.",
            evidence=said,
        )
    return store.get(name)
