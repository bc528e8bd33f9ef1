"""`distrl inspect`: episodes step by step, training tasks, and suites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distrl.core.store import TrajectoryStore
    from distrl.evaluator.stores import Filters

PAGE = "episodes.html"
MIN_GOAL = 30
"""The smallest width of a goal on a terminal; if it does not fit, columns are dropped."""
PlaceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN|STORE|SUITE", help="A run, an evaluation, a store.sqlite3, a suite or a task file."
    ),
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
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help=f"The HTML file. Default: trajectory-ID.html, {PAGE}."),
    ] = None,
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
    from distrl.cli.inspect_suite import is_suite, show_suite, suite_like
    from distrl.core.errors import StoreError
    from distrl.evaluator.stores import Filters, open_stores

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
    if tasks:
        _refuse(asked | {"--split": split}, "--tasks lists training tasks")
        _list_tasks(place, template, task)
        return
    if near := suite_like(place):
        raise StoreError(f"There is no {place}.", f"Did you mean the suite {near!r}?")
    filters = _filters(outcome, mode, Filters(template, None, None, success, min_steps, split, task, seed))
    stores = open_stores(place)
    try:
        if trajectory is not None:
            typer.echo(_write_page(stores, trajectory, output, force))
        elif html:
            typer.echo(_write_listing(place, stores, filters, limit, output, force))
        else:
            _list(stores, filters, limit)
    finally:
        for store in stores:
            store.close()


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


def _check_known(stores: Sequence[TrajectoryStore], filters: Filters) -> None:
    """Raises ConfigError if no stored episode has a filter's value."""
    from distrl.core.user_errors import check_known
    from distrl.evaluator.stores import all_results

    if {filters.template, filters.split, filters.task, filters.seed} == {None}:
        return
    results = list(all_results(stores))
    check_known("template", filters.template, sorted({one.template for one in results}))
    check_known("split", filters.split, sorted({one.split for one in results}))
    check_known("task", filters.task, sorted({one.task_id for one in results}))
    seeds = map(str, sorted({one.seed for one in results}))
    check_known("seed", None if filters.seed is None else str(filters.seed), seeds)


def _list(stores: Sequence[TrajectoryStore], filters: Filters, limit: int) -> None:
    from itertools import chain, islice

    from distrl.cli.inspect_suite import print_table, terminal_width
    from distrl.evaluator.stores import ending, find_episodes

    episodes = find_episodes(stores, filters, limit)
    first = list(islice(episodes, 1))
    if not first:
        _check_known(stores, filters)
    rows = [["trajectory", "ended", "failure mode", "for", "task", "steps", "reward", "goal"]]
    for found in chain(first, episodes):
        one, result = found.trajectory, found.result
        texts = [one.id[:12], ending(result), result.mode.value if result.mode else "-", one.purpose.value]
        numbers = [f"{result.num_steps}", f"{result.reward:.2f}"]
        rows.append([*texts, one.task.id, *numbers, " ".join(one.task.goal.split())])
    taken = sum(2 + max(map(len, column)) for column in zip(*(row[:-1] for row in rows), strict=True))
    is_narrow = terminal_width() < taken + MIN_GOAL
    if is_narrow:
        rows = [[row[0], row[1], row[5], row[7]] for row in rows]
    print_table(rows, texts=2 if is_narrow else 5, tail=True)
    total = sum(store.count() for store in stores)
    typer.echo(f"{len(rows) - 1} of {total} trajectories, newest first", err=True)
    _list_quarantined(stores)


def _list_quarantined(stores: Sequence[TrajectoryStore]) -> None:
    """Lists quarantined trajectories, which are not trained on, with the reason."""
    from datetime import datetime

    from distrl.cli.inspect_suite import print_table

    rows = [["quarantined", "since", "reason"]]
    for row in (row for store in stores for row in store.quarantined()):
        rows.append([row.id[:12], f"{datetime.fromtimestamp(row.at):%Y-%m-%d %H:%M}", row.reason])
    if len(rows) > 1:
        typer.echo("")
        print_table(rows, texts=3)


def _write_listing(
    place: Path,
    stores: Sequence[TrajectoryStore],
    filters: Filters,
    limit: int,
    output: Path | None,
    force: bool,
) -> Path:
    from distrl.core.files import writing
    from distrl.evaluator.report.viewer import write_listing
    from distrl.evaluator.stores import find_episodes

    file = output or Path(PAGE)
    _check_free(file, force)
    found = list(find_episodes(stores, filters, limit))
    if not found:
        _check_known(stores, filters)
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
    total = sum(store.count() for store in stores)
    words.append(f"{len(found)} of {total:,} episodes, newest first, {limit} at most")
    with writing(file):
        write_listing(file, place, found, " · ".join(words))
    return file


def _list_tasks(run: Path, template: str | None, task: str | None) -> None:
    """Lists the training tasks' statistics of the newest checkpoint."""
    from distrl.core.logs import one_line
    from distrl.core.rundir import TASKS_FILE
    from distrl.core.user_errors import check_known
    from distrl.learner.task_sampling import read_table

    def shown(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    table = read_table(run / TASKS_FILE)
    check_known("template", template, (row.template for row in table.values()))
    check_known("task", task, table)
    listed = {
        name: row for name, row in table.items() if template in (None, row.template) and task in (None, name)
    }
    typer.echo(
        f"{'episodes':>8}  {'success':>7}  {'steps':>5}  {'seconds':>7}  {'faults':>6}  {'expired':>7}  "
        f"{'given up':>8}  task"
    )
    for name, row in listed.items():
        typer.echo(
            f"{row.episodes:>8}  {shown(row.mean_success, '.2f'):>7}  {shown(row.mean_steps, '.1f'):>5}  "
            f"{shown(row.mean_seconds, '.1f'):>7}  {row.faults:>6}  {row.expired:>7}  {row.abandoned:>8}  "
            f"{one_line(name)}"
        )
    typer.echo(f"{len(listed)} of {len(table)} training tasks that were tried", err=True)


def _write_page(stores: Sequence[TrajectoryStore], prefix: str, output: Path | None, force: bool) -> Path:
    from distrl.core.files import writing
    from distrl.evaluator.report import write_trajectory_page
    from distrl.evaluator.report.viewer import verdict_of
    from distrl.evaluator.results import SPEC_FILE, read_spec
    from distrl.evaluator.stores import find_in, find_token_names, places_of, result_of

    store, found = find_in(stores, prefix)
    file = output or Path(f"trajectory-{found.id[:12]}.html")
    _check_free(file, force)
    images = store.images(store.known_images(found.image_digests))
    names = find_token_names(places_of(store.path))
    result, home = result_of(store, found), store.path.parent
    judge = read_spec(home).judge if (home / SPEC_FILE).is_file() else "ground_truth"
    with writing(file):
        write_trajectory_page(file, found, images, verdict_of(result, found, judge), names, result.mode)
    return file


def _check_free(file: Path, force: bool) -> None:
    """Checks that no file is overwritten without --force.

    Raises:
        RunDirectoryError: The file exists.
    """
    from distrl.core.errors import RunDirectoryError

    if file.exists() and not force:
        raise RunDirectoryError(f"{file} exists already.", "Name another with --output, or add --force.")
