"""The emulator's gRPC services on a simulated phone: EmulatorController and SnapshotService.

    server.py ──── the only file that uses gRPC: port, token, errors as status codes
      services.py ── what the methods do
      messages.py ── the only file that uses protobuf

Everything runs on the phone's event loop. Nothing of it is imported before gRPC is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from distrl.core.errors import MissingDependency

if TYPE_CHECKING:
    from distrl.simulator.adb.emulator_grpc.server import ControlServer
    from distrl.simulator.adb.machine import Machine

PORT_OFFSET = 3000
"""From a phone's console port to its gRPC port, as with the emulator."""


def require() -> None:
    """Raises MissingDependency if a package that gRPC needs is not installed."""
    for module, package in (("grpc.aio", "grpcio"), ("google.protobuf", "protobuf")):
        try:
            import_module(module)
        except ImportError as error:
            raise MissingDependency(
                f"gRPC needs the package {package}, which is not installed.",
                'Install the extra "android-env", e.g. pip install "distrl[android-env]".',
            ) from error


def serve(machine: Machine, token: str = "") -> ControlServer:
    """The gRPC server of a phone, not started yet; see `ControlServer`. Raises as `require` does."""
    require()
    from distrl.simulator.adb.emulator_grpc.server import ControlServer

    return ControlServer(machine, token)
