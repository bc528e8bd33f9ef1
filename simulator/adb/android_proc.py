"""Files under /proc, /sys and /dev that are made when they are read, as far as tools look at them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distrl.simulator.adb.android import AndroidSystem

KERNEL = "6.1.23-android14-4-00257-g7e35917775b8-ab9964412"
BUILT = "#1 SMP PREEMPT Mon Apr 17 20:50:58 UTC 2023"
MEMORY_KIB = 2_034_056
BATTERY_PERCENT = 76
"""What the phone's battery page says."""
CORES = 4


def _cpuinfo() -> bytes:
    return "".join(
        f"processor\t: {core}\nvendor_id\t: GenuineIntel\nmodel name\t: Android virtual processor\n\n"
        for core in range(CORES)
    ).encode()


def _stat(uptime: float) -> bytes:
    ticks = int(uptime * 100)
    lines = [f"cpu  {ticks} 0 {ticks} {ticks * CORES} 0 0 0 0 0 0"]
    lines += [f"cpu{core} {ticks // CORES} 0 {ticks // CORES} {ticks} 0 0 0 0 0 0" for core in range(CORES)]
    return ("\n".join(lines) + "\n").encode()


def _uuid(text: str) -> bytes:
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}\n".encode()


def sources(system: AndroidSystem) -> dict[str, Callable[[], bytes]]:
    """The files by path, and what makes their bytes."""
    rng = random.Random(f"urandom/{system.serial}")
    return {
        "/dev/urandom": lambda: rng.randbytes(65536),
        "/proc/cpuinfo": _cpuinfo,
        "/proc/cmdline": lambda: b"androidboot.hardware=ranchu androidboot.qemu=1\n",
        "/proc/loadavg": lambda: b"0.00 0.00 0.00 1/800 4242\n",
        "/proc/meminfo": lambda: (
            f"MemTotal:        {MEMORY_KIB} kB\nMemFree:          400000 kB\nMemAvailable:    1000000 kB\n"
            "Buffers:            4096 kB\nCached:           800000 kB\nSwapTotal:       1525540 kB\n"
        ).encode(),
        "/proc/mounts": lambda: (
            b"/dev/block/dm-0 / ext4 ro,seclabel,relatime 0 0\n"
            b"/dev/block/dm-5 /data f2fs rw,seclabel,nosuid,nodev,noatime 0 0\n"
            b"/dev/fuse /storage/emulated fuse rw,nosuid,nodev,noexec,noatime 0 0\n"
        ),
        "/proc/net/dev": lambda: b"Inter-|   Receive\n  eth0: 0 0\n wlan0: 0 0\n",
        "/proc/stat": lambda: _stat(system.uptime),
        "/proc/sys/kernel/random/boot_id": lambda: _uuid(system.boot_id),
        "/proc/sys/kernel/random/uuid": lambda: _uuid(f"{rng.getrandbits(128):032x}"),
        "/proc/uptime": lambda: f"{system.uptime:.2f} {system.uptime * CORES:.2f}\n".encode(),
        "/proc/version": lambda: f"Linux version {KERNEL} (build@android) {BUILT}\n".encode(),
        "/sys/class/power_supply/battery/capacity": lambda: f"{BATTERY_PERCENT}\n".encode(),
        "/sys/class/power_supply/battery/status": lambda: b"Charging\n",
    }
