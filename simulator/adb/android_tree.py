"""The directories and files that an Android phone has from the start, as far as tools look at them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from distrl.simulator.adb.files import ROOT, SHELL, SYSTEM, Files
from distrl.simulator.adb.shell.commands import NAMES

SDCARD_RW = 1015
READ_ONLY = ("", "apex", "bin", "etc", "proc", "product", "sys", "system", "system_ext", "vendor")
"""Top-level directories that nobody may write to, the root itself among them."""
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


def build(files: Files, generated: Mapping[str, Callable[[], bytes]], packages: Iterable[str]) -> None:
    """Fills an empty tree, then makes the system's part of it read-only.

    Args:
        files: The tree; its user must be root. Afterwards it is the shell's user.
        generated: Files whose bytes are made anew at each read, by path.
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
    for name in NAMES:
        files.write(f"/system/bin/{name}", b"", mode=0o755)
    files.readonly = READ_ONLY
    files.uid = SHELL


def _directory(files: Files, path: str, mode: int, uid: int, gid: int) -> None:
    files.mkdir(path, parents=True)
    files.chmod(path, mode)
    files.chown(path, uid, gid)
