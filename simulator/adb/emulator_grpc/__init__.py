"""The emulator's gRPC services on a simulated phone: EmulatorController and SnapshotService.

    server.py ──── the only file that uses gRPC: port, token, errors as status codes
      services.py ── what the methods do
      messages.py ── the only file that uses protobuf

Everything runs on the phone's event loop. Nothing of it is imported before gRPC is asked for.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from distrl.core.errors import MissingDependency

if TYPE_CHECKING:
    from distrl.simulator.adb.emulator_grpc.server import ControlServer
    from distrl.simulator.adb.machine import Machine

_NEEDED = {"grpc": "grpcio", "google.protobuf": "protobuf"}
"""The modules that are needed, and the packages that bring them."""


def require() -> None:
    """Raises MissingDependency if a package that gRPC needs is not installed."""
    missing = [package for module, package in _NEEDED.items() if not _is_there(module)]
    if missing:
        raise MissingDependency(
            f"gRPC needs the package {missing[0]}, which is not installed.",
            'Install the extra "android-env", e.g. pip install "distrl[android-env]".',
        )


def serve(machine: Machine, token: str = "") -> ControlServer:
    """The gRPC server of a phone, not started yet; see `ControlServer`. Raises as `require` does."""
    require()
    from distrl.simulator.adb.emulator_grpc.server import ControlServer

    return ControlServer(machine, token)


def _is_there(module: str) -> bool:
    try:
        found = find_spec(module)
    except ModuleNotFoundError:  # not even what it lies in
        return False
    return found is not None and found.origin is not None  # a mere folder of that name is not a package
