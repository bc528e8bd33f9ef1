"""The stand-in's coded faults: named by an environment variable, or by a key of the AVD's config.ini.

hang_boot           Android never says that it has booted
offline             adb sees the phone, which never answers its handshake
crash:SECONDS       the process dies that long after its start, leaving its locks behind
low_disk            it refuses to start, as with a full disk
snapshot_corrupt    no snapshot loads
snapshot_pending    it refuses to start, as while another process saves a snapshot
avd_locked          it refuses to start, as while another emulator writes the AVD
no_accel            it refuses to start, as without KVM
port_in_use         it refuses to start, as with its ports taken
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from distrl.simulator.emulator.options import Refused

VARIABLE, KEY = "DISTRL_SIMEMULATOR_FAULT", "sim.fault"
NAMES = (
    "hang_boot",
    "offline",
    "crash",
    "low_disk",
    "snapshot_corrupt",
    "snapshot_pending",
    "avd_locked",
    "no_accel",
    "port_in_use",
)


@dataclass(frozen=True)
class Fault:
    """What goes wrong.

    Attributes:
        name: One of `NAMES`, "" for nothing.
        seconds: For "crash": after so many.
    """

    name: str = ""
    seconds: float = 0.0


def fault_of(config: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> Fault:
    """The fault that is asked for; the variable counts more than the AVD.

    Raises:
        Refused: If there is no such fault.
    """
    text = environ.get(VARIABLE) or config.get(KEY, "")
    name, _, seconds = text.partition(":")
    if name and name not in NAMES:
        raise Refused(f"ERROR        | There is no fault {text!r}; there are: {', '.join(NAMES)}.")
    try:
        return Fault(name, float(seconds or 0.0))
    except ValueError as error:
        raise Refused(f"ERROR        | {seconds!r} in the fault {text!r} is no number.") from error
