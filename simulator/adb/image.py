"""What an Android image has from the start: directories, generated files, properties, services."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from distrl.simulator.adb.files import ROOT, SHELL, SYSTEM, Files

if TYPE_CHECKING:
    from distrl.simulator.adb.android import AndroidSystem

SDCARD_RW = 1015
READ_ONLY = ("", "apex", "bin", "etc", "proc", "product", "sys", "system", "system_ext", "vendor")
"""Top-level directories that are read-only, the root itself among them."""
KEPT = ("/data", "/storage")
"""What a snapshot of the phone contains, and what survives a reboot."""

_DIRECTORIES = (
    ("/acct", 0o755, ROOT, ROOT),
    ("/apex", 0o755, ROOT, ROOT),
    ("/cache", 0o770, SYSTEM, 2001),
    ("/config", 0o500, ROOT, ROOT),
    ("/data", 0o771, SYSTEM, SYSTEM),
    ("/data/adb", 0o700, ROOT, ROOT),
    ("/data/app", 0o771, SYSTEM, SYSTEM),
    ("/data/data", 0o771, SYSTEM, SYSTEM),
    ("/data/local", 0o751, ROOT, ROOT),
    ("/data/local/tests", 0o771, SHELL, SHELL),
    ("/data/local/tmp", 0o771, SHELL, SHELL),
    ("/data/local/traces", 0o777, SHELL, SHELL),
    ("/data/misc", 0o1771, SYSTEM, 9998),
    ("/data/system", 0o775, SYSTEM, SYSTEM),
    ("/data/user", 0o711, SYSTEM, SYSTEM),
    ("/dev", 0o755, ROOT, ROOT),
    ("/mnt", 0o755, ROOT, SYSTEM),
    ("/mnt/user", 0o755, ROOT, ROOT),
    ("/odm", 0o755, ROOT, ROOT),
    ("/proc", 0o555, ROOT, ROOT),
    ("/proc/net", 0o555, ROOT, ROOT),
    ("/proc/sys/kernel/random", 0o555, ROOT, ROOT),
    ("/product/app", 0o755, ROOT, ROOT),
    ("/storage", 0o755, ROOT, ROOT),
    ("/storage/emulated", 0o755, ROOT, ROOT),
    ("/storage/self", 0o755, ROOT, ROOT),
    ("/sys/class/power_supply/battery", 0o555, ROOT, ROOT),
    ("/system/app", 0o755, ROOT, ROOT),
    ("/system/bin", 0o751, ROOT, SHELL),
    ("/system/etc", 0o755, ROOT, ROOT),
    ("/system/fonts", 0o755, ROOT, ROOT),
    ("/system/framework", 0o755, ROOT, ROOT),
    ("/system/lib64", 0o755, ROOT, ROOT),
    ("/system/priv-app", 0o755, ROOT, ROOT),
    ("/system/xbin", 0o751, ROOT, SHELL),
    ("/system_ext", 0o755, ROOT, ROOT),
    ("/vendor/bin", 0o751, ROOT, SHELL),
    ("/vendor/etc", 0o755, ROOT, ROOT),
)
_SHARED = (
    "Alarms",
    "Android",
    "Android/data",
    "Android/media",
    "Android/obb",
    "Audiobooks",
    "DCIM",
    "DCIM/Camera",
    "Documents",
    "Download",
    "Movies",
    "Music",
    "Notifications",
    "Pictures",
    "Podcasts",
    "Recordings",
    "Ringtones",
)
_LINKS = (
    ("/system/bin", "/bin"),
    ("/system/etc", "/etc"),
    ("/storage/self/primary", "/sdcard"),
    ("/storage/emulated/0", "/storage/self/primary"),
    ("/data/data", "/data/user/0"),
    ("/sdcard", "/mnt/sdcard"),
)
_DEVICES: tuple[tuple[str, Callable[[], bytes]], ...] = (
    ("/dev/null", bytes),
    ("/dev/tty", bytes),
    ("/dev/zero", lambda: bytes(65536)),
)


def build_files(files: Files, generated: Mapping[str, Callable[[], bytes]], packages: Iterable[str]) -> None:
    """Fills an empty tree, then makes the system's part of it read-only.

    Args:
        files: The tree; its user must be root. Afterwards it is the shell's user.
        generated: Files whose bytes are made at each read, by path.
        packages: Names of the packages that have a data directory.
    """
    for path, mode, uid, gid in _DIRECTORIES:
        _directory(files, path, mode, uid, gid)
    for name in ("", *_SHARED):
        _directory(files, f"/storage/emulated/0/{name}".rstrip("/"), 0o2770, SHELL, SDCARD_RW)
    for package in packages:
        _directory(files, f"/data/data/{package}", 0o700, SYSTEM, SYSTEM)
    for target, path in _LINKS:
        files.symlink(target, path)
    for path, source in _DEVICES:
        files.character(path, source)
    for path, source in generated.items():
        files.generated(path, source)
    files.write("/system/etc/hosts", b"127.0.0.1       localhost\n::1             ip6-localhost\n")
    files.readonly = READ_ONLY
    files.uid = SHELL


def _directory(files: Files, path: str, mode: int, uid: int, gid: int) -> None:
    files.mkdir(path, parents=True)
    files.chmod(path, mode)
    files.chown(path, uid, gid)


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


def generated_files(system: AndroidSystem) -> dict[str, Callable[[], bytes]]:
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


MAX_VALUE = 91
"""Most bytes in the value of a property that is not read-only (PROP_VALUE_MAX - 1)."""
RELEASES = {28: "9", 29: "10", 30: "11", 31: "12", 32: "12", 33: "13", 34: "14", 35: "15", 36: "16"}
"""Android releases by API level."""
PATCHES = {28: "2019-12-05", 29: "2020-12-05", 30: "2021-12-05", 31: "2022-02-05", 32: "2022-08-05"}


def properties(serial: str, api_level: int, density: int) -> dict[str, str]:
    """The properties after a boot.

    Args:
        serial: The device's serial, e.g. "emulator-5554".
        api_level: Android API level.
        density: Dots per inch.
    """
    release = RELEASES.get(api_level, str(api_level - 20))
    build = f"SP{api_level}.250603.001"
    fingerprint = f"distrl/sdk_simphone_x86_64/simphone:{release}/{build}/9410603:userdebug/test-keys"
    values = {
        "dalvik.vm.heapsize": "512m",
        "debug.force_rtl": "false",
        "dev.bootcomplete": "1",
        "gsm.operator.alpha": "T-Mobile",
        "gsm.operator.numeric": "310260",
        "gsm.sim.state": "LOADED",
        "init.svc.adbd": "running",
        "init.svc.bootanim": "stopped",
        "init.svc.surfaceflinger": "running",
        "init.svc.zygote": "running",
        "net.bt.name": "Android",
        "persist.sys.locale": "en-US",
        "persist.sys.timezone": "UTC",
        "persist.sys.usb.config": "adb",
        "qemu.hw.mainkeys": "0",
        "ro.adb.secure": "0",
        "ro.boot.hardware": "ranchu",
        "ro.boot.qemu": "1",
        "ro.boot.serialno": serial,
        "ro.bootloader": "unknown",
        "ro.build.characteristics": "emulator",
        "ro.build.date": "Tue Jun  3 00:00:00 UTC 2025",
        "ro.build.date.utc": "1748908800",
        "ro.build.display.id": f"sdk_simphone_x86_64-userdebug {release} {build} 9410603 test-keys",
        "ro.build.fingerprint": fingerprint,
        "ro.build.flavor": "sdk_simphone_x86_64-userdebug",
        "ro.build.id": build,
        "ro.build.product": "simphone",
        "ro.build.tags": "test-keys",
        "ro.build.type": "userdebug",
        "ro.build.version.codename": "REL",
        "ro.build.version.incremental": "9410603",
        "ro.build.version.release": release,
        "ro.build.version.sdk": str(api_level),
        "ro.build.version.security_patch": PATCHES.get(api_level, "2025-05-05"),
        "ro.crypto.state": "encrypted",
        "ro.debuggable": "1",
        "ro.distrl.simphone": "1",
        "ro.hardware": "ranchu",
        "ro.kernel.qemu": "1",
        "ro.opengles.version": "196609",
        "ro.product.board": "goldfish_x86_64",
        "ro.product.brand": "distrl",
        "ro.product.cpu.abi": "x86_64",
        "ro.product.cpu.abilist": "x86_64,arm64-v8a",
        "ro.product.cpu.abilist64": "x86_64,arm64-v8a",
        "ro.product.cpu.abilist32": "",
        "ro.product.device": "simphone",
        "ro.product.first_api_level": str(api_level),
        "ro.product.locale": "en-US",
        "ro.product.manufacturer": "distrl",
        "ro.product.model": "Simphone One",
        "ro.product.name": "sdk_simphone_x86_64",
        "ro.secure": "1",
        "ro.serialno": serial,
        "ro.sf.lcd_density": str(density),
        "ro.zygote": "zygote64",
        "service.adb.root": "0",
        "sys.boot_completed": "1",
        "sys.usb.state": "adb",
        "vold.decrypt": "trigger_restart_framework",
    }
    return values


SERVICES = (
    "SurfaceFlinger",
    "accessibility",
    "activity",
    "activity_task",
    "alarm",
    "appops",
    "audio",
    "battery",
    "bluetooth_manager",
    "clipboard",
    "connectivity",
    "cpuinfo",
    "device_policy",
    "display",
    "gfxinfo",
    "input",
    "input_method",
    "isphonesubinfo",
    "location",
    "media_session",
    "meminfo",
    "notification",
    "package",
    "phone",
    "power",
    "procstats",
    "settings",
    "simphone",
    "statusbar",
    "telephony.registry",
    "uimode",
    "usagestats",
    "user",
    "wifi",
    "window",
)
"""The system services that there are; most of them only have a name."""
