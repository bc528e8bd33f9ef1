"""`distrl train`: the whole run on this machine, by separate processes, with a report at the end."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from distrl.cli.options import ConfigArgument, DryRunOption, ResumeOption, SetOption, load
from distrl.core.errors import ConfigError, DistrlError, MissingDependency, PolicyError, TaskError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distrl.cli.local.run import LocalRun
    from distrl.configs.schema import Config
    from distrl.core.rundir import RunDir
    from distrl.core.terminal import Console
    from distrl.core.types import Task

STOPPED = 130


def train(
    config: ConfigArgument,
    overrides: SetOption = None,
    resume: ResumeOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Train on this machine: learner, inference servers and workers, then an evaluation before and after.
    With appo there are no inference servers, and the result alone is measured.

    Processes that die are replaced. Ctrl-C stops all of them, the learner after a checkpoint, a second one at
    once; --resume continues the run, or says that it is complete. A new run that an error ends before
    anything was stored leaves no directory behind.
    """
    loaded = load(config, overrides, dry_run)
    if resume and say_complete(loaded):
        return
    from distrl.cli.health.run import check_installed
    from distrl.cli.local.programs import check_addresses, free_addresses, unreachable_servers
    from distrl.cli.local.run import LocalRun, unmake
    from distrl.cli.run_kind import run_kind
    from distrl.core.checkpoints import pointed
    from distrl.core.process import install_signals
    from distrl.core.rundir import RunDir
    from distrl.core.terminal import Console
    from distrl.evaluator.run_state import describe_stopped

    kind = run_kind(loaded)
    check_packages(kind.packages)
    check_installed(loaded, is_worker=False)
    check_devices(loaded)
    check_models(loaded)
    if loaded.local.workers:
        kind.check_environment()
    for warning in kind.check_tasks():
        typer.echo(f"warning: {warning}", err=True)
    if not resume:  # later it has its own copy of them
        check_demonstrations(loaded)
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
        try:
            local = LocalRun(loaded, network, run, install_signals(), console)
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


def say_complete(config: Config) -> bool:
    """Whether the run is complete, trained and measured as `config` asks; then says so.

    Raises:
        NoUpdates: It is, and ended before its first update.
    """
    from distrl.core.rundir import RunDir
    from distrl.evaluator.run_state import check_trained, describe_complete, is_complete, is_measured

    run = RunDir.of(config)
    if not is_complete(run, config) or not is_measured(run, config):
        return False
    typer.echo(describe_complete(run, config))
    check_trained(run, config)
    return True


def report(run: RunDir, results: dict[str, Path], local: LocalRun, console: Console) -> None:
    """Writes the report and prints the numbers.

    Raises:
        NoUpdates: The run ended before its first update.
    """
    from distrl.cli.run_kind import run_kind
    from distrl.evaluator.run_state import check_trained, describe

    kind = run_kind(local.config)
    page = kind.write_report(run, results)
    if results:
        kind.print_results(console, results)
        console.print(f"Took {local.elapsed()}.")
        console.print(f"Report: {page}", soft_wrap=True)
    else:
        say_unmeasured(run, page, console)
    check_trained(run, local.config)
    if noted := describe(run, local.config):
        console.print(noted, soft_wrap=True)


def say_unmeasured(run: RunDir, page: Path, console: Console) -> None:
    """Says how to measure a run whose environments are on other machines."""
    console.print("Not measured on the test splits, for local.workers is 0. Measure it by")
    serve = f"distrl serve-inference {run.config} --checkpoint {run.path}"
    console.print(f"  here                   {serve}", soft_wrap=True)
    console.print("  on a worker's machine  distrl evaluate CONFIG --inference tcp://HOST:PORT")
    console.print(f"Report: {page}", soft_wrap=True)


def check_tasks(config: Config) -> list[str]:
    """Makes sure that the suite and its splits are there, that the environment knows their tasks, and that
    they can be demonstrated and judged as the configuration wants.

    Returns:
        Warnings: of tasks that are not learnt from.

    Raises:
        TaskError: One is not, or they do not.
        ConfigError: The tasks cannot be demonstrated or judged.
    """
    from distrl.evaluator.suites.playable import check_expert, check_playable, check_truth
    from distrl.learner.task_sampling import demonstration_sampler

    tasks, found = config.tasks, _tasks_by_split(config)
    for among in found.values():
        check_playable(config, among)
    check_expert(config, found[tasks.train])
    demonstration_sampler(config.learner, found[tasks.train], config.seed)  # refuses wrong weights
    judged = dict.fromkeys((tasks.train, tasks.validation) if config.learner.eval_every else (tasks.train,))
    warnings = [check_truth(config, split, found[split]) for split in judged]
    return [warning for warning in warnings if warning is not None]


def _tasks_by_split(config: Config) -> dict[str, list[Task]]:
    """The tasks of the splits that a run uses; an error says which key names the suite or the split."""
    from distrl.evaluator.suites import load_suite

    tasks, found = config.tasks, {}
    try:
        load_suite(tasks.suite)
    except TaskError as error:
        raise TaskError(f"tasks.suite: {error.message}", error.remedy) from error
    named = [("train", tasks.train), ("validation", tasks.validation), *(("test", one) for one in tasks.test)]
    for key, split in [*named, *([("drift.split", tasks.drift.split)] if tasks.drift else [])]:
        try:
            found[split] = load_suite(tasks.suite, split)
        except TaskError as error:
            raise TaskError(f"tasks.{key}: {error.message}", error.remedy) from error
    return found


def check_demonstrations(config: Config) -> None:
    """Makes sure that demonstrations that were collected before, if the run starts from some, fit.

    Raises:
        RunDirectoryError: There are none.
        ConfigError: They do not.
    """
    demonstrations = config.learner.demonstrations
    if demonstrations.dataset is not None:
        from distrl.configs.load import wanted_of
        from distrl.core.demonstrations import check_dataset

        path = Path(demonstrations.dataset).expanduser()
        check_dataset(path, wanted_of(config), demonstrations.episodes)


def check_devices(config: Config, sections: Sequence[str] = ("learner", "policy")) -> None:
    """Makes sure that the devices that these sections are to compute on exist.

    Raises:
        ConfigError: One does not; it names the key.
    """
    from distrl.cli.local.gpus import visible

    for section in sections:
        key, device = f"{section}.device", getattr(config, section).device
        kind, _, index = device.partition(":")
        if kind == "cuda" and not Path("/dev/kfd").exists():  # only torch knows AMD's GPUs
            gpus = visible()
            if (not index.isdecimal() and index) or int(index or 0) >= len(gpus):
                found = f"CUDA can use {len(gpus)} GPUs here" if gpus else "this machine has no GPU"
                raise ConfigError(f"`{key}` is {device!r}, but {found}.", f"Set {key} to auto or cpu.")
        elif kind not in ("auto", "cpu"):
            from distrl.core.policies import resolve_device

            try:
                resolve_device(device)
            except PolicyError as error:
                said = f"`{key}` is {device!r}, which torch cannot use on this machine."
                raise ConfigError(said, f"Set {key} to auto, cpu or cuda.") from error


def check_models(config: Config) -> None:
    """Makes sure that the models of the policy are there, or that a hub answers that may have them.

    Raises:
        ConfigError: One is no directory and cannot be a model of the hub; it names the key.
        PolicyError: One is not in the cache, and the hub cannot be reached.
    """
    from distrl.core.hub_files import cached, has_weights, is_hub_id, located

    for key in ("model", "image_features"):
        name = getattr(config.policy, key, None)
        if not name or Path(name).expanduser().is_dir():
            continue
        if not is_hub_id(name):
            raise ConfigError(
                f"`policy.{key}` is {name!r}, which is neither a directory nor a model id.",
                f"Set policy.{key} to an existing directory, or to OWNER/NAME on the hub.",
            )
        snapshot = cached(name)
        if snapshot is None or not has_weights(snapshot):
            located(f"policy.{key}", name)


def check_packages(needed: Mapping[str, str]) -> None:
    """Makes sure that the whole run can work here before anything is started.

    Args:
        needed: Packages, and the extras that bring them.

    Raises:
        MissingDependency: A package of an extra is not installed.
    """
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        extras = ",".join(sorted({needed[name] for name in missing}))
        raise MissingDependency(
            f"`distrl train` needs {', '.join(missing)}, which {sys.prefix} does not have.",
            f'Install with: pip install "distrl[{extras}]".',
        )
