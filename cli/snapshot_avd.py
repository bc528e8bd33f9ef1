"""`distrl snapshot-avd`: snapshots of Android virtual devices. No Android emulator is driven yet."""

from __future__ import annotations

from typing import Annotated

import typer

from distrl.core.errors import DistrlError

app = typer.Typer(
    no_args_is_help=True, help="Create, clone, save, load, list, verify and delete AVD snapshots."
)

AvdArgument = Annotated[str, typer.Argument(metavar="AVD", help="The virtual device's name.")]
SnapshotArgument = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="The snapshot's name.")]


class EmulatorUnsupported(DistrlError):
    """A verb was asked for that needs Android emulator support."""

    exit_code = 7


def _refuse(verb: str) -> EmulatorUnsupported:
    return EmulatorUnsupported(
        f"snapshot-avd {verb} is not available: distrl has no Android emulator support in this version.",
        "Use the simulated phone (env.kind=phone), which saves and loads its state by itself.",
    )


@app.command()
def create(avd: AvdArgument) -> None:
    """Create a virtual device that snapshots can be taken of."""
    raise _refuse("create")


@app.command()
def clone(avd: AvdArgument, copy: Annotated[str, typer.Argument(metavar="NEW")]) -> None:
    """Copy a virtual device with its snapshots."""
    raise _refuse("clone")


@app.command()
def save(avd: AvdArgument, snapshot: SnapshotArgument) -> None:
    """Save the running device's state."""
    raise _refuse("save")


@app.command()
def load(avd: AvdArgument, snapshot: SnapshotArgument) -> None:
    """Bring a device back to a saved state."""
    raise _refuse("load")


@app.command("list")
def list_snapshots(avd: AvdArgument) -> None:
    """List a device's snapshots."""
    raise _refuse("list")


@app.command()
def verify(avd: AvdArgument, snapshot: SnapshotArgument) -> None:
    """Check that a snapshot loads and answers."""
    raise _refuse("verify")


@app.command()
def delete(avd: AvdArgument, snapshot: SnapshotArgument) -> None:
    """Delete a snapshot."""
    raise _refuse("delete")
