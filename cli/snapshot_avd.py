"""`distrl snapshot-avd`: makes, clones, saves, loads, checks and deletes snapshots of virtual devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from distrl.cli.avd.steps import Steps
    from distrl.workers.devices.emulator import Open
    from distrl.workers.devices.snapshots import Manifest, SnapshotInfo

app = typer.Typer(
    no_args_is_help=True,
    help="Create, clone, save, load, list, verify and delete AVD snapshots.",
    pretty_exceptions_enable=False,
)

AvdArgument = Annotated[str, typer.Argument(metavar="AVD", help="The virtual device's name.")]
SnapshotArgument = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="The snapshot's name.")]
SdkOption = Annotated[
    Path | None, typer.Option("--sdk", metavar="DIR", help="The Android SDK; by default $ANDROID_HOME.")
]
HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--avd-home",
        metavar="DIR",
        help="Where the AVDs are; by default as avdmanager looks.",
    ),
]
AdbPortOption = Annotated[
    int | None,
    typer.Option("--adb-port", metavar="PORT", help="The adb server's port; by default as adb."),
]
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
    sdk: SdkOption = None,
    avd_home: HomeOption = None,
    adb_port: AdbPortOption = None,
    port: PortOption = None,
    boot_timeout: BootOption = None,
    gpu: GpuOption = None,
    emulator_option: ExtraOption = None,
) -> None:
    """Boot the AVD (or use the emulator that runs from it), set it up, save a snapshot with its manifest."""
    from distrl.cli.avd.steps import Steps, emulator_of, make_avd, run_here, run_on_device, store_at
    from distrl.core.errors import ConfigError
    from distrl.workers.devices.console import require_name
    from distrl.workers.devices.sdk import find_sdk

    if setup is not None and not setup.is_file():
        raise ConfigError(f"--setup {setup} is not a file.", "Pass a shell script.")
    require_name(snapshot, "snapshot")
    store = store_at(avd_home)
    with Steps() as steps:
        if image is not None and not store.exists(avd):
            steps.begin(f"making the AVD {avd}")
            make_avd(find_sdk(sdk), store, avd, image, device)
        place = avd, steps, sdk, avd_home, adb_port
        with emulator_of(*place, port=port, boot_s=boot_timeout, gpu=gpu, extra=emulator_option) as emulator:
            if setup is not None:
                steps.begin(f"running {setup} on {emulator.serial}")
                run_on_device(emulator.client, setup, setup_timeout, steps)
            if host_setup is not None:
                steps.begin(f"running {host_setup!r} for {emulator.serial}")
                run_here(host_setup, emulator.client, find_sdk(sdk), setup_timeout)
            manifest = _save(emulator, snapshot, steps)
            if check:
                _load_and_compare(emulator, snapshot, steps)
    typer.echo(f"Saved {avd}/{snapshot}: {_facts(manifest)}.")


@app.command()
def clone(
    avd: AvdArgument,
    copy: Annotated[str, typer.Argument(metavar="NEW", help="The new virtual device's name.")],
    avd_home: HomeOption = None,
) -> None:
    """Copy a virtual device with its snapshots; no emulator may be writing it."""
    from distrl.cli.avd.steps import Steps, store_at
    from distrl.workers.devices import avd as avds

    with Steps() as steps:
        steps.begin(f"cloning {avd} to {copy}")
        made = avds.clone(store_at(avd_home), avd, copy)
    typer.echo(f"Cloned {avd} to {copy}, in {made.directory}.")


@app.command()
def save(
    avd: AvdArgument,
    snapshot: SnapshotArgument,
    sdk: SdkOption = None,
    avd_home: HomeOption = None,
    adb_port: AdbPortOption = None,
) -> None:
    """Save the state of the emulator that runs from the AVD, with a manifest."""
    from distrl.cli.avd.steps import Steps, emulator_of

    with Steps() as steps, emulator_of(avd, steps, sdk, avd_home, adb_port, must_run=True) as emulator:
        manifest = _save(emulator, snapshot, steps)
    typer.echo(f"Saved {avd}/{snapshot}: {_facts(manifest)}.")


@app.command()
def load(
    avd: AvdArgument,
    snapshot: SnapshotArgument,
    sdk: SdkOption = None,
    avd_home: HomeOption = None,
    adb_port: AdbPortOption = None,
) -> None:
    """Load a snapshot into the emulator that runs from the AVD."""
    from distrl.cli.avd.steps import Steps, emulator_of, store_at
    from distrl.workers.devices.snapshots import get_snapshot

    get_snapshot(store_at(avd_home).get(avd), snapshot)
    with Steps() as steps, emulator_of(avd, steps, sdk, avd_home, adb_port, must_run=True) as emulator:
        steps.begin(f"loading {snapshot} on {emulator.serial}")
        emulator.snapshotter.load(snapshot)
    typer.echo(f"Loaded {avd}/{snapshot} on {emulator.serial}.")


@app.command("list")
def list_snapshots(
    avd: Annotated[str | None, typer.Argument(metavar="[AVD]", help="Only this virtual device.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    avd_home: HomeOption = None,
) -> None:
    """List the virtual devices and their snapshots; no emulator need run."""
    import json

    from distrl.cli.avd.steps import store_at
    from distrl.cli.inspect import print_table
    from distrl.workers.devices.snapshots import snapshots_of

    store = store_at(avd_home)
    avds, broken = (store.list(), store.broken()) if avd is None else ([store.get(avd)], {})
    found = [(one.name, snapshots_of(one)) for one in avds]
    if as_json:
        for name, error in broken.items():
            typer.echo(json.dumps({"avd": name, "snapshot": None, "problem": str(error)}))
        for name, infos in found:
            for info in infos:
                typer.echo(json.dumps({"avd": name, **_record(info)}))
        return
    if not found and not broken:
        typer.echo(f"There are no AVDs in {store.home}.", err=True)
        return
    rows = [["AVD", "SNAPSHOT", "SIZE", "SAVED", "API", "GPU", "SCREEN", "APPS"]]
    for name, infos in found:
        rows += [[name, *_cells(info)] for info in infos] or [[name, "-", *[""] * 6]]
    print_table(rows, texts=8)
    for name, error in broken.items():
        typer.echo(f"{name}: {error}")


def _record(info: SnapshotInfo) -> dict[str, object]:
    manifest = info.manifest
    named = ("api_level", "image", "gpu", "emulator", "apps")
    return {
        "snapshot": info.name,
        "size_bytes": info.size_bytes,
        "saved_at": info.saved_at,
        "has_manifest": manifest is not None,
        "problem": info.problem,
        **{name: getattr(manifest, name, None) for name in named},
    }


def _cells(info: SnapshotInfo) -> list[str]:
    import time

    from distrl.cli.avd.steps import size

    saved = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.saved_at))
    start, manifest = [info.name, size(info.size_bytes), saved], info.manifest
    if manifest is None:
        return [*start, "?", "?", "?", "no manifest" if not info.problem else "unreadable manifest"]
    screen = f"{manifest.screen.width}x{manifest.screen.height}"
    return [*start, str(manifest.api_level), manifest.gpu, screen, str(len(manifest.apps))]


@app.command()
def verify(
    avd: AvdArgument,
    snapshot: SnapshotArgument,
    sdk: SdkOption = None,
    avd_home: HomeOption = None,
    adb_port: AdbPortOption = None,
    port: PortOption = None,
    boot_timeout: BootOption = None,
    gpu: GpuOption = None,
    emulator_option: ExtraOption = None,
) -> None:
    """Load a snapshot and compare the device with its manifest.

    An emulator is started for it, read-only. One that already runs from the AVD is used, and loses its state.
    """
    from distrl.cli.avd.steps import Steps, emulator_of, store_at
    from distrl.workers.devices.snapshots import get_snapshot

    info = get_snapshot(store_at(avd_home).get(avd), snapshot)
    gpu = gpu or (info.manifest.gpu if info.manifest else None)
    with (
        Steps() as steps,
        emulator_of(
            avd,
            steps,
            sdk,
            avd_home,
            adb_port,
            port=port,
            boot_s=boot_timeout,
            gpu=gpu,
            extra=emulator_option,
            snapshot=snapshot,
        ) as emulator,
    ):
        if not emulator.has_started:
            manifest = _load_and_compare(emulator, snapshot, steps)
        else:
            steps.begin(f"comparing {emulator.serial} with the manifest")
            manifest = emulator.snapshotter.verify(snapshot)
    typer.echo(f"{avd}/{snapshot} matches its manifest: {_facts(manifest)}.")


@app.command()
def delete(
    avd: AvdArgument,
    snapshot: Annotated[str | None, typer.Argument(metavar="[SNAPSHOT]", help="The snapshot's name.")] = None,
    whole: Annotated[
        bool, typer.Option("--whole-avd", help="Delete the AVD with all its snapshots.")
    ] = False,
    avd_home: HomeOption = None,
) -> None:
    """Delete a snapshot, or a whole virtual device."""
    from distrl.cli.avd.steps import store_at
    from distrl.core.errors import ConfigError
    from distrl.workers.devices import snapshots
    from distrl.workers.devices.console import Console
    from distrl.workers.devices.emulator import require_ours, running_from

    if whole == (snapshot is not None):
        raise ConfigError(
            "name either a SNAPSHOT or --whole-avd.", "See `distrl snapshot-avd delete --help`."
        )
    store = store_at(avd_home)
    one = store.get(avd)
    if snapshot is None:
        store.delete(avd)
        typer.echo(f"Deleted the AVD {avd}.")
        return
    snapshots.get_snapshot(one, snapshot, snapshots.NOTHING_TO_DELETE)
    there = running_from(one)
    if there is None:
        snapshots.delete_files(one, snapshot)
    else:
        require_ours(there)
        Console(there.console_port).avd_snapshot_delete(snapshot)
    typer.echo(f"Deleted {avd}/{snapshot}.")


def _save(emulator: Open, snapshot: str, steps: Steps) -> Manifest:
    steps.begin(f"saving {snapshot} on {emulator.serial}")
    return emulator.snapshotter.save(snapshot)


def _load_and_compare(emulator: Open, snapshot: str, steps: Steps) -> Manifest:
    steps.begin(f"loading {snapshot} on {emulator.serial} and comparing")
    emulator.snapshotter.load(snapshot)
    return emulator.snapshotter.verify(snapshot)


def _facts(manifest: Manifest) -> str:
    screen = f"{manifest.screen.width}x{manifest.screen.height}"
    apps = f"{len(manifest.apps)} app{'' if len(manifest.apps) == 1 else 's'} besides the image's"
    return f"API {manifest.api_level}, {manifest.gpu}, {screen}, {apps}"
