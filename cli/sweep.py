"""`distrl sweep`: many runs from one file, a table and a plot at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from distrl.cli.options import seeds_of
from distrl.core.errors import ConfigError

if TYPE_CHECKING:
    from distrl.configs.sweep import Sweep
    from distrl.core.terminal import Console

STOPPED, SOME_FAILED = 130, 11
ASKED_ABOUT: dict[str, Any] = {
    **dict.fromkeys(("tasks", "env", "devices"), True),
    "worker": {"rewards"},
    "learner": {"algorithm", "demonstrations", "updates_enabled", "eval_every"},
}
"""Keys on which it hangs whether the tasks of a run can be played, shown and judged; most runs share them."""

SweepArgument = Annotated[
    str, typer.Argument(metavar="SWEEP", help="A YAML file, or the name of a preset such as dper.")
]
SeedsOption = Annotated[str | None, typer.Option("--seeds", metavar="0,1,2", help="In place of the file's.")]
MinutesOption = Annotated[
    float | None, typer.Option("--minutes", min=0.01, help="learner.max_minutes of each run.")
]
ArmsOption = Annotated[
    str | None,
    typer.Option("--arms", metavar="A,B", help="Only these; arms with values of the grid are separated by ;"),
]
RunsDirOption = Annotated[
    str | None, typer.Option("--runs-dir", metavar="DIR", help="Where the sweep's directory is made.")
]
NameOption = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Of the sweep's directory; default: the file's.")
]
ParallelOption = Annotated[int, typer.Option("--parallel", min=1, metavar="N", help="Runs at a time.")]
ReportOption = Annotated[
    bool, typer.Option("--report-only", help="Run nothing; tell what the finished runs came to.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Check all, list the runs, and exit.")]


def sweep(
    sweep: SweepArgument,
    seeds: SeedsOption = None,
    minutes: MinutesOption = None,
    arms: ArmsOption = None,
    runs_dir: RunsDirOption = None,
    name: NameOption = None,
    parallel: ParallelOption = 1,
    report_only: ReportOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Run every arm of a sweep with every seed, and compare them.

    Each run is a `distrl train` in RUNS_DIR/SWEEP/ARM/seed-S, one after another. The same command again goes
    on: finished runs are kept, interrupted ones resumed, failed ones tried again. All configurations are
    checked before the first run starts. At the end, and with --report-only at any time, the sweep's directory
    gets table.txt, table.csv, results.json and curves.png.
    """
    from distrl.configs.sweep import load_sweep
    from distrl.core.terminal import Console
    from distrl.evaluator.sweeps.metric import check_metric

    chosen = arms.replace(";", " ").split() if arms is not None else None
    loaded = load_sweep(sweep, seeds_of(seeds), minutes, chosen, runs_dir, name)
    console = Console()
    check_metric(loaded)
    check(loaded)
    if dry_run:
        for run in loaded.runs:
            typer.echo(str(run.directory))
        return
    failures = 0
    if not report_only:
        failures = run_all(loaded, parallel, console, sweep)
    report(loaded, console)
    if failures:
        raise typer.Exit(SOME_FAILED)


def run_all(loaded: Sweep, parallel: int, console: Console, named: str) -> int:
    """Makes all runs; tells which failed, with the last lines of their logs. Returns how many.

    Raises:
        typer.Exit: It was stopped.
    """
    from distrl.cli.run_kind import run_kind
    from distrl.cli.sweeps.execute import Execution
    from distrl.cli.train import check_packages
    from distrl.core.process import install_signals
    from distrl.core.rundir import RunLock

    configs = [run.config for run in loaded.runs]
    for config in configs:
        check_packages(run_kind(config).packages)
    distinct = {config.model_dump_json(include=ASKED_ABOUT): config for config in configs}
    warnings = [line for config in distinct.values() for line in run_kind(config).check_tasks()]
    for warning in dict.fromkeys(warnings):
        typer.echo(f"warning: {warning}", err=True)
    loaded.directory.mkdir(parents=True, exist_ok=True)
    with RunLock(loaded.directory / ".sweep.lock", "sweep"):
        execution = Execution(loaded, parallel, install_signals(), console)
        is_complete = execution.run()
    for failure in execution.failures:
        console.print(f"\n{failure.title}", soft_wrap=True)
        console.print(failure.tail, soft_wrap=True)
    if not is_complete:
        console.print(f"Stopped. Continue with: distrl sweep {named}", soft_wrap=True)
        raise typer.Exit(STOPPED)
    return len(execution.failures)


def check(loaded: Sweep) -> None:
    """Makes sure that the runs that are there are the ones that the sweep describes.

    Raises:
        ConfigError: One has another configuration.
    """
    from distrl.configs.load import load_config
    from distrl.core.rundir import RunDir

    for run in loaded.runs:
        file = RunDir(run.directory).config
        if not file.is_file():
            continue
        # Places may change.
        places = run.config.model_dump(include={"modules_dir", "name", "runs_dir"})
        there = load_config(file).model_copy(update=places)
        if (key := difference(there, run.config)) is not None:
            raise ConfigError(
                f"{file} differs from the sweep in `{key}`.",
                "Give the sweep another --name, delete that run, or undo the change.",
            )


def report(loaded: Sweep, console: Console) -> None:
    """Writes the report and prints the table."""
    from distrl.evaluator.sweeps import write_sweep_report

    text, file, hint = write_sweep_report(loaded)
    console.print(text, soft_wrap=True)
    if hint:
        console.print(f"No plot: {hint}", soft_wrap=True)
    console.print(f"Results: {file}", soft_wrap=True)


def difference(one: object, other: object) -> str | None:
    """The first dotted key in which two configurations differ."""
    from pydantic import BaseModel

    if not isinstance(one, BaseModel) or not isinstance(other, BaseModel):
        return None if one == other else ""
    for name in type(one).model_fields:
        below = difference(getattr(one, name), getattr(other, name, None))
        if below is not None:
            return f"{name}.{below}".rstrip(".")
    return None
