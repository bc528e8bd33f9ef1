"""The pool that a configuration asks for: members of each kind, and what tells which of them are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from distrl.configs.devices import AdbMembers, AvdMembers, DevicesConfig, PhoneMembers, SimMembers
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError
from distrl.core.importing import import_object
from distrl.workers.devices.errors import EmulatorError
from distrl.workers.devices.pool.member import ManagedDevice
from distrl.workers.devices.pool.pool import DevicePool
from distrl.workers.devices.pool.postmortem import Postmortems

SIMULATED = "distrl.simulator.pool_member:SimMember"


def make_pool(config: Config, limit: int) -> DevicePool:
    """The pool of `config.devices`, not started yet.

    Args:
        config: The section devices is used, and where the run is.
        limit: The most devices that are opened.

    Raises:
        ConfigError: A recipe, a guard or the adb server's port is wrong.
        MissingDependency: A program is not installed.
        EmulatorError: There is no such AVD.
    """
    devices, health = config.devices, config.devices.health
    postmortems = Postmortems(lambda: postmortem_folder(config), health.postmortems, health.postmortem_bytes)
    members: list[ManagedDevice] = []
    for number, part in enumerate(devices.pool):
        if isinstance(part, SimMembers):
            names = (f"sim-{number}-{index}" for index in range(part.count))
            members += [import_object(SIMULATED)(name, part.width, part.height) for name in names]
    trackers = []
    if any(not isinstance(part, SimMembers) for part in devices.pool):
        behind_adb, tracker = _behind_adb(devices)
        members += behind_adb
        trackers.append(tracker)
    return DevicePool(members, health, limit, postmortems, trackers=trackers, close_s=devices.close_s)


def postmortem_folder(config: Config) -> Path:
    """Where post-mortems go: the run's directory if it is on this machine, else beside it."""
    runs = Path(config.runs_dir).expanduser()
    run = runs / config.name
    return run / "postmortems" if run.is_dir() else runs / ".postmortems" / config.name


def _behind_adb(devices: DevicesConfig) -> tuple[list[ManagedDevice], Any]:
    """The members that are opened without being listed first, and the tracker of all others."""
    from distrl.workers.devices.pool.pool_server import PoolServer
    from distrl.workers.devices.pool.tracking import AdbTracker, is_pattern

    server = PoolServer(port=devices.server_port())
    members: list[ManagedDevice] = []
    tracked: list[tuple[str, Callable[[str], ManagedDevice]]] = []
    for part in devices.pool:
        if isinstance(part, AvdMembers):
            members += _emulators(part, server)
        elif isinstance(part, AdbMembers | PhoneMembers):
            make = _maker(part, server)
            for serial in part.serials:
                if ":" in serial and not is_pattern(serial):  # listed only once it was connected to
                    members.append(make(serial))
                else:
                    tracked.append((serial, make))
    # A serial that is named is what it is named as, whatever patterns it fits.
    tracked.sort(key=lambda pair: is_pattern(pair[0]))
    return members, AdbTracker(server, tracked)


def _maker(part: AdbMembers | PhoneMembers, server: Any) -> Callable[[str], ManagedDevice]:
    from distrl.workers.devices.adb.client import Display
    from distrl.workers.devices.pool.adb_member import AdbMember, PhoneMember
    from distrl.workers.devices.recipes import Recipe

    common = {
        "server": server,
        "display": Display(part.display, part.input_display),
        "options": _options(part),
    }
    if isinstance(part, AdbMembers):
        return partial(AdbMember, snapshot=part.snapshot, **common)
    return partial(PhoneMember, recipe=Recipe.of(part.recipe), may_reboot=part.reboot, **common)


def _options(part: AdbMembers | PhoneMembers | AvdMembers) -> Mapping[str, object]:
    """What environments on real devices are told; checked now, not at the first episode."""
    from distrl.workers.devices.guard import GuardPolicy
    from distrl.workers.devices.recipes import Recipe

    guard = GuardPolicy.of(part.guard) if isinstance(part.guard, Mapping) else part.guard
    return {"recipe": Recipe.of(part.recipe), "guard": guard}


def _emulators(part: AvdMembers, server: Any) -> list[ManagedDevice]:
    from distrl.workers.devices.emulator.avd import AvdStore
    from distrl.workers.devices.emulator.ports import PortAllocator
    from distrl.workers.devices.emulator.sdk import find_sdk
    from distrl.workers.devices.pool.avd_member import AvdFleet, AvdMember

    fleet = AvdFleet(
        find_sdk(part.sdk, option="`sdk` of its entry in devices.pool"),
        AvdStore(Path(part.avd_home).expanduser() if part.avd_home else None),
        PortAllocator(),
        server,
        part.avd,
        part.snapshot,
        part.mode == "read-only",
        tuple(part.options),
        part.boot_s,
        _options(part),
    )
    try:
        fleet.store.get(part.avd)
    except EmulatorError as error:  # a start anew would not help
        raise ConfigError(f"devices.pool: {error.message}", error.remedy) from error
    return [AvdMember(fleet, index, part.count) for index in range(part.count)]
