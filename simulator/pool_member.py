"""Simulated phones of this process as pool members: they cannot fail, and are simply made anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distrl.simulator.device import SimDevice
from distrl.workers.devices.device import Device
from distrl.workers.devices.health import RecoveryStep

OPEN_S = 5.0


class SimMember:
    """One simulated phone.

    Args:
        name: Its id in the pool.
        width, height: Its screen in pixels.
    """

    kind = "sim"
    claim = ""
    open_limit_s = OPEN_S
    options: Mapping[str, object] = {}

    def __init__(self, name: str, width: int = 540, height: int = 1200) -> None:
        self.id = name
        self._size = (width, height)

    def open(self) -> Device:
        """A phone fresh from the box."""
        return SimDevice(*self._size)

    def probe(self) -> None:
        """Always succeeds."""

    def ladder(self) -> Sequence[RecoveryStep]:
        """One step that does nothing: opening makes a new phone."""
        return [RecoveryStep("make anew", lambda: None, 0.0)]

    def evidence(self) -> Mapping[str, bytes]:
        """Nothing."""
        return {}

    def close(self) -> None:
        """Nothing is held."""
