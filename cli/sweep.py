"""`distrl sweep`: many runs from one file, with a table and a plot at the end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.cli.options import seeds_of
from distrl.core.errors import ConfigError

if TYPE_CHECKING:
    from distrl.core.terminal import Console
    from distrl.evaluator.experiment_results import ResultsFile
    from distrl.evaluator.experiments import Sweep

STOPPED, SOME_FAILED = 130, 11


def sweep(
    sweep: Annotated[
        str, typer.Argument(metavar="SWEEP", help="A YAML file, or the name of a preset such as dper.")
    ],
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="0,1,2", help="Override the seeds of the file.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0.01, help="learner.max_minutes of each run.")
    ] = None,
    arms: Annotated[
        str | None,
        typer.Option("--arms", metavar="A,B", help="Only these; separate arms with grid values by ;"),
    ] = None,
    runs_dir: Annotated[
        str | None, typer.Option("--runs-dir", metavar="DIR", help="Parent of the sweep's directory.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name of the sweep's directory; default: the file's."),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            "--results",
            metavar="FILE",
            help="JSON with finished runs: those in it are not repeated, new ones are added.",
        ),
    ] = None,
    parallel: Annotated[int, typer.Option("--parallel", min=1, metavar="N", help="Runs at a time.")] = 1,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Run nothing; only report finished runs.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check all, list the runs, and exit.")] = False,
) -> None:
    """Run every arm of a sweep with every seed, and compare them.

    Each run is a `distrl train`, or with `time: virtual` a `distrl simulate`, in RUNS_DIR/SWEEP/ARM/seed-S,
    one after another. The same command
    continues an interrupted sweep: finished runs are kept, interrupted ones resumed, failed ones repeated.
    All configurations are checked before the first run starts. At the end, and with --report-only at any
    time, the sweep's directory gets table.md, results.json and curves.png.
    """
    from distrl.core.terminal import Console
    from distrl.evaluator.experiment_results import TABLE_FILE, ResultsFile, check_metric, write_sweep
    from distrl.evaluator.experiments import load_sweep

    chosen = arms.replace(";", " ").split() if arms is not None else None
    loaded = load_sweep(sweep, seeds_of(seeds), minutes, chosen, runs_dir, name)
    console = Console()
    check_metric(loaded)
    check(loaded)
    known = ResultsFile(loaded, results)
    if dry_run:
        for run in loaded.runs:
            typer.echo(str(run.directory))
        return
    for line in known.left_out:
        console.print(f"{results}: {line}", soft_wrap=True)
    failures = 0 if report_only else _run_all(loaded, parallel, console, known, sweep)
    block, hint = write_sweep(loaded, known)
    block.show(console)
    if hint:
        console.print(f"No plot: {hint}", soft_wrap=True)
    console.print(f"Results: {loaded.directory / TABLE_FILE}", soft_wrap=True)
    if failures:
        raise typer.Exit(SOME_FAILED)


def _run_all(loaded: Sweep, parallel: int, console: Console, known: ResultsFile, named: str) -> int:
    """Makes all runs; reports the failed ones with the last lines of their logs, and returns their number."""
    from distrl.cli.health.run import check_installed
    from distrl.cli.local.sweep import Execution
    from distrl.cli.run_kind import run_kind
    from distrl.core.process import install_signals
    from distrl.core.rundir import lock_directory

    arms = {run.arm: run.config for run in loaded.runs}  # seeds need nothing else
    for config in arms.values():
        check_installed(config, is_worker=False)
    warnings = [line for config in arms.values() for line in run_kind(config).check_tasks()]
    for warning in dict.fromkeys(warnings):
        typer.echo(f"warning: {warning}", err=True)
    loaded.directory.mkdir(parents=True, exist_ok=True)
    with lock_directory(loaded.directory / ".sweep.lock", "sweep"):
        execution = Execution(loaded, parallel, install_signals(), console, known)
        is_complete = execution.run()
    for title, tail in execution.failures:
        console.print(f"\n{title}\n{tail}", soft_wrap=True)
    if not is_complete:
        console.print(f"Stopped. Continue with: distrl sweep {named}", soft_wrap=True)
        raise typer.Exit(STOPPED)
    return len(execution.failures)


def check(loaded: Sweep) -> None:
    """Makes sure that the existing runs are those that the sweep describes."""
    from distrl.configs.load import load_config
    from distrl.core.rundir import RunDir
    from distrl.evaluator.experiments import difference

    for run in loaded.runs:
        file = RunDir(run.directory).config
        if not file.is_file():
            continue
        places = {"modules_dir", "name", "runs_dir"}  # which may change
        there = load_config(file).model_dump(mode="json", exclude=places)
        planned = run.config.model_dump(mode="json", exclude=places)
        for section in ("learner", "local", "inference"):  # what `distrl train` chose for `auto`
            chosen = {key for key, value in planned[section].items() if value in ("auto", {"kind": "auto"})}
            planned[section] = {key: planned[section][key] for key in planned[section].keys() - chosen}
        if (key := difference(there, planned)) is not None:
            raise ConfigError(
                f"{file} differs from the sweep in `{key}`.",
                "Give the sweep another --name, delete that run, or undo the change.",
            )
