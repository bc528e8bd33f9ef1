"""How the stand-in starts: its command line, its coded faults, the emulator's checks and locks in order.

AVD known ─► acceleration ─► disk ─► snapshot.lock, 10 s ─► hardware-qemu.ini.lock, 2 s
─► multiinstance.lock ─► snapshot.lock is given back

Faults are named by an environment variable, or by a key of the AVD's config.ini:

hang_boot           Android never reports that it has booted
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

import contextlib
import fcntl
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from distrl.core.errors import ConfigError
from distrl.workers.devices.avd import INSTANCES, SNAPSHOT, WRITER, Avd, AvdStore, avd_home, write_ini
from distrl.workers.devices.errors import EmulatorError
from distrl.workers.devices.processes import key_of

# The command line.

_PLAIN = """
accel-check allow-host-audio dalvik-vm-checkjni delay-adb detect-image-hang fixed-scale fuchsia grpc-use-jwt
grpc-use-token guest-angle help help-all legacy-fake-camera list-avds lowram metrics-collection
metrics-to-console netfast no-accel no-audio no-boot-anim no-cache no-camera-hq-edge no-direct-adb
no-hidpi-scaling no-jni no-location-ui no-metrics no-mouse-reposition no-passive-gps no-sim no-skin
no-snapshot no-snapshot-load no-snapshot-save no-snapshot-update-time no-snapstorage no-window noaudio
nocache nojni noskin qt-hide-window ranchu read-only restart-when-stalled share-vid shell show-kernel
skip-adb-auth snapshot-list use-host-vulkan use-keycode-forwarding use-system-libs verbose version
virtio-console wait-for-debugger webcam-list wipe-data writable-system
"""
_VALUED = """
accel acpi-config adb-path audio avd avd-arch bluetooth bootchart cache cache-size camera-back camera-front
change-country change-language change-locale charmap check-snapshot-loadable code-profile cores cpu-delay
data datadir debug debug-no dns-server dpi-device encryption-key engine feature gnss-file-path
gnss-grpc-port google-maps-key gps gpu grpc grpc-allowlist grpc-tls-ca grpc-tls-cer grpc-tls-key http-proxy
icc-profile id idle-grpc-timeout image initdata is-restart kernel logcat logcat-output memory
metrics-to-file monitor-adb multidisplay nand-limits net-tap net-tap-script-down net-tap-script-up netdelay
netspeed network-user-mode-options onion onion-alpha onion-rotation partition-size perf-stat phone-number
port ports prop qemu-top-dir quit-after-boot radio ramdisk record-session report-console scale screen sdcard
selinux shared-net-id shell-serial sim-access-rules-file skin skindir snapshot snapstorage stdouterr-file
studio-params sysdir system tcpdump timezone turncfg ui-only unix-pipe vendor virtualscene-poster waterfall
wifi-client-port wifi-server-port wifi-user-mode-options window-size
"""
PLAIN, VALUED = frozenset(_PLAIN.split()), frozenset(_VALUED.split())
"""The emulator's options without a value, and those with one value behind them."""
VERSION = "36.1.9.0"
"""The emulator version whose command line and messages these are."""


class Refused(Exception):
    """The emulator does not start; the lines say why, as it prints them."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


@dataclass
class Options:
    """What the command line says.

    Attributes:
        port: The console port; None takes the first free one.
        adb_port: The port of adb; None takes the one after the console's.
    """

    avd: str = ""
    port: int | None = None
    adb_port: int | None = None
    plain: set[str] = field(default_factory=set)
    values: dict[str, str] = field(default_factory=dict)

    @property
    def read_only(self) -> bool:
        """Whether the AVD is shared."""
        return "read-only" in self.plain

    @property
    def snapshot(self) -> str | None:
        """The snapshot to start from; None for a cold boot."""
        if self.plain & {"no-snapshot", "no-snapshot-load", "wipe-data"}:
            return None
        return self.values.get("snapshot", "default_boot")

    @property
    def saves_on_exit(self) -> bool:
        """Whether the state becomes the snapshot default_boot at the end."""
        named = "snapshot" in self.values
        return not (self.read_only or named or self.plain & {"no-snapshot", "no-snapshot-save"})


def parse(arguments: Sequence[str]) -> Options:
    """Reads the arguments. Raises Refused."""
    options, words = Options(), list(arguments)
    while words:
        word = words.pop(0)
        if word.startswith("@"):
            options.avd = word[1:]
        elif word == "-qemu":
            break  # what follows is for QEMU itself
        elif word.startswith("-") and _name(word) in PLAIN:
            options.plain.add(_name(word))
        elif word.startswith("-") and _name(word) in VALUED:
            if not words:
                raise Refused(f"option {word} must be followed by a parameter")
            options.values[_name(word)] = words.pop(0)
        elif word.startswith("-"):
            raise Refused(f"unknown option: {word}", "please use -help for a list of valid options")
        else:
            raise Refused(
                f"invalid command-line parameter: {word}.",
                "Hint: use '@foo' to launch a virtual device named 'foo'.",
                "please use -help for more information",
            )
    options.avd = options.values.get("avd", options.avd)
    if "port" in options.values:
        options.port = _port(options.values["port"])
    if "ports" in options.values:
        options.port, options.adb_port = _ports(options.values["ports"])
    return options


def _name(word: str) -> str:
    """The option's name; the emulator takes `_` for `-` inside of it."""
    return word[1:].replace("_", "-")


def _port(text: str) -> int:
    if not text.isdecimal() or not 5554 <= int(text) <= 65534:
        raise Refused("option -port must be followed by an even integer number between 5554 and 5682")
    return int(text) & ~1


def _ports(text: str) -> tuple[int, int]:
    console, comma, adb = text.partition(",")
    if comma and console.isdecimal() and adb.isdecimal():
        pair = int(console), int(adb)
        if all(1024 <= port <= 65535 for port in pair) and pair[0] != pair[1]:
            return pair
    raise Refused("option -ports must be followed by two different ports: <consoleport>,<adbport>")


# Faults.

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
    """What goes wrong: one of `NAMES`, "" for nothing; "crash" after so many seconds."""

    name: str = ""
    seconds: float = 0.0


def fault_of(config: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> Fault:
    """The fault that is asked for; the variable counts more than the AVD. Raises Refused."""
    try:
        return parse_fault(environ.get(VARIABLE) or config.get(KEY, ""))
    except ConfigError as error:
        raise Refused(line("ERROR", str(error))) from error


def parse_fault(text: str) -> Fault:
    """The fault that `text` names: one of `NAMES`, "" is none. Raises ConfigError."""
    name, colon, seconds = text.partition(":")
    try:
        after = float(seconds) if colon else 0.0
    except ValueError:
        after = -1.0
    if name not in ("", *NAMES) or (colon and name != "crash") or not 0.0 <= after < math.inf:
        known = f"Choose one of {', '.join(NAMES)}; crash may have seconds, as in crash:30."
        raise ConfigError(f"{text!r} is not a valid fault.", known)
    return Fault(name, after)


# Locks.

_POLL_S = 0.05


def _within(patience_s: float, take: Callable[[], bool]) -> bool:
    """Tries until `take` succeeds. Returns whether it did within `patience_s`."""
    give_up_at = time.monotonic() + patience_s
    while not take():
        if time.monotonic() >= give_up_at:
            return False
        time.sleep(_POLL_S)
    return True


class PidLock:
    """One lock file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_held = False

    def acquire(self, patience_s: float) -> bool:
        """Takes the lock, from a dead process too. Returns whether it could within `patience_s`."""
        try:
            self._is_held = _within(patience_s, self._take)
        except OSError:  # as the emulator: a directory that cannot be written is a lock that cannot be had
            return False
        return self._is_held

    def _take(self) -> bool:
        fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        fresh.write_text(str(os.getpid()), encoding="ascii")
        try:
            os.link(fresh, self.path)
        except FileExistsError:
            self._remove_dead()
            return False
        finally:
            fresh.unlink()
        return True

    def _remove_dead(self) -> None:
        try:
            holder = self.path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return
        if not holder.isdecimal() or key_of(int(holder)) is None:
            self.path.unlink(missing_ok=True)

    def release(self) -> None:
        """Gives it back. May be called twice."""
        if self._is_held:
            self._is_held = False
            self.path.unlink(missing_ok=True)


class InstanceLock:
    """multiinstance.lock: an flock on an empty file, shared by read-only emulators; the file stays."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, *, shared: bool, patience_s: float) -> bool:
        """Takes the lock. Returns whether it could within `patience_s`."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX

        def take() -> bool:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                self._descriptor = descriptor
            return self._descriptor is not None

        if not _within(patience_s, take):
            os.close(descriptor)
        return self._descriptor is not None

    def release(self) -> None:
        """Gives it back. May be called twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


# The checks.

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
    """The AVD of this name. Raises Refused."""
    if not name:
        raise Refused(
            line("ERROR", "No AVD specified. Use '@foo' or '-avd foo' to launch a virtual device named 'foo'")
        )
    try:
        return AvdStore(avd_home(environ)).get(name)
    except EmulatorError as error:
        raise Refused(
            line("ERROR", f"Unknown AVD name [{name}], use -list-avds to see valid list."),
            line("ERROR", f"HOME is defined but there is no file {name}.ini in $HOME/.android/avd"),
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
        "hw.gpu.mode": options.values.get("gpu", "auto"),
        "hw.lcd.width": config.get("hw.lcd.width", "540"),
        "hw.lcd.height": config.get("hw.lcd.height", "1200"),
        "image.sysdir.1": config.get("image.sysdir.1", SYSDIR),
        "disk.dataPartition.path": str(avd.directory / "userdata-qemu.img"),
        "disk.cachePartition.path": str(avd.directory / "cache.img"),
        "avd.name": avd.name,
        "android.avd.home": str(avd.home),
    }


def take_locks(avd: Avd, options: Options, fault: Fault) -> Locks:
    """Passes all checks and holds the locks. Raises Refused with what the emulator prints."""
    if fault.name == "no_accel":
        raise Refused(
            line("ERROR", "x86_64 emulation currently requires hardware acceleration!"),
            "CPU acceleration status: /dev/kvm is not found: VT disabled in BIOS or KVM kernel module not "
            "loaded",
            "More info on configuring VM acceleration on Linux:",
            "https://developer.android.com/studio/run/emulator-acceleration#vm-linux",
        )
    if fault.name == "low_disk":
        raise Refused(line("FATAL", f"Not enough disk space to run AVD '{avd.name}'. Exiting..."))
    snapshot = PidLock(avd.directory / SNAPSHOT)
    if fault.name == "snapshot_pending" or not snapshot.acquire(_patience(avd, SNAPSHOT_LOCK_S)):
        pending = f"A snapshot operation for '{avd.name}' is pending and timeout has expired. Exiting..."
        raise Refused(line("FATAL", pending))
    try:
        writer = None if options.read_only else PidLock(avd.directory / WRITER)
        patience_s = _patience(avd, WRITER_LOCK_S)
        if fault.name == "avd_locked" or (writer is not None and not writer.acquire(patience_s)):
            raise Refused(
                line("FATAL", "Running multiple emulators with the same AVD "),
                line("FATAL", "is an experimental feature."),
                line("FATAL", "Please use -read-only flag to enable this feature."),
            )
        instances = InstanceLock(avd.directory / INSTANCES)
        if not instances.acquire(shared=options.read_only, patience_s=_patience(avd, INSTANCES_LOCK_S)):
            if writer is not None:
                writer.release()
            text = "Another emulator instance is running. Please close it or run all emulators with "
            raise Refused(line("ERROR", f"{text}-read-only flag."))
    finally:
        snapshot.release()
    if not options.read_only:
        write_ini(avd.directory / "hardware-qemu.ini", hardware(avd, options))
    return Locks(writer, instances)


def _patience(avd: Avd, usual_s: float) -> float:
    """The emulator's own patience, unless the AVD's config.ini has a `sim.lock_s`."""
    return float(avd.config().get("sim.lock_s", usual_s))


def line(level: str, text: str) -> str:
    """A line of the emulator's log."""
    return f"{level:<13}| {text}"
