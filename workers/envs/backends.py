"""Which tasks a device can do: the backend of `PhoneEnv` that belongs to a device."""

from __future__ import annotations

from typing import Any

from distrl.core.errors import EnvError
from distrl.workers.devices.adb_device import AdbDevice
from distrl.workers.devices.base import Device
from distrl.workers.devices.sim import SimDevice
from distrl.workers.envs.phone import TaskBackend


def backend_for(device: Device, **recipe: Any) -> TaskBackend:
    """The backend for `device`.

    Args:
        device: A simulated phone, in this process or behind adb, or any other device behind adb.
        recipe: For those others, what `distrl.workers.envs.recipe_backend.RecipeBackend` takes: recipe,
            snapshot, guard. The guard "physical" has all its rules on a physical phone; elsewhere it is none.

    Raises:
        EnvError: If there is none for such a device, or a device behind adb cannot be asked what it is.
    """
    if isinstance(device, SimDevice):
        from distrl.workers.simphone.backend import SimBackend

        return SimBackend(device)
    if not isinstance(device, AdbDevice):
        raise EnvError(f"no backend knows tasks for a {type(device).__name__}.", "Pass PhoneEnv a backend.")
    if device.is_simulated:
        from distrl.workers.envs.adb_sim import AdbSimBackend

        return AdbSimBackend(device)
    from distrl.workers.envs.recipe_backend import RecipeBackend

    if recipe.get("guard") == "physical":
        recipe["guard"] = {} if device.is_physical else None
    return RecipeBackend(device, device.client, **recipe)
