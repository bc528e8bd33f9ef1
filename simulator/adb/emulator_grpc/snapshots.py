"""The service android.emulation.control.SnapshotService: the snapshots that the console has, by gRPC.

As with the emulator, what goes wrong is told in the answer (`success`, `err`), a name that exists is not
saved over, and deleting what is not there succeeds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distrl.core.errors import DistrlError
from distrl.simulator.adb.console_snapshots import Snapshot
from distrl.simulator.adb.emulator_grpc import messages
from distrl.simulator.adb.emulator_grpc.answers import Method
from distrl.simulator.adb.machine import Machine, Refused
from distrl.workers.devices.errors import SnapshotMissing

NAME = f"{messages.CONTROL}.SnapshotService"
_VERSION = 1
"""The version of the snapshots' description."""
_Details = messages.SnapshotDetails


class SnapshotService:
    """The service on one phone.

    Args:
        machine: The phone.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def methods(self) -> dict[str, tuple[Method, Any]]:
        """The methods by name: what carries it out, and the class of its request."""
        return {
            "ListSnapshots": (self.list, messages.SnapshotFilter),
            "SaveSnapshot": (self.save, messages.SnapshotPackage),
            "LoadSnapshot": (self.load, messages.SnapshotPackage),
            "DeleteSnapshot": (self.delete, messages.SnapshotPackage),
        }

    def list(self, request: Any) -> Any:
        """The snapshots; only those that would load, unless all are asked for."""
        answer = messages.SnapshotList()
        for found in self._machine.snapshots.list():
            status = self._status(found)
            if request.statusFilter == messages.SnapshotFilter.All or status != _Details.Incompatible:
                details = answer.snapshots.add(snapshot_id=found.name, status=status, size=found.size)
                details.details.version = _VERSION
                details.details.creation_time = int(found.saved_at)
                details.details.logical_name = found.name
        return answer

    def _status(self, found: Snapshot) -> int:
        if found.name == self._machine.loaded:
            return int(_Details.Loaded)
        fits = self._machine.snapshots.fits(found.name)
        return int(_Details.Compatible if fits else _Details.Incompatible)

    def save(self, request: Any) -> Any:
        """Keeps the present state under a new name."""
        name = request.snapshot_id
        if any(found.name == name for found in self._machine.snapshots.list()):
            return _failed(name, f"SnapshotPackage with {name} already exists!")
        return _tried(name, self._machine.save)

    def load(self, request: Any) -> Any:
        """Brings a state back."""
        return _tried(request.snapshot_id, self._machine.load)

    def delete(self, request: Any) -> Any:
        """Forgets a state."""
        return _tried(request.snapshot_id, self._forget)

    def _forget(self, name: str) -> None:
        try:
            self._machine.delete(name)
        except SnapshotMissing:
            return  # as the emulator: it is not there, which is what was asked for


def _failed(name: str, why: str) -> Any:
    return messages.SnapshotPackage(snapshot_id=name, success=False, err=why.encode())


def _tried(name: str, action: Callable[[str], None]) -> Any:
    """The answer of one that may fail."""
    try:
        action(name)
    except SnapshotMissing:
        return _failed(name, f"Could not find {name}")
    except Refused as refused:
        return _failed(name, str(refused))
    except DistrlError as error:
        return _failed(name, error.message)
    return messages.SnapshotPackage(snapshot_id=name, success=True)
