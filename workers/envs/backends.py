"""Which tasks a device can do: the backend of `PhoneEnv` that belongs to a device."""

from __future__ import annotations

from typing import Any

from distrl.core.importing import import_object
from distrl.workers.devices.adb_device import AdbDevice
from distrl.workers.devices.device import Device
from distrl.workers.envs.phone import SIMULATED, TaskBackend

SIMULATED_ADB = "distrl.simulator.adb.backend:AdbSimBackend"
"""Tasks of a simulated phone that is reached through adb."""


def backend_for(device: Device, **recipe: Any) -> TaskBackend:
    """The backend for `device`.

    Args:
        device: A simulated phone, in this process or behind adb, or any other device behind adb.
        recipe: For those others, what `distrl.workers.envs.recipe_backend.RecipeBackend` takes: recipe,
            snapshot, guard. The guard "physical" has all its rules on a physical phone; elsewhere it is none.

    Raises:
        EnvError: A device behind adb does not answer what it is.
    """
    if not isinstance(device, AdbDevice):
        backend: TaskBackend = import_object(SIMULATED)(device)
        return backend
    if device.is_simulated:
        behind_adb: TaskBackend = import_object(SIMULATED_ADB)(device)
        return behind_adb
    from distrl.workers.envs.recipe_backend import RecipeBackend

    if recipe.get("guard") == "physical":
        recipe["guard"] = {} if device.is_physical else None
    return RecipeBackend(device, device.client, **recipe)
