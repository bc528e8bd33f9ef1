"""What an Android image has from the start: directories, generated files, properties, services."""

from __future__ import annotations

import stat as modes
from collections.abc import Callable, Iterable, Mapping

from distrl.simulator.adb.files import ROOT, SHELL, SYSTEM, Files

Generated = Mapping[str, Callable[[], bytes]]
"""Files by path, and what makes their bytes."""
SDCARD_RW = 1015
READ_ONLY = ("", "apex", "bin", "etc", "proc", "product", "sys", "system", "system_ext", "vendor")
"""Top-level directories that are read-only, the root itself among them."""
KEPT = ("/data", "/storage")
"""What a snapshot of the phone contains, and what survives a reboot."""
_DIRECTORIES = (
    ("/data", 0o771, SYSTEM, SYSTEM),
    ("/data/app", 0o771, SYSTEM, SYSTEM),
    ("/data/data", 0o771, SYSTEM, SYSTEM),
    ("/data/local", 0o751, ROOT, ROOT),
    ("/data/local/tmp", 0o771, SHELL, SHELL),
    ("/data/user", 0o711, SYSTEM, SYSTEM),
    ("/dev", 0o755, ROOT, ROOT),
    ("/mnt", 0o755, ROOT, SYSTEM),
    ("/proc/sys/kernel/random", 0o555, ROOT, ROOT),
    ("/product/app", 0o755, ROOT, ROOT),
    ("/storage/emulated", 0o755, ROOT, ROOT),
    ("/storage/self", 0o755, ROOT, ROOT),
    *((f"/sys/devices/system/cpu/cpu{core}", 0o555, ROOT, ROOT) for core in range(4)),
    ("/system/app", 0o755, ROOT, ROOT),
    ("/system/bin", 0o751, ROOT, SHELL),
    ("/system/etc", 0o755, ROOT, ROOT),
    ("/system/framework", 0o755, ROOT, ROOT),
    ("/vendor/bin", 0o751, ROOT, SHELL),
)
_SHARED = ("Alarms", "Android", "DCIM", "DCIM/Camera", "Documents", "Download", "Movies", "Music", "Pictures")
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


def build_files(files: Files, generated: Generated, packages: Iterable[str]) -> None:
    """Fills an empty tree, then makes the system's part of it read-only and the shell its user."""
    for path, mode, uid, gid in _DIRECTORIES:
        _directory(files, path, mode, uid, gid)
    for name in ("", *_SHARED):
        _directory(files, f"/storage/emulated/0/{name}".rstrip("/"), 0o770, SHELL, SDCARD_RW)
    for package in packages:
        _directory(files, f"/data/data/{package}", 0o700, SYSTEM, SYSTEM)
    for target, path in _LINKS:
        files.symlink(target, path)
    for path, source in _DEVICES:
        files.generated(path, source, modes.S_IFCHR | 0o666)
    for path, source in generated.items():
        files.generated(path, source)
    files.write("/system/etc/hosts", b"127.0.0.1       localhost\n::1             ip6-localhost\n")
    files.readonly = READ_ONLY
    files.uid = SHELL


def _directory(files: Files, path: str, mode: int, uid: int, gid: int) -> None:
    files.mkdir(path, parents=True)
    files.assign(path, mode, uid, gid)


BATTERY_PERCENT = 76
"""What the phone's battery page shows."""


def generated_files(
    boot_id: Callable[[], str], uptime_s: Callable[[], float]
) -> dict[str, Callable[[], bytes]]:
    """The files by path, and what makes their bytes."""

    def uuid() -> bytes:
        text = boot_id()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}\n".encode()

    def stat() -> bytes:
        ticks = int(uptime_s() * 100)
        return f"cpu  {ticks} 0 {ticks} {4 * ticks} 0 0 0 0 0 0\n".encode()

    return {"/proc/stat": stat, "/proc/sys/kernel/random/boot_id": uuid}


MAX_VALUE = 91
"""Most bytes in the value of a property that is not read-only (PROP_VALUE_MAX - 1)."""
RELEASES = {28: "9", 29: "10", 30: "11", 31: "12", 32: "12", 33: "13", 34: "14", 35: "15", 36: "16"}
"""Android releases by API level."""


def properties(serial: str, api_level: int, density: int) -> dict[str, str]:
    """The properties after a boot."""
    release = RELEASES.get(api_level, str(api_level - 20))
    build = f"SP{api_level}.250603.001"
    fingerprint = f"distrl/sdk_simphone_x86_64/simphone:{release}/{build}/9410603:userdebug/test-keys"
    return {
        "init.svc.bootanim": "stopped",
        "persist.sys.locale": "en-US",
        "persist.sys.timezone": "UTC",
        "ro.boot.hardware": "ranchu",
        "ro.boot.qemu": "1",
        "ro.boot.serialno": serial,
        "ro.build.characteristics": "emulator",
        "ro.build.fingerprint": fingerprint,
        "ro.build.id": build,
        "ro.build.version.release": release,
        "ro.build.version.sdk": str(api_level),
        "ro.distrl.simphone": "1",
        "ro.hardware": "ranchu",
        "ro.kernel.qemu": "1",
        "ro.product.brand": "distrl",
        "ro.product.cpu.abi": "x86_64",
        "ro.product.cpu.abilist": "x86_64,arm64-v8a",
        "ro.product.device": "simphone",
        "ro.product.manufacturer": "distrl",
        "ro.product.model": "Simphone One",
        "ro.product.name": "sdk_simphone_x86_64",
        "ro.serialno": serial,
        "ro.sf.lcd_density": str(density),
        "sys.boot_completed": "1",
    }


SERVICES = (
    "SurfaceFlinger",
    "activity",
    "alarm",
    "battery",
    "display",
    "input",
    "input_method",
    "meminfo",
    "package",
    "power",
    "statusbar",
    "telephony.registry",
    "window",
)
"""The system services that clients look for."""
