"""`distrl trace`: a run's time line over all roles, and where the time went."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TRACE_FILE = "trace.json"


def trace(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help=f"The file. Default: RUN/{TRACE_FILE}.")
    ] = None,
) -> None:
    """Write a time line of episodes, act requests, batches and updates, and print where the time went.

    The file is in the format of Chrome's traces: open it at https://ui.perfetto.dev, which keeps it in the
    browser. It works at any time, during the run too, with what there is.
    """
    from distrl.cli.run_kind import require_gui
    from distrl.configs.load import load_config
    from distrl.core.rundir import RunDir
    from distrl.evaluator.trace import Trace

    directory = RunDir.open(run.expanduser())
    require_gui(load_config(directory.config), "trace")
    found, path = Trace.of(directory), out or directory.path / TRACE_FILE
    found.write(path)
    for line in [*found.lines(), f"Trace: {path} ({len(found.spans):,} spans; open it in ui.perfetto.dev)"]:
        typer.echo(line)
