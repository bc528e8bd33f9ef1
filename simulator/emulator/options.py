"""The stand-in's command line: the emulator's own options, and its message for one that it does not know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
        avd: The AVD's name, "" if none is given.
        port: The console port; None takes the first free one.
        adb_port: The port of adb; None takes the one after the console's.
        plain: The options without a value, without their dash.
        values: The options with a value.
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
    def gpu(self) -> str:
        """The GPU mode."""
        return self.values.get("gpu", "auto")

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
    """Reads the arguments.

    Raises:
        Refused: At an unknown option, or one whose value is missing or wrong.
    """
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
    """The ports of the console and of adb; any that are not the same."""
    console, comma, adb = text.partition(",")
    if comma and console.isdecimal() and adb.isdecimal():
        pair = int(console), int(adb)
        if all(1024 <= port <= 65535 for port in pair) and pair[0] != pair[1]:
            return pair
    raise Refused("option -ports must be followed by two different ports: <consoleport>,<adbport>")
