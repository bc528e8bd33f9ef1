"""`distrl run-learner`: trains the policy on the workers' trajectories, and schedules their tasks."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from distrl.configs.schema import Config

# From the first signal to the end of the process: an update of a large model may take minutes, and so may its
# checkpoint with the optimiser's states. A second signal ends what hangs.
GRACE_S = 600.0
FOLLOWERS_GRACE_S = GRACE_S + 15.0  # a launcher's signal to all ranks: rank 0 writes a checkpoint with them
ORPHANS_GRACE_S = 15.0  # a signal to a rank that rank 0 started comes when rank 0 is gone
STOPPING = "Stopping, after the update under way and a checkpoint. Another Ctrl-C or SIGTERM ends at once."
_log = logging.getLogger(__name__)


def run_learner(
    config: ConfigArgument,
    overrides: SetOption = None,
    resume: ResumeOption = False,
    metrics: MetricsPortOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Run the learner: it ingests trajectories, trains, publishes weights and schedules tasks.

    It may start before or after workers and inference servers. Ctrl-C ends the update under way,
    writes a checkpoint and stops, a second one stops at once; --resume continues with replay, priorities,
    optimisers and the weight version.

    With learner.num_processes it starts further ranks on this machine. Started by torchrun or deepspeed,
    every rank runs this command: rank 0 is the learner, the others compute with it.
    """
    from distrl.core.process import install_signals
    from distrl.core.rundir import RunDir
    from distrl.evaluator.run_state import describe_stopped

    loaded = load(config, overrides, dry_run)
    command = ["run-learner", config, *(f"--set={item}" for item in overrides or ())]
    stop = install_signals(_grace_s())
    if _is_first():
        stop.on_set(_say_stopping)
    with metrics_port(metrics if _is_first() else None, "learner", loaded.name):
        is_complete = learn(loaded, resume, stop, command)
    if not is_complete:
        run = RunDir.of(loaded)
        typer.echo(describe_stopped(run, f"distrl run-learner {run.path} --resume"), err=True)
        raise typer.Exit(130)


def _is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _say_stopping() -> None:
    with contextlib.suppress(OSError):  # whoever read the output may have left
        typer.echo(STOPPING, err=True)


def _grace_s() -> float:
    """How long this rank may take to end after a first signal."""
    if _is_first():
        return GRACE_S
    from distrl.learner.ranks import MEETING

    return ORPHANS_GRACE_S if MEETING in os.environ else FOLLOWERS_GRACE_S


def learn(config: Config, resume: bool, stop: threading.Event, command: Sequence[str] = ()) -> bool:
    """Runs a learner until the run is complete (True) or `stop` is set (False); or one of its ranks.

    If a new run cannot start (an address in use, keys, the policy), its directory is removed, which
    frees its name for the next start. `command` of `distrl` makes another process a rank of this learner.
    """
    from distrl.cli.health.run import check_devices, check_models
    from distrl.cli.run_kind import run_kind
    from distrl.core.logs import setup
    from distrl.core.rundir import RunDir
    from distrl.evaluator.run_state import check_trained, describe_complete, is_complete
    from distrl.learner.trackers import check_trackers

    if not _is_first():
        return _follow(config)
    setup(role="learner")
    if resume and is_complete(RunDir.of(config), config):
        typer.echo(describe_complete(RunDir.of(config), config), err=True)
        check_trained(RunDir.of(config), config)
        return True
    check_devices(config, ["learner"])
    check_models(config)
    check_trackers(config.metrics.trackers)
    _log.info("loading torch and the run's tasks")
    opened = run_kind(config).learner(stop, command)
    run = RunDir.create_or_open(config, resume)
    with contextlib.ExitStack() as stack:
        stack.enter_context(run.lock("learner"))
        try:
            learner = stack.enter_context(opened(run))
        except BaseException:
            if not resume:
                run.discard()
            raise
        learner.run()
    if not stop.is_set():
        check_trained(run, config)
    return not stop.is_set()


def _follow(config: Config) -> bool:
    """A rank that computes with rank 0, as long as that wants."""
    from distrl.core.logs import setup
    from distrl.evaluator.suites import vocabulary
    from distrl.learner.distributed import follow_learner
    from distrl.learner.ranks import Place

    place = Place.given()
    assert place is not None
    setup(role=f"learner-rank-{place.rank}")
    follow_learner(config, vocabulary(config.tasks, config.policy.kind), place)
    return True
