"""`distrl dashboard`: a page that follows a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.core.errors import ConfigError

if TYPE_CHECKING:
    from distrl.evaluator.dashboard.dashboard import Dashboard

RunArgument = Annotated[
    Path | None, typer.Argument(metavar="[RUN]", help="The run directory.", show_default=False)
]
LearnerOption = Annotated[
    str | None,
    typer.Option(
        "--learner",
        metavar="tcp://HOST:PORT",
        help="The learner's network.control; by default as the run directory names it.",
    ),
]
KeysOption = Annotated[
    Path | None,
    typer.Option("--keys", metavar="DIR", help="The keys directory; by default network.keys_dir of RUN."),
]
KeyNameOption = Annotated[
    str, typer.Option("--key-name", metavar="NAME", help="With --keys: the key, with the role observer.")
]


def dashboard(
    run: RunArgument = None,
    learner: LearnerOption = None,
    keys: KeysOption = None,
    key_name: KeyNameOption = "client",
    http: Annotated[
        str,
        typer.Option(
            "--http",
            metavar="[HOST:]PORT",
            help="Where to serve the page, by default to this machine only; another HOST needs "
            "DISTRL_DASHBOARD_TOKEN and --certificate.",
        ),
    ] = "8800",
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE", help="A PEM file with certificate and key, for HTTPS."),
    ] = None,
) -> None:
    """Serve a page that follows a run: screens, flow, learning curves, episodes, devices, costs.

    It reads the run directory and joins its learner if one is running on this machine; --learner joins a
    learner anywhere. It may start and stop at any time. With DISTRL_DASHBOARD_TOKEN set the page asks for
    that token, and can pause and resume the run, request checkpoints and play slots by hand.
    """
    import contextlib

    from distrl.core.logs import setup
    from distrl.core.process import install_signals
    from distrl.evaluator.dashboard.server import TOKEN_VARIABLE, DashboardServer

    token = os.environ.get(TOKEN_VARIABLE) or None
    setup(role="dashboard")
    stop = install_signals()
    with (
        open_dashboard(run, learner, keys, key_name, token is not None) as watched,
        contextlib.closing(DashboardServer(watched, http, token, certificate)) as server,
    ):
        typer.echo(f"Dashboard: {server.url}")
        stop.wait()


def open_dashboard(
    run: Path | None, learner: str | None, keys: Path | None, key_name: str, can_command: bool = False
) -> Dashboard:
    """What `dashboard` and `top` show, while it is entered. ConfigError if neither place is given."""
    from distrl.core.security import load_security
    from distrl.evaluator.dashboard.dashboard import Dashboard

    if run is None and learner is None:
        raise ConfigError("There is nothing to watch.", "Pass a run directory, or --learner tcp://HOST:PORT.")
    security = load_security(keys.expanduser() if keys is not None else None, key_name)
    return Dashboard(run.expanduser() if run is not None else None, learner, security, can_command)
