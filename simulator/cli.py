"""`distrl sim-host`: simulated phones as ADB devices. `distrl sim-sdk`: an Android SDK with a stand-in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.core.errors import ConfigError

if TYPE_CHECKING:
    import threading

    from distrl.simulator.adb.host import HostedDevice, SimHost

GRACE_S = 5.0  # from the first signal to the end of the process
CHECK_S = 0.2  # how often dead processes are looked for


def sim_host(
    num: Annotated[int, typer.Option("--num", min=1, metavar="N", help="Phones.")] = 1,
    width: Annotated[int, typer.Option("--width", help="Screen width in pixels.")] = 540,
    height: Annotated[int, typer.Option("--height", help="Screen height in pixels.")] = 1200,
    base_port: Annotated[
        int, typer.Option("--base-port", help="The first console port, even; adb is at the next.")
    ] = 5554,
    adb_server_port: Annotated[
        int,
        typer.Option(
            "--adb-server-port",
            envvar="ANDROID_ADB_SERVER_PORT",
            help="The adb server to announce the phones to; 0 for none. It is never started.",
        ),
    ] = 5037,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, metavar="N", help="Default: one per core.")
    ] = None,
    snapshots: Annotated[
        Path | None, typer.Option("--snapshots", metavar="DIR", help="Keep snapshots here; else in memory.")
    ] = None,
    token_file: Annotated[
        str, typer.Option("--token-file", metavar="FILE", help="The consoles' token, as the emulator's.")
    ] = "~/.emulator_console_auth_token",
    faults: Annotated[
        list[str] | None,
        typer.Option(
            "--faults", metavar="SERIAL=FAULT", help='Start with a fault, e.g. "emulator-5556=slow 100 60".'
        ),
    ] = None,
    grpc: Annotated[
        bool,
        typer.Option(
            "--grpc",
            help="Serve the emulator's gRPC too, at the console's port + 3000. Needs the extra android-env.",
        ),
    ] = False,
    json_lines: Annotated[
        bool, typer.Option("--json", help="Print the phones as one line of JSON when all are ready.")
    ] = False,
) -> None:
    """Simulated phones as ADB devices: adb, an emulator console and snapshots, on 127.0.0.1 only.

    With --grpc also the emulator's gRPC services, for clients such as android_env.

    Prints one line per phone when all are ready. Phones whose process dies are started again. Ctrl-C ends
    them all.
    """
    from distrl.core.logs import setup
    from distrl.core.process import install_signals
    from distrl.simulator.adb.host import SimHost

    setup(role="sim-host")
    stop = install_signals(GRACE_S)
    host = SimHost(
        num,
        width,
        height,
        base_port,
        processes,
        adb_server_port,
        token_file,
        snapshots,
        _by_serial(faults),
        grpc,
    )
    run(host, stop, json_lines)


def run(host: SimHost, stop: threading.Event, json_lines: bool = False) -> None:
    """Hosts phones until `stop` is set."""
    with host:
        devices = host.start(stop=stop)
        if not stop.is_set():
            typer.echo(as_json(devices) if json_lines else as_text(devices))
        while not stop.wait(CHECK_S):
            host.check()


def as_text(devices: list[HostedDevice]) -> str:
    """One line per phone, for people."""
    return "\n".join(
        f"{device.serial}  console {device.console_port}  adb {device.adb_port}  "
        + (f"grpc {device.grpc_port}  " if device.grpc_port else "")
        + f"{device.width}x{device.height}  process {device.pid}"
        for device in devices
    )


def as_json(devices: list[HostedDevice]) -> str:
    """One line of JSON, for programs."""
    import json
    from dataclasses import asdict

    return json.dumps({"devices": [asdict(device) for device in devices]})


def _by_serial(faults: list[str] | None) -> dict[str, str]:
    found = {}
    for entry in faults or []:
        serial, equals, fault = entry.partition("=")
        if not equals:
            raise ConfigError(f"--faults {entry!r} has no '='.", 'Write e.g. "emulator-5556=slow 100 60".')
        found[serial.strip()] = fault
    return found


def sim_sdk(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to make it.")],
    avds: Annotated[
        list[str] | None,
        typer.Option("--avd", metavar="NAME", help='A virtual device to make, "sim" by default. Repeatable.'),
    ] = None,
    width: Annotated[int, typer.Option("--width", metavar="PIXELS", help="The screens' width.")] = 540,
    height: Annotated[int, typer.Option("--height", metavar="PIXELS", help="The screens' height.")] = 1200,
    fault: Annotated[
        str,
        typer.Option(
            "--fault", metavar="NAME", help="What goes wrong with them, e.g. hang_boot or crash:30."
        ),
    ] = "",
) -> None:
    """Make an Android SDK whose emulator is a stand-in: simulated phones behind the emulator's command line.

    AVDs that are there already stay as they are. The lines on standard output are for the shell: eval them.
    """
    import shlex

    from distrl.simulator.device import SimDevice
    from distrl.simulator.emulator.sdk import make_avd, make_sdk
    from distrl.simulator.emulator.startup import KEY, parse_fault

    parse_fault(fault)  # refused now and not at the emulator's start, as is an impossible screen
    SimDevice(width, height)
    made = make_sdk(directory)
    for name in avds or ["sim"]:
        if not made.store.exists(name):
            make_avd(made.store, name, width, height, config={KEY: fault} if fault else {})
            typer.echo(f"Made the AVD {name} in {made.store.home}.", err=True)
    for variable, value in made.environ.items():
        typer.echo(f"export {variable}={shlex.quote(value)}")
