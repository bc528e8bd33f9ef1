"""What an emulator needs on this machine: the Android SDK's programs, and hardware acceleration (KVM).

The processor's flags do not say whether this user on this (perhaps virtual) machine may use KVM; the kernel's
answer to KVM_GET_API_VERSION does.
"""

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
_VERSION = re.compile(r"Android emulator version (\S+)")


@dataclass(frozen=True)
class Sdk:
    """The programs of one SDK.

    Attributes:
        found: How it was found, for messages: "--sdk" (or the key), "$ANDROID_HOME", "PATH".
        root: The SDK's directory; None for a program alone in PATH.
    """

    emulator: Path
    found: str
    root: Path | None = None
    adb: Path | None = None
    avdmanager: Path | None = None

    def need_avdmanager(self) -> Path:
        """The path of avdmanager. Raises MissingDependency if there is none."""
        if self.avdmanager is None:
            raise MissingDependency(
                f"the SDK of {self.emulator} has no avdmanager, which makes virtual devices.",
                "Install it with `sdkmanager 'cmdline-tools;latest'`, or make the AVD in Android Studio.",
            )
        return self.avdmanager


def find_sdk(
    sdk: str | Path | None = None, environ: Mapping[str, str] = os.environ, option: str = "--sdk"
) -> Sdk:
    """Finds an SDK with an emulator. Raises MissingDependency with the places that were searched.

    Args:
        sdk: Its directory, if the user names one; no other place is searched then.
        option: How the user names it, for messages: an option or a key of the configuration.
    """
    if sdk is not None:
        places = [(option, Path(sdk).expanduser())]
    else:
        named = ((name, environ.get(name)) for name in ROOT_VARIABLES)
        places = [(f"${name}", Path(value).expanduser()) for name, value in named if value]
    for found, root in places:
        emulator = _program(root / "emulator" / "emulator")
        if emulator is not None:
            return Sdk(emulator, found, root, _program(root / "platform-tools" / "adb"), _avdmanager(root))
    on_path = None if sdk is not None else shutil.which("emulator", path=environ.get("PATH", ""))
    if on_path is not None:
        return _from_path(Path(on_path), environ.get("PATH", ""))
    looked = ", ".join(f"{found} ({root})" for found, root in places) or "no variable names an SDK"
    raise MissingDependency(
        f"no Android emulator was found: {looked}{'' if sdk is not None else ', none in PATH'}.",
        f"Install it with `sdkmanager emulator` and set ANDROID_HOME to the SDK, or name it by {option}.",
    )


def _from_path(emulator: Path, path: str) -> Sdk:
    """The SDK around a program in PATH: `ROOT/emulator/emulator`, if it lies like that."""
    root: Path | None = emulator.resolve().parent.parent
    if root is not None and (root / "emulator" / "emulator").exists():
        adb, avdmanager = _program(root / "platform-tools" / "adb"), _avdmanager(root)
    else:
        root, adb, avdmanager = None, None, None
    found = None if adb is not None else shutil.which("adb", path=path)
    return Sdk(emulator, "PATH", root, Path(found) if found else adb, avdmanager)


def _avdmanager(root: Path) -> Path | None:
    """The newest one: `cmdline-tools/latest`, a numbered version, or the old `tools`."""
    tools = root / "cmdline-tools"
    numbered = sorted(
        tools.glob("[0-9]*"), key=lambda path: [*map(int, re.findall(r"\d+", path.name))], reverse=True
    )
    found = (_program(path / "bin" / "avdmanager") for path in (tools / "latest", *numbered, root / "tools"))
    return next(filter(None, found), None)


def _program(path: Path) -> Path | None:
    return path if path.is_file() and os.access(path, os.X_OK) else None


def emulator_version(sdk: Sdk, timeout_s: float = VERSION_S) -> str:
    """The emulator's version, e.g. "36.1.9.0". Raises MissingDependency if it does not run."""
    command = [str(sdk.emulator), "-version"]
    try:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingDependency(
            f"{sdk.emulator} does not run: {error}.",
            "Run it by hand to see why; 64-bit libraries may be missing.",
        ) from error
    said = (result.stdout + result.stderr).decode("utf-8", "replace")
    match = _VERSION.search(said)
    if match is None:
        raise MissingDependency(
            f"{sdk.emulator} -version prints no version: {said.strip()[:200] or 'nothing'}.",
            "Is it an Android emulator? Reinstall it with `sdkmanager emulator`.",
        )
    return match[1]


KVM = Path("/dev/kvm")
API_VERSION = 12
"""What every KVM since 2007 answers; emulators refuse all others."""
_GET_API_VERSION = 0xAE00


@dataclass(frozen=True)
class Acceleration:
    """Whether an emulator can use KVM, why or why not, and what to do about it ("" when it is usable)."""

    usable: bool
    reason: str
    remedy: str = ""


def probe_acceleration(device: Path = KVM) -> Acceleration:
    """Whether KVM answers with the API version that emulators need."""
    try:
        descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        return _refused(device, error)
    try:
        version = fcntl.ioctl(descriptor, _GET_API_VERSION, 0)
    except OSError as error:
        reason = f"{device} is not KVM: it does not answer its version ({error.strerror})."
        return Acceleration(False, reason, "See what made that file; KVM's is a character device, 10:232.")
    finally:
        os.close(descriptor)
    if version != API_VERSION:
        reason = f"{device} has API version {version}, emulators need {API_VERSION}."
        return Acceleration(False, reason, "Use a kernel with the usual KVM module.")
    return Acceleration(True, f"{device} answers with API version {version}.")


def _refused(device: Path, error: OSError) -> Acceleration:
    if error.errno == errno.ENOENT:
        return Acceleration(
            False,
            f"there is no {device}.",
            "Switch on virtualisation (VT-x, AMD-V) in the firmware, or nested virtualisation for this "
            "virtual machine, and load the module kvm_intel or kvm_amd; a container needs --device /dev/kvm.",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        remedy = "Add the user to the group kvm (`sudo gpasswd -a $USER kvm`) and log in again."
        return Acceleration(False, f"this user may not open {device}.", remedy)
    remedy = "Load the module kvm_intel or kvm_amd, and see `dmesg | grep kvm`."
    return Acceleration(False, f"{device} cannot be opened: {error.strerror}.", remedy)
