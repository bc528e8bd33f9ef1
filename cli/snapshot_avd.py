"""`distrl snapshot-avd`: makes, clones, saves, loads, checks and deletes snapshots of virtual devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from distrl.cli.avd.steps import Steps
    from distrl.workers.devices.snapshots import Manifest, SnapshotInfo, Snapshotter

app = typer.Typer(
    no_args_is_help=True,
    help="Create, clone, save, load, list, verify and delete AVD snapshots.",
    pretty_exceptions_enable=False,
)

AvdArgument = Annotated[str, typer.Argument(metavar="AVD", help="The virtual device's name.")]
SnapshotArgument = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="The snapshot's name.")]
PortOption = Annotated[
    int | None,
    typer.Option("--port", metavar="PORT", help="The emulator's console port, even; by default a free one."),
]
BootOption = Annotated[
    float | None, typer.Option("--boot-timeout", metavar="SECONDS", help="Longest time for a boot.")
]
GpuOption = Annotated[
    str | None,
    typer.Option("--gpu", metavar="MODE", help="The GPU mode; by default that of the manifest, or software."),
]
ExtraOption = Annotated[
    list[str] | None,
    typer.Option(
        "--emulator-option", metavar="OPTION", help="A further option for the emulator. Repeatable."
    ),
]


@app.command()
def create(
    avd: AvdArgument,
    snapshot: SnapshotArgument,
    setup: Annotated[
        Path | None,
        typer.Option("--setup", metavar="FILE", help="A shell script to run on the device first."),
    ] = None,
    host_setup: Annotated[
        str | None,
        typer.Option(
            "--host-setup", metavar="COMMAND", help="A command to run here first; ANDROID_SERIAL is set."
        ),
    ] = None,
    setup_timeout: Annotated[
        float, typer.Option("--setup-timeout", metavar="SECONDS", help="Longest time for each of them.")
    ] = 600.0,
    image: Annotated[
        str | None,
        typer.Option(
            "--image", metavar="PACKAGE", help="Create the AVD from this system image if it does not exist."
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="PROFILE", help="With --image: the hardware profile.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Load the snapshot right away and compare it.")
    ] = True,
    port: PortOption = None,
    boot_timeout: BootOption = None,
    gpu: GpuOption = None,
    emulator_option: ExtraOption = None,
) -> None:
    """Boot the AVD (or use the emulator that runs from it), set it up, save a snapshot with its manifest."""
    from distrl.cli.avd.steps import Steps, emulator_of, make_avd, run_here, run_on_device
    from distrl.core.errors import ConfigError
    from distrl.workers.devices.avd import AvdStore
    from distrl.workers.devices.console import require_name

    if setup is not None and not setup.is_file():
        raise ConfigError(f"--setup {setup} is not a file.", "Pass a shell script.")
    require_name(snapshot, "snapshot")
    with Steps() as steps:
        if image is not None and not AvdStore().exists(avd):
            steps.begin(f"making the AVD {avd}")
            make_avd(avd, image, device)
        start = port, boot_timeout, gpu, emulator_option
        with emulator_of(avd, steps, *start) as emulator:
            if setup is not None:
                steps.begin(f"running {setup} on {emulator.client.serial}")
                run_on_device(emulator.client, setup, setup_timeout, steps)
            if host_setup is not None:
                steps.begin(f"running {host_setup!r} for {emulator.client.serial}")
                run_here(host_setup, emulator.client, setup_timeout)
            manifest = _save(emulator, snapshot, steps)
            if check:
                _load_and_compare(emulator, snapshot, steps)
    typer.echo(f"Saved {avd}/{snapshot}: {_facts(manifest)}.")


@app.command()
def clone(
    avd: AvdArgument,
    copy: Annotated[str, typer.Argument(metavar="NEW", help="The new virtual device's name.")],
) -> None:
    """Copy a virtual device with its snapshots; no emulator may be writing it."""
    from distrl.cli.avd.steps import Steps
    from distrl.workers.devices import avd as avds

    with Steps() as steps:
        steps.begin(f"cloning {avd} to {copy}")
        made = avds.clone(avds.AvdStore(), avd, copy)
    typer.echo(f"Cloned {avd} to {copy}, in {made.directory}.")


@app.command()
def save(
    avd: AvdArgument,
    snapshot: SnapshotArgument,
) -> None:
    """Save the state of the emulator that runs from the AVD, with a manifest."""
    from distrl.cli.avd.steps import Steps, emulator_of

    with Steps() as steps, emulator_of(avd, steps, must_run=True) as emulator:
        manifest = _save(emulator, snapshot, steps)
    typer.echo(f"Saved {avd}/{snapshot}: {_facts(manifest)}.")


@app.command()
def load(
    avd: AvdArgument,
    snapshot: SnapshotArgument,
) -> None:
    """Load a snapshot into the emulator that runs from the AVD."""
    from distrl.cli.avd.steps import Steps, emulator_of
    from distrl.workers.devices.avd import AvdStore
    from distrl.workers.devices.snapshots import get_snapshot

    get_snapshot(AvdStore().get(avd), snapshot)
    with Steps() as steps, emulator_of(avd, steps, must_run=True) as emulator:
        steps.begin(f"loading {snapshot} on {emulator.client.serial}")
        emulator.load(snapshot)
    typer.echo(f"Loaded {avd}/{snapshot} on {emulator.client.serial}.")


@app.command("list")
def list_snapshots(
    avd: Annotated[str | None, typer.Argument(metavar="[AVD]", help="Only this virtual device.")] = None,
) -> None:
    """List the virtual devices and their snapshots; no emulator need run."""
    from distrl.cli.inspect import print_table
    from distrl.workers.devices.avd import AvdStore
    from distrl.workers.devices.snapshots import snapshots_of

    store = AvdStore()
    avds, broken = (store.list(), store.broken()) if avd is None else ([store.get(avd)], {})
    if not avds and not broken:
        typer.echo(f"There are no AVDs in {store.home}.", err=True)
        return
    rows = [["AVD", "SNAPSHOT", "SIZE", "SAVED", "API", "GPU", "SCREEN", "APPS"]]
    for one in avds:
        rows += [[one.name, *_cells(info)] for info in snapshots_of(one)] or [[one.name, "-", *[""] * 6]]
    print_table(rows, texts=8)
    for name, error in broken.items():
        typer.echo(f"{name}: {error}")


def _cells(info: SnapshotInfo) -> list[str]:
    import time

    from distrl.cli.avd.steps import size

    saved = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.saved_at))
    start, manifest = [info.name, size(info.size_bytes), saved], info.manifest
    if manifest is None:
        return [*start, "?", "?", "?", "no manifest" if not info.problem else "unreadable manifest"]
    screen = f"{manifest.width}x{manifest.height}"
    return [*start, str(manifest.api_level), manifest.gpu, screen, str(len(manifest.apps))]


@app.command()
def verify(
    avd: AvdArgument,
    snapshot: SnapshotArgument,
    port: PortOption = None,
    boot_timeout: BootOption = None,
    gpu: GpuOption = None,
    emulator_option: ExtraOption = None,
) -> None:
    """Load a snapshot and compare the device with its manifest.

    An emulator is started for it, read-only. One that already runs from the AVD is used, and loses its state.
    """
    from distrl.cli.avd.steps import Steps, emulator_of
    from distrl.workers.devices.avd import AvdStore
    from distrl.workers.devices.snapshots import get_snapshot

    info = get_snapshot(AvdStore().get(avd), snapshot)
    gpu = gpu or (info.manifest.gpu if info.manifest else None)
    start = port, boot_timeout, gpu, emulator_option
    with Steps() as steps, emulator_of(avd, steps, *start, snapshot=snapshot) as emulator:
        if not emulator.has_started:
            manifest = _load_and_compare(emulator, snapshot, steps)
        else:
            steps.begin(f"comparing {emulator.client.serial} with the manifest")
            manifest = emulator.verify(snapshot)
    typer.echo(f"{avd}/{snapshot} matches its manifest: {_facts(manifest)}.")


@app.command()
def delete(
    avd: AvdArgument,
    snapshot: Annotated[str | None, typer.Argument(metavar="[SNAPSHOT]", help="The snapshot's name.")] = None,
    whole: Annotated[
        bool, typer.Option("--whole-avd", help="Delete the AVD with all its snapshots.")
    ] = False,
) -> None:
    """Delete a snapshot, or a whole virtual device."""
    from distrl.core.errors import ConfigError
    from distrl.workers.devices import snapshots
    from distrl.workers.devices.avd import AvdStore
    from distrl.workers.devices.console import Console
    from distrl.workers.devices.emulator import require_ours, running_from

    if whole == (snapshot is not None):
        raise ConfigError(
            "name either a SNAPSHOT or --whole-avd.", "See `distrl snapshot-avd delete --help`."
        )
    store = AvdStore()
    if snapshot is None:
        store.delete(avd)  # also one that cannot be used
        typer.echo(f"Deleted the AVD {avd}.")
        return
    one = store.get(avd)
    snapshots.get_snapshot(one, snapshot, snapshots.NOTHING_TO_DELETE)
    there = running_from(one)
    if there is None:
        snapshots.delete_files(one, snapshot)
    else:
        require_ours(there)
        Console(there.console_port).snapshot("delete", snapshot)
    typer.echo(f"Deleted {avd}/{snapshot}.")


def _save(emulator: Snapshotter, snapshot: str, steps: Steps) -> Manifest:
    steps.begin(f"saving {snapshot} on {emulator.client.serial}")
    return emulator.save(snapshot)


def _load_and_compare(emulator: Snapshotter, snapshot: str, steps: Steps) -> Manifest:
    steps.begin(f"loading {snapshot} on {emulator.client.serial} and comparing")
    emulator.load(snapshot)
    return emulator.verify(snapshot)


def _facts(manifest: Manifest) -> str:
    screen = f"{manifest.width}x{manifest.height}"
    apps = f"{len(manifest.apps)} app{'' if len(manifest.apps) == 1 else 's'} besides the image's"
    return f"API {manifest.api_level}, {manifest.gpu}, {screen}, {apps}"
