"""`distrl simulate`: a run in virtual time, in one process, to plan a run or to compare objectives."""

from __future__ import annotations

from typing import Annotated

import typer

from distrl.cli.options import ConfigArgument, DryRunOption, SetOption, load

STOPPED = 130
ROLE = "simulate"


def simulate(
    config: ConfigArgument,
    overrides: SetOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an earlier simulation of this name.")
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Train in virtual time, in one process, to plan a run or to compare objectives.

    Learner, policy, agents and environments are the real ones, but devices, inference servers and updates
    take virtual time, as set in the section `simulate`: an hour of 64 slow phones takes minutes. The same
    command gives the same episodes. The run directory is that of `distrl train`, with times in virtual
    seconds. At the end the warm start and the result are evaluated. A stopped simulation cannot be resumed;
    --force repeats it from its start.
    """
    loaded = load(config, overrides, dry_run)
    from distrl.cli.health.run import check_demonstrations, check_installed
    from distrl.cli.local.simulation import evaluate, lines, train
    from distrl.cli.run_kind import require_gui, run_kind
    from distrl.core.logs import setup
    from distrl.core.process import install_signals
    from distrl.core.rundir import RunDir
    from distrl.core.terminal import Console
    from distrl.evaluator.run_state import check_trained
    from distrl.workers.virtual import as_simulated

    require_gui(loaded, "simulate")
    check_installed(loaded, is_worker=False)
    check_demonstrations(loaded)
    for warning in run_kind(loaded).check_tasks():
        typer.echo(f"warning: {warning}", err=True)
    loaded, console, stop = as_simulated(loaded), Console(), install_signals()
    run = RunDir.of(loaded)
    if force and (run.path / f".{ROLE}.lock").exists():  # what `distrl train` has made stays
        with run.lock(ROLE):
            run.discard()
    RunDir.create(loaded, "Remove it" if force else "Replace an earlier simulation with --force")
    with run.lock(ROLE):
        run.link_as_latest()
        console.print(f"Run directory: {run.path}", soft_wrap=True)
        setup(run.logs / "simulate.log", "WARNING", "simulate")
        summary = train(loaded, run, stop, lambda line: console.print(line, soft_wrap=True))
        if summary is None:
            console.print(f"Stopped. {run.path} is incomplete; repeat it with --force.", soft_wrap=True)
            raise typer.Exit(STOPPED)
        results = evaluate(loaded, run, stop)
        kind = run_kind(loaded)
        page = kind.write_report(run, results)
        kind.print_results(console, results)
        for line in lines(summary):
            console.print(line)
        console.print(f"Report: {page}", soft_wrap=True)
        check_trained(run, loaded)
