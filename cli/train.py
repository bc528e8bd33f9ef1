"""`distrl train`: the whole run on this machine, by separate processes, with a report at the end."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

import typer

from distrl.cli.options import ConfigArgument, DryRunOption, ResumeOption, SetOption, load
from distrl.core.errors import DistrlError, MissingDependency

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from distrl.cli.local.run import LocalRun
    from distrl.configs.tasks import TasksConfig
    from distrl.core.rundir import RunDir

NEEDED = {"torch": "train", "transformers": "train", "jinja2": "report"}
STOPPED = 130


def train(
    config: ConfigArgument,
    overrides: SetOption = None,
    resume: ResumeOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Train on this machine: learner, inference servers and workers, then an evaluation before and after.

    Processes that die are replaced. Ctrl-C stops all of them; --resume goes on where the run was. A new run
    that an error ends before anything was stored leaves no directory behind.
    """
    loaded = load(config, overrides, dry_run)
    check_packages()
    from rich.console import Console

    from distrl.cli.local.programs import check_addresses, free_addresses
    from distrl.cli.local.run import LocalRun
    from distrl.cli.local.unmake import unmake
    from distrl.core.checkpoints import pointed
    from distrl.core.process import install_signals
    from distrl.core.rundir import RunDir

    check_tasks(loaded.tasks)
    network = free_addresses(loaded.network)
    check_addresses(network, loaded.local.inference_servers)
    console = Console(highlight=False)
    run = RunDir.create_or_open(loaded, resume)
    with run.lock("train"):
        former, progress = run.write_config(loaded), pointed(run.checkpoints, "latest")
        console.print(f"Run directory: {run.path}", soft_wrap=True)
        try:
            local = LocalRun(loaded, network, run, install_signals(), console)
            results = local.evaluate() if local.train() else None
        except DistrlError as error:
            if not resume:
                unmake(run, error)
            elif former is not None and pointed(run.checkpoints, "latest") == progress:
                former.replace(run.config)  # what was refused is not the run's configuration
            raise
        if results is None:
            console.print(f"Stopped. Go on with: distrl train {run.config} --resume", soft_wrap=True)
            raise typer.Exit(STOPPED)
        report(run, results, local, console)


def report(run: RunDir, results: dict[str, Path], local: LocalRun, console: Console) -> None:
    """Writes the report and prints the numbers."""
    from distrl.cli.local.summary import print_summary
    from distrl.evaluator.report import write_run_report

    page = write_run_report(run.path, results)
    print_summary(console, results, local.elapsed(), page)


def check_tasks(tasks: TasksConfig) -> None:
    """Makes sure that the suite and its splits are there.

    Raises:
        TaskError: One is not.
    """
    from distrl.evaluator.suites import load_suite

    drift = [tasks.drift.split] if tasks.drift else []
    for split in (tasks.train, tasks.validation, *tasks.test, *drift):
        load_suite(tasks.suite, split)


def check_packages() -> None:
    """Makes sure that the whole run can work here before anything is started.

    Raises:
        MissingDependency: A package of an extra is not installed.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        extras = ",".join(sorted({NEEDED[name] for name in missing}))
        raise MissingDependency(
            f"`distrl train` needs {', '.join(missing)}, which {sys.prefix} does not have.",
            f'Install with: pip install "distrl[{extras}]".',
        )
