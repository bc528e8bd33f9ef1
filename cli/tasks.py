"""`distrl tasks`: which tasks there are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from distrl.core.types import Task

app = typer.Typer(no_args_is_help=True, help="List tasks, or show one.")

SuiteOption = Annotated[
    str, typer.Option("--suite", metavar="SUITE", help="A suite, a task file, or pkg.mod:Name.")
]
SplitOption = Annotated[str | None, typer.Option("--split", metavar="SPLIT", help="Only this split.")]
TemplateOption = Annotated[
    str | None, typer.Option("--template", metavar="TEMPLATE", help="Only this template.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


@app.command("list")
def list_tasks(
    suite: SuiteOption = "quickstart",
    split: SplitOption = None,
    template: TemplateOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the tasks of a suite: id, step limit, goal."""
    from distrl.evaluator.suites import load_suite

    tasks = _of_template(load_suite(suite, split), template)
    if as_json:
        for task in tasks:
            typer.echo(task.model_dump_json())
        return
    width = max(len(task.id) for task in tasks)
    for task in tasks:
        typer.echo(f"{task.id:<{width}}  {task.max_steps:>3} steps  {' '.join(task.goal.split())}")
    typer.echo(_counts(tasks), err=True)


@app.command("show")
def show_task(
    task_id: Annotated[
        str, typer.Argument(metavar="ID", help="A task's id, as `distrl tasks list` shows it.")
    ],
    suite: Annotated[
        str | None,
        typer.Option("--suite", metavar="SUITE", help="Where to look; by default the suite that ID names."),
    ] = None,
) -> None:
    """Show one task with all its parameters, as JSON."""
    task = _find(task_id, suite)
    typer.echo(json.dumps(task.model_dump(mode="json"), indent=2, ensure_ascii=False))


def _find(task_id: str, suite: str | None) -> Task:
    import difflib

    from distrl.core.errors import TaskError
    from distrl.evaluator.suites import get_task, load_suite

    if suite is None:
        return get_task(task_id)
    by_id = {task.id: task for task in load_suite(suite)}
    if task_id not in by_id:
        near = difflib.get_close_matches(task_id, by_id, n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]!r}?" if near else "See `distrl tasks list`."
        raise TaskError(f"The suite {suite!r} has no task {task_id!r}.", hint)
    return by_id[task_id]


def _of_template(tasks: Sequence[Task], template: str | None) -> list[Task]:
    import difflib

    from distrl.core.errors import TaskError

    if template is None:
        return list(tasks)
    known = list(dict.fromkeys(task.template for task in tasks))
    if template not in known:
        near = difflib.get_close_matches(template, known, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise TaskError(f"There is no template {template!r} here.", f"{hint}Templates: {', '.join(known)}.")
    return [task for task in tasks if task.template == template]


def _counts(tasks: Sequence[Task]) -> str:
    counts: dict[str, int] = {}
    for task in tasks:
        counts[task.split] = counts.get(task.split, 0) + 1
    parts = ", ".join(f"{count} {split}" for split, count in counts.items())
    return f"{len(tasks)} task{'s' if len(tasks) != 1 else ''}: {parts}"
