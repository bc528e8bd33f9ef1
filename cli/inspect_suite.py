"""`distrl inspect SUITE`: a suite's splits and templates, with examples of its goals."""

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

TASK_FILES = (".yaml", ".yml", ".jsonl", ".ndjson")


def is_suite(place: Path) -> bool:
    """Whether this is a suite, a task file or "pkg.mod:Name", and no place with episodes."""
    from distrl.evaluator.suites import SUITES

    if place.exists():
        return place.is_file() and place.suffix in TASK_FILES
    name = str(place)
    return name in SUITES or (":" in name and "/" not in name) or place.suffix in TASK_FILES


def suite_like(place: Path) -> str | None:
    """The suite that may have been meant by a place that does not exist."""
    from distrl.evaluator.suites import SUITES

    near = [] if place.exists() else difflib.get_close_matches(str(place), SUITES, n=1)
    return near[0] if near else None


def show_suite(name: str, split: str | None, template: str | None, task: str | None) -> None:
    """Prints the splits and the templates of those tasks that the filters leave.

    Raises:
        ConfigError: A filter names something that the suite has not.
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
    """The levels of difficulty that tasks have, or "-"."""
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
        texts: How many columns at the beginning are text; the others are numbers.
        tail: The last column is text as well; on a terminal it is cut where the line ends.
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
    """Characters in a line of the terminal; no limit if the output goes elsewhere, where nothing is cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
