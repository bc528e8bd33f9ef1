"""`distrl train`: the whole run on this machine, by separate processes, with a report at the end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.cli.options import (
    ConfigArgument,
    DryRunOption,
    MetricsPortOption,
    ResumeOption,
    SetOption,
    load,
    metrics_port,
)
from distrl.core.errors import DistrlError, PolicyError

if TYPE_CHECKING:
    from distrl.cli.local.run import LocalRun
    from distrl.configs.schema import Config
    from distrl.core.rundir import RunDir
    from distrl.core.terminal import Console

STOPPED = 130


def train(
    config: ConfigArgument,
    overrides: SetOption = None,
    resume: ResumeOption = False,
    metrics: MetricsPortOption = None,
    dry_run: DryRunOption = False,
    ui: Annotated[bool, typer.Option("--ui", help="Serve the run's dashboard meanwhile.")] = False,
) -> None:
    """Train on this machine: learner, inference servers and workers, then an evaluation before and after.
    With appo there are no inference servers, and the result alone is measured.

    Processes that die are replaced. Ctrl-C stops the run after a checkpoint; a second Ctrl-C stops it at
    once. --resume continues it, or reports that it is complete. A new run that fails before anything is
    stored leaves no directory.
    """
    loaded = load(config, overrides, dry_run)
    if resume and say_complete(loaded):
        return
    from distrl.cli.health.estimate import as_text
    from distrl.cli.health.run import (
        check_demonstrations,
        check_devices,
        check_installed,
        check_judge,
        check_models,
        doubtful_rates,
    )
    from distrl.cli.local.plan import plan_here
    from distrl.cli.local.programs import check_addresses, free_addresses, unreachable_servers
    from distrl.cli.local.run import LocalRun, followed, unmake
    from distrl.cli.run_kind import run_kind
    from distrl.core.checkpoints import pointed
    from distrl.core.process import install_signals
    from distrl.core.rundir import RunDir
    from distrl.core.terminal import Console
    from distrl.evaluator.run_state import describe_stopped, is_complete

    check_installed(loaded, is_worker=False)
    check_devices(loaded)
    check_models(loaded)
    if loaded.local.workers and not is_complete(RunDir.of(loaded), loaded):
        check_judge(loaded)
    if not resume:  # later it has its own copy of them
        check_demonstrations(loaded)
    for warning in [*run_kind(loaded).check_tasks(), *doubtful_points(loaded), *doubtful_rates(loaded)]:
        typer.echo(f"warning: {warning}", err=True)
    try:
        plan = plan_here(loaded)
    except PolicyError as error:
        plan = None
        typer.echo(f"warning: cannot plan the use of the GPUs: {error.message}", err=True)
    loaded = loaded if plan is None else plan.config
    network = free_addresses(loaded.network)
    check_addresses(network, loaded.num_servers)
    if loaded.num_servers and (unreachable := unreachable_servers(network)):
        typer.echo(f"warning: {unreachable}", err=True)
    console = Console()
    run = RunDir.create_or_open(loaded, resume)
    with run.lock("train"):
        former, progress = run.write_config(loaded), pointed(run.checkpoints, "latest")
        run.link_as_latest()
        console.print(f"Run directory: {run.path}", soft_wrap=True)
        for line in [] if plan is None else plan.lines():
            console.print(as_text(line), soft_wrap=True)
        try:
            local = LocalRun(loaded, network, run, install_signals(), console)
            with metrics_port(metrics, "learner", loaded.name), followed(run, console, ui):
                results = local.train_and_measure()
        except DistrlError as error:
            if not resume:
                unmake(run, error)
            elif former is not None and pointed(run.checkpoints, "latest") == progress:
                former.replace(run.config)  # what was refused is not the run's configuration
            raise
        if results is None:
            console.print(describe_stopped(run, f"distrl train {run.path} --resume"), soft_wrap=True)
            raise typer.Exit(STOPPED)
        report(run, results, local, console)


def doubtful_points(config: Config) -> list[str]:
    """A warning if the model is known to write points otherwise than the agent reads them."""
    from distrl.configs.policy import HubConfig
    from distrl.core.model_points import doubt_of_files

    policy = config.policy
    doubt = doubt_of_files(config.agent, policy) if isinstance(policy, HubConfig) else None
    return [] if doubt is None else [doubt]


def say_complete(config: Config) -> bool:
    """Whether the run is complete, trained and measured as `config` requests; then says so."""
    from distrl.core.rundir import RunDir
    from distrl.evaluator.run_state import check_trained, describe_complete, is_complete, is_measured

    run = RunDir.of(config)
    if not is_complete(run, config) or not is_measured(run, config):
        return False
    typer.echo(describe_complete(run, config))
    check_trained(run, config)
    return True


def report(run: RunDir, results: dict[str, Path], local: LocalRun, console: Console) -> None:
    """Writes the report and prints the numbers, or how to measure where environments are elsewhere."""
    from distrl.cli.run_kind import run_kind
    from distrl.evaluator.run_state import check_trained, describe
    from distrl.learner.trackers import add_report

    kind = run_kind(local.config)
    page = kind.write_report(run, results)
    add_report(local.config, run, page, lambda: kind.pictures(results))
    if results:
        kind.print_results(console, results)
        console.print(f"Took {local.elapsed()}.")
    else:
        console.print("Not measured on the test splits because local.workers is 0. To evaluate, run:")
        serve = f"distrl serve-inference {run.config} --checkpoint {run.path} --set network.act=tcp://0.0.0.0:5710"
        console.print(f"  here                   {serve}", soft_wrap=True)
        evaluate = "distrl evaluate CONFIG --set network.key_name=NAME --inference tcp://HOST:5710"
        console.print(f"  on a worker's machine  {evaluate}", soft_wrap=True)
    console.print(f"Report: {page}", soft_wrap=True)
    check_trained(run, local.config)
    if noted := describe(run, local.config):
        console.print(noted, soft_wrap=True)
