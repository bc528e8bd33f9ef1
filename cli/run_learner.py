"""`distrl run-learner`: trains the policy on what workers send, and tells them what to run."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import typer

from distrl.cli.options import ConfigArgument, DryRunOption, ResumeOption, SetOption, load

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from distrl.configs.schema import Config
    from distrl.core.rundir import RunDir
    from distrl.learner.control.learner import ControlLearner
    from distrl.learner.learner import Learner

    Opener = Callable[[RunDir], AbstractContextManager[Learner | ControlLearner]]

GRACE_S = 5.0


def run_learner(
    config: ConfigArgument,
    overrides: SetOption = None,
    resume: ResumeOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Run the learner: it ingests trajectories, trains, publishes weights and schedules tasks.

    It may start before or after workers and inference servers. Ctrl-C writes a checkpoint and stops;
    --resume goes on with replay, priorities, optimisers and the weight version.
    """
    from distrl.core.process import install_signals

    loaded = load(config, overrides, dry_run)
    if not learn(loaded, resume, install_signals(GRACE_S)):
        typer.echo("Stopped; go on with --resume.", err=True)
        raise typer.Exit(130)


def learn(config: Config, resume: bool, stop: threading.Event) -> bool:
    """Runs a learner until the run is complete (True) or `stop` is set (False).

    If a new run cannot start (an address in use, keys, the policy), its directory is taken away again, so
    that the next start finds the name free.

    Raises:
        DistrlError: Anything that a user can mend.
    """
    from distrl.core.logs import setup
    from distrl.core.rundir import RunDir

    setup(role="learner")
    opened = _control_learner(config, stop) if config.is_control else _learner(config, stop)
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
    return not stop.is_set()


def _control_learner(config: Config, stop: threading.Event) -> Opener:
    """A master of workers that train. Its environment is made once, to see what goes in and out."""
    from distrl.learner.control.build import open_control_learner
    from distrl.workers.envs.gym import control_space

    sizes = control_space(config.env.options).sizes
    return lambda run: open_control_learner(config, run, sizes, stop)


def _learner(config: Config, stop: threading.Event) -> Opener:
    """A learner of trajectories, and its tasks."""
    from distrl.evaluator.suites import load_suite, vocabulary
    from distrl.learner.build import TaskSets, open_learner

    suite = config.tasks.suite
    tasks = TaskSets(
        train=load_suite(suite, config.tasks.train),
        validation=load_suite(suite, config.tasks.validation) if config.learner.eval_every else [],
        words=vocabulary(suite),
        drift=load_suite(suite, config.tasks.drift.split) if config.tasks.drift else (),
    )
    return lambda run: open_learner(config, run, tasks, stop)
