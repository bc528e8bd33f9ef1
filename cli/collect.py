"""`distrl collect`: demonstrations of the scripted expert, as a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distrl.cli.options import GRACE_S, ConfigArgument, DryRunOption, SetOption, load
from distrl.core.errors import ConfigError, EnvError


def collect(
    config: ConfigArgument,
    episodes: Annotated[
        int | None,
        typer.Option(
            "--episodes",
            min=1,
            metavar="N",
            help="Default: learner.demonstrations.episodes.",
        ),
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(
            "--noise",
            min=0.0,
            max=1.0,
            metavar="P",
            help="Share of random actions. Default: learner.demonstrations.noise.",
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", metavar="SPLIT", help="The tasks' split. Default: tasks.train.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="DIR", help="Default: RUNS_DIR/collections/NAME-SPLIT."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a collection, or add to it.")] = False,
    overrides: SetOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Collect demonstrations of the environment's scripted expert into DIR.

    Every recorded answer is the expert's, even where a random action was executed instead: noise
    demonstrates recovery from mistakes. Start a run from DIR with --set learner.demonstrations.dataset=DIR,
    export it with `distrl export DIR --dataset OUT`, or view it with `distrl inspect DIR`.
    """
    from distrl.cli.health.run import check_installed
    from distrl.cli.run_kind import require_gui
    from distrl.core.demonstrations import CollectionSpec
    from distrl.core.logs import setup
    from distrl.core.process import install_signals
    from distrl.evaluator.collecting import collect as collect_episodes
    from distrl.evaluator.suites import load_tasks
    from distrl.learner.task_sampling import demonstration_sampler

    loaded = load(config, overrides, dry_run)
    require_gui(loaded, "collect")
    setup(role="collect", level="WARNING")
    defaults = loaded.learner.demonstrations
    wanted = episodes if episodes is not None else defaults.episodes
    if not wanted:
        raise ConfigError("learner.demonstrations.episodes is 0.", "Set --episodes.")
    spec = CollectionSpec(
        suite=loaded.tasks.suite,
        split=split or loaded.tasks.train,
        agent=loaded.agent.model_dump(mode="json"),
        weights=defaults.weights,
        noise=noise if noise is not None else defaults.noise,
        seed=loaded.seed,
        episodes=wanted,
    )
    check_installed(loaded, is_worker=True)
    directory = output or Path(loaded.runs_dir).expanduser() / "collections" / f"{loaded.name}-{spec.split}"
    stop = install_signals(GRACE_S + loaded.devices.close_s)
    sampler = demonstration_sampler(loaded.learner, load_tasks(loaded.tasks, spec.split), loaded.seed)
    results = collect_episodes(loaded, directory, spec, sampler.draw, resume, stop)
    faulted = [result for result in results if result.fault.value != "none"]
    for result in faulted:
        typer.echo(f"left out because it faulted in every try: {result.task_id}: {result.fault_detail}")
    count, solved = len(results) - len(faulted), sum(result.success for result in results)
    if faulted and not count:
        raise EnvError(f"None of {len(results)} demonstrations could be collected.", "See the faults above.")
    typer.echo(f"{directory}: {count} new demonstrations, {solved} of them solve their task")
