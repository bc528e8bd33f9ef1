"""`distrl launch`: places the processes of a run on hosts or by a scheduler, and looks after them."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from distrl.cli.options import ConfigArgument, ResumeOption, SetOption, load
from distrl.core.errors import ConfigError, DistrlError, MissingDependency

if TYPE_CHECKING:
    from distrl.cli.backends.backend import Backend
    from distrl.configs.schema import Config

WAIT_S = 2.0


class _ConfigOrCommand(typer.core.TyperGroup):
    """`distrl launch CONFIG …` is `distrl launch start CONFIG …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["start", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="launch",
    cls=_ConfigOrCommand,
    help="Run on several machines: `distrl launch CONFIG --on local|ssh|slurm|ray|k8s`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The run directory of a launched run.")]


@app.command()
def start(
    config: ConfigArgument,
    on: Annotated[str, typer.Option("--on", metavar="BACKEND", help="local, ssh, slurm, ray or k8s.")],
    overrides: SetOption = None,
    resume: ResumeOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the scripts and commands, and write nothing.")
    ] = False,
) -> None:
    """Start the learner, the inference servers and the workers of a run, and return.

    The section `placement` says how many there are and what each needs. Keys are made once for all processes.
    """
    loaded = _settled(load(config, overrides))
    if loaded.worker.rewards.source == "judge" and getattr(loaded.judge, "model", None) == "":
        raise ConfigError("judge.model is empty.", "Set it to the model that judges.")
    from distrl.cli.backends.backend import (
        HEALTHY,
        OVER,
        LaunchError,
        make_backend,
        make_keys,
        plan_roles,
        write_launch,
    )
    from distrl.cli.run_kind import run_kind
    from distrl.core.rundir import RunDir
    from distrl.evaluator.run_state import describe_complete, is_complete

    with contextlib.suppress(MissingDependency):  # the machines of the processes may have more packages
        for warning in run_kind(loaded).check_tasks():
            typer.echo(f"warning: {warning}", err=True)
    run = RunDir.of(loaded)
    backend = make_backend(on, loaded, run)
    roles = plan_roles(loaded, backend)
    if dry_run:
        for line in backend.submit(roles, dry_run=True):
            typer.echo(line)
        return
    run = RunDir.create_or_open(loaded, resume)
    try:
        with run.lock("launch"):
            if resume and is_complete(run, loaded):
                typer.echo(describe_complete(run, loaded))
                return
            was_launched = (run.path / "launch" / "backend.json").exists()
            if was_launched and any(one.state in HEALTHY - OVER for one in _backend(run.path).status()):
                raise LaunchError(f"{run.path} is still running.", "Stop it first: `distrl launch stop RUN`.")
            run.write_config(loaded)
            run.link_as_latest()
            make_keys(loaded, run, roles)
            write_launch(run, on, roles)
            lines = backend.submit(roles, dry_run=False)
    except DistrlError:
        if not resume:
            run.discard()
        raise
    typer.echo(f"Run directory: {run.path}")
    for line in lines:
        typer.echo(line)
    typer.echo(f"See `distrl launch status {run.path}`.")


@app.command()
def status(
    run: RunArgument,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all processes have ended.")] = False,
) -> None:
    """Show the state of each process. The exit code is 18 if one failed, was lost, or was stopped."""
    from distrl.cli.backends.backend import HEALTHY, OVER

    states = _backend(run).status()
    while wait and not all(one.state in OVER for one in states):
        time.sleep(WAIT_S)
        states = _backend(run).status()
    width = max(len(one.name) for one in states)
    for one in states:
        typer.echo(f"{one.name.ljust(width)}  {one.state:<10}  {one.where:<12}  {one.detail}".rstrip())
    if any(one.state not in HEALTHY for one in states):
        raise typer.Exit(18)
    if all(one.state == "done" for one in states) and not (run / "report.html").exists():
        where = "here" if (run / "checkpoints" / "final").exists() else "where the learner's run directory is"
        typer.echo(f"To evaluate the result, run `distrl train RUN --resume` {where}.", err=True)


@app.command()
def stop(run: RunArgument) -> None:
    """Stop all processes of a run, the learner after a checkpoint, and return. `--resume` continues it."""
    from distrl.cli.backends.backend import OVER

    backend, said = _backend(run), "Stopping; the learner writes a checkpoint first."
    with contextlib.suppress(DistrlError):  # they may still take the stop
        if all(one.state in OVER for one in backend.status()):
            said = "All processes have ended already."
    backend.stop()  # even then: a cluster may hold things of theirs
    typer.echo(f"{said} See `distrl launch status {run}`.")


@app.command()
def logs(
    run: RunArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="PROCESS", help="Such as learner or worker-0; default: all.")
    ] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="The last lines to show.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the logs until Ctrl-C.")] = False,
) -> None:
    """Show the logs of a run's processes."""
    _backend(run).logs(name, lines, follow)


def _settled(config: Config) -> Config:
    """`config` with as many ranks of the learner as it has GPUs or is divided into, if that is `auto`."""
    if config.learner.num_processes != "auto":
        return config
    placed = config.placement.learner
    learner = config.learner.model_copy(update={"num_processes": max(1, placed.gpus, placed.count)})
    return config.model_copy(update={"learner": learner})


def _backend(path: Path) -> Backend:
    """The backend that a run was launched with."""
    from distrl.cli.backends.backend import make_backend, read_notes
    from distrl.configs.load import load_config
    from distrl.core.rundir import RunDir

    run = RunDir.open(path)
    return make_backend(str(read_notes(run)["on"]), load_config(path), run)
