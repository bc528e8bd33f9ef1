"""The lists of `distrl inspect`: stored episodes, training tasks, and a suite's splits and templates."""

from __future__ import annotations

import difflib
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from distrl.core.types import Task
    from distrl.evaluator.stores import Filters, StoredEpisodes

MIN_GOAL = 30
"""The smallest width of a goal on a terminal; if it does not fit, columns are dropped."""
TASK_FILES = (".yaml", ".yml", ".jsonl", ".ndjson")


def list_episodes(stored: StoredEpisodes, filters: Filters, limit: int) -> None:
    """Lists at most `limit` episodes, the newest first, and quarantined trajectories."""
    from itertools import chain, islice

    from distrl.evaluator.stores import ending

    episodes = stored.find(filters, limit)
    first = list(islice(episodes, 1))
    if not first:
        check_filters(stored, filters)
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
    typer.echo(f"{len(rows) - 1} of {stored.count()} trajectories, newest first", err=True)
    _list_quarantined(stored)


def _list_quarantined(stored: StoredEpisodes) -> None:
    """Lists quarantined trajectories, which are not trained on, with the reason."""
    from datetime import datetime

    rows = [["quarantined", "since", "reason"]]
    for row in (row for store in stored.stores for row in store.quarantined()):
        rows.append([row.id[:12], f"{datetime.fromtimestamp(row.at):%Y-%m-%d %H:%M}", row.reason])
    if len(rows) > 1:
        typer.echo("")
        print_table(rows, texts=3)


def check_filters(stored: StoredEpisodes, filters: Filters) -> None:
    """Raises ConfigError if no stored episode has a filter's value."""
    from distrl.core.user_errors import check_known

    if {filters.template, filters.split, filters.task, filters.seed} == {None}:
        return
    results = list(stored.results())
    check_known("template", filters.template, sorted({one.template for one in results}))
    check_known("split", filters.split, sorted({one.split for one in results}))
    check_known("task", filters.task, sorted({one.task_id for one in results}))
    seeds = map(str, sorted({one.seed for one in results}))
    check_known("seed", None if filters.seed is None else str(filters.seed), seeds)


def list_tasks(run: Path, template: str | None, task: str | None) -> None:
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


def is_suite(place: Path) -> bool:
    """Whether this is a suite, a task file or "pkg.mod:Name", not a directory or store with episodes."""
    from distrl.evaluator.suites import SUITES

    if place.exists():
        return place.is_file() and place.suffix in TASK_FILES
    name = str(place)
    return name in SUITES or (":" in name and "/" not in name) or place.suffix in TASK_FILES


def suite_like(place: Path) -> str | None:
    """A suite with a name similar to a path that does not exist."""
    from distrl.evaluator.suites import SUITES

    near = [] if place.exists() else difflib.get_close_matches(str(place), SUITES, n=1)
    return near[0] if near else None


def show_suite(name: str, split: str | None, template: str | None, task: str | None) -> None:
    """Prints the splits and templates of the tasks that match the filters.

    Raises:
        ConfigError: A filter's value does not occur in the suite.
        TaskError: There is no such suite.
    """
    from distrl.core.user_errors import check_known
    from distrl.evaluator.suites import load_suite

    tasks = load_suite(name)
    check_known("split", split, (one.split for one in tasks))
    check_known("template", template, (one.template for one in tasks))
    check_known("task", task, (one.id for one in tasks))
    asked = [
        one
        for one in tasks
        if split in (None, one.split) and template in (None, one.template) and task in (None, one.id)
    ]
    splits, templates = _grouped(asked, "split"), _grouped(asked, "template")
    rows = [["split", "tasks", "templates", "levels", "steps"]]
    rows += [
        [split, str(len(of)), str(len({one.template for one in of})), _levels(of), _steps(of)]
        for split, of in splits.items()
    ]
    print_table(rows, texts=1)
    rows = [["template", *splits, "levels", "steps", "example"]]
    for template, of in templates.items():
        counts = [str(sum(one.split == split for one in of)) for split in splits]
        rows.append([template or "-", *counts, _levels(of), _steps(of), " ".join(of[0].goal.split())])
    typer.echo("")
    print_table(rows, texts=1, tail=True)
    typer.echo(f"{len(asked)} of {len(tasks)} tasks", err=True)


def _grouped(tasks: Iterable[Task], attribute: str) -> Mapping[str, Sequence[Task]]:
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        groups.setdefault(getattr(task, attribute), []).append(task)
    return groups


def _levels(tasks: Iterable[Task]) -> str:
    """The tasks' levels of difficulty, or "-"."""
    levels = {task.params.get("level") for task in tasks}
    return ", ".join(str(level) for level in sorted(one for one in levels if isinstance(one, int))) or "-"


def _steps(tasks: Sequence[Task]) -> str:
    """The step limits."""
    least, most = min(task.max_steps for task in tasks), max(task.max_steps for task in tasks)
    return str(least) if least == most else f"{least}-{most}"


def print_table(rows: Sequence[Sequence[str]], texts: int, tail: bool = False) -> None:
    """Prints a table.

    Args:
        rows: The headings, then the cells.
        texts: How many leading columns are text; the others are numbers.
        tail: The last column is text too; on a terminal it is truncated at the end of the line.
    """
    from rich.cells import cell_len, set_cell_size

    from distrl.core.logs import one_line

    last, rows = len(rows[0]) - 1, [[one_line(cell) for cell in row] for row in rows]
    widths = [max(cell_len(row[at]) for row in rows) for at in range(last + 1)]
    room = max(terminal_width() - sum(widths[:last]) - 2 * last, cell_len(rows[0][last]), 1)
    for row in rows:
        cells = [
            " " * max(0, width - cell_len(cell)) + cell if at >= texts else set_cell_size(cell, width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        if tail:
            end = row[last]
            cells[last] = end if cell_len(end) <= room else set_cell_size(end, room - 1).rstrip() + "…"
        typer.echo("  ".join(cells).rstrip())


def terminal_width() -> int:
    """The width of the terminal; unlimited if the output is redirected, so that nothing is truncated."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
