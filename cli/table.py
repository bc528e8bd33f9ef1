"""`distrl table`: agents by suites, measured over seeds, as one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distrl.cli.options import GRACE_S, check_folder, seeds_of


def table(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="A YAML file, or the name of a preset such as table1.")
    ],
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="0,1,2", help="Override the seeds of the file.")
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option("--episodes", min=1, metavar="N", help="Maximum tasks of each split."),
    ] = None,
    agents: Annotated[str | None, typer.Option("--agents", metavar="A,B", help="Only these rows.")] = None,
    suites: Annotated[
        str | None, typer.Option("--suites", metavar="A,B", help="Only the columns of these suites.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="DIR", help="Default: RUNS_DIR/tables/NAME.")
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Also write it into FILE, e.g. docs/results.md."),
    ] = None,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Measure nothing; only report finished measurements.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check all, list the cells, and exit.")] = False,
) -> None:
    """Measure agents on suites over seeds, and write the table: mean and deviation of success.

    Each cell is an evaluation in DIR/AGENT/SUITE/seed-S, measured one after another; the same command
    continues an interrupted table and measures nothing twice. Checkpoints that do not exist yet leave their
    cells empty. DIR gets table.md and results.json.
    """
    from distrl.configs.load import load_config
    from distrl.core.logs import setup
    from distrl.core.process import install_signals
    from distrl.core.terminal import Console
    from distrl.evaluator.experiment_results import TABLE_FILE
    from distrl.evaluator.experiment_tables import write_table
    from distrl.evaluator.experiments import load_table, plan_cells

    rows, columns = (None if names is None else names.split(",") for names in (agents, suites))
    spec = load_table(table, rows, columns, seeds_of(seeds), episodes)
    directory = output or Path(load_config(spec.base).runs_dir).expanduser() / "tables" / spec.name
    cells = plan_cells(spec, directory)
    if dry_run:
        for cell in cells:
            left = ", ".join(map(str, cell.open_seeds())) or "none"
            typer.echo(f"{cell.directory}  splits {', '.join(cell.splits)}  seeds left: {left}")
            for seed, reason in cell.missing.items():
                typer.echo(f"  seed {seed}: {reason}")
        return
    setup(role="table", level="WARNING")
    options: dict[str, object] = {"--seeds": seeds, "--episodes": episodes, "--agents": agents}
    options |= {"--suites": suites, "--output": output, "--markdown": markdown}
    given = [f"{name} {value}" for name, value in options.items() if value is not None]
    for folder in (directory, *([markdown.parent] if markdown else [])):
        check_folder(folder)
    if not report_only:
        stop = install_signals(GRACE_S + max(cell.config.devices.close_s for cell in cells))
        for cell in cells:
            cell.open_seeds()  # errors of any cell are reported before the first is measured
        for cell in cells:
            cell.measure(stop, lambda line: typer.echo(line, err=True))
    console = Console()
    for block in write_table(spec, cells, directory, " ".join(["distrl table", table, *given]), markdown):
        block.show(console)
    typer.echo(f"Results: {markdown or directory / TABLE_FILE}", err=True)
