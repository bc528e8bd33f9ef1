"""`distrl tasks`: which tasks there are, and task files of other suites' tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.cli.tasks_check import check_tasks

if TYPE_CHECKING:
    from pathlib import Path

    from distrl.core.types import Task
    from distrl.evaluator.suites.files import LeftOut

DEFAULT_SUITE = "quickstart"

app = typer.Typer(no_args_is_help=True, help="List tasks, show one, import others, look for leakage.")

SuiteArgument = Annotated[
    str | None,
    typer.Argument(metavar="[SUITE]", help="A suite, a task file, or pkg.mod:Name. Default: quickstart."),
]
SuiteOption = Annotated[str | None, typer.Option("--suite", metavar="SUITE", help="The same.")]
SplitOption = Annotated[str | None, typer.Option("--split", metavar="SPLIT", help="Only this split.")]
TemplateOption = Annotated[
    str | None, typer.Option("--template", metavar="TEMPLATE", help="Only this template.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


@app.command("list")
def list_tasks(
    named: SuiteArgument = None,
    suite: SuiteOption = None,
    split: SplitOption = None,
    template: TemplateOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the tasks of a suite: id, step limit, goal."""
    from distrl.core.logs import one_line
    from distrl.evaluator.suites import load_suite

    tasks = _of_template(load_suite(_one_suite(named, suite) or DEFAULT_SUITE, split), template)
    if as_json:
        for task in tasks:
            typer.echo(task.model_dump_json())
        return
    width = max(len(task.id) for task in tasks)
    for task in tasks:
        typer.echo(f"{one_line(task.id):<{width}}  {task.max_steps:>3} steps  {' '.join(task.goal.split())}")
    typer.echo(_counts(tasks), err=True)


@app.command("show")
def show_task(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="[SUITE] ID",
            help="A task's id, as `distrl tasks list` shows it. SUITE: where to look; by default the suite "
            "that ID names.",
        ),
    ],
    suite: SuiteOption = None,
) -> None:
    """Show one task with all its parameters, as JSON."""
    from distrl.core.errors import ConfigError

    *named, task_id = names
    if len(named) > 1:
        raise ConfigError(f"{' '.join(names)} are more than a suite and an id.", "Give one ID.")
    task = _find(task_id, _one_suite(named[0] if named else None, suite))
    typer.echo(json.dumps(task.model_dump(mode="json"), indent=2, ensure_ascii=False))


@app.command("import")
def import_tasks(
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="A new .jsonl or .yaml file.")
    ],
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SPLIT=FILE|NAME]...",
            help="Lists of instructions; with --androidworld task names, all when none is given.",
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option("--suite", metavar="NAME", help="Of lists: the tasks' suite. Default: FILE's name."),
    ] = None,
    max_steps: Annotated[
        int, typer.Option("--max-steps", min=1, metavar="N", help="Of lists: the step limit.")
    ] = 15,
    androidworld: Annotated[
        bool, typer.Option("--androidworld", help="Tasks of the installed package android_world.")
    ] = False,
    family: Annotated[
        str, typer.Option("--family", metavar="FAMILY", help="A family of that package's registry.")
    ] = "android_world",
    train_seeds: Annotated[
        str, typer.Option("--train-seeds", metavar="A:B", help="Seeds of the split `train`, without B.")
    ] = "100:120",
    eval_seeds: Annotated[
        str, typer.Option("--eval-seeds", metavar="C:D", help="Seeds of the split `eval`, without D.")
    ] = "30:31",
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Of lists: show every entry that is left out.")
    ] = False,
) -> None:
    """Write a task file of instruction lists, or of AndroidWorld's tasks.

    Lists, e.g. train=general_train.txt test=general_test.txt: an instruction a line, or CSV, TSV, JSON or
    JSON lines. Instructions are normalised; repeated ones are left out, and so are those that a later list
    has too, which are told. AndroidWorld: each task at each seed; the two splits share no seed.
    """
    from pathlib import Path

    from distrl.core.errors import ConfigError
    from distrl.evaluator.suites.files import check_file

    path = Path(output)
    if not androidworld and not names:
        raise ConfigError("nothing says what to import.", "Name lists as SPLIT=FILE, or add --androidworld.")
    check_file(path)
    if androidworld:
        _import_androidworld(path, names or [], train_seeds, eval_seeds, family)
    else:
        _import_lists(path, names or [], suite or path.stem, max_steps, verbose)


def _import_lists(path: Path, lists: Sequence[str], suite: str, max_steps: int, verbose: bool) -> None:
    from distrl.evaluator.suites.files import import_lists, write_file

    imported = import_lists(lists, suite, max_steps)
    write_file(imported.tasks, path)
    typer.echo(f"{path}: {_counts(imported.tasks)}", err=True)
    respelt = [left for left in imported.repeated if verbose or left.text != left.kept]
    _tell(imported.repeated, "repeat an instruction of their list", respelt, verbose)
    _tell(imported.empty, "have no instruction", imported.empty if verbose else (), verbose)
    _tell(imported.leaked, "a later list has too", imported.leaked, True)


def _tell(left: Sequence[LeftOut], why: str, shown: Sequence[LeftOut], whole: bool, most: int = 10) -> None:
    """How many entries are left out, split by split, and some or all of those to be shown."""
    for split in dict.fromkeys(one.split for one in left):
        count = sum(one.split == split for one in left)
        lines = [one for one in shown if one.split == split]
        typer.echo(f"left out {count} of {split} that {why}{':' if lines else ''}", err=True)
        for one in lines if whole else lines[:most]:
            note = f" (is: {one.kept})" if one.kept not in ("", one.text) else ""
            typer.echo(f"  {one.text if one.text.strip() else '(empty)'}{note}", err=True)
        if not whole and len(lines) > most:
            typer.echo(f"  ... and {len(lines) - most} more: --verbose lists all", err=True)


def _import_androidworld(
    path: Path, names: Sequence[str], train_seeds: str, eval_seeds: str, family: str
) -> None:
    from distrl.evaluator.suites import androidworld as suite
    from distrl.evaluator.suites.files import write_file

    train, evaluation = suite.parse_seeds(train_seeds), suite.parse_seeds(eval_seeds)
    tasks = suite.import_tasks(names, train, evaluation, family)
    write_file(tasks, path)
    typer.echo(f"{path}: {_counts(tasks)}", err=True)
    known = suite.known_goals(tasks)
    if known:
        typer.echo(
            f"{len(known)} evaluation tasks read like a training task, as their parameters have few values: "
            f"{', '.join(sorted({task.template for task in known}))}",
            err=True,
        )


app.command("check")(check_tasks)


def _one_suite(named: str | None, option: str | None) -> str | None:
    """The suite, which may be given in two ways, if it is.

    Raises:
        ConfigError: They differ.
    """
    from distrl.core.errors import ConfigError

    if named is not None and option not in (None, named):
        raise ConfigError(f"{named} and --suite {option} are two suites.", "Give one of them.")
    return named if named is not None else option


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
