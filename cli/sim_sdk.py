"""`distrl sim-sdk`: an Android SDK whose emulator is a stand-in, to try all about emulators without one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


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

    from distrl.core.errors import ConfigError
    from distrl.workers.simemulator.fake_sdk import make_avd, make_sdk
    from distrl.workers.simemulator.faults import KEY, NAMES

    if fault and fault.partition(":")[0] not in NAMES:
        raise ConfigError(f"there is no fault {fault!r}.", f"Choose one of {', '.join(NAMES)}.")
    made = make_sdk(directory)
    for name in avds or ["sim"]:
        if not made.store.exists(name):
            make_avd(made.store, name, width, height, config={KEY: fault} if fault else {})
            typer.echo(f"Made the AVD {name} in {made.store.home}.", err=True)
    for variable, value in made.environ.items():
        typer.echo(f"export {variable}={shlex.quote(value)}")
