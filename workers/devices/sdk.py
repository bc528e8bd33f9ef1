"""What an emulator needs on this machine: the Android SDK's programs, and hardware acceleration (KVM)."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from distrl.core.errors import MissingDependency

ROOT_VARIABLES = ("ANDROID_HOME", "ANDROID_SDK_ROOT")
VERSION_S = 20.0
KVM = Path("/dev/kvm")
_GET_API_VERSION = 0xAE00
_VERSION = re.compile(r"Android emulator version (\S+)")


@dataclass(frozen=True)
class Sdk:
    """One SDK's directory, and how it was found, for messages: by an option, "$ANDROID_HOME" or "PATH"."""

    root: Path
    found: str

    @property
    def emulator(self) -> Path:
        """The emulator's program."""
        return self.root / "emulator" / "emulator"

    @property
    def adb(self) -> Path | None:
        """The adb program, if there is one."""
        return _program(self.root / "platform-tools" / "adb")

    @property
    def avdmanager(self) -> Path | None:
        """The newest one: `cmdline-tools/latest`, a numbered version, or the old `tools`."""
        tools = self.root / "cmdline-tools"
        numbered = sorted(
            tools.glob("[0-9]*"), key=lambda path: [*map(int, re.findall(r"\d+", path.name))], reverse=True
        )
        folders = (tools / "latest", *numbered, self.root / "tools")
        return next(filter(None, (_program(path / "bin" / "avdmanager") for path in folders)), None)

    def need_avdmanager(self) -> Path:
        """The path of avdmanager. Raises MissingDependency if there is none."""
        found = self.avdmanager
        if found is None:
            raise MissingDependency(
                f"the SDK of {self.emulator} has no avdmanager, which makes virtual devices.",
                "Install it with `sdkmanager 'cmdline-tools;latest'`, or make the AVD in Android Studio.",
            )
        return found


def find_sdk(sdk: str | Path | None = None, environ: Mapping[str, str] = os.environ) -> Sdk:
    """Finds an SDK with an emulator: the named one, else by the environment, else around the one on PATH.

    Raises MissingDependency with the searched places.
    """
    option = "`sdk` in devices.pool"
    if sdk is not None:
        places = [(option, Path(sdk).expanduser())]
    else:
        named = ((name, environ.get(name)) for name in ROOT_VARIABLES)
        places = [(f"${name}", Path(value).expanduser()) for name, value in named if value]
        on_path = shutil.which("emulator", path=environ.get("PATH", ""))
        if on_path is not None:
            places.append(("PATH", Path(on_path).resolve().parent.parent))
    for found, root in places:
        if _program(root / "emulator" / "emulator") is not None:
            return Sdk(root, found)
    looked = ", ".join(f"{found} ({root})" for found, root in places) or "no variable names an SDK"
    raise MissingDependency(
        f"no Android emulator was found: {looked}{'' if sdk is not None else ', none in PATH'}.",
        f"Install it with `sdkmanager emulator` and set ANDROID_HOME to the SDK, or name it by {option}.",
    )


def _program(path: Path) -> Path | None:
    return path if path.is_file() and os.access(path, os.X_OK) else None


def emulator_version(sdk: Sdk, timeout_s: float = VERSION_S) -> str:
    """The emulator's version, e.g. "36.1.9.0". Raises MissingDependency if it does not run."""
    command = [str(sdk.emulator), "-version"]
    try:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False
        )
        said = (result.stdout + result.stderr).decode("utf-8", "replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    match = _VERSION.search(said)
    if match is None:
        raise MissingDependency(
            f"{sdk.emulator} -version prints no version: {said.strip()[:200] or 'nothing'}.",
            "Run it by hand to see why (64-bit libraries may be missing), or reinstall it with "
            "`sdkmanager emulator`.",
        )
    return match[1]


@dataclass(frozen=True)
class Acceleration:
    """Whether an emulator can use KVM, why or why not, and what to do about it ("" when it is usable)."""

    usable: bool
    reason: str
    remedy: str = ""


def probe_acceleration(device: Path = KVM) -> Acceleration:
    """Whether KVM answers this user; the processor's flags do not say that."""
    try:
        descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
        try:
            version = fcntl.ioctl(descriptor, _GET_API_VERSION, 0)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return Acceleration(
            False,
            f"there is no {device}.",
            "Switch on virtualisation (VT-x, AMD-V) in the firmware, or nested virtualisation for this "
            "virtual machine, and load the module kvm_intel or kvm_amd; a container needs --device /dev/kvm.",
        )
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            remedy = "Add the user to the group kvm (`sudo gpasswd -a $USER kvm`) and log in again."
            return Acceleration(False, f"this user may not open {device}.", remedy)
        remedy = "Load the module kvm_intel or kvm_amd, and see `dmesg | grep kvm`."
        return Acceleration(False, f"{device} cannot be used: {error.strerror}.", remedy)
    return Acceleration(True, f"{device} answers with API version {version}.")
