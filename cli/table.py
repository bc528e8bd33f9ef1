"""`distrl table`: agents by suites, measured over seeds, as one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.cli.options import check_folder, seeds_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distrl.configs.table import TableSpec
    from distrl.evaluator.tables.plan import Cell

GRACE_S = 5.0
MARKDOWN_FILE, JSON_FILE = "table.md", "table.json"


def table(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="A YAML file, or the name of a preset such as table1.")
    ],
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="0,1,2", help="In place of the file's.")
    ] = None,
    episodes: Annotated[
        int | None, typer.Option("--episodes", min=1, metavar="N", help="The most tasks of each split.")
    ] = None,
    agents: Annotated[str | None, typer.Option("--agents", metavar="A,B", help="Only these rows.")] = None,
    suites: Annotated[str | None, typer.Option("--suites", metavar="A,B", help="Only their columns.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="DIR", help="Default: RUNS_DIR/tables/NAME.")
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Write it into this file too, e.g. docs/results.md."),
    ] = None,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Measure nothing; tell what is there.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check all, list the cells, and exit.")] = False,
) -> None:
    """Measure agents on suites over seeds, and write the table: mean and deviation of success.

    Each cell is an evaluation in DIR/AGENT/SUITE/seed-S, measured one after another; the same command again
    goes on, and measures nothing twice. Checkpoints that are not there yet leave their cell empty. DIR gets
    table.md and table.json.
    """
    from distrl.configs.load import load_config
    from distrl.configs.table import load_table
    from distrl.core.logs import setup
    from distrl.core.process import install_signals
    from distrl.evaluator.tables.plan import plan_cells

    rows, columns = (None if names is None else names.split(",") for names in (agents, suites))
    spec = load_table(table, rows, columns, seeds=seeds_of(seeds), episodes=episodes)
    runs_dir = Path(load_config(spec.base).runs_dir).expanduser()
    directory = output or runs_dir / "tables" / str(spec.name)
    cells = plan_cells(spec, directory)
    if dry_run:
        _list(cells)
        return
    setup(role="table", level="WARNING")
    options = {
        "--seeds": seeds,
        "--episodes": episodes,
        "--agents": agents,
        "--suites": suites,
        "--output": output,
        "--markdown": markdown,
    }
    given = [f"{name} {value}" for name, value in options.items() if value is not None]
    command = " ".join(["distrl table", table, *given])
    for folder in (directory, *([markdown.parent] if markdown else [])):
        check_folder(folder)
    if not report_only:
        _measure(cells, install_signals(GRACE_S + max(cell.config.devices.close_s for cell in cells)))
    _write(spec, cells, directory, command, markdown)


def _measure(cells: Sequence[Cell], stop: object) -> None:
    import threading

    from distrl.evaluator.tables.run import measure_cell, open_seeds

    assert isinstance(stop, threading.Event)
    for cell in cells:
        open_seeds(cell)  # what is wrong with any of them is told before the first is measured
    for cell in cells:
        measure_cell(cell, stop, lambda line: typer.echo(line, err=True))


def _list(cells: Sequence[Cell]) -> None:
    from distrl.evaluator.tables.run import open_seeds

    for cell in cells:
        left = ", ".join(map(str, open_seeds(cell))) or "none"
        typer.echo(f"{cell.directory}  splits {', '.join(cell.splits)}  seeds left: {left}")
        for seed, reason in cell.missing.items():
            typer.echo(f"  seed {seed}: {reason}")


def _write(spec: TableSpec, cells: Sequence[Cell], directory: Path, command: str, file: Path | None) -> None:
    import json

    from distrl.core.files import write_atomically
    from distrl.evaluator.tables import results as made
    from distrl.evaluator.tables.cells import read_cells

    missing = _missing(cells)
    results = read_cells(spec, cells)
    text = made.markdown(spec, results, missing, command)
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(directory / MARKDOWN_FILE, text)
    data = made.table_data(spec, results, missing, command)
    write_atomically(directory / JSON_FILE, json.dumps(data, indent=1))
    if file is not None:
        made.write_section(file, str(spec.name), text)
    typer.echo(text)
    typer.echo(f"Results: {file or directory / MARKDOWN_FILE}", err=True)


def _missing(cells: Sequence[Cell]) -> list[str]:
    """What is not measured, and why, a line for each reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        for seed, reason in cell.missing.items():
            found.setdefault((cell.agent, reason), []).append(f"{cell.suite}, seed {seed}")
    return [f"{agent}: {reason} ({'; '.join(where)})" for (agent, reason), where in found.items()]
