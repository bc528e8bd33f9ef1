"""Which tasks a device of the pool can do: the backend of a phone environment, by the kind of device."""

from __future__ import annotations

from distrl.core.errors import ConfigError
from distrl.workers.devices.base import Device
from distrl.workers.devices.sim import SimDevice
from distrl.workers.envs.phone import TaskBackend


def backend_for(device: Device) -> TaskBackend:
    """The simulated phone's tasks, in process or behind adb.

    Raises:
        ConfigError: The device is no simulated phone.
        DeviceError: The device does not answer what it is.
    """
    if isinstance(device, SimDevice):
        from distrl.workers.simphone.backend import SimBackend

        return SimBackend(device)
    from distrl.workers.devices.adb_device import AdbDevice

    if isinstance(device, AdbDevice) and device.is_simulated:
        from distrl.workers.envs.adb_sim import AdbSimBackend

        return AdbSimBackend(device)
    name = getattr(device, "serial", type(device).__name__)
    raise ConfigError(
        f"env 'phone' has tasks for simulated phones only, and {name} is none.",
        "Choose an environment for real devices with env.kind or env.import_path.",
    )
