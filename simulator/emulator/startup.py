"""How the stand-in starts: the checks and locks of the emulator, in its order and with its messages.

AVD known ─► acceleration ─► disk ─► snapshot.lock, 10 s ─► hardware-qemu.ini.lock, 2 s
─► multiinstance.lock ─► snapshot.lock is given back
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from distrl.simulator.emulator.faults import Fault
from distrl.simulator.emulator.options import Options, Refused
from distrl.simulator.emulator.pid_locks import InstanceLock, PidLock
from distrl.workers.devices.avd import INSTANCES, SNAPSHOT, WRITER, Avd, AvdStore, avd_home, write_ini
from distrl.workers.devices.errors import EmulatorError

SNAPSHOT_LOCK_S, WRITER_LOCK_S, INSTANCES_LOCK_S = 10.0, 2.0, 1.0
SYSDIR = "system-images/android-34/google_apis/x86_64/"


@dataclass
class Locks:
    """The locks that a running emulator holds."""

    writer: PidLock | None
    instances: InstanceLock

    def release(self) -> None:
        """Gives them back."""
        self.instances.release()
        if self.writer is not None:
            self.writer.release()


def find_avd(name: str, environ: Mapping[str, str] = os.environ) -> Avd:
    """The AVD of this name.

    Raises:
        Refused: If there is none.
    """
    if not name:
        raise Refused(
            _error("No AVD specified. Use '@foo' or '-avd foo' to launch a virtual device named 'foo'")
        )
    try:
        return AvdStore(avd_home(environ)).get(name)
    except EmulatorError as error:
        raise Refused(
            _error(f"Unknown AVD name [{name}], use -list-avds to see valid list."),
            _error(f"HOME is defined but there is no file {name}.ini in $HOME/.android/avd"),
            "(Note: Directories are searched in the order $ANDROID_AVD_HOME, $ANDROID_SDK_HOME/avd and "
            "$HOME/.android/avd)",
        ) from error


def hardware(avd: Avd, options: Options) -> dict[str, str]:
    """The hardware that results from the AVD and the command line, as hardware-qemu.ini says it."""
    config = avd.config()
    return {
        "hw.cpu.arch": "x86_64",
        "hw.cpu.ncore": options.values.get("cores", config.get("hw.cpu.ncore", "4")),
        "hw.ramSize": options.values.get("memory", config.get("hw.ramSize", "2048")),
        "hw.gpu.enabled": "yes",
        "hw.gpu.mode": options.gpu,
        "hw.lcd.width": config.get("hw.lcd.width", "540"),
        "hw.lcd.height": config.get("hw.lcd.height", "1200"),
        "image.sysdir.1": config.get("image.sysdir.1", SYSDIR),
        "disk.dataPartition.path": str(avd.directory / "userdata-qemu.img"),
        "disk.cachePartition.path": str(avd.directory / "cache.img"),
        "avd.name": avd.name,
        "android.avd.home": str(avd.home),
    }


def take_locks(avd: Avd, options: Options, fault: Fault) -> Locks:
    """Passes all checks and holds the locks.

    Raises:
        Refused: With what the emulator prints when one of them fails.
    """
    if fault.name == "no_accel":
        raise Refused(
            _error("x86_64 emulation currently requires hardware acceleration!"),
            "CPU acceleration status: /dev/kvm is not found: VT disabled in BIOS or KVM kernel module not "
            "loaded",
            "More info on configuring VM acceleration on Linux:",
            "https://developer.android.com/studio/run/emulator-acceleration#vm-linux",
        )
    if fault.name == "low_disk":
        raise Refused(_fatal(f"Not enough disk space to run AVD '{avd.name}'. Exiting..."))
    snapshot = PidLock(avd.directory / SNAPSHOT)
    pending = _fatal(f"A snapshot operation for '{avd.name}' is pending and timeout has expired. Exiting...")
    if fault.name == "snapshot_pending" or not _acquire(snapshot, _patience(avd, SNAPSHOT_LOCK_S)):
        raise Refused(pending)
    try:
        writer = None if options.read_only else PidLock(avd.directory / WRITER)
        patience_s = _patience(avd, WRITER_LOCK_S)
        if fault.name == "avd_locked" or (writer is not None and not _acquire(writer, patience_s)):
            raise Refused(
                _fatal("Running multiple emulators with the same AVD "),
                _fatal("is an experimental feature."),
                _fatal("Please use -read-only flag to enable this feature."),
            )
        instances = InstanceLock(avd.directory / INSTANCES)
        if not instances.acquire(shared=options.read_only, patience_s=_patience(avd, INSTANCES_LOCK_S)):
            if writer is not None:
                writer.release()
            raise Refused(
                _error(
                    "Another emulator instance is running. Please close it or run all emulators with "
                    "-read-only flag."
                )
            )
    finally:
        snapshot.release()
    if not options.read_only:
        write_ini(avd.directory / "hardware-qemu.ini", hardware(avd, options))
    return Locks(writer, instances)


def _patience(avd: Avd, usual_s: float) -> float:
    """The emulator's own patience, unless the AVD's config.ini has a `sim.lock_s`."""
    return float(avd.config().get("sim.lock_s", usual_s))


def _acquire(lock: PidLock, patience_s: float) -> bool:
    try:
        return lock.acquire(patience_s)
    except OSError:  # as the emulator: a directory that cannot be written is a lock that cannot be had
        return False


def _error(text: str) -> str:
    return f"{'ERROR':<13}| {text}"


def _fatal(text: str) -> str:
    return f"{'FATAL':<13}| {text}"
