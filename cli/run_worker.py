"""`distrl run-worker`: collects trajectories on this machine's environments for a learner."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.cli.options import (
    GRACE_S,
    ConfigArgument,
    DryRunOption,
    MetricsPortOption,
    NameOption,
    SetOption,
    WaitOption,
    check_name,
    load,
    metrics_port,
)

if TYPE_CHECKING:
    import threading

    from distrl.configs.schema import Config
    from distrl.core.files import HeldLock

MAX_UNNAMED = 256  # workers without --name that share a spool directory
_log = logging.getLogger(__name__)

DevicesOption = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="SERIAL,…",
        help="Devices behind adb, or patterns such as 'emulator-*'; overrides devices.pool.",
    ),
]
SpoolOption = Annotated[
    Path | None,
    typer.Option(
        "--spool",
        metavar="DIR",
        help="Where finished trajectories wait for the learner's ack. Default: RUNS_DIR/.spool/RUN.",
    ),
]


def run_worker(
    config: ConfigArgument,
    overrides: SetOption = None,
    name: NameOption = None,
    devices: DevicesOption = None,
    spool: SpoolOption = None,
    wait: WaitOption = None,
    metrics: MetricsPortOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Collect trajectories for a learner, in as many environments as it has slots; with appo, train on them.

    It may start before the learner and the inference servers, and outlives their restarts. It stops on
    Ctrl-C, and when the learner reports that the run is over. Unacknowledged trajectories stay in the spool;
    a worker of the same name delivers them.
    """
    from distrl.cli.health.run import check_installed
    from distrl.core.logs import setup
    from distrl.core.process import install_signals

    more = []
    if devices is not None:
        serials = [name.strip() for name in devices.split(",") if name.strip()]
        more.append(f"devices.pool={json.dumps([{'kind': 'adb', 'serials': serials}])}")
    loaded = load(config, [*(overrides or []), *more], dry_run)
    check_installed(loaded, is_worker=True)
    setup(role=name or "worker")
    directory = spool or Path(loaded.runs_dir).expanduser() / ".spool" / loaded.name
    with metrics_port(metrics, "worker", loaded.name):
        work(loaded, name, directory, install_signals(GRACE_S + loaded.devices.close_s), wait)


def work(
    config: Config, name: str | None, spool_dir: Path, stop: threading.Event, wait_s: float | None = None
) -> None:
    """Runs a worker until `stop` is set or the run is over.

    Without a `name` it gets the first of this host's that no other process uses. Its spool is a file in
    `spool_dir`. It waits `wait_s` for the learner; None for as long as it takes.
    """
    from distrl.cli.run_kind import run_kind

    with contextlib.ExitStack() as stack:
        if name is not None:
            check_name(name)
        else:
            name, claim = claim_name(spool_dir)
            stack.enter_context(claim)
        run_kind(config).work(name, spool_dir, stop, wait_s)


def claim_name(spool_dir: Path) -> tuple[str, HeldLock]:
    """The first name HOST-0, HOST-1, … that no other process holds, and the lock that holds it.

    Restarted workers thus get the names, and the spools, of those before them.
    """
    from distrl.core.errors import RunDirectoryError
    from distrl.core.rundir import DirectoryInUse, lock_directory

    try:
        spool_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirectoryError(
            f"{spool_dir} cannot be made: {error}.", "Choose a --spool folder."
        ) from error
    for index in range(MAX_UNNAMED):
        name = f"{host_name()}-{index}"
        with contextlib.suppress(DirectoryInUse):
            return name, lock_directory(spool_dir / f".{name}.lock", "worker")
    raise RunDirectoryError(f"{spool_dir} has no free worker name.", "Give one with --name.")


def host_name() -> str:
    """This host's, as a part of names."""
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) or "worker"
