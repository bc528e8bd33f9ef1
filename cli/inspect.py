"""`distrl inspect`: episodes step by step, training tasks, and suites."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from distrl.evaluator.stores import Filters, StoredEpisodes

PAGE = "episodes.html"
PlaceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN|STORE|SUITE", help="A run, an evaluation, a store.sqlite3, a suite or a task file."
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", metavar="FILE", help=f"The HTML file. Default: trajectory-ID.html, {PAGE}."),
]
SeedOption = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="Only this repetition of an evaluation with --seeds."),
]


def inspect(
    place: PlaceArgument,
    trajectory: Annotated[
        str | None,
        typer.Option("--trajectory", metavar="ID", help="Show this trajectory; a prefix is enough."),
    ] = None,
    html: Annotated[bool, typer.Option("--html", help="Write the episodes as an HTML page.")] = False,
    output: OutputOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the HTML file.")] = False,
    template: Annotated[
        str | None, typer.Option("--template", metavar="TEMPLATE", help="Only this template.")
    ] = None,
    split: Annotated[str | None, typer.Option("--split", metavar="SPLIT", help="Only this split.")] = None,
    task: Annotated[str | None, typer.Option("--task", metavar="ID", help="Only this task.")] = None,
    seed: SeedOption = None,
    outcome: Annotated[
        str | None,
        typer.Option("--outcome", metavar="WORD", help="Only this outcome, e.g. success or device-fault."),
    ] = None,
    mode: Annotated[
        str | None, typer.Option("--mode", metavar="MODE", help="Only this failure mode, e.g. stuck.")
    ] = None,
    success: Annotated[
        bool | None, typer.Option("--success/--failed", help="Only solved, or only unsolved, episodes.")
    ] = None,
    min_steps: Annotated[
        int, typer.Option("--min-steps", min=0, metavar="N", help="Only episodes with at least N steps.")
    ] = 0,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Only the newest N.")] = 50,
    tasks: Annotated[
        bool,
        typer.Option("--tasks", help="List training tasks with success, steps and faults."),
    ] = False,
) -> None:
    """List stored episodes, training tasks or a suite's templates, or write episodes as an HTML file.

    The HTML file shows every screenshot with the agent's touch, the tokens with their log-probabilities, the
    weight versions, the parts of the reward and the verdict; with --trajectory also the prompts. It needs no
    network. For a suite, lists its splits and templates with the number of tasks, levels, step limits and
    goals; filter with --split, --template and --task.
    """
    from distrl.cli.listing import is_suite, list_episodes, list_tasks, show_suite, suite_like
    from distrl.cli.run_kind import require_episodes
    from distrl.core.errors import StoreError
    from distrl.evaluator.stores import Filters, StoredEpisodes

    place = place.expanduser()
    asked = {
        "--trajectory": trajectory,
        "--html": html,
        "--outcome": outcome,
        "--mode": mode,
        "--success/--failed": success is not None,
        "--min-steps": min_steps,
        "--seed": seed is not None,
    }
    if is_suite(place):
        _refuse(asked | {"--tasks": tasks}, "A suite has no episodes")
        show_suite(str(place), split, template, task)
        return
    require_episodes(place, "inspect")
    if tasks:
        _refuse(asked | {"--split": split}, "--tasks lists training tasks")
        list_tasks(place, template, task)
        return
    if near := suite_like(place):
        raise StoreError(f"There is no {place}.", f"Did you mean the suite {near!r}?")
    filters = _filters(outcome, mode, Filters(template, None, None, success, min_steps, split, task, seed))
    with contextlib.closing(StoredEpisodes(place)) as stored:
        if trajectory is not None:
            typer.echo(_write_page(stored, trajectory, output, force))
        elif html:
            typer.echo(_write_listing(place, stored, filters, limit, output, force))
        else:
            list_episodes(stored, filters, limit)


def _refuse(asked: Mapping[str, object], what: str) -> None:
    """Raises ConfigError if an option is given that has no effect on `what` is listed."""
    from distrl.core.errors import ConfigError

    given = [name for name, value in asked.items() if value]
    if given:
        raise ConfigError(f"{what}: {given[0]} has no effect.", "Remove it.")


def _filters(outcome: str | None, mode: str | None, others: Filters) -> Filters:
    """The filters, with outcome and mode checked.

    Raises:
        ConfigError: There is no such outcome or mode.
    """
    from distrl.core.errors import ConfigError
    from distrl.evaluator.failure_modes import FailureMode
    from distrl.evaluator.stores import ENDINGS

    modes = [known.value for known in FailureMode]
    if outcome is not None and outcome not in ENDINGS:
        raise ConfigError(f"--outcome {outcome!r} is unknown.", f"Use one of {', '.join(ENDINGS)}.")
    if mode is not None and mode not in modes:
        raise ConfigError(f"--mode {mode!r} is unknown.", f"Use one of {', '.join(modes)}.")
    return replace(others, outcome=outcome, mode=FailureMode(mode) if mode is not None else None)


def _write_listing(
    place: Path,
    stored: StoredEpisodes,
    filters: Filters,
    limit: int,
    output: Path | None,
    force: bool,
) -> Path:
    from distrl.cli.listing import check_filters
    from distrl.core.files import writing
    from distrl.evaluator.report.viewer import write_listing

    file = output or Path(PAGE)
    _check_free(file, force)
    found = list(stored.find(filters, limit))
    if not found:
        check_filters(stored, filters)
    named = {
        "template": filters.template,
        "split": filters.split,
        "task": filters.task,
        "seed": filters.seed,
        "ended": filters.outcome,
        "failure mode": filters.mode.value if filters.mode is not None else None,
        "solved": None if filters.success is None else "yes" if filters.success else "no",
        "steps at least": filters.min_steps or None,
    }
    words = [f"{name}: {value}" for name, value in named.items() if value is not None]
    words.append(f"{len(found)} of {stored.count():,} episodes, newest first, {limit} at most")
    with writing(file):
        write_listing(file, place, found, " · ".join(words))
    return file


def _write_page(stored: StoredEpisodes, prefix: str, output: Path | None, force: bool) -> Path:
    from distrl.core.files import writing
    from distrl.evaluator.report.viewer import write_trajectory_page

    found = stored.one(prefix)
    file = output or Path(f"trajectory-{found.trajectory.id[:12]}.html")
    _check_free(file, force)
    with writing(file):
        write_trajectory_page(file, found)
    return file


def _check_free(file: Path, force: bool) -> None:
    """Checks that no file is overwritten without --force.

    Raises:
        RunDirectoryError: The file exists.
    """
    from distrl.core.errors import RunDirectoryError

    if file.exists() and not force:
        raise RunDirectoryError(f"{file} exists already.", "Name another with --output, or add --force.")
