"""Android: hardware acceleration, the SDK, the emulator, AVDs, the adb programs and their server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from distrl.cli.health.machine import Finding, Need, bad, good
from distrl.core.errors import DistrlError
from distrl.workers.devices.adb_server import AdbServer, adb_path
from distrl.workers.devices.avd import AvdStore
from distrl.workers.devices.errors import ServerUnavailable
from distrl.workers.devices.sdk import Sdk, emulator_version, find_sdk, probe_acceleration
from distrl.workers.devices.snapshots import get_snapshot

_ADB_S = 10.0
_ADB_VERSION = re.compile(r"Version (\S+)")
_ADB_PROTOCOL = re.compile(r"Bridge version 1\.0\.(\d+)")


def kvm() -> Finding:
    """Whether emulators have hardware acceleration."""
    found = probe_acceleration()
    return Finding("kvm", found.usable, found.reason, found.remedy, Need.EMULATOR)


def sdk(place: Path | None) -> tuple[Sdk | None, list[Finding]]:
    """The SDK at `place`, or where the environment says, and what it lacks."""
    try:
        found = find_sdk(place)
    except DistrlError as error:
        return None, [_of("sdk", error, Need.EMULATOR)]
    findings = [good("sdk", f"{found.emulator}, by {found.found}.", Need.EMULATOR)]
    try:
        findings.append(good("emulator", f"Version {emulator_version(found)}.", Need.EMULATOR))
    except DistrlError as error:
        findings.append(_of("emulator", error, Need.EMULATOR))
    if found.avdmanager is None:
        findings.append(
            bad("avdmanager", "The SDK has none.", "`sdkmanager 'cmdline-tools;latest'` brings it.")
        )
    return found, findings


def wanted_avd(store: AvdStore, name: str, snapshot: str | None) -> Iterator[Finding]:
    """The AVD that a configuration names, its locks and its snapshot."""
    about = f"avd {name}"
    try:
        avd = store.get(name)
        try:
            avd.require_unused(shared=True)
            yield good(about, f"{avd.directory}.", Need.EMULATOR)
        except DistrlError as error:  # perhaps by this very run
            yield _of(about, error, Need.NOTHING)
        if snapshot is not None:
            about = f"snapshot {snapshot}"
            info = get_snapshot(avd, snapshot)
            remedy = f"Make it again: `distrl snapshot-avd create {name} {snapshot}`."
            said = info.problem or "It has no manifest to compare it with."
            yield bad(about, said, remedy) if info.manifest is None else good(about, "It has a manifest.")
    except DistrlError as error:
        yield _of(about, error, Need.EMULATOR)


def adb_programs(sdk: Sdk | None) -> Iterator[Finding]:
    """The adb programs that may be used here, and whether they get along."""
    found: dict[str, str | Path | None] = {
        "PATH's": shutil.which("adb"),
        "the SDK's": sdk.adb if sdk is not None else None,
    }
    try:
        found = {"distrl's": adb_path(), **found}
    except DistrlError as error:
        yield _of("adb", error, Need.ADB)
    protocols: set[str] = set()
    users = {os.path.realpath(program): user for user, program in found.items() if program}
    for path, user in users.items():
        said = _adb_version(path)
        version, protocol = _ADB_VERSION.search(said), _ADB_PROTOCOL.search(said)
        if version is None or protocol is None:
            words = " ".join(said.split())[:200] or "no output"
            yield bad("adb", f"{path} ({user}) is not usable: {words}.", "Reinstall it.", Need.ADB)
            continue
        protocols.add(protocol[1])
        yield good("adb", f"{user}: {path}, version {version[1]}.", Need.ADB)
    if len(protocols) > 1:
        yield bad(
            "adb",
            f"Their protocols differ ({', '.join(sorted(protocols))}): each ends the other's server.",
            "Use one of them: set ADBUTILS_ADB_PATH, and put its folder first in PATH.",
        )


def _adb_version(path: str) -> str:
    """What `adb version` prints; it starts no server."""
    try:
        result = subprocess.run([path, "version"], capture_output=True, timeout=_ADB_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it does not run: {error}"
    return (result.stdout + result.stderr).decode("utf-8", "replace")


def adb_server(port: int, serials: list[str]) -> Iterator[Finding]:
    """The adb server at this port, which is not started, and the devices that it should list."""
    server = AdbServer(port=port)
    try:
        version, states = server.version(), server.devices()
    except ServerUnavailable:
        yield good("adb server", f"None runs at port {port}; distrl starts one when it needs it.")
        for serial in serials:
            yield bad(serial, "Not looked for: no adb server runs.", "Run `adb devices`, then look again.")
        return
    except DistrlError as error:
        yield _of("adb server", error, Need.ADB)
        return
    listed = ", ".join(f"{serial} ({state})" for serial, state in states.items()) or "no devices"
    yield good("adb server", f"Version {version} at port {port}: {listed}.", Need.ADB)
    for serial in serials:
        state = states.get(serial, "missing")
        if state == "device":
            yield good(serial, "Ready.", Need.ADB)
        else:
            yield bad(serial, f"Its state is {state}.", "Plug it in, start it, or accept its key.", Need.ADB)


def _of(about: str, error: DistrlError, need: Need) -> Finding:
    return bad(about, error.message, error.remedy, need)
