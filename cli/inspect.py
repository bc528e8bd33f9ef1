"""`distrl inspect`: stored episodes, step by step, and their tasks."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.core.errors import ConfigError, RunDirectoryError, StoreError

if TYPE_CHECKING:
    from distrl.evaluator.statistics import EpisodeResult
    from distrl.evaluator.stores import Filters, Found, StoredEpisodes

PAGE = "episodes.html"
MIN_GOAL = 30
"""The smallest width of a goal on a terminal; if it does not fit, columns are dropped."""

PlaceArgument = Annotated[
    Path,
    typer.Argument(metavar="RUN|STORE", help="A run, an evaluation, a collection or a store.sqlite3."),
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
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Only the newest N.")] = 50,
    tasks: Annotated[
        bool,
        typer.Option("--tasks", help="List tasks with success, steps and faults of their episodes."),
    ] = False,
) -> None:
    """List stored episodes or their tasks, or write episodes as an HTML file.

    The HTML file shows every screenshot with the agent's touch, the tokens with their log-probabilities, the
    weight versions, the parts of the reward and the verdict; with --trajectory also the prompts and the
    screens' elements, and beside an imagined episode how the real one went on. It needs no network.
    """
    from distrl.cli.run_kind import require_episodes
    from distrl.evaluator.failure_modes import FailureMode
    from distrl.evaluator.stores import ENDINGS, Filters, StoredEpisodes

    place = place.expanduser()
    require_episodes(place, "inspect")
    modes = [known.value for known in FailureMode]
    for option, value, known in (("--outcome", outcome, ENDINGS), ("--mode", mode, modes)):
        if value is not None and value not in known:
            raise ConfigError(f"{option} {value!r} is unknown.", f"Use one of {', '.join(known)}.")
    failure = FailureMode(mode) if mode is not None else None
    filters = Filters(template, outcome, failure, success, split, task, seed)
    is_page = html or trajectory is not None
    if tasks and is_page:
        raise ConfigError("--tasks lists tasks; --html and --trajectory write episodes.", "Use one of them.")
    if (output is not None or force) and not is_page:
        raise ConfigError("--output and --force are for HTML files.", "Add --html or --trajectory ID.")
    if trajectory is not None and filters != Filters():
        raise ConfigError("--trajectory names one episode: filters have no effect.", "Remove them.")
    with contextlib.closing(StoredEpisodes(place)) as stored:
        if trajectory is not None:
            typer.echo(_write_page(stored, trajectory, output, force))
        elif html:
            typer.echo(_write_listing(place, stored, filters, limit, output, force))
        elif tasks:
            list_tasks(stored, filters, limit)
        else:
            list_episodes(stored, filters, limit)


def _find(stored: StoredEpisodes, filters: Filters, limit: int) -> list[Found]:
    """The newest episodes that match; a filter's value that no stored episode has is an error."""
    from distrl.core.user_errors import check_known

    found = list(stored.find(filters, limit))
    if not found:
        fields = {"template": "template", "split": "split", "task": "task_id", "seed": "seed"}
        for what, field in fields.items():
            if (asked := getattr(filters, what)) is not None:
                known = sorted({getattr(one, field) for one in stored.results()})
                check_known(what, str(asked), map(str, known))
    return found


def list_episodes(stored: StoredEpisodes, filters: Filters, limit: int) -> None:
    """Lists at most `limit` episodes, the newest first, and quarantined trajectories."""
    from datetime import datetime

    from distrl.evaluator.stores import ending

    rows = [["trajectory", "ended", "failure mode", "for", "task", "steps", "reward", "goal"]]
    for found in _find(stored, filters, limit):
        one, result = found.trajectory, found.result
        texts = [one.id[:12], ending(result), result.mode.value if result.mode else "-", one.purpose.value]
        numbers = [f"{result.num_steps}", f"{result.reward:.2f}"]
        rows.append([*texts, one.task.id, *numbers, " ".join(one.task.goal.split())])
    taken = sum(2 + max(map(len, column)) for column in zip(*(row[:-1] for row in rows), strict=True))
    is_narrow = _terminal_width() < taken + MIN_GOAL
    if is_narrow:
        rows = [[row[0], row[1], row[5], row[7]] for row in rows]
    print_table(rows, texts=2 if is_narrow else 5)
    typer.echo(f"{len(rows) - 1} of {stored.count()} trajectories, newest first", err=True)
    rows = [["quarantined", "since", "reason"]]
    for row in (row for store in stored.stores for row in store.quarantined()):
        rows.append([row.id[:12], f"{datetime.fromtimestamp(row.at):%Y-%m-%d %H:%M}", row.reason])
    if rows[1:]:
        typer.echo("")
        print_table(rows, texts=3)


def list_tasks(stored: StoredEpisodes, filters: Filters, limit: int) -> None:
    """Lists at most `limit` tasks of the episodes that match, those tried last first."""
    from distrl.core.types import Fault

    def mean(values: Sequence[float], form: str) -> str:
        return format(sum(values) / len(values), form) if values else "-"

    groups: dict[tuple[str, str], list[EpisodeResult]] = {}
    for found in stored.find(filters):
        groups.setdefault((found.trajectory.purpose.value, found.trajectory.task.id), []).append(found.result)
    if not groups:
        _find(stored, filters, limit)  # names an unknown value
    rows = [["for", "episodes", "success", "steps", "seconds", "faults", "task"]]
    for (purpose, name), episodes in list(groups.items())[:limit]:
        ended = [one for one in episodes if one.fault is Fault.NONE]
        means = [mean([float(one.success) for one in ended if one.counts], ".2f")]
        means += [
            mean([one.num_steps for one in ended], ".1f"),
            mean([one.duration_s for one in ended], ".1f"),
        ]
        rows.append([purpose, str(len(ended)), *means, str(len(episodes) - len(ended)), name])
    print_table(rows, texts=1)
    typer.echo(f"{len(rows) - 1} of {len(groups)} tasks, those tried last first", err=True)


def print_table(rows: Sequence[Sequence[str]], texts: int) -> None:
    """Prints a table.

    Args:
        rows: The headings, then the cells.
        texts: How many leading columns are text. The last one is too, and ends with the line on a terminal;
            those between are numbers.
    """
    from rich.cells import cell_len, set_cell_size

    from distrl.core.logs import one_line

    last, rows = len(rows[0]) - 1, [[one_line(cell) for cell in row] for row in rows]
    widths = [max(cell_len(row[at]) for row in rows) for at in range(last)]
    room = max(_terminal_width() - sum(widths) - 2 * last, cell_len(rows[0][last]), 1)
    for row in rows:
        cells = [
            " " * max(0, width - cell_len(cell)) + cell if at >= texts else set_cell_size(cell, width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        end = row[last]
        cells.append(end if cell_len(end) <= room else set_cell_size(end, room - 1).rstrip() + "…")
        typer.echo("  ".join(cells).rstrip())


def _terminal_width() -> int:
    """The width of the terminal; unlimited if the output is redirected, so that nothing is truncated."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


def _write_listing(
    place: Path,
    stored: StoredEpisodes,
    filters: Filters,
    limit: int,
    output: Path | None,
    force: bool,
) -> Path:
    from distrl.core.files import writing
    from distrl.evaluator.report.viewer import write_listing

    file = output or Path(PAGE)
    _check_free(file, force)
    found = _find(stored, filters, limit)
    given = asdict(filters) | {"mode": filters.mode and filters.mode.value}
    words = [f"{name}: {value}" for name, value in given.items() if value not in (None, 0) or value is False]
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
    branch, origin = found.trajectory.branch, None
    if branch is not None:
        with contextlib.suppress(StoreError):  # it may have been trimmed
            origin = stored.one(branch.trajectory)
    with writing(file):
        write_trajectory_page(file, found, origin)
    return file


def _check_free(file: Path, force: bool) -> None:
    """Raises RunDirectoryError if the file exists, and --force is not given."""
    if file.exists() and not force:
        raise RunDirectoryError(f"{file} exists already.", "Name another with --output, or add --force.")
