"""Whether this machine can accelerate an emulator: KVM, asked by its own ioctl.

The processor's flags say what it could do, not what this user on this (perhaps virtual) machine may use; the
kernel's answer to KVM_GET_API_VERSION does.
"""

from __future__ import annotations

import errno
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

KVM = Path("/dev/kvm")
API_VERSION = 12
"""What every KVM since 2007 answers; emulators refuse all others."""
_GET_API_VERSION = 0xAE00


@dataclass(frozen=True)
class Acceleration:
    """What a probe found.

    Attributes:
        usable: Whether an emulator can use KVM.
        reason: Why, or why not, in one sentence.
        remedy: What to do about it; "" when it is usable.
    """

    usable: bool
    reason: str
    remedy: str = ""


def probe(device: Path = KVM) -> Acceleration:
    """Asks KVM for its API version.

    Args:
        device: KVM's device file.
    """
    try:
        descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        return _refused(device, error)
    try:
        version = fcntl.ioctl(descriptor, _GET_API_VERSION, 0)
    except OSError as error:
        return Acceleration(
            False,
            f"{device} is not KVM: it does not answer its version ({error.strerror}).",
            "See what made that file; KVM's is a character device, 10:232.",
        )
    finally:
        os.close(descriptor)
    if version != API_VERSION:
        return Acceleration(
            False,
            f"{device} has API version {version}, emulators need {API_VERSION}.",
            "Use a kernel with the usual KVM module.",
        )
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
        return Acceleration(
            False,
            f"this user may not open {device}.",
            "Add the user to the group kvm (`sudo gpasswd -a $USER kvm`) and log in again.",
        )
    return Acceleration(
        False,
        f"{device} cannot be opened: {error.strerror}.",
        "Load the module kvm_intel or kvm_amd, and see `dmesg | grep kvm`.",
    )
