"""Emulators that run on this machine, whoever started them: they announce themselves in files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from distrl.workers.devices.emulator import procfs
from distrl.workers.devices.emulator.ini import read_ini
from distrl.workers.devices.emulator.procfs import ProcessKey
from distrl.workers.devices.errors import EmulatorError


@dataclass(frozen=True)
class Running:
    """One running emulator.

    Attributes:
        key: Its process.
        avd_name: The name of its AVD.
        avd_dir: The AVD's directory, None where the file does not say.
        console_port, adb_port: Its ports.
        grpc_port, grpc_token: Its gRPC service and the secret for it; None and "" without.
    """

    key: ProcessKey
    avd_name: str
    avd_dir: Path | None
    console_port: int
    adb_port: int
    grpc_port: int | None = None
    grpc_token: str = ""

    @property
    def serial(self) -> str:
        """The name under which adb lists it."""
        return f"emulator-{self.console_port}"


def directories(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Where emulators may have announced themselves, the likeliest first."""
    home = Path(environ.get("HOME") or Path.home())
    bases = [environ.get("XDG_RUNTIME_DIR"), f"/run/user/{os.getuid()}"]
    bases += [environ.get("ANDROID_EMULATOR_HOME"), environ.get("ANDROID_USER_HOME")]
    for variable in ("ANDROID_PREFS_ROOT", "ANDROID_SDK_HOME"):
        if environ.get(variable):
            bases += [f"{environ[variable]}/.android", environ[variable]]
    bases.append(str(home / ".android"))
    bases.append(f"/tmp/android-{environ.get('USER', 'root')}")
    found = [Path(base) / "avd" / "running" for base in bases if base]
    return list(dict.fromkeys(found))


def running(environ: Mapping[str, str] = os.environ) -> list[Running]:
    """All emulators that announce themselves and whose process runs."""
    found: dict[int, Running] = {}
    for directory in directories(environ):
        for path in sorted(directory.glob("pid_*.ini")):
            for one in _read(path):
                found.setdefault(one.key.pid, one)
    return list(found.values())


def _read(path: Path) -> Iterator[Running]:
    """The emulator of one file, unless its process is gone or the file is not whole (yet)."""
    digits = path.stem.removeprefix("pid_")
    key = procfs.key_of(int(digits)) if digits.isdecimal() else None
    # The file outlives a killed emulator, and its number may be another process's by now.
    if key is None or not any("-avd" in word or "emulator" in word for word in procfs.cmdline(key.pid)):
        return
    try:
        fields = read_ini(path)
        yield Running(
            key,
            fields["avd.name"],
            Path(fields["avd.dir"]) if fields.get("avd.dir") else None,
            int(fields["port.serial"]),
            int(fields["port.adb"]),
            int(fields["grpc.port"]) if fields.get("grpc.port") else None,
            fields.get("grpc.token", ""),
        )
    except (EmulatorError, KeyError, ValueError):
        return
