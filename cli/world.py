"""`distrl world`: how true a run's imagined episodes are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

REPORT_EVERY = 50  # episodes


def world(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory.")],
    episodes: Annotated[
        int, typer.Option("--episodes", min=1, metavar="N", help="At most N, spread evenly over the run.")
    ] = 400,
) -> None:
    """Play imagined episodes again in the environment itself, and compare how they end.

    Writes agreement-world.html and .json to the run's directory: the share of imagined successes that are
    real, Cohen's κ, and the error of the imagined states by step.
    """
    from distrl.cli.run_kind import require_gui
    from distrl.configs.load import load_config
    from distrl.core.rundir import RunDir
    from distrl.evaluator.agreement import lines
    from distrl.evaluator.imagined import JUDGE, compare_imagined

    def report_progress(done: int) -> None:
        if done % REPORT_EVERY == 0:
            typer.echo(f"played {done}", err=True)

    directory = RunDir.open(run.expanduser())
    require_gui(load_config(directory.config), "world")
    for line in lines(compare_imagined(directory, episodes, report_progress)):
        typer.echo(line)
    typer.echo(f"Report: {directory.path / f'agreement-{JUDGE}.html'}")
